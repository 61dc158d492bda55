"""What happens to numbered packets on their way: how many should be lost, duplicated or early, and how many of a train
were. Pure; the calibration compares the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from testbed.link.shape import Shape


@dataclass(frozen=True)
class Count:
    """A share of the packets sent."""

    words: str  # "so many of the packets …"
    expected: Callable[[Sequence[Shape]], float]  # over these links, one after another
    seen: Callable[[Sequence[int], int], float]  # the packets' numbers as they arrived; how many were sent
    needs_others: bool = False  # it only shows where the next packet leaves before the last one has arrived


def _copies(shape: Shape) -> tuple[float, float, float]:
    """Return the probabilities of 0, 1 or 2 copies leaving a link, as netem draws: a packet doubled and lost is one
    packet; the copy may be lost itself; each may be corrupted, which the receiver's checksum notices."""
    if not shape.up:
        return 1.0, 0.0, 0.0
    whole, second = 1 - shape.corrupt, (1 - shape.loss) * (1 - shape.corrupt)
    single = (1 - shape.duplicate) * (1 - shape.loss) + shape.duplicate * shape.loss
    double = shape.duplicate * (1 - shape.loss)
    two = double * whole * second
    one = single * whole + double * (whole * (1 - second) + (1 - whole) * second)
    return 1 - one - two, one, two


def lost(shapes: Sequence[Shape]) -> float:
    """Return the probability that nothing of a packet arrives: none of its copies, from the last link to the first."""
    missing = 0.0
    for shape in reversed(shapes):
        none, one, two = _copies(shape)
        missing = none + one * missing + two * missing**2
    return missing


def whole(shapes: Sequence[Shape]) -> float:
    """Return the share that arrives undamaged of what occupies the link."""
    return prod(1 - shape.corrupt for shape in shapes)


def _repeated(shapes: Sequence[Shape]) -> float:
    mean = prod(one + 2 * two for _, one, two in map(_copies, shapes))
    return max(0.0, mean - (1 - lost(shapes)))


def _early(shapes: Sequence[Shape]) -> float:
    return (1 - lost(shapes)) * (1 - prod(1 - shape.reorder for shape in shapes))


def early_ones(numbers: Sequence[int]) -> set[int]:
    """Return the packets that arrived before one that was sent earlier. Second copies do not count."""
    first = list(dict.fromkeys(numbers))
    lowest, found = float("inf"), set()
    for number in reversed(first):
        if number > lowest:
            found.add(number)
        lowest = min(lowest, number)
    return found


COUNTS: Mapping[str, Count] = {
    "lost": Count("lost", lost, lambda numbers, sent: 1 - len({*numbers}) / sent),
    "repeated": Count("repeated", _repeated, lambda numbers, sent: (len(numbers) - len({*numbers})) / sent),
    "early": Count("early", _early, lambda numbers, sent: len(early_ones(numbers)) / sent, True),
}
