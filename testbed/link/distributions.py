"""Tables of random delays, as netem reads them: it draws an entry t uniformly and delays by latency + jitter · t /
SCALE.

An entry is a quantile of the distribution. Each table has mean 0 and, in units of SCALE, the standard deviation 1 that
scenarios mean by jitter, after what 16 bits cannot hold (beyond 4 standard deviations) has been cut off. The uniform
one is what netem draws without a table, between -1 and 1: tables cannot be removed, only replaced. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import sqrt
from statistics import NormalDist, fmean, pstdev

SCALE = 8192  # the kernel's NETEM_DIST_SCALE
SIZE = 2048  # entries; the kernel takes up to 16384, and every change of a link carries them
HIGHEST = 32767 / SCALE
TAIL = 3.0  # Pareto's exponent; netem's own table has the same. The variance is finite above 2
ROUNDS = 50  # of cutting off and stretching again, which converges much sooner


def _normal(share: float) -> float:
    return NormalDist().inv_cdf(share)


def _pareto(share: float) -> float:
    """Return quantiles of a Pareto distribution with minimum 1, standardised: mean 0, standard deviation 1."""
    mean, deviation = TAIL / (TAIL - 1), sqrt(TAIL / (TAIL - 2)) / (TAIL - 1)
    return float(((1 - share) ** (-1 / TAIL) - mean) / deviation)


def _paretonormal(share: float) -> float:
    """Return quantiles of both, one to three, as netem's own table mixes them."""
    return 0.25 * _normal(share) + 0.75 * _pareto(share)


QUANTILES: Mapping[str, Callable[[float], float]] = {
    "normal": _normal,
    "pareto": _pareto,
    "paretonormal": _paretonormal,
}


@cache
def table(name: str) -> tuple[int, ...]:
    """Return the entries, in 16 bits each."""
    shares = [(number + 0.5) / SIZE for number in range(SIZE)]
    if name == "uniform":
        return tuple(round(SCALE * (2 * share - 1)) for share in shares)
    values = [QUANTILES[name](share) for share in shares]
    for _ in range(ROUNDS):
        mean, deviation = fmean(values), pstdev(values)
        values = [min(HIGHEST, max(-HIGHEST, (value - mean) / deviation)) for value in values]
    return tuple(round(SCALE * value) for value in values)
