"""What every compressor promises, tried out on one layout. `testbed compressors NAME --check` does it for one of your
own, the tests for those that come along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import extract_tb

import numpy as np
import torch
from torch import Tensor

from testbed.compressors.base import Codec, Compressor
from testbed.flat import Layout
from testbed.registry import breaches

# Odd lengths, a matrix, a kernel, a scalar and single elements.
LAYOUT = Layout.of(
    [("wide", (60, 41)), ("bias", (7,)), ("kernel", (8, 4, 3, 3)), ("one", (1,)), ("scalar", ()), ("long", (3333,))]
)
DRAWS = 64  # of a message, to see whether their mean is what was sent


class _BrokenError(Exception):
    """A promise is not kept; says how."""


def gaussian(layout: Layout, seed: int) -> Tensor:
    return torch.randn(layout.numel, generator=torch.Generator().manual_seed(seed))


def decoded(codec: Codec, message: Tensor) -> Tensor:
    dest = codec.layout.zeros()
    codec.decompress_into(message, dest)
    return dest


def sizes(compressor: Compressor, layout: Layout) -> None:
    """a message is nbytes of uint8, whatever is sent"""
    codec = compressor.bind(layout, 1)
    for wrong in breaches(type(codec), Codec):
        raise _BrokenError(wrong)
    for x in (gaussian(layout, 0), layout.zeros(), 1e-6 * gaussian(layout, 1)):
        message = codec.compress(x, 0)
        if message.dtype != torch.uint8 or message.shape != (codec.nbytes,):
            raise _BrokenError(f"{message.dtype} {tuple(message.shape)} instead of uint8 ({codec.nbytes},)")


def repeatable(compressor: Compressor, layout: Layout) -> None:
    """the same seed, step and x make the same bytes"""
    first, second = (compressor.bind(layout, 1) for _ in range(2))
    _same(
        first.compress(gaussian(layout, 0), 4),
        second.compress(gaussian(layout, 0), 4),
        "two codecs with one seed make different messages",
    )


def own_random_numbers(compressor: Compressor, layout: Layout) -> None:
    """random numbers come from its seed and the step, not from torch's or numpy's global generators"""
    before, numpy_before = torch.get_rng_state(), repr(np.random.get_state())  # its position included
    codec = compressor.bind(layout, 1)
    decoded(codec, codec.compress(gaussian(layout, 0), 0))
    _same(torch.get_rng_state(), before, "it draws from torch's global generator")
    if repr(np.random.get_state()) != numpy_before:
        raise _BrokenError("it draws from numpy's global generator")


def replicas(compressor: Compressor, layout: Layout) -> None:
    """every worker decodes a message to the same bits, whatever it did before"""
    sender, receiver = (compressor.bind(layout, seed) for seed in (1, 2))
    receiver.compress(gaussian(layout, 5), 17)
    mine, theirs = gaussian(layout, 3), gaussian(layout, 3)
    for step in range(3):
        message = sender.compress(gaussian(layout, step), step)
        sender.decompress_into(message, mine, 0.7)
        receiver.decompress_into(message.clone(), theirs, 0.7)
    _same(mine, theirs, "sender and receiver decode different values")


def accumulates(compressor: Compressor, layout: Layout) -> None:
    """decompress_into adds weight times what was sent, and leaves the rest"""
    codec = compressor.bind(layout, 1)
    message = codec.compress(gaussian(layout, 0), 0)
    dest = gaussian(layout, 9)
    expected = dest.double() - 0.3 * decoded(codec, message).double()
    codec.decompress_into(message, dest, weight=-0.3)
    if not torch.allclose(dest.double(), expected, rtol=1e-5, atol=1e-5):
        raise _BrokenError("dest + weight · decoded is not what comes out")


def anywhere(compressor: Compressor, layout: Layout) -> None:
    """compress fills `out` and returns it, and messages may lie at odd places in memory"""
    codec = compressor.bind(layout, 1)
    usual = codec.compress(gaussian(layout, 0), 0)
    buffer = torch.zeros(codec.nbytes + 8, dtype=torch.uint8)
    part = buffer[3 : 3 + codec.nbytes]
    if compressor.bind(layout, 1).compress(gaussian(layout, 0), 0, out=part).data_ptr() != part.data_ptr():
        raise _BrokenError("another tensor than `out` is returned")
    _same(part, usual, "`out` holds another message than without it")
    if buffer[:3].any() or buffer[3 + codec.nbytes :].any():
        raise _BrokenError("bytes beside `out` are written")
    _same(decoded(codec, part), decoded(codec, usual), "it decodes to other values at an odd place")


def reads_only(compressor: Compressor, layout: Layout) -> None:
    """x and messages are only read, and a message stays when the next one is made"""
    codec, x = compressor.bind(layout, 1), gaussian(layout, 0)
    message = codec.compress(x, 0)
    _same(x, gaussian(layout, 0), "compress changes x")
    kept = message.clone()
    decoded(codec, message)
    _same(message, kept, "decompress_into changes the message")
    codec.compress(gaussian(layout, 1), 1)
    _same(message, kept, "the next message overwrites the last; fill `out`, or a new tensor")


def resumes(compressor: Compressor, layout: Layout) -> None:
    """state and load_state go on as if nothing had happened"""
    running, resumed = (compressor.bind(layout, 1) for _ in range(2))
    for step in range(3):
        running.compress(gaussian(layout, step), step)
    resumed.load_state(running.state())
    _same(
        running.compress(gaussian(layout, 3), 3),
        resumed.compress(gaussian(layout, 3), 3),
        "after a checkpoint messages differ",
    )


def unbiased(compressor: Compressor, layout: Layout) -> None:
    """where it says it is unbiased, the mean of many messages is what was sent"""
    if not compressor.unbiased:
        return
    codec, x, total, spread = compressor.bind(layout, 1), gaussian(layout, 0), layout.zeros().double(), 0.0
    for step in range(DRAWS):
        value = decoded(codec, codec.compress(x, step))
        total += value
        spread += float((value - x).square().sum()) / DRAWS
    left = float((total / DRAWS - x).square().sum())
    if left > 3 * spread / DRAWS + 1e-9:
        raise _BrokenError(f"the mean of {DRAWS} messages keeps {left / spread:.0%} of the squared error of one")


PROMISES: tuple[Callable[[Compressor, Layout], None], ...] = (
    sizes,
    repeatable,
    own_random_numbers,
    replicas,
    accumulates,
    anywhere,
    reads_only,
    resumes,
    unbiased,
)


def lines(compressor: Compressor) -> Iterator[tuple[bool, str]]:
    """Each promise in words, whether it is kept, and if not, how and where."""
    for promise in PROMISES:
        words = promise.__doc__ or ""
        try:
            promise(compressor, LAYOUT)
        except _BrokenError as broken:
            yield False, f"{words}: {broken}"
        except Exception as error:  # noqa: BLE001  # someone else's code may fail in any way
            frame = extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            yield False, f"{words}: {type(error).__name__}: {error} ({where})"
            return  # the others would fail in the same way
        else:
            yield True, words


def _same(one: Tensor, other: Tensor, otherwise: str) -> None:
    if not torch.equal(one, other):
        raise _BrokenError(otherwise)
