"""Codes of 1…8 bits: exact round trips at any length, and the documented order of bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from testbed.compressors.packing import pack, padded, unpack


def packed(codes: list[int], bits: int, xp: object) -> list[int]:
    room = np.full(padded(len(codes)), 255, np.uint8)  # rubbish beyond the end must not matter
    room[: len(codes)] = codes
    out = np.full(-(-len(codes) * bits // 8), 255, np.uint8)
    if xp is np:
        pack(np, room, len(codes), bits, out)
    else:
        pack(torch, torch.from_numpy(room), len(codes), bits, torch.from_numpy(out))
    return out.tolist()


def unpacked(data: list[int], count: int, bits: int, xp: object) -> list[int]:
    room = np.full(padded(count), 255, np.uint8)
    raw = np.array(data, np.uint8)
    if xp is np:
        unpack(np, raw, count, bits, room)
    else:
        unpack(torch, torch.from_numpy(raw), count, bits, torch.from_numpy(room))
    codes: list[int] = room[:count].tolist()
    return codes


def bit_string(codes: list[int], bits: int) -> list[int]:
    """The definition: code i is bits b·i … b·i+b−1 of a little-endian number."""
    number = sum(code << bits * i for i, code in enumerate(codes))
    return list(number.to_bytes(-(-len(codes) * bits // 8), "little"))


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize("bits", range(1, 9))
@given(data=st.data())
def test_round_trip_and_order(bits: int, xp: object, data: st.DataObject) -> None:
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=70))
    packed_ = packed(codes, bits, xp)
    assert packed_ == bit_string(codes, bits)
    assert unpacked(packed_, len(codes), bits, xp) == codes


def test_low_nibble_first() -> None:
    assert packed([1, 2, 15], 4, np) == [0x21, 0x0F]


def test_low_bit_first() -> None:
    assert packed([1, 0, 0, 0, 0, 0, 0, 1, 1], 1, np) == [0x81, 0x01]
