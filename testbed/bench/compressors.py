"""`testbed bench compressors`: how fast each compressor encodes and decodes on one thread, beside the obvious lines of
torch that do the same to the same tensors, and beside the time that its saved bytes would take on a 1 Gbit/s link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import quantiles
from typing import Any

import torch
from torch import Tensor

from testbed.bench.table import Row, show
from testbed.compressors import make
from testbed.flat import Layout

ROUNDS = 15
LINK = 1e9  # bit/s; where codecs must not cost more than they save
SEED = 1

Work = Callable[[], object]


def resnet20(width: int = 16, classes: int = 10) -> Layout:
    """The tensors of a CIFAR ResNet-20 with projection shortcuts: 65 of them, 272 474 parameters at width 16."""

    def tensors() -> Iterator[tuple[str, tuple[int, ...]]]:
        def conv(name: str, inputs: int, outputs: int, kernel: int) -> Iterator[tuple[str, tuple[int, ...]]]:
            yield f"{name}.weight", (outputs, inputs, kernel, kernel)
            yield f"{name}.bn.weight", (outputs,)
            yield f"{name}.bn.bias", (outputs,)

        yield from conv("conv", 3, width, 3)
        channels = width
        for stage in range(3):
            outputs = width << stage
            for block in range(3):
                yield from conv(f"stage{stage}.{block}.conv0", channels, outputs, 3)
                yield from conv(f"stage{stage}.{block}.conv1", outputs, outputs, 3)
                if channels != outputs:
                    yield from conv(f"stage{stage}.{block}.shortcut", channels, outputs, 1)
                channels = outputs
        yield "fc.weight", (classes, channels)
        yield "fc.bias", (classes,)

    return Layout.of(tensors())


@dataclass(frozen=True)
class Timing:
    """Seconds of one function over the rounds."""

    median: float
    spread: float  # half the range of the middle half, relative to the median

    @staticmethod
    def of(seconds: Sequence[float]) -> Timing:
        low, middle, high = quantiles(seconds, n=4)
        return Timing(middle, (high - low) / 2 / middle)


@dataclass(frozen=True)
class Measured(Row):
    """A row that says how much its value varied from round to round."""

    spread: float = 0.0

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "spread": self.spread}


@dataclass(frozen=True)
class Case:
    """A compressor, and the lines of torch that someone would write instead."""

    spec: Any
    torch_name: str
    torch_lines: Callable[[Tensor, Layout, Tensor], tuple[Work, Work]]  # x, layout, dest → encode, decode
    encode_goal: float | None = None  # GB/s
    decode_goal: float | None = None
    times_torch: float | None = None  # at least so many times as fast as torch's lines


def run(size: int, as_json: bool) -> None:
    """Measure all compressors at about `size` parameters and print the rows."""
    torch.set_num_threads(1)
    layout = resnet20(max(1, round(16 * sqrt(size / resnet20().numel))))
    x = torch.randn(layout.numel, generator=torch.Generator().manual_seed(SEED)) * 0.05
    rows = [row for case in CASES for row in measure(case, x, layout)]
    if not as_json:
        rows = [replace(row, metric=f"{row.metric} ±{row.spread:.0%}") for row in rows]
    show(
        f"compressors: {layout.numel:,} fp32 in {len(layout.slots)} tensors; CPU time of a thread, median of {ROUNDS}",
        rows,
        as_json=as_json,
    )


def measure(case: Case, x: Tensor, layout: Layout) -> Iterator[Measured]:
    compressor = make(case.spec)
    codec, receiver = compressor.bind(layout, SEED), compressor.bind(layout, SEED + 1)
    message = torch.empty(codec.nbytes, dtype=torch.uint8)
    dest = layout.zeros()
    torch_encode, torch_decode = case.torch_lines(x, layout, dest)
    steps = iter(range(10**9))
    encode, decode, theirs, back = _interleaved(
        lambda: codec.compress(x, next(steps), message),
        lambda: receiver.decompress_into(message, dest, 0.5),
        torch_encode,
        torch_decode,
    )
    gigabytes = 4 * layout.numel / 1e9
    name = str(compressor)

    def speed(what: str, ours: Timing, other: Timing, goal: float | None, times: float | None) -> Measured:
        value = gigabytes / ours.median
        goals = [f"≥ {goal} GB/s"] if goal else []
        met = [value >= goal] if goal else []
        if times:
            goals.append(f"≥ {times:g}× torch")
            met.append(other.median / ours.median >= times)
        return Measured(
            f"{name} {what}",
            value,
            "GB/s",
            reference=case.torch_name if what == "encode" else "torch",
            reference_value=gigabytes / other.median,
            goal=", ".join(goals),
            met=all(met) if met else None,
            spread=ours.spread,
        )

    yield speed("encode", encode, theirs, case.encode_goal, case.times_torch)
    yield speed("decode", decode, back, case.decode_goal, None)
    saved = (4 * layout.numel - codec.nbytes) * 8 / LINK
    if saved:
        spent = encode.median + decode.median
        yield Measured(
            f"{name} both",
            spent * 1e3,
            "ms",
            reference=f"its saved {(4 * layout.numel - codec.nbytes) / 1e6:.3g} MB at 1 Gbit/s",
            reference_value=saved * 1e3,
            goal="≤ reference",
            met=spent <= saved,
            spread=max(encode.spread, decode.spread),
        )


def _interleaved(*works: Work) -> list[Timing]:
    """Time the functions in turn, so that a disturbance meets all of them."""
    seconds: list[list[float]] = [[] for _ in works]
    for round_ in range(ROUNDS + 2):
        for work, taken in zip(works, seconds, strict=True):
            begin = time.thread_time()  # of this thread's CPU: neighbours on shared cores do not count
            work()
            if round_ >= 2:  # the first rounds warm caches and scratch buffers
                taken.append(time.thread_time() - begin)
    return [Timing.of(taken) for taken in seconds]


def _copy(x: Tensor, layout: Layout, dest: Tensor) -> tuple[Work, Work]:
    sent = x.clone()
    return x.clone, lambda: dest.add_(sent, alpha=0.5)


def _cast(dtype: torch.dtype) -> Callable[[Tensor, Layout, Tensor], tuple[Work, Work]]:
    def lines(x: Tensor, layout: Layout, dest: Tensor) -> tuple[Work, Work]:
        sent = x.to(dtype)
        return lambda: x.to(dtype), lambda: dest.add_(sent, alpha=0.5)

    return lines


def _minmax(bits: int, stochastic: bool) -> Callable[[Tensor, Layout, Tensor], tuple[Work, Work]]:
    top = 2**bits - 1

    def lines(x: Tensor, layout: Layout, dest: Tensor) -> tuple[Work, Work]:
        def one(v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            low, high = v.min(), v.max()
            u = (v - low) * (top / (high - low))
            q = ((u + torch.rand_like(u)).floor() if stochastic else u.round()).to(torch.uint8).flatten()
            if bits == 4:
                q = torch.nn.functional.pad(q, (0, len(q) % 2))
                q = q[0::2] | q[1::2] << 4
            return q, low, high

        def encode() -> list[tuple[Tensor, Tensor, Tensor]]:
            return [one(v) for v in layout.views(x)]

        def decode() -> None:
            for v, (q, low, high) in zip(layout.views(dest), sent, strict=True):
                codes = q if bits == 8 else torch.stack([q & 15, q >> 4], dim=1).flatten()[: v.numel()]
                v += 0.5 * (codes.view(v.shape).float() * ((high - low) / top) + low)

        sent = encode()
        return encode, decode

    return lines


def _grid(x: Tensor, layout: Layout, dest: Tensor) -> tuple[Work, Work]:
    def encode() -> Tensor:
        return (x / 0.01 + torch.rand_like(x)).floor().to(torch.int8)

    sent = encode()
    return encode, lambda: dest.add_(sent.float(), alpha=0.5 * 0.01)


def _qsgd(x: Tensor, layout: Layout, dest: Tensor) -> tuple[Work, Work]:
    def encode() -> list[tuple[Tensor, Tensor]]:
        norms = [(v, v.norm()) for v in layout.views(x)]
        return [((v * (7 / norm) + torch.rand_like(v)).floor().to(torch.int8), norm) for v, norm in norms]

    def decode() -> None:
        for v, (q, norm) in zip(layout.views(dest), sent, strict=True):
            v += 0.5 * norm / 7 * q.float()

    sent = encode()
    return encode, decode


def _sign(x: Tensor, layout: Layout, dest: Tensor) -> tuple[Work, Work]:
    powers = torch.tensor([1 << i for i in range(8)], dtype=torch.uint8)
    padding = -layout.numel % 8

    def encode() -> tuple[Tensor, list[Tensor]]:
        bits = torch.nn.functional.pad(x >= 0, (0, padding)).view(-1, 8)
        return (bits * powers).sum(dim=1, dtype=torch.uint8), [v.abs().mean() for v in layout.views(x)]

    def decode() -> None:
        packed, scales = sent
        signs = ((packed[:, None] & powers) != 0).flatten()[: layout.numel].float() * 2 - 1
        for v, s, scale in zip(layout.views(dest), layout.views(signs), scales, strict=True):
            v += 0.5 * scale * s

    sent = encode()
    return encode, decode


def _topk(x: Tensor, layout: Layout, dest: Tensor) -> tuple[Work, Work]:
    def encode() -> list[tuple[Tensor, Tensor]]:
        flats = [v.flatten() for v in layout.views(x)]
        tops = [torch.topk(v.abs(), max(1, v.numel() // 100)).indices for v in flats]
        return [(v[i], i) for v, i in zip(flats, tops, strict=True)]

    def decode() -> None:
        for v, (values, i) in zip(layout.views(dest), sent, strict=True):
            v.view(-1).index_add_(0, i, values, alpha=0.5)

    sent = encode()
    return encode, decode


def _randomk(x: Tensor, layout: Layout, dest: Tensor) -> tuple[Work, Work]:
    def places() -> list[Tensor]:
        return [torch.randperm(slot.numel)[: max(1, slot.numel // 100)] for slot in layout.slots]

    def encode() -> list[Tensor]:
        return [v.flatten()[i] for v, i in zip(layout.views(x), places(), strict=True)]

    def decode() -> None:
        for v, values, i in zip(layout.views(dest), sent, places(), strict=True):
            v.view(-1).index_add_(0, i, values, alpha=0.5)

    sent = encode()
    return encode, decode


def _lowrank(x: Tensor, layout: Layout, dest: Tensor) -> tuple[Work, Work]:
    def matrices(flat: Tensor) -> Iterator[Tensor]:
        return (v.view(v.shape[0], -1) for v in layout.views(flat) if v.ndim > 1)

    def encode() -> list[tuple[Tensor, Tensor, Tensor]]:
        return [torch.svd_lowrank(M, q=2, niter=1) for M in matrices(x)]

    def decode() -> None:
        for M, (U, S, V) in zip(matrices(dest), sent, strict=True):
            M += 0.5 * (U * S) @ V.t()

    sent = encode()
    return encode, decode


CASES = (
    Case("identity", "x.clone()", _copy),
    Case("fp16", "x.half()", _cast(torch.float16)),
    Case("bf16", "x.bfloat16()", _cast(torch.bfloat16)),
    Case({"quantize": {"bits": 8, "rounding": "nearest"}}, "round((x−min)/Δ)", _minmax(8, False), 0.8, 0.8),
    Case({"quantize": "8bit"}, "floor((x−min)/Δ + rand)", _minmax(8, True), 0.4, 0.4),
    Case({"quantize": "4bit"}, "the same, two per byte", _minmax(4, True), 0.4, 0.4),
    Case({"quantize": {"bits": 4, "bucket": 512}}, "the same, per tensor", _minmax(4, True), 0.4, 0.4),
    Case({"step": 0.01}, "floor(x/Δ + rand)", _grid),
    Case({"qsgd": "4bit"}, "floor(s·x/‖x‖ + rand), unpacked", _qsgd),
    Case("sign", "(x ≥ 0), multiply and sum eights", _sign, 1.0, 1.0),
    Case({"topk": "1%"}, "torch.topk per tensor", _topk, times_torch=5.0),
    Case({"randomk": "1%"}, "torch.randperm per tensor", _randomk),
    Case({"lowrank": 2}, "torch.svd_lowrank", _lowrank),
)
