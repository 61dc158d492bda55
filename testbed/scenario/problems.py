"""Problems of a scenario in words for people: where, what, what is allowed, did you mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from testbed.errors import ScenarioError
from testbed.scenario.base import keys as keys_of
from testbed.scenario.base import suggestion
from testbed.scenario.source import Keys, Source
from testbed.scenario.units import shown

MOST_SHOWN = 10


@dataclass(frozen=True)
class Problem:
    """One problem, at one key."""

    keys: Keys
    message: str

    def text(self, source: Source) -> str:
        path = ".".join(map(str, self.keys))
        where = source.where(self.keys)
        if not path:
            return f"{where}: {self.message}"
        changes = ", ".join(source.changes_below(self.keys))
        return f"{where}: {path}: {self.message}" + (f" (with {changes})" if changes else "")


def error_of(problems: Iterable[Problem], source: Source) -> ScenarioError:
    """Return one error for all problems, in the order of their lines."""
    return joined((problem.text(source) for problem in problems), source.file)


def joined(texts: Iterable[str], file: str) -> ScenarioError:
    found = sorted(dict.fromkeys(texts), key=_line)
    if len(found) == 1:
        return ScenarioError(found[0])
    listed = found[:MOST_SHOWN] + ([f"… and {len(found) - MOST_SHOWN} more"] if len(found) > MOST_SHOWN else [])
    error = ScenarioError("\n".join([f"{len(found)} problems in {file}", *listed]))
    error.problems = tuple(found)
    return error


def _line(text: str) -> int:
    match = re.search(r":(\d+): ", text)
    return int(match[1]) if match else 0


def problems_of(error: ValidationError, model: type[BaseModel], data: Any) -> list[Problem]:
    """Convert pydantic's errors to our words. `data` is what was validated: it shows which keys the user wrote."""
    return [_problem(details, model, data) for details in error.errors(include_url=False) if not _follows(details)]


def _follows(details: ErrorDetails) -> bool:
    """Whether the error only follows from others: a list is "too short" when its entries are wrong."""
    return details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"]


def _problem(details: ErrorDetails, model: type[BaseModel], data: Any) -> Problem:
    written, around = _written(details["loc"], data)
    parents = _models_at(model, details["loc"][:-1])
    last = details["loc"][-1] if details["loc"] else ""
    match details["type"]:
        case "extra_forbidden" if ":" in str(last):
            return Problem(written, "unknown key; is a space missing after the colon?")
        case "extra_forbidden":
            allowed = list(keys_of(max(parents, key=lambda parent: _likeness(parent, around), default=model)))
            return Problem(written, f"unknown key; allowed: {', '.join(allowed) or 'none'}{suggestion(last, allowed)}")
        case "missing" if isinstance(last, int):
            return Problem(written, "has too few entries")
        case "missing":
            return Problem(written, f"{last} is missing{_described(last, parents, ': ')}")
        case "string_pattern_mismatch":
            return Problem(written, f"{shown(details['input'])} is not allowed{_described(last, parents, '. ')}")
        case "model_type" | "model_attributes_type" | "dict_type" | "mapping_type":
            here = _models_at(model, details["loc"])
            allowed = list(keys_of(here[0])) if here else []
            names = f" with any of: {', '.join(allowed)}" if allowed else ""
            return Problem(written, f"should be a mapping{names}; not {shown(details['input'])}")
        case _:
            return Problem(written, _message(details))


def _written(loc: Keys, data: Any) -> tuple[Keys, set[str]]:
    """Return a location as the user wrote it, without keys that short forms leave out and names of union members; and
    the keys beside its last one."""
    written: list[str | int] = []
    around: set[str] = set()
    for part in loc:
        inside: Mapping[Any, Any] = dict(enumerate(data)) if isinstance(data, list | tuple) else {}
        if isinstance(data, Mapping):
            inside = data
        if part in inside:
            around = {str(key) for key in inside}
            data = inside[part]
            written.append(part)
    return tuple(written), around


def _likeness(model: type[BaseModel], around: set[str]) -> int:
    """Return how well written keys fit a model: which member of a union the user meant."""
    fields = keys_of(model)
    return len(fields.keys() & around) - sum(field.is_required() for key, field in fields.items() if key not in around)


def _described(key: str | int, models: Sequence[type[BaseModel]], before: str) -> str:
    """Return what the schema says about a key."""
    field = next((found for model in models if (found := keys_of(model).get(str(key)))), None)
    return f"{before}{field.description}" if field and field.description else ""


def _models_at(model: type[BaseModel], loc: Keys) -> list[type[BaseModel]]:
    """Return the models that may stand at a location of the schema."""
    found: list[type[BaseModel]] = [model]
    for part in loc:
        fields = [field for candidate in found if (field := keys_of(candidate).get(str(part)))]
        if fields:
            found = [inner for field in fields for inner in _models_in(field.annotation)]
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _message(details: ErrorDetails) -> str:
    value = details["input"]
    context = details.get("ctx", {})
    match details["type"]:
        case "value_error":
            return str(context["error"])
        case "tuple_type" | "list_type":
            return f"should be a list, not {shown(value)}"
        case "literal_error":
            names = re.findall(r"'([^']*)'", context["expected"])
            return f"unknown {shown(value)}; allowed: {', '.join(names)}{suggestion(value, names)}"
        case "int_type" | "int_from_float" | "int_parsing":
            return f"should be a whole number, not {shown(value)}"
        case "float_type" | "float_parsing" | "finite_number":
            return f"should be a number, not {shown(value)}"
        case "bool_type" | "bool_parsing":
            return f"should be true or false, not {shown(value)}"
        case "string_type":
            return f"should be text, not {shown(value)}" + (
                "" if isinstance(value, dict | list) else "; put it in quotes"
            )
        case "string_too_short":
            return "is empty"
        case "string_too_long":
            return f"is longer than {context['max_length']} characters"
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}, not {shown(value)}"
        case "greater_than":
            return f"must be more than {context['gt']:g}, not {shown(value)}"
        case "less_than_equal":
            return f"must be at most {context['le']:g}, not {shown(value)}"
        case "less_than":
            return f"must be less than {context['lt']:g}, not {shown(value)}"
        case "too_short":
            return f"needs at least {context['min_length']} {'entry' if context['min_length'] == 1 else 'entries'}"
        case "too_long":
            return f"has more than {context['max_length']} entries"
        case _:
            return details["msg"]
