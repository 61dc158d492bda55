"""How the values of compressor options are read from a scenario: each parser takes what YAML gave, returns the value
or raises ValueError with what would be allowed (it completes the sentence "… is not").
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

Parser = Callable[[object], Any]


def whole(low: int, high: int | None = None, *, unit: str = "", multiple: int = 1) -> Parser:
    """A whole number in low…high, with or without its unit: 8, "8", "8bit"."""
    bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
    allowed = f"a whole number {bounds}" + (f" and a multiple of {multiple}" if multiple > 1 else "")
    pattern = re.compile(rf"(\d+)\s*(?:{unit}s?)?" if unit else r"(\d+)")

    def parse(value: object) -> int:
        if isinstance(value, str) and (match := pattern.fullmatch(value.strip())):
            value = int(match[1])
        if not isinstance(value, int) or isinstance(value, bool) or value < low or value % multiple:
            raise ValueError(allowed)
        if high is not None and value > high:
            raise ValueError(allowed)
        return value

    return parse


def share(value: object) -> float:
    """A part of the whole: 0.01 or "1%"."""
    if isinstance(value, str) and value.strip().endswith("%"):
        number = _number(value.strip()[:-1])
        number = None if number is None else number / 100
    else:
        number = _number(value)
    if number is None or not 0 < number <= 1:
        raise ValueError("a share above 0 and up to 1, such as 0.01 or 1%")
    return number


def positive(value: object) -> float:
    number = _number(value)
    if number is None or not 0 < number < math.inf:
        raise ValueError("a number above 0")
    return number


def choice(*allowed: object) -> Parser:
    def parse(value: object) -> object:
        for candidate in allowed:
            if value == candidate and type(value) is type(candidate):
                return candidate
        raise ValueError(f"one of {', '.join(map(str, allowed))}")

    return parse


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def optional(parse: Parser) -> Parser:
    return lambda value: None if value is None else parse(value)


def _number(value: object) -> float | None:
    """YAML leaves 5e-2 a string, so strings count too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
