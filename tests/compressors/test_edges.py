"""Every compressor on awkward input: the error stays within its bound, nothing overflows, nothing divides by zero."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from testbed.compressors import make
from testbed.errors import DivergedError, TrainingError
from testbed.flat import Layout

from .examples import EVERY, MIXED, NAMES, gaussian

HUGE = 3.4e38
every = pytest.mark.parametrize("spec", EVERY, ids=NAMES)

AWKWARD: dict[str, list[float]] = {
    "one": [0.3],
    "one zero": [0.0],
    "one negative": [-2.5],
    "one huge": [HUGE],
    "one denormal": [1e-45],
    "zeros": [0.0] * 9,
    "minus zeros": [-0.0, 0.0, -0.0],
    "equal": [0.7] * 17,
    "equal negative": [-1e-3] * 8,
    "huge, both signs": [HUGE, -HUGE, 1e38, -1e38, 0.0],
    "huge, equal": [1e38] * 100,
    "denormals": [1e-45, -1e-45, 3e-42, 0.0, 1e-40],
    "tiny beside huge": [1e-45, 1e38, -1e-38, 1.0],
    "narrow around large": [1000.0, 1000.0001, 999.9999],
    "ties": [1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0],
}


def check(spec: object, x: NDArray[np.float32], layout: Layout, step: int = 3) -> None:
    """Round trip x, judged by the bound of its compressor, tensor by tensor, in fp64."""
    compressor = make(spec)
    codec = compressor.bind(layout, 11)
    dest = layout.zeros()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy's overflow and division warnings
        message = codec.compress(torch.from_numpy(x), step)
        codec.decompress_into(message, dest)
    assert message.shape == (codec.nbytes,)
    assert dest.isfinite().all()
    for slot in (slot for slot in layout.slots if slot.numel):
        true = x[slot.start : slot.stop].astype(np.float64)
        got = dest[slot.start : slot.stop].double().numpy()
        bound_holds(compressor, true, got)
        if not true.any():
            assert not got.any()


def bound_holds(compressor: object, true: NDArray[np.float64], got: NDArray[np.float64]) -> None:
    name = compressor.name  # type: ignore[attr-defined]
    error = np.abs(got - true)
    size = float(np.abs(true).max())
    slack = 1e-6 * size + 1e-44
    if name == "identity":
        assert not error.any()
    elif name == "fp16":
        fits = np.abs(true) < 65_504
        assert (error[fits] <= 2.0**-11 * np.abs(true[fits]) + 2.0**-25).all()
        assert (np.abs(got[~fits]) == 65_504).all()
    elif name == "bf16":
        assert (error <= 2.0**-8 * np.abs(true) + 1e-40).all()
    elif name == "quantize":
        delta = (true.max() - true.min()) / (2**compressor.bits - 1)  # type: ignore[attr-defined]
        assert (error <= delta * (0.5 if compressor.rounding == "nearest" else 1) + slack).all()  # type: ignore[attr-defined]
    elif name == "step":
        limit = compressor.step * (2 ** (compressor.bits - 1) - 1)  # type: ignore[attr-defined]
        assert (np.abs(got - true.clip(-limit, limit)) <= compressor.step + slack).all()  # type: ignore[attr-defined]
    elif name == "qsgd" and not compressor.scaled:  # type: ignore[attr-defined]
        norm = min(float(np.linalg.norm(true)), float(np.finfo(np.float32).max))
        assert (error <= norm / (2 ** (compressor.bits - 1) - 1) + slack).all()  # type: ignore[attr-defined]
    elif name == "qsgd":
        assert (np.abs(got) <= np.linalg.norm(true) + slack).all()
    elif name == "randomk" and compressor.unbiased:  # type: ignore[attr-defined]
        kept = got != 0
        gain = got[kept] / true[kept]
        saturated = np.abs(got[kept]) == np.finfo(np.float32).max
        normal = ~saturated & (np.abs(true[kept]) > 1e-30)
        assert np.allclose(gain[normal], gain[normal][:1])
    elif name == "topk" and compressor.values == "fp16":  # type: ignore[attr-defined]
        assert (np.abs(got) <= np.abs(true) * (1 + 2.0**-11) + 2.0**-25).all()
    elif name == "lowrank" and size > 1e36:
        assert np.linalg.norm(error) <= 1.01 * np.linalg.norm(true)  # Q saturates at the end of fp32
    else:  # sign, topk, randomk, lowrank contract
        assert np.linalg.norm(error) <= (1 + 1e-5) * np.linalg.norm(true) + slack


@every
@pytest.mark.parametrize("values", AWKWARD.values(), ids=AWKWARD)
def test_awkward_values(spec: object, values: list[float]) -> None:
    x = np.array(values, np.float32)
    check(spec, x, Layout.of([("x", (len(x),))]))


@every
def test_awkward_tensors_do_not_disturb_their_neighbours(spec: object) -> None:
    """All in one message, with empty tensors between, as vectors and as matrices of one row or one column."""
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for i, (name, values) in enumerate(AWKWARD.items()):
        shapes += [(name, ((len(values),), (len(values), 1), (1, len(values)))[i % 3]), (f"{name}, empty", (0,))]
    check(spec, np.concatenate([np.array(v, np.float32) for v in AWKWARD.values()]), Layout.of(shapes))


@every
def test_ordinary_values(spec: object) -> None:
    check(spec, gaussian(MIXED).numpy(), MIXED)


@every
@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40),
    cut=st.integers(0, 40),
    step=st.integers(0, 2**40),
)
@example(values=[1.0, -1.0], cut=1, step=0)
def test_any_finite_values(spec: object, values: list[float], cut: int, step: int) -> None:
    x = np.array(values, np.float32)
    cut = min(cut, len(x))
    check(spec, x, Layout.of([("head", (cut,)), ("tail", (len(x) - cut, 1))]), step)


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_is_refused_by_name(spec: object, bad: float) -> None:
    codec = make(spec).bind(MIXED, 1)
    for slot in (MIXED.slots[2], MIXED.slots[5]):
        x = gaussian(MIXED)
        x[slot.start + 1] = bad
        with pytest.raises(DivergedError, match=rf"{slot.name} holds NaN or Inf at step 42") as raised:
            codec.compress(x, 42)
        assert raised.value.step == 42


@every
def test_opposite_infinities_do_not_cancel(spec: object) -> None:
    x = gaussian(MIXED)
    x[3], x[4] = np.inf, -np.inf
    with pytest.raises(TrainingError, match="wide"):
        make(spec).bind(MIXED, 1).compress(x, 0)


@every
def test_huge_values_still_train_on(spec: object) -> None:
    """Their sum overflows fp32; that is no reason to refuse them."""
    x = torch.full((64,), 3e38)
    codec = make(spec).bind(Layout.of([("x", (8, 8))]), 1)
    dest = torch.zeros(64)
    codec.decompress_into(codec.compress(x, 0), dest, weight=0.1)
    assert dest.isfinite().all()
