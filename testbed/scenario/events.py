"""What happens to the network and the workers while training runs, as scenarios describe it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from testbed.link.shape import WRITTEN
from testbed.scenario.base import Model, Natural, Number, Period, Span
from testbed.scenario.links import LinkOptions, Node, Pair, check_ends, directions
from testbed.scenario.units import Duration, shown
from testbed.scenario.verbs import ON_LINKS, ON_WORKERS, VERBS, done_by, field_of


class Step(int):
    """A moment: when the first worker begins this training step. Written "step 100"."""

    def __str__(self) -> str:
        return f"step {int(self)}"


class Moment:
    """When something happens: a Duration since training began, or a Step."""

    @classmethod
    def parse(cls, value: object) -> Duration | Step:
        if isinstance(value, Duration | Step):
            return value
        if isinstance(value, str) and (match := re.fullmatch(r"\s*step\s*(\d{1,9})\s*", value, re.ASCII)):
            return Step(match[1])
        if isinstance(value, str) and value.strip().lower().startswith("step"):
            raise ValueError(f"{shown(value)} is not a step; write for example step 100")
        try:
            return Duration.parse(value)
        except ValueError as error:
            raise ValueError(f"{error}, or a training step: step 100") from None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        step = {"type": "string", "pattern": r"^\s*step\s*\d{1,9}\s*$", "examples": ["step 100"]}
        return {"anyOf": [*Duration.__get_pydantic_json_schema__(schema, handler)["anyOf"], step]}


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Factor = Annotated[Number, Field(gt=1)]
_Names = Annotated[tuple[Node, ...], Field(min_length=1)]
Nodes = Annotated[
    _Names,
    BeforeValidator(_several, json_schema_input_type=Node | _Names),
    Field(examples=["w1", ["w1", "w2"]]),
]


class RandomEvents(Model):
    """The same kind of event again and again, at random times (a Poisson process) to random workers or links."""

    kind: Literal["kill", "freeze", "slow", "down"] = Field(
        description="What happens: to a worker (kill, freeze, slow) or to a link (down)."
    )
    every: Period = Field(description="Mean time between two of them, e.g. 60s.")
    lasting: Span | None = Field(
        default=None,
        alias="for",
        description="How long each lasts; killed workers restart then. Default: they stay dead, all else lasts 5s.",
    )
    factor: Factor | None = Field(
        default=None, description="For slow: how many times longer each gradient takes. Default: 2."
    )
    among: Nodes | None = Field(
        default=None,
        description="Workers it may happen to (for down: links between any of them). Default: all of them.",
    )
    seed: Natural = Field(
        default=1,
        description="Which random times and targets; the same in every repeat and for every method. Change it for "
        "others.",
    )


class _What(Model):
    """What happens when."""

    at: Annotated[Duration | Step, Moment] = Field(
        default=Duration(0),
        examples=["30s", "step 100"],
        description="When: time since training began (30s), or a step (step 100: when the first worker begins it). A "
        "time meets fast methods at a later step than slow ones. Default: must be given; 0s with `random`.",
    )
    link: Pair | None = Field(
        default=None,
        description=f"Change this link, both directions: give the new {', '.join(WRITTEN)} or trace.",
    )
    source: Node | None = Field(default=None, alias="from", description="With `to`: change one direction of a link.")
    target: Node | None = Field(default=None, alias="to", description="With `from`: its other end. Default: none.")
    down: Pair | None = Field(
        default=None, description="This link drops everything, until `up` or for as long as `for` says."
    )
    up: Pair | None = Field(default=None, description="This link works again.")
    flap: Pair | None = Field(
        default=None,
        description="This link goes down again and again: for as long as `for` says (1s if it does not), each time "
        "after `every` (10s).",
    )
    partition: tuple[Nodes, ...] | None = Field(
        default=None,
        min_length=2,
        examples=[[["w0", "w1"], ["w2", "w3"]]],
        description="No packets between these groups of workers: [[w0, w1], [w2, w3]].",
    )
    heal: bool | None = Field(default=None, description="All partitions end.")
    kill: Nodes | None = Field(
        default=None,
        description="These workers die at once, as by a power cut. See on_failure. With `for` they restart then.",
    )
    restart: Nodes | None = Field(
        default=None,
        description="These workers, killed before, start again. Where the others went on (on_failure: continue) each "
        "rejoins a few steps later: its neighbours wait for it, one sends it its model; momentum begins at 0.",
    )
    freeze: Nodes | None = Field(default=None, description="These workers stop, silently, for as long as `for` says.")
    slow: Nodes | None = Field(default=None, description="These workers compute `factor` times slower: stragglers.")
    random: RandomEvents | None = Field(
        default=None, description="Events at random times, e.g. {kind: kill, every: 60s, seed: 1}."
    )
    lasting: Span | None = Field(
        default=None,
        alias="for",
        description="Undo it after this time; needed with `freeze`. Default: it stays (`flap`: 1s).",
    )
    every: Period | None = Field(
        default=None,
        description="Do it again and again, this long after the last beginning. Default: once (`flap`: 10s).",
    )
    until: Span | None = Field(
        default=None, description="No repetition (or random event) after this time. Default: to the end of training."
    )
    factor: Number | None = Field(
        default=None, gt=1, description="For slow: how many times longer each gradient takes. Default: 2."
    )


class Event(LinkOptions, _What):  # in this order `at` is written first
    """At some moment one thing happens, e.g. `{at: 30s, link: [w0, w1], rate: 1mbit}` or `{at: 60s, kill: w1}`."""

    @classmethod
    def written_out(cls, value: Any) -> Any:
        """Write out short forms: `{link: [w0, w1], down}` is `{down: [w0, w1]}`; `{heal}` is `{heal: true}`."""
        if not isinstance(value, Mapping):
            return value
        event = dict(value)
        for verb in ON_LINKS:
            if verb != "link" and verb in event and event[verb] in (None, True) and "link" in event:
                event[verb] = event.pop("link")
        if "heal" in event:
            event["heal"] = True if event["heal"] is None else event["heal"] or None
        return super().written_out(event)

    @property
    def verb(self) -> str:
        """Return what happens, as users write it: link, down, partition, kill, …; "link" for one direction too."""
        verb = self._given()[0]
        return "link" if verb == "from" else verb

    @property
    def restarts(self) -> bool:
        """Whether workers that died start again."""
        again = self.random is not None and self.random.kind == "kill" and self.random.lasting is not None
        return again or self.restart is not None or (self.kill is not None and self.lasting is not None)

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """Return, for link, the directed ends (from, to) that change; for down, up, flap both directions."""
        pair = next((ends for verb in ON_LINKS if (ends := getattr(self, verb))), None)
        return directions(pair, self.source, self.target)

    @property
    def workers(self) -> tuple[str, ...]:
        """Return, for kill, restart, freeze, slow, the workers concerned."""
        return next((names for verb in ON_WORKERS if (names := getattr(self, verb))), ())

    def _given(self) -> list[str]:
        return [verb for verb in VERBS if getattr(self, field_of(verb)) not in (None, False)]

    @model_validator(mode="after")
    def _makes_sense(self) -> Event:
        given = self._given()
        if len(given) != 1:
            found = f", not {' and '.join(given)}" if given else ""
            raise ValueError(f"an event does exactly one thing{found}; one of: {', '.join(VERBS)}")
        verb = given[0]
        if verb != "random" and "at" not in self.model_fields_set:
            raise ValueError("when? Give at: 30s, or at: step 100")
        changes = [name for name in LinkOptions.model_fields if getattr(self, name) is not None]
        if done_by(verb) == "link" or self.target is not None:
            check_ends("link", self.link, self.source, self.target)
            if not changes:
                raise ValueError(f"says nothing about the link; give any of: {', '.join(LinkOptions.model_fields)}")
        elif changes:
            raise ValueError(f"{changes[0]} goes with link: [w0, w1], not with {verb}")
        if self.factor is not None and verb != "slow":
            raise ValueError(f"factor goes with slow, not with {verb}")
        if self.lasting is not None and not VERBS[verb].lasting:
            hint = "; write it inside random" if verb == "random" else ""
            raise ValueError(f"for does not go with {verb}{hint}")
        if self.every is not None and verb == "random":
            raise ValueError("every does not go with random; write it inside random")
        if not VERBS[verb].endless and self.lasting is None:
            raise ValueError("for how long? Give for: 5s; to stop a worker for good use kill")
        if (self.every is not None or verb == "random") and isinstance(self.at, Step):
            raise ValueError("what repeats starts at a time, not at a step; write for example at: 30s")
        if self.every is not None and self.lasting is not None and self.lasting >= self.every:
            raise ValueError(f"for ({self.lasting}) must be shorter than every ({self.every})")
        if self.until is not None and self.every is None and verb not in ("random", "flap"):
            raise ValueError("until goes with every, flap or random; to undo an event after some time give for")
        if verb == "partition" and self.partition is not None:
            members = [name for group in self.partition for name in group]
            if twice := {name for name in members if members.count(name) > 1}:
                raise ValueError(f"{min(twice)} is in two groups of the partition")
        return self
