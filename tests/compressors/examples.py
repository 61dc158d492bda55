"""What the compressor tests share: every compressor in its variants, layouts, and a round trip."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from testbed.compressors import Codec, make
from testbed.flat import Layout

EVERY: list[Any] = [
    "identity",
    "fp16",
    "bf16",
    *({"quantize": {"bits": bits}} for bits in range(1, 9)),
    {"quantize": {"bits": 8, "rounding": "nearest"}},
    {"quantize": {"bits": 3, "rounding": "nearest", "bucket": 16}},
    {"quantize": {"bits": 4, "bucket": 512}},
    {"quantize": {"bits": 5, "bucket": 40_000}},
    {"step": {"step": 0.05, "overflow": "clip"}},
    {"step": {"step": 0.001, "bits": 16, "overflow": "clip"}},
    {"step": {"step": 1e-6, "bits": 32, "overflow": "clip"}},
    *({"qsgd": {"bits": bits}} for bits in (2, 3, 5, 8)),
    {"qsgd": {"bits": 4, "scaled": True}},
    "sign",
    {"topk": "1%"},
    {"topk": {"fraction": 0.3, "values": "fp16"}},
    {"randomk": "1%"},
    {"randomk": {"fraction": 0.7}},
    {"randomk": {"fraction": 0.1, "unbiased": True}},
    {"lowrank": 1},
    {"lowrank": {"rank": 4, "iterations": 2}},
]

NAMES = [str(make(spec)) for spec in EVERY]

# Larger than a block, odd lengths, a matrix, a kernel, a scalar and single elements.
MIXED = Layout.of(
    [
        ("wide", (300, 401)),
        ("bias", (7,)),
        ("kernel", (8, 4, 3, 3)),
        ("one", (1,)),
        ("scalar", ()),
        ("long", (33_333,)),
        ("last", (5,)),
    ]
)


def gaussian(layout: Layout, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(layout.numel, generator=torch.Generator().manual_seed(seed)) * scale


def decoded(codec: Codec, message: Tensor) -> Tensor:
    dest = codec.layout.zeros()
    codec.decompress_into(message, dest)
    return dest


def round_trip(spec: Any, x: Tensor, layout: Layout | None = None, *, seed: int = 1, step: int = 0) -> Tensor:
    codec = make(spec).bind(layout or Layout.of([("x", x.shape)]), seed)
    return decoded(codec, codec.compress(x, step))
