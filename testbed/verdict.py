"""Judges whether the emulation was faithful, from what was asked and what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from testbed.link.netem import ideal_goodput

Grade = Literal["faithful", "suspect", "invalid"]
ORDER: tuple[Grade, ...] = ("faithful", "suspect", "invalid")

RTT_ABSOLUTE = 0.3e-3  # seconds
RTT_RELATIVE = 0.02
GOODPUT_RELATIVE = 0.02
INVALID_FACTOR = 5  # this many times the allowed deviation, and the result means nothing


@dataclass(frozen=True)
class Verdict:
    """A grade and everything that spoke against a better one."""

    grade: Grade
    reasons: tuple[str, ...] = ()

    def at(self, slow_motion: float) -> Verdict:
        """Return the same verdict for a cell in slow motion, which its reasons then say."""
        if slow_motion == 1:
            return self
        return Verdict(self.grade, tuple(f"{reason} (in slow motion, {slow_motion:g}×)" for reason in self.reasons))


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return all reasons and the worst grade."""
    found = list(verdicts)
    grade: Grade = max((verdict.grade for verdict in found), key=ORDER.index, default=ORDER[0])
    return Verdict(grade, tuple(reason for verdict in found for reason in verdict.reasons))


def _grade(what: str, deviation: float, allowed: float) -> Verdict:
    if deviation <= allowed:
        return Verdict("faithful")
    return Verdict("invalid" if deviation > INVALID_FACTOR * allowed else "suspect", (what,))


def judge_rtt(where: str, asked: float, measured: float | None, jitter: float = 0.0) -> Verdict:
    """Accept a deviation of at most 0.3 ms or 2 %, plus the jitter asked for."""
    if measured is None:
        return Verdict("invalid", (f"{where}: no packet came back",))
    allowed = max(RTT_ABSOLUTE, RTT_RELATIVE * asked) + jitter
    text = f"{where}: round trip {measured * 1e3:.2f} ms instead of {asked * 1e3:.2f} ms"
    return _grade(text, abs(measured - asked), allowed)


def judge_goodput(where: str, rate: float | None, measured: float | None, mtu: int = 1500) -> Verdict:
    """Accept a deviation of at most 2 % from what TCP can carry over that rate."""
    if rate is None or measured is None:
        return Verdict("faithful")
    asked = ideal_goodput(rate, mtu)
    text = f"{where}: {measured / 1e6:.2f} Mbit/s instead of {asked / 1e6:.2f} Mbit/s"
    return _grade(text, abs(measured - asked) / asked, GOODPUT_RELATIVE)


def judge_share(where: str, words: str, asked: float, measured: float | None, packets: int) -> Verdict:
    """Accept up to four standard deviations of a coin of that probability, at least 0.3 points. `words`: what happened
    to these packets."""
    if measured is None or packets == 0:
        return Verdict("faithful")
    allowed = max(0.003, 4 * (max(0.0, asked * (1 - asked)) / packets) ** 0.5)
    text = f"{where}: {measured:.2%} of the packets {words} instead of {asked:.2%}"
    return _grade(text, abs(measured - asked), allowed)


IDLE_SUSPECT = 0.10  # share of the processors left over; below it something waits for a core, if not the workers
STOLEN_SUSPECT = 0.05  # of all processors, by others on the same machine
BOX_SUSPECT, BOX_INVALID = 0.80, 0.95  # of one processor: a guest has no more, and a host moves no packet elsewhere
BYTES_RELATIVE = 0.03
QUEUED_SUSPECT = 0.10  # share of its time that a worker was ready to go on and had no processor
LATE_SUSPECT = 0.05  # share of the gradients that took longer than they were to take


def judge_load(idle: float | None, box_share: float | None, stolen: float | None = None) -> Verdict:
    """Judge whether the machine was too busy to emulate (medians over the cell)."""
    verdicts = []
    if idle is not None and idle < IDLE_SUSPECT:
        words = f"the processors were busy ({idle:.0%} idle): threads that carry messages may be late"
        verdicts.append(Verdict("suspect", (words,)))
    if stolen is not None and stolen > STOLEN_SUSPECT:
        words = f"this virtual machine was denied {stolen:.0%} of its processors: links and workers were late"
        verdicts.append(Verdict("suspect", (words,)))
    if box_share is not None and box_share > BOX_SUSPECT:
        grade: Grade = "invalid" if box_share > BOX_INVALID else "suspect"
        verdicts.append(Verdict(grade, (f"the box used {box_share:.0%} of a processor: links were slower than asked",)))
    return worst(verdicts)


def judge_compute(queued: float | None, late: float = 0.0) -> Verdict:
    """Judge whether workers computed as if each had a machine of its own."""
    verdicts = []
    if queued is not None and queued > QUEUED_SUSPECT:
        words = f"a worker was ready and had no processor {queued:.0%} of the time: this machine's doing, no network's"
        verdicts.append(Verdict("suspect", (words,)))
    if late > LATE_SUSPECT:
        words = f"{late:.0%} of the gradients took longer than the compute time asked for, which should be longer"
        verdicts.append(Verdict("suspect", (words,)))
    return worst(verdicts)


def judge_bytes(worker: str, trainer: int, port: int, resent: int = 0) -> Verdict:
    """Compare what the trainer sent with the payload that the kernel counted on the worker's port; more is expected
    where TCP retransmitted."""
    if trainer < 100_000:  # connection set-up would be most of it
        return Verdict("faithful")
    text = f"{worker}: {port / 1e6:.2f} MB of payload on its port, {trainer / 1e6:.2f} MB sent by the trainer"
    deviation = max(trainer - port, port - resent - trainer)
    return _grade(text, deviation / trainer, BYTES_RELATIVE)
