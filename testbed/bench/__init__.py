"""Benchmarks of this machine, each figure beside its reference: `testbed bench`.

May import everything but `commands`, which runs it.
"""
