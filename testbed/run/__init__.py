"""One `testbed up`: the controller, jobs, faults, failures, resuming, the live view.

Imports runtimes and results. The commands start it.
"""
