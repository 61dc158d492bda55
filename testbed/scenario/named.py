"""A name with its own options, such as a method or a model: plain data here, checked by its registry later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, GetJsonSchemaHandler, model_serializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.scenario.base import Model
from testbed.scenario.units import shown

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
OwnOrName = Annotated[
    str, Field(pattern=r"^([A-Za-z][A-Za-z0-9_.-]{0,63}|[A-Za-z0-9_./-]{1,200}:[A-Za-z_][A-Za-z0-9_]*)$")
]


class Named(Model):
    """A name, or {name: {options}}."""

    what: ClassVar[str]  # for messages
    known: ClassVar[tuple[str, ...]]  # for editors; others are allowed

    name: OwnOrName = Field(
        description="A name is a letter, then letters, digits or any of . _ -; your own is path/to/file.py:Class"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="As its registry takes them.")

    @classmethod
    def written_out(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, Mapping):
            raise ValueError(f"{shown(value)} is not a {cls.what}; write a name, or {{name: {{option: value}}}}")
        if len(value) != 1:
            raise ValueError(f"one {cls.what} per entry: a name, or {{name: {{option: value}}}}")
        ((name, options),) = value.items()
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(
                f"the options of {name} are a mapping, for example {name}: {{option: value}}, not {shown(options)}"
            )
        return {"name": name, "options": dict(options or {})}

    @model_serializer(mode="wrap")
    def _shortest(self, handler: Any) -> Any:
        return {self.name: self.options} if self.options else self.name

    @property
    def label(self) -> str:
        """Return a label for tables and figures: "dcd", or "dcd compressor=quantize:8bit"."""
        return " ".join([self.name, *(f"{key}={brief(value)}" for key, value in self.options.items())])

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        name = {"anyOf": [{"enum": list(cls.known)}, {"type": "string"}]}
        options = {"type": ["object", "null"], "description": f"Options of this {cls.what}."}
        mapping = {
            "type": "object",
            "properties": dict.fromkeys(cls.known, options),
            "additionalProperties": options,
            "minProperties": 1,
            "maxProperties": 1,
        }
        return {"description": cls.__doc__, "anyOf": [name, mapping]}


def brief(value: Any) -> str:
    """Return plain data in few characters, for labels: quantize:8bit."""
    if isinstance(value, Mapping):
        return "+".join(f"{key}:{brief(item)}" if item not in (None, {}) else str(key) for key, item in value.items())
    if isinstance(value, list | tuple):
        return ",".join(brief(item) for item in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
