"""A cell of a run as types: its entry in cells.json and its result.json. All readers and writers of either use these.

A newly measured number needs the place that measures it, a field of CellResult, and a row in
`testbed.results.columns.COLUMNS`, which says what it means and how people see it; all tables then have it. Runs of
older versions lack what was not known yet: such fields have defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from testbed.results.validated import Amount, Count, Integer, Metric, Name, Positive, explain
from testbed.verdict import Verdict

Factor = Annotated[float, Field(ge=1, le=1e6)]


@dataclass(frozen=True)
class PlannedCell:
    """One entry of cells.json: what is run."""

    id: Name
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    point: Count = 0  # number of its network
    variant: Count = 0  # number of the combination of swept values
    repeat: Count = 0
    seed: Integer | None = None
    setting: str = ""  # swept values in words
    point_label: str = ""
    workers: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    task: dict[str, Any] | None = None  # with all that is the task's own choice
    gossip: dict[str, Any] | None = None
    slow_motion: Factor | None = None  # as planned; None: a run of an older version


UNKNOWN = PlannedCell("unknown", "unknown")


@dataclass(frozen=True)
class Target:
    """The target, and when it was reached; no step and no time: never."""

    metric: Literal["accuracy", "loss"]
    value: Annotated[float, Field(ge=-1e18, le=1e18)]
    step: Count | None = None
    seconds: Amount | None = None


@dataclass(frozen=True)
class Divergence:
    """Where a model was first seen to be NaN or infinite."""

    worker: str
    step: Count


@dataclass(frozen=True)
class Payload:
    """Bytes of one worker: what it reports, and what its port carried."""

    trainer: Integer
    port: Integer


@dataclass(frozen=True)
class Departure:
    """A worker that was lost."""

    text: str
    worker: str = ""
    step: Integer | None = None
    at: float | None = None  # seconds since training began
    why: str = ""


@dataclass(frozen=True)
class Return:
    """A worker that rejoined."""

    text: str
    worker: str = ""
    step: Integer | None = None
    at: float | None = None
    left_step: Integer | None = None
    left_at: float | None = None
    source: Annotated[str, Field(alias="from")] = ""  # whose model it got
    bytes: Integer | None = None


@dataclass(frozen=True)
class Event:
    """What an event of the scenario did."""

    subject: str
    what: str
    due: str | float | None = None
    at: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Pacing:
    """Rates that the workers found for their connections, in bytes per second; None: messages were too short."""

    edges: Count  # ends of connections, each for what it sends
    paced: Annotated[float, Field(ge=0, le=1)]  # share of them
    least: Amount | None = None
    median: Amount | None = None
    most: Amount | None = None


@dataclass(frozen=True)
class CellResult:
    """A cell's result: its result.json, with what the cell is. Numbers are None where it failed or diverged."""

    error: str | None  # why it failed or diverged
    verdict: Verdict
    hint: str | None = None
    diverged: Divergence | None = None
    reached: Count | None = None  # steps that all workers have done, where it ended early
    steps: Count | None = None
    seconds: Amount | None = None
    step_s: Positive | None = None
    parts_s: dict[str, Amount] = field(default_factory=dict)
    bytes_per_step: Amount | None = None
    exchange_s: Amount | None = None  # of a step's slowest messages, median over steps
    exchange_spread_s: Amount | None = None
    floor_s: Amount | None = None
    least_s: Amount | None = None  # that a step needs with these gradients, this codec and the floor
    pacing: Pacing | None = None  # None: off, or not of this transport
    final: dict[str, Metric] = field(default_factory=dict)
    target: Target | None = None
    decided: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    queued: Amount | None = None
    overruns: Count | None = None
    payload: dict[str, Payload] = field(default_factory=dict)
    wire_bytes: Integer | None = None
    idle: Metric | None = None
    box_share: Metric | None = None
    memory_per_worker: Amount | None = None
    lost: tuple[Departure, ...] = ()
    rejoined: tuple[Return, ...] = ()
    events: tuple[Event, ...] = ()
    patience_s: Amount | None = None
    backend: str = "gloo"  # that carried the messages
    congestion: str = ""  # control of TCP; empty: not on record
    shortcomings: tuple[str, ...] = ()
    slow_motion: Factor = 1.0  # real seconds that a second of the above lasted
    tried: tuple[Factor, ...] = ()  # smaller factors that were not enough: the cell was repeated
    starved: bool = False  # workers or links waited for processors that the run itself kept busy: slower motion helps
    first_step_s: Metric | None = None  # since the cell began, in real time
    cell_s: Amount | None = None  # in real time
    cell: PlannedCell = UNKNOWN  # set by the reader: the file does not say

    def __post_init__(self) -> None:
        if self.error is None:
            for name in ("step_s", "floor_s", "bytes_per_step"):
                if getattr(self, name) is None:
                    raise ValueError(f"{name} is missing, though the cell is done")

    @staticmethod
    def of(cell: PlannedCell, found: Mapping[str, Any]) -> CellResult:
        """Make a result, checked as it will be when it is read. ValueError where a value does not fit its type."""
        if unknown := found.keys() - STORED:
            raise ValueError(f"CellResult has no {', '.join(sorted(unknown))}")
        try:
            return RESULT.validate_python({**found, "cell": cell})
        except ValidationError as error:
            raise ValueError(f"a result that cannot be: {explain(error)}") from error

    @property
    def id(self) -> str:
        return self.cell.id

    @property
    def method(self) -> str:
        """Return the method with the options that set it apart, as people call it: "choco sign"."""
        return method_label(self.cell)

    @property
    def setting(self) -> str:
        return self.cell.setting

    @property
    def came_and_went(self) -> tuple[Departure | Return, ...]:
        return (*self.lost, *self.rejoined)

    def stored(self) -> dict[str, Any]:
        """Return the content of result.json."""
        found: dict[str, Any] = RESULT.dump_python(self, by_alias=True, exclude={"cell"})
        return found

    def as_data(self) -> dict[str, Any]:
        """Return the same with what the cell is, for programs."""
        described: dict[str, Any] = PLANNED.dump_python(self.cell)
        return {**described, **self.stored()}


def method_label(cell: PlannedCell) -> str:
    """Return its name for people: "choco sign", "powergossip rank 2 iterations 4". Other options, another label."""
    named = [_value(value) if key == "compressor" else f"{key} {_value(value)}" for key, value in cell.options.items()]
    return " ".join([cell.method, *named])


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_value(inner)}" if inner not in (None, {}) else key for key, inner in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


STORED = frozenset(one.name for one in fields(CellResult)) - {"cell"}
PLANNED = TypeAdapter(PlannedCell)
RESULT = TypeAdapter(CellResult)
