"""A run directory's other files as types: origin.json, environment.json, links.json, scenario.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from testbed import safe_files
from testbed.errors import ScenarioError
from testbed.link.counts import COUNTS
from testbed.network.calibrate import Calibration
from testbed.network.probes import Probe, Way
from testbed.results.validated import HINT, Amount, Count, explain
from testbed.safe_files import DamagedError
from testbed.scenario.read import MOST_BYTES, decode, read
from testbed.verdict import Verdict

MTU = 1500
LATER: dict[str, Any] = {"counted": {}, "whole": 1.0}  # of a way: left out where nothing but loss was asked for
LEAST_MTU = 68  # bytes, as IPv4 has it


def _path(value: str) -> str:
    if "\0" in value:
        raise ValueError("should be a path")
    return value


def _moment(value: str) -> str:
    if datetime.fromisoformat(value).tzinfo is None:
        raise ValueError("should be a time with its time zone")
    return value


@dataclass(frozen=True)
class Origin:
    """Where the scenario came from."""

    directory: Annotated[str, AfterValidator(_path)]  # that the files which it names are relative to
    file: str = "scenario"
    written: tuple[str, ...] | None = None  # keys that the user gave; older versions did not say


@dataclass(frozen=True)
class Environment:
    """The machine, and how it was used."""

    time: Annotated[str, AfterValidator(_moment)]
    python: str
    packages: dict[str, str | None]
    kernel: str
    cpu: str
    cores: Annotated[int, Field(ge=1, lt=2**31)]
    memory_bytes: Amount
    box: str
    box_reason: str
    box_kernel: str
    runtime: str
    git: str | None = None
    machine: str = ""
    command: tuple[str, ...] = ()
    sysctls: dict[str, Any] = field(default_factory=dict)
    network_settings: dict[str, Any] = field(default_factory=dict)
    resumes: Environment | None = None  # as it was before

    @property
    def first(self) -> Environment:
        """Return it as it was when the run began."""
        return self if self.resumes is None else self.resumes.first

    @property
    def when(self) -> datetime:
        return datetime.fromisoformat(self.time)


@dataclass(frozen=True)
class MeasuredNetwork:
    """One entry of links.json: a network as it was measured."""

    point: Count
    label: str
    probes: tuple[Probe, ...]
    verdict: Verdict
    unmeasured: Count
    mtu: Annotated[int, Field(ge=LEAST_MTU, le=1 << 20)] = MTU

    def __post_init__(self) -> None:
        for probe in self.probes:
            numbers = (probe.latency, probe.jitter, probe.spread, 0.0 if probe.rtt is None else probe.rtt)
            if not all(map(_plausible, numbers)) or not (_possible(probe.there) and _possible(probe.back)):
                raise ValueError(f"{probe.name} was measured as nothing can be")

    @staticmethod
    def of(point: int, label: str, mtu: int, found: Calibration) -> MeasuredNetwork:
        return MeasuredNetwork(point, label, found.probes, found.verdict, found.unmeasured, mtu)

    @property
    def calibration(self) -> Calibration:
        return Calibration(self.probes, self.verdict, self.unmeasured)

    def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = NETWORK.dump_python(self)
        for way in (probe[key] for probe in found["probes"] for key in ("there", "back")):
            for key in [key for key, usual in LATER.items() if way[key] == usual]:
                del way[key]
        return found


def _plausible(value: float) -> bool:
    return isfinite(value) and 0 <= value <= 1e9


def _possible(way: Way) -> bool:
    rate = way.rate is None or 0 < way.rate < 2**63
    shares = all(share is None or 0 <= share <= 1 for share in (way.loss, way.lost))
    goodput = way.goodput is None or (isfinite(way.goodput) and way.goodput >= 0)
    counted = way.counted.keys() <= COUNTS.keys() and all(
        _plausible(share) for one in way.counted.values() for share in (one.asked, one.measured or 0.0)
    )
    return rate and shares and counted and 0 < way.whole <= 1 and goodput and 0 <= way.packets < 2**63


def newest(networks: Iterable[MeasuredNetwork]) -> list[MeasuredNetwork]:
    """Return the last measurement of each network: a resumed run has several."""
    return list({one.point: one for one in networks}.values())


ORIGIN = TypeAdapter(Origin)
ENVIRONMENT = TypeAdapter(Environment)
NETWORK = TypeAdapter(MeasuredNetwork)


class _Training(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    steps: Count
    eval_every: Count | None


class _Task(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    data: str | None
    model: str | dict[str, Any] | None
    batch: Annotated[int, Field(ge=1)]


class _Network(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    link: dict[str, Any]
    links: list[Any]


class _Scenario(TypedDict, total=False):
    """The shape that readers rely on. Today's version need not accept it as a scenario."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    name: str
    network: _Network
    task: _Task
    training: _Training
    compute: str | dict[str, Any] | None
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] | None
    on_failure: str


_SCENARIO = TypeAdapter(_Scenario)


def scenario_text(path: Path) -> str:
    """Return scenario.yaml as it is."""
    try:
        return decode(safe_files.read_bytes(path, most=MOST_BYTES, follow=True), path.name)
    except FileNotFoundError:
        raise DamagedError(path, "it is gone") from None
    except ScenarioError as error:
        raise DamagedError(path, str(error), hint=HINT) from error


def scenario_data(path: Path) -> dict[str, Any]:
    """Return scenario.yaml as plain data."""
    try:
        found = read(scenario_text(path), path.name).data or {}
        _SCENARIO.validate_python(found, strict=True)
    except ScenarioError as error:
        raise DamagedError(path, str(error), hint=HINT) from error
    except ValidationError as error:
        raise DamagedError(path, explain(error), hint=HINT) from error
    data: dict[str, Any] = found
    return data
