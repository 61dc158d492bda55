"""Why messages took longer than their floor, where the cause is known. The terminal table and the report print it."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.results.comparison import BASELINE, Line

# Times its floor that Gloo's all-reduce waits where latency counts: about twice. What is beyond has other reasons, such
# as a machine with too few processors.
HANDSHAKES = (1.5, 2.5)
PACED_RATIO, PACED_SECONDS = 1.25, 0.005  # beyond which it is not the machine that takes so long


def above_floor(lines: Sequence[Line]) -> str:
    """Explain why messages take so much longer than their floor, where they do and it is known; else return ""."""
    return " ".join(filter(None, [_asked_for_late(lines), _paced(lines)]))


def _paced(lines: Sequence[Line]) -> str:
    """Blame BBR: where there is nothing more to send, it knows no faster rate than a message per round trip, and sends
    the next one at 2.9 times that: over a third of a round trip, however short it is."""
    paced = [line for line in lines if line.congestion == "bbr" and line.method != BASELINE]
    times = [(line.exchange_s, line.floor_s, line.method) for line in paced if line.exchange_s and line.floor_s]
    late = [one for one in times if one[0] > PACED_RATIO * one[1] and one[0] - one[1] > PACED_SECONDS]
    if not late:
        return ""
    ratio, method = max((took / least, method) for took, least, method in late)
    return (
        f"{method}'s messages took {ratio:.1f} times their floor: TCP's congestion control is bbr "
        "here, which spreads a short message that comes alone over a third of a round trip. "
        "With network: {congestion: reno} it does not."
    )


def _asked_for_late(lines: Sequence[Line]) -> str:
    stock = [line for line in lines if line.method == BASELINE and line.backend == "gloo" and line.floor_s]
    times = [line.parts_s.get("wait", 0.0) / (line.floor_s or 1.0) for line in stock]
    found = [time for time in times if HANDSHAKES[0] < time <= HANDSHAKES[1]]
    if not found:
        return ""
    return (
        f"all-reduce waits {max(found):.1f} times its floor: Gloo sends each piece only once its receiver has asked "
        "for it, so a round takes a round trip where the floor counts one way. The method ring asks ahead."
    )
