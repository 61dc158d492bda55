"""The ring that `testbed bench network` builds, made by Mininet as its users would, to measure beside ours."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from testbed.link.shape import Shape
from testbed.network.measure import End

NEEDS = "apt-get install mininet"


def missing() -> str | None:
    """Why it cannot be measured here, where it cannot."""
    if os.geteuid() != 0:
        return "needs root"
    return None if shutil.which("mnexec") else f"no mnexec ({NEEDS})"


def build(workers: int, link: Shape | None) -> tuple[float, float]:
    """Seconds to make a router and a host each, and to remove them. Links without a shape are bare, as any kernel can
    have them. Unlike in ours, links have no addresses and there are no routes."""
    began = time.monotonic()
    net = _mininet()
    routers = [net.addHost(f"r{number}") for number in range(workers)]
    for number, router in enumerate(routers):
        net.addLink(router, routers[(number + 1) % workers], **_shaped(link))
        net.addLink(router, net.addHost(f"h{number}"))
    net.build()
    net.start()
    built = time.monotonic()
    net.stop()
    return built - began, time.monotonic() - built


@contextmanager
def neighbours(workers: int, link: Shape) -> Iterator[list[tuple[End, End]]]:
    """A ring of hosts with a TCLink between any two neighbours; both ends of every link."""
    net = _mininet()
    try:
        hosts = [net.addHost(f"h{number}") for number in range(workers)]
        links = [net.addLink(host, hosts[(n + 1) % workers], **_shaped(link)) for n, host in enumerate(hosts)]
        net.build()
        net.start()
        for number, made in enumerate(links):
            made.intf1.setIP(f"198.18.{number}.1", 30)
            made.intf2.setIP(f"198.18.{number}.2", 30)
        with ExitStack() as stack:
            yield [(_end(stack, made.intf1), _end(stack, made.intf2)) for made in links]
    finally:
        net.stop()


def _mininet() -> Any:
    from mininet.log import setLogLevel
    from mininet.net import Mininet

    setLogLevel("error")  # where tc refuses something it only says so, and goes on
    return Mininet(controller=None)


def _shaped(link: Shape | None) -> dict[str, Any]:
    from mininet.link import TCLink

    if link is None:
        return {}
    return {"cls": TCLink, "bw": (link.rate or 0) / 1e6, "delay": f"{link.latency * 1e3:g}ms"}


def _end(stack: ExitStack, interface: Any) -> End:
    namespace = os.open(f"/proc/{interface.node.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, namespace)
    return End(interface.name, namespace, interface.IP())
