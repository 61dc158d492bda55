"""What a checkpoint keeps of a method's state, and how it comes back. The worker calls it after `method.finish`.

A state is a dataclass. Tensors, numbers and codecs are kept, in nested dataclasses, mappings and tuples of them too.
The rest is made anew by `method.init`: channels, frozen dataclasses, and fields with the metadata TRANSIENT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from testbed.compressors.base import Codec
from testbed.errors import TrainingError

TRANSIENT = {"transient": True}  # metadata of a field that a new run makes anew: scratch, or what the plan implies


def save(state: Any) -> dict[str, Any]:
    """A copy of all that must survive, by field name; made of dicts, tensors and numbers alone."""
    return {name: _copy(value) for name, value in _kept(state)}


def load(state: Any, saved: Mapping[str, Any]) -> None:
    """Bring a freshly made state to where `save` left it."""
    for name, value in _kept(state):
        if name not in saved:
            raise TrainingError(f"the checkpoint lacks {name!r} of the method's state", hint="start this cell afresh")
        if isinstance(value, Tensor):
            value.copy_(saved[name])
        elif isinstance(value, Codec):
            value.load_state(saved[name])
        elif isinstance(value, int | float):
            setattr(state, name, saved[name])
        else:
            load(value, saved[name])


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Codec):
        return {name: tensor.clone() for name, tensor in value.state().items()}
    return value if isinstance(value, int | float) else save(value)


def _kept(state: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(state):
        for f in fields(state):
            value = getattr(state, f.name)
            if not f.metadata.get("transient") and (isinstance(value, int | float) or _holds_tensors(value)):
                yield f.name, value
        return
    for key, value in state.items() if isinstance(state, Mapping) else enumerate(state):
        if _holds_tensors(value):
            yield str(key), value


def _holds_tensors(value: Any) -> bool:
    if is_dataclass(value):
        return not getattr(type(value), "__dataclass_params__").frozen  # noqa: B009  # mypy does not know it
    return isinstance(value, Tensor | Codec | Mapping | tuple | list)
