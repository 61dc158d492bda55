"""What every compressor is: hyper-parameters, an exact wire size, bytes out, and an accumulating way back.

A compressor is a frozen dataclass. `bind` gives the codec that one worker uses for one stream of messages; the codec
may hold scratch buffers and the sender's own state (a warm-started factor), never anything the receiver would need:
a message decodes from its bytes and the layout alone.

Wire formats are little-endian, scales before payload, and have a size that both ends know from the layout. Decoding
multiplies and adds in separate roundings (no fused multiply-add), so replicas agree bit for bit across devices; the
matrix product of lowrank agrees only on equal machines. A message lives on the device of the vector it is made from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from testbed.errors import DivergedError, ScenarioError
from testbed.flat import Layout


def option(default: Any = MISSING, *, help: str, parse: Callable[[object], Any], example: object = None) -> Any:
    """A hyper-parameter: what it does and the symptom that tells you to change it, and how a scenario's value is read.

    `parse` raises ValueError saying what is allowed; `example` stands in where there is no default.
    """
    return field(default=default, metadata={"help": help, "parse": parse, "example": example})


def parse_options(made: Any, what: str) -> None:
    """Read a frozen dataclass's options as a scenario writes them; those that do not say how are taken as they are."""
    for one in fields(made):
        parse = one.metadata.get("parse")
        if parse is None:
            continue
        given = getattr(made, one.name)
        try:
            object.__setattr__(made, one.name, parse(given))
        except ValueError as error:
            raise ScenarioError(f"{what}: {one.name}: {given!r} is not {error}", hint=one.metadata["help"]) from None


@dataclass(frozen=True)
class Compressor(ABC):
    """tensor → bytes → tensor, layer by layer, coalesced into one message."""

    name: ClassVar[str]  # in scenarios and reports
    paper: ClassVar[str] = ""
    bias: ClassVar[str] = "biased"  # for people; `unbiased` is for methods
    short: ClassVar[str] = ""  # the option that a bare value sets, as in {quantize: 8bit}

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__.lower()

    def __post_init__(self) -> None:
        parse_options(self, f"compressor {self.name}")

    @property
    def unbiased(self) -> bool:
        """E[C(x)] = x with these options; the theory of some methods needs it."""
        return False

    def __str__(self) -> str:
        """A label for figures: the short option always, others where they differ from the default."""
        shown = [o for o in fields(self) if o.name == self.short or getattr(self, o.name) != o.default]
        return self.name + (f"({', '.join(f'{o.name}={getattr(self, o.name)}' for o in shown)})" if shown else "")

    @abstractmethod
    def bind(self, layout: Layout, seed: int) -> Codec:
        """The codec for one sender. `seed` differs per worker: noise must be independent across workers."""


class Codec(ABC):
    """One sender's stream of messages; also decodes what any peer's equal codec made."""

    nbytes: int  # of every message, to the byte

    def __init__(self, layout: Layout, nbytes: int) -> None:
        self.layout = layout
        self.nbytes = nbytes

    @abstractmethod
    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        """The message (uint8, `nbytes` long) for the flat fp32 vector x. Noise depends only on seed and step."""

    @abstractmethod
    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        """dest += weight · decode(message), without a dense temporary where that is possible."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must keep of the sender's own state (most codecs: nothing)."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` gave."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, got {', '.join(state)}")

    def outgoing(self, x: Tensor, out: Tensor | None) -> tuple[Tensor, Tensor]:
        """For `compress`: x to read from, and the message to fill."""
        self._check_flat(x)
        if out is None:
            out = torch.empty(self.nbytes, dtype=torch.uint8, device=x.device)
        self._check_message(out)
        return x.detach(), out

    def incoming(self, message: Tensor, dest: Tensor) -> tuple[Tensor, Tensor]:
        """For `decompress_into`: the message to read, and the vector to add to."""
        self._check_message(message)
        self._check_flat(dest)
        return message, dest.detach()

    def not_finite(self, x: Tensor, step: int) -> DivergedError:
        """The error for an x with NaN or Inf, naming the first tensor that holds one."""
        bad = next(slot for slot in self.layout.slots if not x[slot.start : slot.stop].isfinite().all())
        return DivergedError(
            f"{bad.name} holds NaN or Inf at step {step}: the training has diverged and cannot be compressed",
            hint="lower the learning rate (or the method's gamma), or choose a compressor with a smaller error",
            step=step,
        )

    def check_finite(self, x: Tensor, step: int) -> None:
        if not all_finite(x):
            raise self.not_finite(x, step)

    def _check_flat(self, x: Tensor) -> None:
        if x.dtype != torch.float32 or x.shape != (self.layout.numel,) or not x.is_contiguous():
            raise ValueError(f"want a contiguous fp32 vector of {self.layout.numel}, got {x.dtype} {tuple(x.shape)}")

    def _check_message(self, message: Tensor) -> None:
        if message.dtype != torch.uint8 or message.shape != (self.nbytes,) or not message.is_contiguous():
            raise ValueError(f"want a message of {self.nbytes} uint8, got {message.dtype} {tuple(message.shape)}")


def all_finite(x: Tensor) -> bool:
    """One pass: a sum is finite only if every term is; huge finite terms may overflow it, hence the second look."""
    return math.isfinite(x.sum()) or bool(x.isfinite().all())
