"""Paces a worker's connections: once per step and edge, the counters go to a Pacer and its rate to the kernel.

Neither content nor order of messages changes, only when the kernel sends packets. Each end paces what it sends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from testbed.worker.pacer import Pacer, Seen
from testbed.worker.sockets import Connection, Counters, counters, limit_rate

AHEAD = 0.9  # of the time that the worker's slowest messages took


@dataclass
class _Paced:
    """This worker's end of one edge."""

    connection: Connection
    pacer: Pacer
    before: Counters
    step: int = -1  # in which it last sent
    message: int = 0  # bytes of the longest in that step
    messages: int = 0  # of that step
    busy: float = 0.0  # seconds, in the step before
    rate: float | None = field(default=None)  # as set in the kernel


class Pacing:
    """All edges of a worker that may be paced."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._edges: dict[int, _Paced] = {}

    def adopt(self, addresses: Mapping[int, str], opened: Collection[Connection]) -> None:
        """Adopt the connections that were opened to peers at these addresses. Ambiguous ones are left alone: several
        workers on one address, as on loopback."""
        for peer, address in addresses.items():
            self.drop(peer)
            found = [one for one in opened if one.there[0] == address]
            now = counters(found[0]) if len(found) == 1 and list(addresses.values()).count(address) == 1 else None
            if now is not None:
                self._edges[peer] = _Paced(found[0], Pacer(phase=int(self._rank > peer)), now)

    def drop(self, peer: int) -> None:
        self._edges.pop(peer, None)

    def sending(self, peer: int, nbytes: int, step: int) -> None:
        """Call before each message: the first of a step evaluates the step before."""
        edge = self._edges.get(peer)
        if edge is None:
            return
        if edge.step == step:
            edge.message, edge.messages = max(edge.message, nbytes), edge.messages + 1
            return
        self._look_back(peer, edge)
        edge.step, edge.message, edge.messages = step, nbytes, 1

    @property
    def rates(self) -> dict[int, float | None]:
        """Return the rate found, by peer; None where messages are not paced."""
        return {peer: edge.pacer.found for peer, edge in self._edges.items()}

    def _look_back(self, peer: int, edge: _Paced) -> None:
        now = counters(edge.connection)
        if now is None:
            self.drop(peer)
            return
        then, edge.before = edge.before, now
        if edge.step < 0:
            return  # connecting, and what the method exchanged to begin with
        edge.busy = now.busy - then.busy
        slowest = max(one.busy for one in self._edges.values())
        seen = Seen(
            message=edge.message,
            acked=now.acked - then.acked,
            busy=edge.busy,
            rtt=now.rtt,
            min_rtt=now.min_rtt,
            delivery_rate=now.delivery_rate,
            lost=now.sent_again - then.sent_again,
            held_up=now.held_up - then.held_up,
            messages=edge.messages,
            ahead=edge.busy < AHEAD * slowest,
        )
        rate = edge.pacer.next(seen)
        if rate != edge.rate and limit_rate(edge.connection, rate):
            edge.rate = rate
