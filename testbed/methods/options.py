"""The options that several methods share, each with its meaning and the symptom that tells you to change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed import compressors
from testbed.compressors.base import Compressor, option
from testbed.compressors.options import flag, positive

COMPRESSOR = {
    "help": "how messages are compressed: a name or {name: options}; `testbed compressors` lists them",
    "parse": lambda spec: None if spec is None else compressors.make(spec),
}


def made(spec: Any) -> Callable[[], Compressor]:
    """A factory for a method's default compressor."""
    return lambda: compressors.make(spec)


def gamma_option() -> Any:
    """γ where the mixing matrix itself is safe."""
    return option(
        1.0,
        help="consensus step: mixes with I + γ(W − I). 1 is the paper, 2/((1−λ2)+(1−λn)) the fastest",
        parse=positive,
    )


def tuned_gamma_option() -> Any:
    """γ where it depends on the compressor."""
    return option(
        "auto",
        help="consensus step; auto simulates gossip with this compressor and graph before training. Smaller where the"
        " models' distance from their mean grows, larger where it falls too slowly",
        parse=_positive_or_auto,
    )


def overlap_option() -> Any:
    return option(
        True,
        help="messages travel while the gradient is computed; same result either way. Off shows the bare network time",
        parse=flag,
    )


def _positive_or_auto(value: object) -> float | str:
    if value == "auto":
        return "auto"
    try:
        return positive(value)
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from None
