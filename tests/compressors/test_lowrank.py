"""Low rank: exact where the rank suffices, better from step to step, and never stuck at zero."""

from __future__ import annotations

from itertools import pairwise

import torch

from testbed.compressors import make
from testbed.flat import Layout

from .examples import decoded, gaussian, round_trip

LAYOUT = Layout.of([("kernel", (6, 5, 2, 2)), ("bias", (6,))])


def error(got: torch.Tensor, x: torch.Tensor) -> float:
    return float((got - x).norm() / x.norm())


def test_full_rank_is_exact() -> None:
    x = gaussian(LAYOUT)
    assert error(round_trip({"lowrank": 6}, x, LAYOUT), x) < 1e-6
    assert make({"lowrank": 6}).bind(LAYOUT, 0).nbytes == make({"lowrank": 99}).bind(LAYOUT, 0).nbytes


def test_a_matrix_of_that_rank_is_exact_at_once() -> None:
    layout = Layout.of([("M", (40, 30))])
    draws = gaussian(Layout.of([("P", (40, 2)), ("Q", (2, 30))]))
    x = (draws[:80].view(40, 2) @ draws[80:].view(2, 30)).flatten()
    assert error(round_trip({"lowrank": 2}, x, layout), x) < 1e-5
    assert error(round_trip({"lowrank": 1}, x, layout), x) > 0.1


def test_vectors_travel_exactly() -> None:
    x = gaussian(LAYOUT)
    assert torch.equal(round_trip({"lowrank": 1}, x, LAYOUT)[-6:], x[-6:])


def test_warm_start_improves_from_step_to_step() -> None:
    layout = Layout.of([("M", (60, 50))])
    x = gaussian(layout)
    codec = make({"lowrank": 2}).bind(layout, 1)
    errors = [error(decoded(codec, codec.compress(x, step)), x) for step in range(15)]
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(errors))
    assert errors[-1] < errors[0] - 0.01


def test_more_iterations_are_more_steps() -> None:
    layout = Layout.of([("M", (60, 50))])
    x = gaussian(layout)
    once, thrice = (error(round_trip({"lowrank": {"rank": 2, "iterations": n}}, x, layout), x) for n in (1, 3))
    assert thrice < once


def test_zeros_do_not_freeze_it() -> None:
    """Equal models differ by zero; a power iteration that keeps Q = Mᵀ·P = 0 would never send anything again."""
    layout = Layout.of([("M", (8, 8))])
    codec = make({"lowrank": 1}).bind(layout, 1)
    for step in range(3):
        assert not decoded(codec, codec.compress(layout.zeros(), step)).any()
    x = layout.zeros()
    x[8 * 5 + 3] = 2.0  # one entry, in a row that unit vectors would not meet
    assert error(decoded(codec, codec.compress(x, 3)), x) < 1e-5


def test_columns_that_die_alone_are_drawn_anew() -> None:
    layout = Layout.of([("M", (8, 8))])
    codec = make({"lowrank": 2}).bind(layout, 1)
    one = layout.zeros()
    one[0] = 1.0
    for step in range(3):
        codec.compress(one, step)
    two = one.clone()
    two[8 * 4 + 4] = 1.0
    for step in range(3, 6):
        message = codec.compress(two, step)
    assert error(decoded(codec, message), two) < 1e-3


def test_loaded_state_is_a_copy() -> None:
    codec = make({"lowrank": 1}).bind(LAYOUT, 1)
    codec.compress(gaussian(LAYOUT), 0)
    state = codec.state()
    assert set(state) == {"kernel"}
    kept = state["kernel"].clone()
    codec.compress(gaussian(LAYOUT, 1), 1)
    assert torch.equal(state["kernel"], kept)
