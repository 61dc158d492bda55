"""Graphs: who is linked with whom and who gossips with whom, routes, addresses, mixing weights. Pure.

Imports scenarios. Methods read the gossip graph, plans build on all of it.
"""
