"""A simulated link for tests of pacing, round by round: a FIFO of some rate, and what TCP makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from testbed.worker.pacer import TICK, Seen

PACKET = 1448.0


@dataclass
class Link:
    """Of one direction; `rate` in payload bytes per second, `rtt` of the whole path, `buffer` in seconds."""

    rate: float
    rtt: float = 0.01
    buffer: float = 0.12
    loss: bool = False  # packets are lost, queue or not: TCP's window never carries the full rate
    noise: float = 0.01  # of goodput
    random: Random = field(default_factory=lambda: Random(1))

    def round(self, message: float, paces: Sequence[float | None]) -> list[Seen]:
        """Messages of several senders that begin together. TCP unpaced fills the queue and loses time."""
        wanted = [self.rate * 4 if pace is None else pace for pace in paces]
        ends, queue = self._share(message, wanted)
        seen = []
        for end, pace, speed in zip(ends, paces, wanted, strict=True):
            alone = self.random.uniform(0.55, 0.97) if pace is None else 1 - abs(self.random.gauss(0, self.noise))
            if self.loss:
                alone = min(alone, self.random.uniform(0.2, 0.5) * self.rate / min(speed, self.rate))
            busy = TICK * round((end / alone + self.rtt) / TICK)
            lost = PACKET * (self.loss or queue >= self.buffer)
            waiting = 0.0 if self.loss else queue
            delivery = min(speed, message / end) * self.random.uniform(0.95, 1.05) * (alone if self.loss else 1)
            seen.append(Seen(message, message, max(busy, TICK), self.rtt + waiting, self.rtt, delivery, lost))
        return seen

    def _share(self, message: float, wanted: Sequence[float]) -> tuple[list[float], float]:
        """When each message is through, and the longest queue in seconds: bytes of all leave in the order they came."""
        backlog, time, slice_ = 0.0, 0.0, message / max(wanted) / 200
        left, inside, ends, longest = [message] * len(wanted), [0.0] * len(wanted), [0.0] * len(wanted), 0.0
        while any(left) or backlog > 1e-6 * message:
            time += slice_
            for i, speed in enumerate(wanted):
                sent = min(left[i], speed * slice_, max(0.0, self.buffer * self.rate + self.rate * slice_ - backlog))
                left[i] -= sent
                left[i] = left[i] if left[i] > 1e-9 * message else 0.0
                inside[i] += sent
                backlog += sent
            leaving = min(backlog, self.rate * slice_)
            for i, own in enumerate(inside):
                inside[i] -= leaving * own / backlog if backlog else 0.0
                if not left[i] and not ends[i] and inside[i] <= 1e-6 * message:
                    ends[i] = time
            backlog -= leaving
            longest = max(longest, backlog / self.rate)
        return [end or time for end in ends], longest
