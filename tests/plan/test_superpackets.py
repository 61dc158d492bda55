"""Workers' super-packets fit their links, also when the links change under way."""

from __future__ import annotations

import pytest
from network.examples import ends, network
from pyroute2 import IPRoute

from testbed.network import namespaces
from testbed.network.client import Client, start

pytestmark = [pytest.mark.netem, pytest.mark.usefixtures("own_state")]


def in_force(handle: Client) -> dict[str, int]:
    """As the workers' kernel has it."""
    segments = {}
    with ends(handle) as found:
        for name, end in found.items():
            with namespaces.inside(end.namespace), IPRoute() as route:
                (eth0,) = route.get_links(2)
            segments[name] = eth0.get_attr("IFLA_GSO_MAX_SEGS")
    return segments


def test_they_shrink_and_grow_with_the_links_beside_the_worker() -> None:
    handle, _ = start(network("{topology: chain, link: {latency: 1ms, rate: 1gbit}}", workers=3, name="chain"))
    try:
        built = handle.run(in_force)
        assert set(built.values()) == {44}
        handle.set_link("w0-w1", {"rate": 2_000_000}, {"rate": 2_000_000})
        assert handle.run(in_force) == {"w0": 1, "w1": 1, "w2": 44}
        assert handle.call("status")["gso_segments"] == {"w0": 1, "w1": 1, "w2": 44}
        handle.set_link("w0-w1", {"rate": 10_000_000_000}, {"rate": 10_000_000_000})
        assert handle.run(in_force) == built  # no more than the box's ports are made for
    finally:
        handle.close()
