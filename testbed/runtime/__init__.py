"""Isolates and starts workers: `process` (through the fork server) or `docker`, with limits and confinement.

`base` is the interface, `registry` knows the runtimes by name. Imports workers and networks; the run imports it.
"""
