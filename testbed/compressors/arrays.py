"""One source for two engines: codecs write their loops once, on numpy where x lies on the CPU (faster there) and on
torch elsewhere. Both understand slices, in-place operators, `view`, `x[...] = y` and the functions used with `out=`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.seeds import derive

if sys.byteorder != "little":
    raise ImportError("the wire formats are written for little-endian machines")

FAST = True  # False: take the torch path on the CPU as well (tests compare the two)

# numpy's rule (NEP 50) and torch's agree: a Python float meets an fp32 array as fp32.
Array = Any


def arrays(*tensors: Tensor) -> tuple[Any, ...]:
    """(numpy, one array per tensor sharing its memory) on the CPU, else (torch, the tensors themselves)."""
    if FAST and tensors[0].device.type == "cpu":
        return (np, *(tensor.numpy() for tensor in tensors))
    return (torch, *tensors)


def write(message: Tensor, start: int, values: Tensor | NDArray[Any]) -> int:
    """Put the bytes of `values` into the message; returns where they end. Works at any alignment."""
    tensor = torch.from_numpy(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values
    raw = tensor.contiguous().view(-1).view(torch.uint8)
    message[start : start + raw.numel()] = raw
    return start + raw.numel()


def read(message: Tensor, start: int, count: int, dtype: torch.dtype) -> Tensor:
    """`count` values of `dtype`, as a view where alignment allows it."""
    raw = message[start : start + count * dtype.itemsize]
    if raw.data_ptr() % dtype.itemsize or raw.storage_offset() % dtype.itemsize:
        raw = raw.clone()
    return raw.view(dtype)


class Scratch:
    """Buffers that a codec keeps from message to message, on the device its input lives on."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def __call__(self, role: str, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        buffer = self._buffers.get(role)
        if buffer is None or buffer.numel() < count or buffer.dtype != dtype or buffer.device != device:
            buffer = self._buffers[role] = torch.empty(count, dtype=dtype, device=device)
        return buffer[:count]


class Noise16:
    """Uniform 16-bit numbers for one message, the same for the same seed and step on any device.

    They are raw 64-bit words of SFC64 (a stream that numpy promises never to change), four numbers a word. A block of
    elements takes whole words, so where blocks hold a multiple of four elements their size does not matter.
    """

    def __init__(self, seed: int, step: int, device: torch.device) -> None:
        self._words = np.random.SFC64(derive(seed, "noise", step))
        self._device = device

    def take(self, count: int) -> Array:
        """The next `count` numbers, as an array of the engine in use."""
        drawn = self._words.random_raw(-(-count // 4)).view(np.uint16)[:count]
        if FAST and self._device.type == "cpu":
            return drawn
        return torch.from_numpy(drawn.astype(np.int32)).to(self._device)  # few devices know 16 bits unsigned
