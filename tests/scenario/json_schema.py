"""As much of JSON schema (draft 2020-12) as our own schema uses: enough to see that it says what the models say."""

import re

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
IGNORED = {"$schema", "$defs", "title", "description", "default", "examples"}


def valid(value, schema, root):
    """Whether the value fits. An unknown keyword is an error: this file must grow with the schema."""
    return all(
        _fits(value, keyword, wanted, schema, root) for keyword, wanted in schema.items() if keyword not in IGNORED
    )


def _fits(value, keyword, wanted, schema, root):
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match keyword:
        case "$ref":
            return valid(value, root["$defs"][wanted.removeprefix("#/$defs/")], root)
        case "type":
            return any(_is(value, name) for name in ([wanted] if isinstance(wanted, str) else wanted))
        case "enum":
            return value in wanted
        case "const":
            return value == wanted
        case "anyOf":
            return any(valid(value, option, root) for option in wanted)
        case "oneOf":
            return sum(valid(value, option, root) for option in wanted) == 1
        case "pattern":
            return not isinstance(value, str) or re.search(wanted, value) is not None
        case "minLength":
            return not isinstance(value, str) or len(value) >= wanted
        case "maxLength":
            return not isinstance(value, str) or len(value) <= wanted
        case "minimum":
            return not number or value >= wanted
        case "maximum":
            return not number or value <= wanted
        case "exclusiveMinimum":
            return not number or value > wanted
        case "exclusiveMaximum":
            return not number or value < wanted
        case "properties":
            return not isinstance(value, dict) or all(valid(value[k], s, root) for k, s in wanted.items() if k in value)
        case "additionalProperties":
            others = (
                []
                if not isinstance(value, dict)
                else [v for k, v in value.items() if k not in schema.get("properties", {})]
            )
            return not others if wanted is False else wanted is True or all(valid(v, wanted, root) for v in others)
        case "propertyNames":
            return not isinstance(value, dict) or all(valid(k, wanted, root) for k in value)
        case "required":
            return not isinstance(value, dict) or all(key in value for key in wanted)
        case "minProperties":
            return not isinstance(value, dict) or len(value) >= wanted
        case "maxProperties":
            return not isinstance(value, dict) or len(value) <= wanted
        case "items":
            rest = value[len(schema.get("prefixItems", [])) :] if isinstance(value, list) else []
            return all(valid(item, wanted, root) for item in rest)
        case "prefixItems":
            return not isinstance(value, list) or all(valid(v, s, root) for v, s in zip(value, wanted, strict=False))
        case "minItems":
            return not isinstance(value, list) or len(value) >= wanted
        case "maxItems":
            return not isinstance(value, list) or len(value) <= wanted
    raise AssertionError(f"unknown keyword {keyword}")


def _is(value, name):
    if name == "integer":
        return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])
