"""Messages read byte by byte with struct: the formats that the docstrings promise, not what our decoder believes."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from testbed.compressors import make
from testbed.flat import Layout
from testbed.seeds import derive

from .examples import decoded

LAYOUT = Layout.of([("a", (5,)), ("b", (2, 3))])
X = torch.tensor([0.5, -1.0, 3.0, 0.0, -0.0, 2.0, -4.0, 1.0, 0.25, -0.5, 8.0])


def message(spec: object) -> bytes:
    return bytes(make(spec).bind(LAYOUT, seed=5).compress(X, step=9).tolist())


def test_identity() -> None:
    assert message("identity") == struct.pack("<11f", *X.tolist())


def test_halves() -> None:
    assert message("fp16") == struct.pack("<11e", *X.tolist())
    assert message("bf16") == b"".join(struct.pack("<f", value)[2:] for value in X.tolist())  # all exact in bf16


def test_quantize_scales_first_then_levels_by_tensor() -> None:
    sent = message({"quantize": {"bits": 2, "rounding": "nearest"}})
    assert sent[:16] == struct.pack("<4f", -1, 3, -4, 8)
    # steps of 4/3 from −1 and of 4 from −4; four codes a byte, lowest bits first, each tensor on a byte of its own
    a, b = [1, 0, 3, 1, 1], [2, 0, 1, 1, 1, 3]
    assert sent[16:18] == bytes([a[0] | a[1] << 2 | a[2] << 4 | a[3] << 6, a[4]])
    assert sent[18:] == bytes([b[0] | b[1] << 2 | b[2] << 4 | b[3] << 6, b[4] | b[5] << 2])


def test_qsgd_norms_then_magnitude_with_the_sign_on_top() -> None:
    x = torch.tensor([3.0, -4.0, 0.0])
    codec = make({"qsgd": 4}).bind(Layout.of([("x", (3,))]), 0)
    codes = set()
    for step in range(20):
        sent = bytes(codec.compress(x, step).tolist())
        assert sent[:4] == struct.pack("<f", 5.0)
        codes.add((sent[4] & 15, sent[4] >> 4, sent[5]))
    assert {code[0] for code in codes} == {4, 5}  # 7·3/5 = 4.2
    assert {code[1] for code in codes} == {8 | 5, 8 | 6}  # 7·4/5 = 5.6, negative
    assert {code[2] for code in codes} == {0}


def test_sign_one_bit_string_over_all_tensors() -> None:
    sent = message("sign")
    assert sent[:8] == struct.pack("<2f", 4.5 / 5, 15.75 / 6)
    signs = [1, 0, 1, 1, 1, 1, 0, 1, 1, 0, 1]  # zero and minus zero count as positive
    assert sent[8:] == sum(bit << i for i, bit in enumerate(signs)).to_bytes(2, "little")


def test_topk_values_then_global_indices() -> None:
    assert message({"topk": 0.4}) == struct.pack("<4f", -1, 3, -4, 8) + struct.pack("<4i", 1, 2, 6, 10)
    assert message({"topk": {"fraction": 0.4, "values": "fp16"}}) == struct.pack("<4e4i", -1, 3, -4, 8, 1, 2, 6, 10)


def test_randomk_seed_then_values() -> None:
    sent = message({"randomk": 0.4})
    assert sent[:8] == derive(5, "noise", 9).to_bytes(8, "little")
    values = struct.unpack("<4f", sent[8:])
    codec = make({"randomk": 0.4}).bind(LAYOUT, seed=77)  # a peer, whose own seed does not matter
    dense = decoded(codec, torch.tensor(list(sent), dtype=torch.uint8))
    places = np.flatnonzero(np.isin(X.numpy(), values) & (dense == X).numpy())
    assert set(values) <= set(X[places].tolist())
    assert (dense != 0).sum() <= 4


def test_step_levels_only() -> None:
    x = torch.tensor([0.5, -0.25, 12.0])  # on the grid, so nothing is drawn
    for bits, code in ((8, "b"), (16, "h"), (32, "i")):
        codec = make({"step": {"step": 0.25, "bits": bits}}).bind(Layout.of([("x", (3,))]), 0)
        assert bytes(codec.compress(x, 0).tolist()) == struct.pack(f"<3{code}", 2, -1, 48)


def test_lowrank_all_p_then_all_q_then_vectors() -> None:
    layout = Layout.of([("bias", (2,)), ("M", (2, 3)), ("N", (2, 2))])
    M, N = torch.outer(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0, 2.0])), torch.tensor([[0.0, 0.0], [0.0, 7.0]])
    x = torch.cat([torch.tensor([5.0, 6.0]), M.flatten(), N.flatten()])
    codec = make({"lowrank": 1}).bind(layout, 0)
    numbers = struct.unpack("<11f", bytes(codec.compress(x, 0).tolist()))
    p_m, p_n, q_m, q_n, vectors = numbers[:2], numbers[2:4], numbers[4:7], numbers[7:9], numbers[9:]
    assert vectors == (5.0, 6.0)
    assert np.linalg.norm(p_m) == pytest.approx(1)
    assert np.outer(p_m, q_m) == pytest.approx(M.numpy(), abs=1e-5)
    assert np.outer(p_n, q_n) == pytest.approx(N.numpy(), abs=1e-5)
