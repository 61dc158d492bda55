"""Tables of delays as netem reads them. Pure."""

from __future__ import annotations

from statistics import fmean, median, pstdev

import pytest

from testbed.link.distributions import SCALE, SIZE, table
from testbed.link.shape import DISTRIBUTIONS

shaped = pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if name != "uniform"])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_entries_fit_into_sixteen_bits_and_are_in_order(name: str) -> None:
    entries = table(name)
    assert len(entries) == SIZE
    assert list(entries) == sorted(entries)
    assert -(2**15) <= entries[0] < 0 < entries[-1] < 2**15


@shaped
def test_the_mean_is_no_delay_and_the_spread_is_what_was_asked_for(name: str) -> None:
    values = [entry / SCALE for entry in table(name)]
    assert fmean(values) == pytest.approx(0, abs=1e-4)
    assert pstdev(values) == pytest.approx(1, abs=1e-3)


def test_the_uniform_table_is_what_netem_draws_without_one() -> None:
    values = [entry / SCALE for entry in table("uniform")]
    assert (min(values), max(values)) == pytest.approx((-1, 1), abs=1e-3)
    assert pstdev(values) == pytest.approx(3**-0.5, abs=1e-3)


def test_a_normal_table_has_normal_quantiles() -> None:
    values = [entry / SCALE for entry in table("normal")]
    assert values[int(0.975 * SIZE)] == pytest.approx(1.96, abs=0.01)
    assert values[int(0.16 * SIZE)] == pytest.approx(-0.994, abs=0.01)


def test_a_pareto_table_has_most_packets_early_and_few_much_later() -> None:
    pareto, mixed, normal = ([entry / SCALE for entry in table(name)] for name in ("pareto", "paretonormal", "normal"))
    assert median(pareto) < median(mixed) < median(normal) + 1e-6
    assert min(normal) < min(mixed) < min(pareto)
    assert max(pareto) > 3.99 > max(normal)
    low, high = (pareto[int(share * SIZE)] - pareto[0] for share in (0.5, 0.875))  # 2^⅓ - 1 and 8^⅓ - 1 of its least
    assert high / low == pytest.approx(1 / (2 ** (1 / 3) - 1), rel=0.02)
