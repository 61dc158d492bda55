"""Scenario → Plan: networks with addresses, routes and queues, and the cells to run. Pure: touches no system.

`model` is the plan as plain data and cheap to import; `make` builds it. Imports scenarios, topologies, tasks and
methods; everything that touches the system takes a plan.
"""
