"""The agent of a box: makes router namespaces, sends encoded netlink requests into them, reads their counters.

The same program serves both boxes: a child process of the daemon (host box), or the first process of the guest kernel
(delay box). It reads one JSON request per line and answers with one line behind an "@"; other lines are the kernel's.
Standard library only, and as little of it as possible: what is imported here is imported by a slow guest.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import termios
import tty
from typing import Any

from testbed.network import namespaces, sysctls
from testbed.network.netlink import Netlink

FIRST_NAMESPACE_FD = 400  # router i's namespace is descriptor 400 + i, so that requests can be encoded beforehand
FIRST_PORT_INDEX = 1_000  # worker i's port in the box has interface index 1000 + i (host box)
ETHTOOL_SET_GRO = 0x2C
MODULES = ("kernel/drivers/net/veth.ko", "kernel/net/sched/sch_netem.ko")


def port_name(rank: int) -> str:
    """Return the name of the box's end of a worker's cable."""
    return f"p{rank}"


def hardware_address(kind: int, number: int) -> str:
    """Return a locally administered address of our choice: 1 for ends of links, 2 for ports, 3 for workers."""
    return f"02:{kind:02x}:" + ":".join(f"{number >> shift & 255:02x}" for shift in (24, 16, 8, 0))


def port_mac(rank: int) -> str:
    """Return the address of the router's interface to a worker; workers know it, so ARP is not needed."""
    return hardware_address(2, rank)


class Agent:
    """Executes requests; each public method is one."""

    def __init__(self) -> None:
        self._root = Netlink()
        self._routers: list[Netlink] = []

    def routers(self, count: int) -> dict[str, str]:
        """Make the router namespaces with their kernel settings."""
        allow_descriptors(FIRST_NAMESPACE_FD + 2 * count + 100)
        for number in range(count):
            try:
                fd = namespaces.create()
            except OSError as error:  # of memory, or of what the kernel allows
                raise OSError(error.errno, f"no room for router {number + 1} of {count}: {error.strerror}") from error
            os.dup2(fd, FIRST_NAMESPACE_FD + number)
            os.close(fd)
        chosen: dict[str, str] = {}
        for number in range(count):  # only now: a socket must not take a number that is meant for a namespace
            with namespaces.inside(FIRST_NAMESPACE_FD + number):
                self._routers.append(Netlink())
                chosen = sysctls.apply(sysctls.ROUTER)
        return chosen

    def interfaces(self) -> dict[str, int]:
        """Return the index by name of interfaces outside the routers: the ports, before their routers get them."""
        return {link.name: link.interface for link in self._root.links()}

    def no_merging(self, interfaces: list[str]) -> None:
        """Switch generic receive offload off."""
        for name in interfaces:
            namespaces.ethtool(name, ETHTOOL_SET_GRO, 0)

    def send(self, messages: list[tuple[int, str, str]]) -> None:
        """Send requests (router or -1, label, hexadecimal bytes) in order."""
        for router, label, text in messages:
            target = self._root if router < 0 else self._routers[router]
            try:
                target.request(bytes.fromhex(text))
            except OSError as error:
                raise OSError(error.errno, f"{label}: {error.strerror}") from error

    def counters(self) -> list[tuple[int, ...]]:
        """Count (router, interface index, bytes, packets, drops, backlog bytes and packets) of every shaped link
        end."""
        return [(number, *stats) for number, router in enumerate(self._routers) for stats in router.qdiscs()]

    def ports(self) -> list[tuple[object, ...]]:
        """Return (router, index, name, packets and bytes in and out, drops) of every interface of every router."""
        return [(number, *stats) for number, router in enumerate(self._routers) for stats in router.links()]


def allow_descriptors(count: int) -> int:
    """Allow as many descriptors as needed, where we may; return how many are allowed now."""
    soft, hard = (
        count if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    if soft >= count:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(count, hard)))
    except (ValueError, PermissionError):  # only root may lift the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return count


def serve(agent: Agent) -> None:
    """Answer requests until the other side closes. Long ones come in a file; an answer carries its request's number."""
    _answer({"number": 0, "ready": os.uname().release})
    for line in sys.stdin:
        if not line.strip():  # only meant to wake this kernel
            continue
        request: dict[str, Any] = json.loads(line)
        if "file" in request:
            with open(request["file"]) as stored:
                request = json.load(stored)
        operation, number = request.pop("op"), request.pop("number")
        try:
            _answer({"number": number, "result": getattr(agent, operation)(**request)})
        except OSError as error:
            _answer({"number": number, "error": str(error)})
        except Exception as error:  # noqa: BLE001 - the box must answer whatever happens; the daemon raises it
            _answer({"number": number, "error": f"{type(error).__name__}: {error}"})


def _answer(data: dict[str, Any]) -> None:
    sys.stdout.write("@" + json.dumps(data, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def serve_host() -> None:
    """Serve in this kernel: a child of the daemon that ends with it."""
    namespaces.die_with_parent()
    serve(Agent())


def serve_guest() -> None:
    """Serve in the guest: as init, which must make the mounts and load the modules, over a console that passes raw
    bytes."""
    tty.setraw(0, termios.TCSANOW)
    namespaces.mount("proc", "/proc", "proc")
    folder = f"/usr/lib/uml/modules/{os.uname().release}/"
    for module in MODULES:
        namespaces.load_module(folder + module)
    serve(Agent())
