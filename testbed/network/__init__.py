"""A plan's network as real links: the daemon that holds it, the box it lives in, netlink, calibration.

`client` starts a network and talks to it; `daemon` is the process behind it; `box` is this kernel or the guest.
Imports plans and what lies below. Workers and runtimes, the run and the commands import it.
"""
