"""Finds how fast one end of a connection should send, from earlier rounds alone. Pure; pacing.py calls it.

Both directions of a link are busy at once in gossip. A sender that fills its own queue makes the acknowledgements of
the other direction wait behind its data; connections then lose packets and time unequally, and a step waits for the
slowest. A sender slightly below the rate of its bottleneck keeps the queue short, and all finish together.

The search: the first round is not paced and gives a rate. From there, some rounds send a few percent faster. Where the
bytes really arrive faster, the higher rate is kept and the next step is larger; where a queue grows instead, the old
rate is kept. Where a path delivers less than it is sent and its queue is long, its rate has fallen, or others share it:
the delivered rate becomes the rate. A message that is short against the path's bandwidth-delay product fits into the
path: pacing it would only make it late.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from statistics import fmean

LONG, SHORT = 3.0, 2.0  # bandwidth-delay products: paced from the one on, and no longer below the other
SLOWEST = 4000.0  # bytes per second; below, a packet takes so long that timers would think it lost
START = 1.15  # times the goodput of a round that was not paced, at most
FIRST_STEP, LARGEST_STEP = 0.04, 0.32  # by which a rate is raised to see whether it is carried
REST = 8  # rounds between tries where the last one failed
TICK = 0.004  # seconds to which kernels count busy time
TOLERANCE = 0.015  # share of a rate by which what is delivered may vary
QUEUE_SHARE, QUEUE_RTT, QUEUE_SECONDS = 0.02, 0.25, 0.001  # of a round, of a round trip, at least: no queue to speak of
MARGIN = 0.98  # of what was delivered while a queue grew
OFTEN, MOST_SHORT = 2, 7  # rounds with a queue whose mean must fall short, and how many are looked back on
FEW, STEADY = 2, 0.8  # messages of a round that show a rate by themselves; share of it that more of them must reach
LOSSY_REST = 16  # rounds without pacing on a path that loses packets without a queue


@dataclass(frozen=True)
class Seen:
    """One round of one direction of a connection: the kernel's counters at its end, less those at its start."""

    message: float  # bytes of its longest message
    acked: float  # bytes
    busy: float  # seconds in which data was under way
    rtt: float  # seconds, smoothed, at the end
    min_rtt: float
    delivery_rate: float  # bytes per second of the last round trip that was not short of data; 0: not known
    lost: float = 0.0  # bytes sent again
    held_up: float = 0.0  # seconds of `busy` in which the receiver took no more
    messages: int = 1
    ahead: bool = False  # other messages of the same worker took clearly longer

    @property
    def sensible(self) -> bool:
        """Whether a rate can be read off it: no counter ran backwards, and enough was sent."""
        values = [float(getattr(self, one.name)) for one in fields(self)]
        return (
            all(isfinite(value) and value >= 0 for value in values)
            and self.acked >= max(1.0, self.message / 2)
            and self.busy > 0
            and self.held_up < self.busy / 4
        )

    @property
    def goodput(self) -> float:
        """Return bytes per second without the round trip in which the last of them was acknowledged."""
        return self.acked / max(self.busy - self.min_rtt, self.busy / 2)

    @property
    def scattered(self) -> bool:
        """Whether there were several messages with pauses between them: goodput then shows how long the pauses were,
        not what the path carries."""
        return self.messages > FEW and self.goodput < STEADY * self.delivery_rate

    @property
    def burst(self) -> float:
        """Return the bytes sent in one go. Messages that follow each other without pauses are one long one."""
        return self.acked if self.messages > FEW and not self.scattered else self.message

    @property
    def doubt(self) -> float:
        """Return the share of the goodput by which it may be wrong, as busy time is counted in ticks."""
        return TICK / self.busy

    @property
    def queued(self) -> bool:
        """Whether there was a queue at the end."""
        least = max(QUEUE_SHARE * self.busy, QUEUE_RTT * self.min_rtt, QUEUE_SECONDS)
        return self.rtt - self.min_rtt > least


class Pacer:
    """The rate of one direction of a connection."""

    def __init__(self, phase: int = 0) -> None:
        """`phase`: 0 at one end and 1 at the other, so that they try higher rates at different times: each sees the
        other's queue in its own round trips."""
        self.rate: float | None = None  # bytes per second now; None: as fast as TCP likes
        self.found: float | None = None  # the highest that was carried
        self._usual = 0.0  # goodput at that rate
        self._phase = phase
        self._step = FIRST_STEP
        self._round = 0
        self._rest = 0  # rounds for which nothing is tried
        self._short: list[float] = []  # goodput of rounds with a queue, since the last without

    def next(self, seen: Seen) -> float | None:
        """Return the rate of the coming round."""
        self._round += 1
        if not seen.sensible:
            return self.rate
        self._rest = max(0, self._rest - 1)
        if self.found is None:
            self._begin(seen)
        elif seen.scattered or seen.burst < SHORT * self.found * seen.min_rtt:
            self.found, self._rest = None, REST
        elif self.rate is not None and self.rate > self.found:
            self._judge(seen, self.found, self.rate)
        else:
            self._watch(seen, self.found)
        self.rate = None if self.found is None else self._coming(seen, self.found)
        return self.rate

    def _begin(self, seen: Seen) -> None:
        """Choose a rate after an unpaced round. Goodput suffers from what pacing is to prevent; the kernel's own
        estimate of the last round trip does not, but is far too high at times."""
        likely = max(seen.goodput, seen.delivery_rate)
        if self._rest or seen.scattered or seen.burst < LONG * likely * seen.min_rtt:
            return
        rate = MARGIN * min(likely, START * seen.goodput)
        self._keep(rate, rate)

    def _judge(self, seen: Seen, found: float, rate: float) -> None:
        """Judge a round that was tried faster."""
        quiet = not (seen.queued or seen.lost)
        carried = seen.goodput >= rate * (1 - TOLERANCE)
        if carried or (quiet and seen.goodput >= self._usual * (1 - seen.doubt)):
            self._keep(rate, seen.goodput)
            self._step = min(2 * self._step, LARGEST_STEP)
        elif not quiet:
            if seen.goodput * MARGIN > found:  # between both: the queue shows what the path carries
                self._keep(seen.goodput * MARGIN, seen.goodput * MARGIN)
            self._step = FIRST_STEP
            self._rest = REST - (self._round + self._phase * REST // 2) % REST
            self._watch(seen, found)
        # else something other than the path was too slow: try again

    def _watch(self, seen: Seen, found: float) -> None:
        """Watch a round at the rate found, or a faster one that did not help."""
        quiet = not (seen.queued or seen.lost)
        enough = found * (1 - TOLERANCE - seen.doubt)
        if self.rate == found and (quiet or seen.goodput >= enough):
            self._usual = (self._usual + seen.goodput) / 2
        if quiet:
            self._short.clear()
            return
        if seen.goodput < enough:
            self._step = FIRST_STEP
            self._rest = max(self._rest, 1)
        if seen.delivery_rate >= enough > seen.goodput:
            return  # only late: a longer way makes goodput less than the rate, and queues of the other direction do
        self._short = [*self._short[-MOST_SHORT:], seen.goodput]
        rounds, mean = len(self._short), fmean(self._short)
        if rounds < OFTEN or mean >= found * (1 - TOLERANCE - seen.doubt * OFTEN / rounds):
            return
        if seen.lost and not seen.queued:  # TCP's window is the limit, and pacing would keep it from growing
            self.found, self._rest = None, LOSSY_REST
            self._short.clear()
        else:
            rate = max(found / 2, mean)
            self._keep(rate, rate)

    def _keep(self, rate: float, usual: float) -> None:
        self.found, self._usual = max(SLOWEST, rate), usual
        self._short.clear()

    def _coming(self, seen: Seen, found: float) -> float:
        if self._rest or (seen.ahead and self._round % (4 * REST)):
            return found
        return found * (1 + self._step)
