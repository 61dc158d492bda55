"""What all scenario models share: frozen, no unknown keys, short forms; and `Choice`, "one of these"."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.scenario.units import Duration, shown


def _whole(value: object) -> object:
    """Accept 1e3 as a whole number, too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _positive(value: Duration) -> Duration:
    if value <= 0:
        raise ValueError("must be longer than 0")
    return value


def _period(value: Duration) -> Duration:
    if value < SHORTEST_PERIOD:
        raise ValueError(f"must be at least {Duration(SHORTEST_PERIOD)}")
    return value


SHORTEST_PERIOD = 0.01  # seconds; a change of a link takes some milliseconds
WHOLE = BeforeValidator(_whole)  # comes last, so that limits are the integer's own
Natural = Annotated[int, Strict(), Field(ge=0), WHOLE]
Positive = Annotated[int, Strict(), Field(ge=1), WHOLE]
Number = Annotated[float, Strict()]
Span = Annotated[Duration, AfterValidator(_positive)]
Period = Annotated[Duration, AfterValidator(_period)]


def suggestion(word: object, names: list[str]) -> str:
    """Return "; did you mean …?" where a name is near enough."""
    near = get_close_matches(str(word).lower(), names, n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def unknown(what: str, word: object, names: list[str]) -> ValueError:
    return ValueError(f"unknown {what} {shown(word)}; allowed: {', '.join(names)}{suggestion(word, names)}")


def keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a model as users write them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


class Model(BaseModel):
    """A mapping in the scenario. Where `short` names a key, its value alone stands for the whole mapping."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, serialize_by_alias=True)

    short: ClassVar[str | None] = None

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        return cls.written_out(value)

    @classmethod
    def written_out(cls, value: Any) -> Any:
        """Return what the user wrote, as the mapping it stands for."""
        if cls.short and not isinstance(value, Mapping | BaseModel):
            return {cls.short: value}
        if isinstance(value, Mapping):  # a key left empty is a key left out
            known = keys(cls)
            return {key: item for key, item in value.items() if item is not None or key not in known}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = handler.resolve_ref_schema(handler(schema))
        if not cls.short:
            return mapping
        alone = dict(mapping["properties"][cls.short])
        alone.pop("default", None)
        return {"description": mapping.pop("description", ""), "anyOf": [alone, mapping]}


class Nothing(Model):
    """No options."""


class Choice(Model):
    """Exactly one key of several; its name alone will do where nothing more need be said."""

    what: ClassVar[str]  # for messages

    @classmethod
    def plain(cls) -> list[str]:
        """Return the names that need no options."""
        return [key for key, field in keys(cls).items() if (options := _model_in(field)) and not _required(options)]

    @classmethod
    def written_out(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value in cls.plain():
                return {value: {}}
            if value in keys(cls):
                raise ValueError(f"{cls.what} '{value}' needs a value: {{{value}: …}}")
            raise unknown(cls.what, value, list(keys(cls)))
        if not isinstance(value, Mapping):
            return value
        if len(value) != 1:
            raise ValueError(f"choose exactly one {cls.what} of: {', '.join(keys(cls))}")
        return {key: {} if item is None and key in cls.plain() else item for key, item in value.items()}

    @model_validator(mode="after")
    def _chosen(self) -> Any:
        if len(self._set()) != 1:
            raise ValueError(f"choose exactly one {self.what} of: {', '.join(keys(type(self)))}")
        return self

    def _set(self) -> list[str]:
        return [name for name in type(self).model_fields if getattr(self, name) is not None]

    @property
    def kind(self) -> str:
        """Return the chosen name as users write it, e.g. "random-regular"."""
        name = self._set()[0]
        return type(self).model_fields[name].alias or name

    @property
    def options(self) -> Any:
        """Return what stands beside the chosen name: a model with its options, or the value itself."""
        return getattr(self, self._set()[0])

    @model_serializer(mode="wrap")
    def _shortest(self, handler: Any) -> Any:
        written = {key: value for key, value in handler(self).items() if value is not None}
        key = self.kind
        return key if key in self.plain() and written.get(key) in ({}, None) else written

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = handler.resolve_ref_schema(handler(schema))
        mapping |= {"minProperties": 1, "maxProperties": 1}
        names = cls.plain()
        if not names:
            return mapping
        return {"description": mapping.pop("description", ""), "anyOf": [{"enum": names}, mapping]}


def _model_in(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model among the types of a field, e.g. Torus of `Torus | None`."""
    types = [field.annotation, *getattr(field.annotation, "__args__", ())]
    return next((kind for kind in types if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _required(model: type[BaseModel]) -> bool:
    return any(field.is_required() for field in model.model_fields.values())
