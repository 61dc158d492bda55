"""What links do to packets: the default of every link, changes to some of them, and traces that drive them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.network.shape import Shape
from testbed.network.shaping import MOST_JITTER
from testbed.scenario.base import Choice, Model
from testbed.scenario.units import Duration, Rate, Share

NETEM_LONGEST = Duration(274)  # netem counts nanoseconds in units of 64 in 32 bits


def _within_netem(value: Duration) -> Duration:
    if value > NETEM_LONGEST:
        raise ValueError(f"{value} is too long: netem holds packets for at most {NETEM_LONGEST}")
    return value


def _within_jitter(value: Duration) -> Duration:
    if value > MOST_JITTER:
        raise ValueError(f"{value} is too much: netem spreads delays with a standard deviation of at most 1.239s")
    return value


def _some_pass(value: Share) -> Share:
    if value >= 1:
        raise ValueError("a loss of 100% lets nothing pass; to cut a link use an event with down")
    return value


def _two(value: tuple[str, str]) -> tuple[str, str]:
    if value[0] == value[1]:
        raise ValueError(f"a link joins two different nodes, not {value[0]} with itself")
    return value


Latency = Annotated[Duration, AfterValidator(_within_netem)]
Jitter = Annotated[Duration, AfterValidator(_within_jitter)]
Loss = Annotated[Share, AfterValidator(_some_pass)]
Node = Annotated[str, Field(min_length=1, max_length=64, examples=["w0"])]
Pair = Annotated[tuple[Node, Node], AfterValidator(_two), Field(examples=[["w0", "w1"]])]


class Trace(Choice):
    """A recording that drives a link: a CSV file, or {mahimahi: file}."""

    what: ClassVar[str] = "trace"

    csv: str | None = Field(
        default=None,
        min_length=1,
        description="CSV file with the columns time, rate, latency, loss (any but time may be left out), e.g. "
        "`0s,100mbit,5ms,0%`. Each row holds from its time on; the last one to the end.",
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
        default=None, description="Standard deviation of the latency; at most 1.239s. Default: as before."
    )
    loss: Loss | None = Field(
        default=None, description="Share of packets that get lost, e.g. 0.1%. Default: as before."
    )
    buffer: Latency | None = Field(
        default=None, description="Length of the queue, as the time it takes to drain at `rate`. Default: as before."
    )
    trace: Trace | None = Field(
        default=None,
        description="File that changes the link over time: file.csv or {mahimahi: file}. Default: as before.",
    )

    def on(self, shape: Shape) -> Shape:
        """The shape with these settings laid over it. (The trace is the caller's.)"""
        given: dict[str, Any] = {
            name: float(value)
            for name in ("latency", "jitter", "loss", "buffer")
            if (value := getattr(self, name)) is not None
        }
        if self.rate is not None:
            given["rate"] = None if self.rate.unlimited else int(self.rate)
        return replace(shape, **given)


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
        default=Duration(0),
        description="Standard deviation of the latency, at most 1.239s. Set it for wireless or congested paths; "
        "without a rate it also reorders packets.",
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
        """The directed ends (from, to) that change."""
        return directions(self.between, self.source, self.target)


def check_ends(both: str, pair: tuple[str, str] | None, source: str | None, target: str | None) -> None:
    """ValueError unless the ends of a link are given in exactly one of the two ways."""
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
