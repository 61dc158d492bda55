"""What links do to packets: the default of every link, changes to some of them, and traces that drive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.link.netem import MOST_JITTER
from testbed.link.shape import DISTRIBUTIONS, PROPERTIES, WRITTEN, Shape
from testbed.scenario.base import Choice, Model, suggestion
from testbed.scenario.units import Duration, Quantity, Rate, Share, shown

NETEM_LONGEST = Duration(274)  # netem counts nanoseconds in units of 64 in 32 bits


def _within_netem(value: Duration) -> Duration:
    if value > NETEM_LONGEST:
        raise ValueError(f"{value} is too long: netem holds packets for at most {NETEM_LONGEST}")
    return value


class Jitter(Duration):
    """A standard deviation of the latency, and which delays are how likely: 5ms, {spread: 5ms, shape: pareto}, and in
    one word 5ms:pareto."""

    shape: str
    examples: ClassVar[tuple[str, ...]] = ("5ms", "5ms:pareto")

    def __new__(cls, seconds: float, shape: str = DISTRIBUTIONS[0]) -> Jitter:
        made = super().__new__(cls, seconds)
        made.shape = shape
        return made

    @classmethod
    def parse(cls, value: object) -> Jitter:
        if isinstance(value, Jitter):
            return value
        spread: object = value
        shape: object = DISTRIBUTIONS[0]
        if isinstance(value, Mapping):
            if "spread" not in value or (unknown := [*value.keys() - {"spread", "shape"}]):
                found = f"unknown key {shown(unknown[0])}" if "spread" in value else "no spread"
                raise ValueError(f"{found}; write for example {{spread: 5ms, shape: normal}}")
            spread, shape = value["spread"], value.get("shape", shape)
        elif isinstance(value, str) and ":" in value:
            spread, _, shape = value.partition(":")
        if shape not in DISTRIBUTIONS:
            near = suggestion(shape, list(DISTRIBUTIONS))
            raise ValueError(f"{shown(shape)} is no shape of jitter; one of: {', '.join(DISTRIBUTIONS)}{near}")
        seconds = Duration.parse(spread)
        if seconds > MOST_JITTER:
            raise ValueError(f"{seconds} is too much: netem spreads delays with a standard deviation of at most 1.239s")
        return cls(seconds, str(shape))

    def __str__(self) -> str:
        spread = str(Duration(self))
        return spread if self.shape == DISTRIBUTIONS[0] else f"{spread}:{self.shape}"

    __repr__ = __str__

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        plain, zero = super().__get_pydantic_json_schema__(schema, handler)["anyOf"]
        shaped = f"^{plain['pattern'].strip('^$')}(:({'|'.join(DISTRIBUTIONS)}))?$"
        spread = {"anyOf": [{**plain, "examples": ["5ms"]}, zero], "description": "Standard deviation of the latency."}
        shapes = {"enum": [*DISTRIBUTIONS], "description": "Which delays are how likely. Default: uniform."}
        mapping = {
            "type": "object",
            "properties": {"spread": spread, "shape": shapes},
            "required": ["spread"],
            "additionalProperties": False,
        }
        examples = [cls.examples[0], {"spread": "5ms", "shape": "pareto"}]
        return {"anyOf": [{**plain, "pattern": shaped}, zero, mapping], "examples": examples}


def _some_pass(value: Share) -> Share:
    if value >= 1:
        raise ValueError("a loss of 100% lets nothing pass; to cut a link use an event with down")
    return value


def _not_all(value: Share) -> Share:
    if value >= 1:
        raise ValueError("must be less than 100%")
    return value


def _two(value: tuple[str, str]) -> tuple[str, str]:
    if value[0] == value[1]:
        raise ValueError(f"a link joins two different nodes, not {value[0]} with itself")
    return value


Latency = Annotated[Duration, AfterValidator(_within_netem)]
Loss = Annotated[Share, AfterValidator(_some_pass)]
Part = Annotated[Share, AfterValidator(_not_all)]
Node = Annotated[str, Field(min_length=1, max_length=64, examples=["w0"])]
Pair = Annotated[tuple[Node, Node], AfterValidator(_two), Field(examples=[["w0", "w1"]])]


class Trace(Choice):
    """A recording that drives a link: a CSV file, or {mahimahi: file}."""

    what: ClassVar[str] = "trace"

    csv: str | None = Field(
        default=None,
        min_length=1,
        description="CSV file with the columns time, rate, latency, loss (any but time may be left out), e.g. "
        f"`0s,100mbit,5ms,0%`. Others it may have: {', '.join(sorted({*WRITTEN} - {'rate', 'latency', 'loss'}))}. "
        "Each row holds from its time on; the last one to the end.",
    )
    mahimahi: str | None = Field(
        default=None,
        min_length=1,
        description="Packet-delivery trace of mahimahi: one line per MTU-sized packet that may leave, in "
        "milliseconds. Starts over at its end, as mahimahi does.",
    )

    @classmethod
    def written_out(cls, value: Any) -> Any:
        return {"csv": value} if isinstance(value, str) else value

    @property
    def file(self) -> str:
        return str(self.options)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = super().__get_pydantic_json_schema__(schema, handler)
        return {"description": mapping.pop("description", ""), "anyOf": [{"type": "string"}, mapping]}


class LinkOptions(Model):
    """Any of a link's settings; what is left out stays as it is."""

    latency: Latency | None = Field(
        default=None, description="Time a packet travels, one way; at most 274s. Default: as before."
    )
    rate: Rate | None = Field(
        default=None, description="Bits per second, 1kbit to 34gbit, or `unlimited`. Default: as before."
    )
    jitter: Jitter | None = Field(
        default=None,
        description="Standard deviation of the latency, at most 1.239s, or {spread: 5ms, shape: normal}. Default: as "
        "before.",
    )
    loss: Loss | None = Field(
        default=None, description="Share of packets that get lost, e.g. 0.1%. Default: as before."
    )
    buffer: Latency | None = Field(
        default=None, description="Length of the queue, as the time it takes to drain at `rate`. Default: as before."
    )
    reorder: Part | None = Field(
        default=None, description="Share of packets that overtake those under way, e.g. 1%. Default: as before."
    )
    duplicate: Part | None = Field(
        default=None, description="Share of packets that are sent twice, e.g. 0.1%. Default: as before."
    )
    corrupt: Part | None = Field(
        default=None, description="Share of packets that are damaged on the way, e.g. 0.1%. Default: as before."
    )
    trace: Trace | None = Field(
        default=None,
        description="File that changes the link over time: file.csv or {mahimahi: file}. Default: as before.",
    )

    def on(self, shape: Shape) -> Shape:
        """Return the shape with these settings applied. (The trace is the caller's.)"""
        return replace(shape, **self.numbers())

    def numbers(self) -> dict[str, Any]:
        """Return the given settings as fields of Shape."""
        told = {name: value for name in WRITTEN if (value := getattr(self, name)) is not None}
        found = {name: _number(value) for name, value in told.items()}
        if "jitter" in told:
            found["jitter_shape"] = told["jitter"].shape
        return {**found, "limit": None} if "buffer" in told else found  # seconds replace packets


class Link(LinkOptions):
    """The default of every link."""

    latency: Latency = Field(
        default=Duration.parse("5ms"),
        description="Time a packet travels, one way; a round trip takes twice that. At most 274s. 0.1ms is a data "
        "centre, 5ms a city, 40ms a continent, 80ms an ocean.",
    )
    rate: Rate = Field(
        default=Rate.parse("100mbit"),
        description="Bits per second in each direction, 1kbit to 34gbit, or `unlimited`: as fast as the machine goes. "
        "1gbit is a cloud, 100mbit good office or home fibre, 10mbit a home's upload.",
    )
    jitter: Jitter = Field(
        default=Jitter(0),
        description="Standard deviation of the latency, at most 1.239s. Set it for wireless or congested paths; "
        "without a rate it also reorders packets. Latencies are spread evenly, or as {spread: 5ms, shape: normal} "
        "says: normal, pareto (few packets, much later), paretonormal (between the two).",
    )
    loss: Loss = Field(
        default=Share(0),
        description="Share of packets that get lost at random, e.g. 0.1%. TCP takes loss for congestion, so a little "
        "costs much throughput on long paths.",
    )
    buffer: Latency | None = Field(
        default=None,
        description="Length of the queue, as the time it takes to drain at `rate`. Longer queues delay everything "
        "(bufferbloat), shorter ones lose packets early. Default: one round trip of the link, at least 100 packets.",
    )
    reorder: Part | None = Field(
        default=None,
        description="Share of packets that are sent on at once, e.g. 1%: they skip the latency and the rate, and "
        "overtake what is under way. So it needs a latency, and packets that follow each other faster than that. TCP "
        "takes much of it for loss. Default: none.",
    )
    duplicate: Part | None = Field(
        default=None,
        description="Share of packets that are sent twice, e.g. 0.1%, as some wireless links do; copies take their "
        "part of the rate. Default: none.",
    )
    corrupt: Part | None = Field(
        default=None,
        description="Share of packets in which a bit is flipped, e.g. 0.1%. Checksums find it: to workers they are "
        "lost, but after they took their part of the rate. Default: none.",
    )
    trace: Trace | None = Field(
        default=None,
        examples=["mobile.csv", {"mahimahi": "cellular.txt"}],
        description="File that changes the link over time: file.csv or {mahimahi: file}, relative to the scenario. "
        "Use it for mobile or measured links. Default: the link stays as it is.",
    )

    def shape(self) -> Shape:
        return self.on(Shape())


class Ends(Model):
    """Which link: `between` for both directions, or `from` and `to` for one."""

    between: Pair | None = Field(
        default=None, description="The two ends: both directions change. Default: `from` and `to` say it."
    )
    source: Node | None = Field(
        default=None, alias="from", description="With `to`: only this direction changes. Default: `between` says it."
    )
    target: Node | None = Field(
        default=None, alias="to", description="With `from`: only this direction changes. Default: `between` says it."
    )


class LinkOverride(LinkOptions, Ends):  # in this order the ends are written first
    """One link that differs from the default: `between: [w0, w1]`, or `from: w0` with `to: w1` for one direction."""

    @model_validator(mode="after")
    def _complete(self) -> LinkOverride:
        check_ends("between", self.between, self.source, self.target)
        if all(getattr(self, name) is None for name in LinkOptions.model_fields):
            raise ValueError(f"says nothing about the link; give any of: {', '.join(LinkOptions.model_fields)}")
        return self

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """Return the directed ends (from, to) that change."""
        return directions(self.between, self.source, self.target)


def check_ends(both: str, pair: tuple[str, str] | None, source: str | None, target: str | None) -> None:
    """Raise ValueError unless the ends of a link are given in exactly one of the two ways."""
    if (source is None) != (target is None):
        raise ValueError("from and to belong together: one direction of a link")
    if (pair is None) == (source is None):
        raise ValueError(f"which link? Give either {both}: [w0, w1] for both directions or from: w0, to: w1 for one")
    if source is not None and source == target:
        raise ValueError(f"a link joins two different nodes, not {source} with itself")


def directions(pair: tuple[str, str] | None, source: str | None, target: str | None) -> tuple[tuple[str, str], ...]:
    if pair is not None:
        return (pair, (pair[1], pair[0]))
    return ((source, target),) if source is not None and target is not None else ()


QUANTITIES: Mapping[str, type[Quantity]] = {"duration": Duration, "rate": Rate, "share": Share}


def _number(value: Any) -> float | int | None:
    """Return a quantity as Shape has it."""
    if isinstance(value, Rate):
        return None if value.unlimited else int(value)
    return float(value)


def number_of(name: str, text: str) -> dict[str, Any]:
    """Return what "5mbit" sets as a link's rate, as fields of Shape. ValueError beyond the limits of scenarios."""
    try:
        return LinkOptions.model_validate({name: text}).numbers()
    except ValidationError as error:
        found = error.errors()[0]
        raise ValueError(f"{name}: {found.get('ctx', {}).get('error') or found['msg']}") from error


def value_in_words(name: str, value: Any) -> str:
    """Return a field of Shape as scenarios write it: 5ms, 1mbit, unlimited, 0.1%."""
    unit = PROPERTIES[name].unit
    if unit == "rate" and value is None:
        return "unlimited"
    if unit == "rate":
        return str(Rate(value))
    return str(QUANTITIES[unit](round(value, 9))) if unit in QUANTITIES else str(value)  # type: ignore[call-arg]


def in_words(numbers: Mapping[str, Any]) -> str:
    """Return fields of Shape in the words that `net set` takes: "rate=1mbit jitter=2ms:normal down"."""
    words = []
    for name, value in numbers.items():
        if PROPERTIES[name].unit == "switch":
            words.append(name if value else "down")
        elif name == "jitter":
            jitter = Jitter(round(value, 9), numbers.get("jitter_shape", DISTRIBUTIONS[0]))
            words.append(f"{name}={jitter}")
        elif name == "rate" or (value is not None and name in WRITTEN):
            words.append(f"{name}={value_in_words(name, value)}")
        elif name == "jitter_shape" and "jitter" not in numbers:
            words.append(f"{name}={value}")
    return " ".join(words)
