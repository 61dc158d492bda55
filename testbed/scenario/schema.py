"""The JSON schema of scenario files, so that editors complete and check them. `testbed schema` prints it."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from testbed.scenario.model import Scenario


class _Generator(GenerateJsonSchema):
    """pydantic's generator, without what users do not write: null for keys left out."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def json_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12."""
    schema = _tidy(Scenario.model_json_schema(schema_generator=_Generator))
    title = {"$schema": _Generator.schema_dialect, "title": "testbed scenario"}
    return title | {key: value for key, value in schema.items() if key not in title}


def text() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _tidy(node: Any, properties: bool = False) -> Any:
    """Remove generated titles and null defaults; a key called title stays."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _tidy(value, key in ("properties", "$defs") and not properties)
        for key, value in node.items()
        if properties or not (key == "title" or (key == "default" and value is None))
    }
