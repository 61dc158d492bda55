"""Methods: how the workers agree. One file each, named after its paper; `make` turns a scenario's value into one."""

from testbed.methods.base import Channel, Method, ModulePeer, Peer
from testbed.methods.registry import available, make

__all__ = ["Channel", "Method", "ModulePeer", "Peer", "available", "make"]
