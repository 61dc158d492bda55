"""Quantities as people write them ("5ms", "1.4gbit", "0.1%") and as programs need them: plain numbers in SI units.

Each type is a float or an int that parses its text exactly, prints itself shortly and knows its JSON schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

_NUMBER = r"\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?"
_TEXT = re.compile(rf"\s*({_NUMBER})\s*([^\d\s].*?)?\s*", re.ASCII)
_LONGEST = 40  # characters; a quantity never needs more
LONGEST_DURATION = Decimal(100 * 365 * 24 * 3600)  # seconds


def split(text: str) -> tuple[Decimal, str] | None:
    """Split "1.4 gbit" into number and unit; None where the text is not a quantity."""
    match = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    return (Decimal(match[1]), (match[2] or "").lower()) if match else None


def shortest(value: Decimal, unit: str) -> str:
    """Return the value without exponent or trailing zeros, and its unit."""
    return f"{value.normalize():f}{unit}"


def _any_case(word: str) -> str:
    """Return a regular expression for the word in any case; JSON schema patterns know no flags."""
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isascii() and c.isalpha() else re.escape(c) for c in word)


class Quantity:
    """What the types share: text in, text out, a JSON schema."""

    units: ClassVar[Mapping[str, Decimal]]
    examples: ClassVar[tuple[str, ...]]

    @classmethod
    def parse(cls, value: object) -> Self:
        raise NotImplementedError

    @classmethod
    def scaled(cls, value: object, what: str) -> Decimal:
        """Return the value of a text in base units. ValueError says which units are allowed."""
        names = [unit for unit in cls.units if unit.isascii() and "/" not in unit]
        allowed = f"units are {', '.join(names)}, for example {' or '.join(cls.examples[:2])}"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"{shown(value)} is not a {what}; {allowed}")
        parts = split(str(value))
        if parts is None:
            raise ValueError(f"{shown(value)} is not a {what}; {allowed}")
        number, unit = parts
        if not unit and number == 0:
            return number
        if not unit:
            raise ValueError(f"{shown(value)} has no unit; {allowed}")
        if unit not in cls.units:
            raise ValueError(f"unknown unit {shown(unit)} in {shown(value)}; {allowed}")
        return number * cls.units[unit]

    @classmethod
    def pattern(cls) -> str:
        return rf"^\s*{_NUMBER}\s*({'|'.join(_any_case(unit) for unit in cls.units)})\s*$"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(str),
            ref=f"{cls.__module__}.{cls.__qualname__}:{id(cls)}",  # one definition in the JSON schema
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "pattern": cls.pattern(), "examples": list(cls.examples)}


def shown(value: object) -> str:
    """Return a value the user wrote, as an error message repeats it."""
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool) else f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


class Duration(Quantity, float):
    """Seconds."""

    units: ClassVar[Mapping[str, Decimal]] = {
        "ns": Decimal("1e-9"),
        "us": Decimal("1e-6"),
        "µs": Decimal("1e-6"),
        "ms": Decimal("1e-3"),
        "s": Decimal(1),
        "min": Decimal(60),
        "h": Decimal(3600),
    }
    examples: ClassVar[tuple[str, ...]] = ("5ms", "30s", "2min")

    @classmethod
    def parse(cls, value: object) -> Duration:
        if isinstance(value, Duration):
            return value
        if isinstance(value, str):
            value = value.replace("μ", "µ")  # the Greek letter and the micro sign look the same
            if (parts := split(value)) and parts[1] == "m":
                raise ValueError(f"{shown(value)} could be minutes or milliseconds; write min or ms")
        seconds = cls.scaled(value, "duration")
        if 0 < seconds < Decimal("1e-9"):
            raise ValueError(f"{shown(value)} is shorter than a nanosecond")
        if seconds > LONGEST_DURATION:
            raise ValueError(f"{shown(value)} is longer than a century")
        return cls(seconds)

    def __str__(self) -> str:
        seconds = Decimal(repr(float(self)))
        if seconds >= 3600 and seconds % 3600 == 0:
            return shortest(seconds / 3600, "h")
        if seconds >= 120 and seconds % 60 == 0:
            return shortest(seconds / 60, "min")
        for unit, size in (("s", Decimal(1)), ("ms", Decimal("1e-3")), ("us", Decimal("1e-6"))):
            if seconds >= size or seconds == 0:
                return shortest(seconds / size, unit)
        return shortest(seconds / Decimal("1e-9"), "ns")

    __repr__ = __str__

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = super().__get_pydantic_json_schema__(schema, handler)
        return {"anyOf": [text, {"const": 0}]}


class Rate(Quantity, int):
    """Bits per second; `UNLIMITED` is as fast as the machine goes. netem carries up to 34 Gbit/s."""

    units: ClassVar[Mapping[str, Decimal]] = {
        prefix + "bit" + per: Decimal(size)
        for per in ("", "/s")
        for prefix, size in (("", 1), ("k", 1000), ("m", 10**6), ("g", 10**9))
    }
    examples: ClassVar[tuple[str, ...]] = ("100mbit", "1.4gbit", "500kbit", "unlimited")
    least: ClassVar[int] = 1000
    most: ClassVar[int] = 34 * 10**9

    @classmethod
    def parse(cls, value: object) -> Rate:
        if isinstance(value, Rate):
            return value
        if isinstance(value, str) and value.strip().lower() == "unlimited":
            return UNLIMITED
        if isinstance(value, str) and (parts := split(value)):
            number, unit = parts
            if re.fullmatch(r"[kmg]?(bps|b/s|byte/s|bytes/s)", unit):
                instead = shortest(number, "mbit")
                raise ValueError(
                    f"{shown(value)}: are that bits or bytes per second? Write bits, for example {instead}"
                )
        bits = round(cls.scaled(value, "rate"))
        if bits == 0:
            raise ValueError("a rate of 0 lets nothing pass; write unlimited for no limit, or an event with down")
        if not cls.least <= bits <= cls.most:
            raise ValueError(f"{shown(value)} is out of range: a rate is from 1kbit to 34gbit, or unlimited")
        return cls(bits)

    @property
    def unlimited(self) -> bool:
        return self == 0

    def __str__(self) -> str:
        if self.unlimited:
            return "unlimited"
        for unit, size in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 1000)):
            if self >= size:
                return shortest(Decimal(int(self)) / size, unit)
        return f"{int(self)}bit"

    __repr__ = __str__

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = super().__get_pydantic_json_schema__(schema, handler)
        return {"anyOf": [text, {"const": "unlimited"}]}


UNLIMITED = Rate(0)


class Size(Quantity, int):
    """Bytes: kb, mb, gb are powers of 1000, kib, mib, gib of 1024."""

    units: ClassVar[Mapping[str, Decimal]] = {
        "b": Decimal(1),
        "kb": Decimal(1000),
        "mb": Decimal(10**6),
        "gb": Decimal(10**9),
        "kib": Decimal(2**10),
        "mib": Decimal(2**20),
        "gib": Decimal(2**30),
    }
    examples: ClassVar[tuple[str, ...]] = ("2gb", "512mb", "1.5gib")

    @classmethod
    def parse(cls, value: object) -> Size:
        if isinstance(value, Size):
            return value
        size = round(cls.scaled(value, "size"))
        if not 0 < size < 2**63:
            raise ValueError(f"{shown(value)} is not a possible size")
        return cls(size)

    def __str__(self) -> str:
        whole = (unit for unit in ("gb", "gib", "mb", "mib", "kb", "kib", "b") if int(self) % self.units[unit] == 0)
        return min((shortest(int(self) / self.units[unit], unit) for unit in whole), key=len)

    __repr__ = __str__


class Share(Quantity, float):
    """A part of the whole, 0…1: "0.1%" or 0.001."""

    units: ClassVar[Mapping[str, Decimal]] = {"%": Decimal("0.01")}
    examples: ClassVar[tuple[str, ...]] = ("0.1%", "2%")

    @classmethod
    def parse(cls, value: object) -> Share:
        if isinstance(value, Share):
            return value
        if isinstance(value, float) and 0 <= value <= 1:  # 1 alone could be 1 % or everything
            return cls(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value != 0:
            raise ValueError(f"{shown(value)} is not clear; write {shown(value)}% or a number between 0 and 1")
        share = cls.scaled(value, "share")
        if share > 1:
            raise ValueError(f"{shown(value)} is more than 100%")
        return cls(share)

    def __str__(self) -> str:
        return shortest(Decimal(repr(float(self))) * 100, "%")

    __repr__ = __str__

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = super().__get_pydantic_json_schema__(schema, handler)
        return {"anyOf": [text, {"type": "number", "minimum": 0, "maximum": 1}]}
