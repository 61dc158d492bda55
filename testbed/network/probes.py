"""What was asked and measured between two workers: calibration fills it in, results and reports read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.link.counts import COUNTS
from testbed.verdict import Verdict, judge_share, worst


@dataclass(frozen=True)
class Counted:
    """A share of the packets sent."""

    asked: float
    measured: float | None = None


@dataclass(frozen=True)
class Way:
    """One direction of a probe: what was asked of it and what was measured."""

    rate: int | None
    loss: float
    goodput: float | None = None  # TCP; None: not measured
    lost: float | None = None
    packets: int = 0
    too_busy: bool = False  # the goodput could not be measured, as the sender was too slow
    counted: Mapping[str, Counted] = field(default_factory=dict)  # what else of link/counts.py was asked for
    whole: float = 1.0  # of what the link carries, the share that arrives undamaged

    @property
    def shares(self) -> dict[str, Counted]:
        """Return all of them, by their names in link/counts.py."""
        return {"lost": Counted(self.loss, self.lost), **self.counted}

    @property
    def disturbed(self) -> bool:
        """Whether something happens to some packets and not to others."""
        return any(one.asked for one in self.shares.values())

    def judge_shares(self, where: str) -> Verdict:
        return worst(
            judge_share(where, COUNTS[name].words, one.asked, one.measured, self.packets)
            for name, one in self.shares.items()
        )

    def asked(self, count: str) -> float:
        return self.shares[count].asked if count in self.shares else 0.0


@dataclass(frozen=True)
class Probe:
    """A pair of workers and the links between them."""

    source: str
    target: str
    links: tuple[str, ...]  # of the way there; more than one where a switch lies between
    latency: float  # there and back, seconds, with the echo's own transmission time
    jitter: float
    there: Way
    back: Way
    rtt: float | None = None
    spread: float = 0.0  # between the slowest and the fastest half of the echoes
    uses: frozenset[str] = frozenset()  # all links, of the way back too

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def may_be_silent(self) -> bool:
        """Whether missing echoes are expected: the link is down, or loses nearly all of them."""
        return (1 - self.there.loss) * (1 - self.back.loss) < 0.5

    @property
    def hops(self) -> int:
        return len(self.links)
