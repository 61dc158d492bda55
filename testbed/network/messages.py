"""Plan → netlink requests, encoded by pyroute2 and not yet sent: which router gets what, in which order. Pure.

The daemon encodes while the delay box still boots; the agent only sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from ipaddress import IPv4Interface, collapse_addresses
from typing import Any, NamedTuple

from pyroute2 import IPBatch

from testbed.link import netem
from testbed.link.shape import Shape
from testbed.network.agent import FIRST_NAMESPACE_FD, FIRST_PORT_INDEX, hardware_address, port_mac, port_name
from testbed.network.netem_options import NETEM, arguments
from testbed.network.netlink import split
from testbed.plan.model import LinkPlan, NetworkPlan, WorkerPlan

ROOT = -1  # the box's own namespace
FIRST_LINK_INDEX = 10_000  # interface indexes are ours to choose: end a of link i is 10000 + 2i
PERMANENT = 0x80  # a neighbour entry that is never probed
RTAX_RTO_MIN = 13  # the kernel's number of that metric of a route; unless it is locked, TCP does not look at it
RTO_MIN = 0.2  # seconds: what TCP has by itself
PARTITION_TABLE = 100  # of routes; asked first for packets that a router's own worker sends


class Message(NamedTuple):
    """One request: its router (or ROOT), what it does in words, its bytes in hexadecimal."""

    router: int
    label: str
    text: str


# How a qdisc is put on a link: batch, interface index, shape, reverse shape, MTU, the shape before (None: a new)
Attach = Callable[[IPBatch, int, Shape, Shape, int, Shape | None], None]


def _encode(router: int, label: str, fill: Callable[[IPBatch], None]) -> list[Message]:
    return [Message(router, label, data.hex()) for data in _requests(fill)]


def _requests(fill: Callable[[IPBatch], None]) -> list[bytes]:
    batch = _compiler()
    batch.reset()
    fill(batch)
    return split(bytes(batch.batch))


@cache
def _compiler() -> IPBatch:
    """Return one compiler for all: making one opens a socket and costs as much as encoding a request."""
    return IPBatch()


def netem_on(overhead: float, slow_motion: float = 1.0) -> Attach:
    """Return real shaping, in a box that itself adds `overhead` seconds to each link; shapes are in scenario time."""

    def attach(batch: IPBatch, index: int, shape: Shape, reverse: Shape, mtu: int, before: Shape | None) -> None:
        numbers = netem.netem(shape, reverse, mtu, overhead, slow_motion)
        shaped = before is not None and before.jitter_shape != "uniform"  # the kernel still has that table
        batch.tc(_command(before), NETEM, index=index, handle="1:", **arguments(numbers, with_table=shaped))

    return attach


def attach_pfifo(batch: IPBatch, index: int, shape: Shape, reverse: Shape, mtu: int, before: Shape | None) -> None:
    """Attach a plain queue in place of netem: for timing the build on a kernel without netem. Shapes nothing."""
    batch.tc(_command(before), "pfifo", index=index, handle="1:", limit=netem.limit_packets(shape, reverse, mtu))


def _command(before: Shape | None) -> str:
    return "add" if before is None else "change"


def link_messages(plan: NetworkPlan, attach: Attach) -> list[Message]:
    """Return everything between routers: links, addresses, neighbours, qdiscs, routes."""
    number = {name: i for i, name in enumerate(plan.routers)}
    messages: list[Message] = []
    for link in plan.links:
        messages += _one_link(link, number, plan.mtu, attach)
    for router, routes in plan.routes.items():
        for route in routes:
            link = plan.links[route.link]
            gateway = link.address_b if router == link.a else link.address_a
            oif = end_index(link, router)
            messages += _encode(
                number[router],
                f"route at {router} to {route.prefix}",
                lambda b, r=route, g=gateway, o=oif: b.route("add", dst=r.prefix, gateway=g, oif=o),  # type: ignore[misc]
            )
    return messages


def _one_link(link: LinkPlan, number: Mapping[str, int], mtu: int, attach: Attach) -> Iterator[Message]:
    label = f"link {link.name}"
    ends = (
        (link.a, link.address_a, link.address_b, link.ab, link.ba),
        (link.b, link.address_b, link.address_a, link.ba, link.ab),
    )

    def create(batch: IPBatch) -> None:
        batch.link(
            "add",
            index=end_index(link, link.a),
            ifname=_end_name(link, link.a),
            address=_end_mac(link, link.a),
            mtu=mtu,
            net_ns_fd=FIRST_NAMESPACE_FD + number[link.a],
            linkinfo=_veth_to(
                index=end_index(link, link.b),
                IFLA_IFNAME=_end_name(link, link.b),
                IFLA_ADDRESS=_end_mac(link, link.b),
                IFLA_MTU=mtu,
                IFLA_NET_NS_FD=FIRST_NAMESPACE_FD + number[link.b],
            ),
        )

    yield from _encode(ROOT, label, create)
    for router, own, other, shape, reverse in ends:
        index = end_index(link, router)
        peer = link.b if router == link.a else link.a

        def configure(
            batch: IPBatch,
            index: int = index,
            own: str = own,
            other: str = other,
            peer: str = peer,
            shape: Shape = shape,
            reverse: Shape = reverse,
        ) -> None:
            batch.addr("add", index=index, address=own, prefixlen=31)
            attach(batch, index, shape, reverse, mtu, None)
            batch.link("set", index=index, state="up")
            _know(batch, index, other, _end_mac(link, peer))

        yield from _encode(number[router], f"{label} at {router}", configure)


def move_messages(plan: NetworkPlan, ports: Mapping[int, int]) -> list[Message]:
    """Give each worker's port (its interface index in the box, by rank) to its router."""
    number = {name: i for i, name in enumerate(plan.routers)}
    messages: list[Message] = []
    for worker in plan.workers:
        index, router = ports[worker.rank], number[worker.router]
        messages += _encode(
            ROOT,
            f"port of {worker.name}",
            lambda b, i=index, r=router: b.link("set", index=i, net_ns_fd=FIRST_NAMESPACE_FD + r),  # type: ignore[misc]
        )
    return messages


def port_messages(plan: NetworkPlan, ports: Mapping[int, int]) -> list[Message]:
    """Set the workers' ports up in their routers."""
    number = {name: i for i, name in enumerate(plan.routers)}
    messages: list[Message] = []
    for worker in plan.workers:

        def configure(batch: IPBatch, index: int = ports[worker.rank], worker: WorkerPlan = worker) -> None:
            batch.addr("add", index=index, address=worker.gateway, prefixlen=30)
            batch.link("set", index=index, state="up")
            _know(batch, index, worker.address, hardware_address(3, worker.rank))

        messages += _encode(number[worker.router], f"port of {worker.name}", configure)
    return messages


def change_messages(plan: NetworkPlan, before: LinkPlan, link: LinkPlan, attach: Attach) -> list[Message]:
    """Set both ends of a link anew, under traffic and without losing a packet."""
    number = {name: i for i, name in enumerate(plan.routers)}
    messages: list[Message] = []
    for router, shape, reverse, old in ((link.a, link.ab, link.ba, before.ab), (link.b, link.ba, link.ab, before.ba)):

        def change(
            batch: IPBatch, router: str = router, shape: Shape = shape, reverse: Shape = reverse, old: Shape = old
        ) -> None:
            attach(batch, end_index(link, router), shape, reverse, plan.mtu, old)

        messages += _encode(number[router], f"link {link.name} at {router}", change)
    return messages


def partition_messages(
    plan: NetworkPlan, old: Mapping[str, Sequence[str]], new: Mapping[str, Sequence[str]]
) -> list[Message]:
    """Change from one partition to another; each lists, by worker, the workers it cannot reach.

    A worker's own router drops what it sends to them. Links stay as they are: traffic of others passes.
    """
    number = {name: i for i, name in enumerate(plan.routers)}
    named = {worker.name: worker for worker in plan.workers}
    messages: list[Message] = []
    for worker in plan.workers:
        before = _prefixes(named[name] for name in old.get(worker.name, ()))
        after = _prefixes(named[name] for name in new.get(worker.name, ()))

        def change(
            batch: IPBatch, worker: WorkerPlan = worker, before: set[str] = before, after: set[str] = after
        ) -> None:
            rule = {"src": worker.address, "src_len": 32, "table": PARTITION_TABLE, "priority": PARTITION_TABLE}
            if after and not before:
                batch.rule("add", **rule)
            for command, prefixes in (("add", after - before), ("del", before - after)):
                for prefix in sorted(prefixes):
                    batch.route(command, dst=prefix, table=PARTITION_TABLE, type="blackhole")
            if before and not after:
                batch.rule("del", **rule)

        messages += _encode(number[worker.router], f"partition at {worker.name}", change)
    return messages


def _prefixes(workers: Iterable[WorkerPlan]) -> set[str]:
    """Return the fewest prefixes that cover exactly these workers."""
    return {str(one) for one in collapse_addresses(IPv4Interface(f"{w.address}/30").network for w in workers)}


def worker_cable(end: int, namespace: int, worker: WorkerPlan, segments: int, mtu: int) -> list[bytes]:
    """Make, on the host, the veth from a worker's eth0 to the port p<rank>; both ends' namespaces are descriptors."""

    def create(batch: IPBatch) -> None:
        batch.link(
            "add",
            index=FIRST_PORT_INDEX + worker.rank,
            ifname=port_name(worker.rank),
            address=port_mac(worker.rank),
            mtu=mtu,
            net_ns_fd=end,
            linkinfo=_veth_to(
                index=2,
                IFLA_IFNAME="eth0",
                IFLA_ADDRESS=hardware_address(3, worker.rank),
                IFLA_MTU=mtu,
                IFLA_NET_NS_FD=namespace,
                IFLA_GSO_MAX_SEGS=segments,
            ),
        )

    return _requests(create)


def worker_side(worker: WorkerPlan, slow_motion: float = 1.0) -> list[bytes]:
    """Set up a worker's namespace: addresses, interfaces up, everything through the gateway. In slow motion the route
    sets TCP's least retransmission timeout; older kernels have no other way."""
    metrics = {}
    if slow_motion != 1:
        metrics = {"metrics": {"lock": 1 << RTAX_RTO_MIN, "rto_min": round(1000 * RTO_MIN * slow_motion)}}

    def configure(batch: IPBatch) -> None:
        batch.link("set", index=1, state="up")
        batch.addr("add", index=2, address=worker.address, prefixlen=30)
        batch.link("set", index=2, state="up")
        _know(batch, 2, worker.gateway, port_mac(worker.rank))
        batch.route("add", dst="0.0.0.0/0", gateway=worker.gateway, oif=2, **metrics)

    return _requests(configure)


def worker_segments(segments: int) -> bytes:
    """Set, in a worker's namespace, how many segments it may send as one super-packet."""
    (request,) = _requests(lambda batch: batch.link("set", index=2, gso_max_segs=segments))
    return request


def worker_moves(namespace: int) -> bytes:
    """Move a worker's eth0 from its namespace to another one, a descriptor. The device keeps its index, hardware
    address, MTU, GSO limits and counters; addresses and routes are left behind."""
    (request,) = _requests(lambda batch: batch.link("set", index=2, net_ns_fd=namespace))
    return request


def port_up(rank: int) -> list[bytes]:
    """Set the worker's port up, in the box's namespace."""
    return _requests(lambda batch: batch.link("set", index=FIRST_PORT_INDEX + rank, state="up"))


def end_index(link: LinkPlan, router: str) -> int:
    """Return the interface index of a link's end, unique over the whole network."""
    return FIRST_LINK_INDEX + 2 * link.index + (router == link.b)


def _end_name(link: LinkPlan, router: str) -> str:
    return f"l{link.index}{'b' if router == link.b else 'a'}"


def _end_mac(link: LinkPlan, router: str) -> str:
    return hardware_address(1, 2 * link.index + (router == link.b))


def _know(batch: IPBatch, index: int, address: str, mac: str) -> None:
    """Add a static neighbour: ARP over a slow or lossy link would be unwanted traffic, and on a busy machine a late
    answer makes a worker unreachable."""
    batch.neigh("add", ifindex=index, dst=address, lladdr=mac, state=PERMANENT)


def _veth_to(index: int, **attributes: Any) -> dict[str, Any]:
    """Return a veth whose peer has an index of our choice, which pyroute2's `peer=` cannot give."""
    peer = {"index": index, "attrs": list(attributes.items())}
    data = {"attrs": [("VETH_INFO_PEER", peer)]}
    return {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", data)]}
