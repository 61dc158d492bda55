"""Recordings that drive a link: CSV rows and mahimahi's packet-delivery files, as samples in time. The schedule reads
them before anything is started, so that errors in a file are reported with their line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError
from testbed.link.netem import MAXIMUM_RATE, wire_bytes
from testbed.link.shape import WRITTEN
from testbed.plan.model import TraceFile

COLUMNS = ("time", *WRITTEN)
EXAMPLE = "time,rate,latency,loss, then for example 0s,100mbit,5ms,0%"
DELIVERY_MTU = 1500  # bytes of IP that leave per line of a mahimahi file
BIN = 0.1  # seconds over which its lines are counted
LONGEST = 86_400  # seconds


@dataclass(frozen=True)
class Sample:
    """A link's values from this moment until the next sample."""

    at: float  # seconds since the trace began
    numbers: Mapping[str, Any] = field(default_factory=dict)  # fields of Shape
    hold: float = 0.0  # nothing leaves for this long: packets wait that much longer


@dataclass(frozen=True)
class Trace:
    """Samples in order of time; with a period they start over, without one the last one stays."""

    samples: tuple[Sample, ...]
    period: float | None = None

    def __iter__(self) -> Iterator[Sample]:
        if self.period is None:
            yield from self.samples
            return
        for turn in count():
            for sample in self.samples:
                yield Sample(turn * self.period + sample.at, sample.numbers, sample.hold)


def read(file: TraceFile) -> Trace:
    """Read a trace's file. ScenarioError where it cannot be read or is malformed."""
    try:
        text = Path(file.path).read_text("utf-8-sig")
    except OSError as error:
        raise ScenarioError(f"{file.path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{file.path}: is no text") from error
    return parse_csv(text, file.path) if file.kind == "csv" else parse_mahimahi(text, file.path)


def parse_csv(text: str, name: str) -> Trace:
    """Parse rows of time, rate, latency, packet loss with units as in scenarios. An empty cell changes nothing."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    header: list[str] | None = None
    samples: list[Sample] = []
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if header is None:
                header = _header(cells)
            else:
                samples.append(_sample(dict(zip(header, cells, strict=False)), len(cells), len(header), samples))
    except (ValueError, csv.Error) as error:
        raise ScenarioError(f"{name}:{rows.line_num}: {error}") from error
    if not samples:
        raise ScenarioError(f"{name}:{max(1, rows.line_num)}: no rows of numbers", hint=f"a first line {EXAMPLE}")
    return Trace(tuple(samples))


def _header(cells: list[str]) -> list[str]:
    names = [cell.lower() for cell in cells]
    unknown = [name for name in names if name not in COLUMNS]
    if "time" not in names or unknown or len(set(names)) < len(names):
        found = f"unknown column {unknown[0]!r}" if unknown else "a column is there twice"
        raise ValueError(f"{found if 'time' in names else 'no column called time'}; the first line is {EXAMPLE}")
    return names


def _sample(row: Mapping[str, str], cells: int, columns: int, before: list[Sample]) -> Sample:
    if cells != columns:
        raise ValueError(f"{cells} cells, but the first line has {columns}")
    from testbed.scenario.links import number_of  # brings pydantic, which a plan's reader does not need
    from testbed.scenario.units import Duration

    try:
        at = float(Duration.parse(row["time"]))
    except ValueError as error:
        raise ValueError(f"time: {error}") from error
    if before and at <= before[-1].at:
        raise ValueError(f"time: {row['time']} does not come after {Duration(before[-1].at)}")
    numbers: dict[str, Any] = {}
    for name, text in row.items():
        if name != "time" and text:
            numbers |= number_of(name, text)
    return Sample(at, numbers)


def parse_mahimahi(text: str, name: str) -> Trace:
    """Parse one line per packet of 1500 bytes that may leave, its time in milliseconds; starts over at its last one.

    Lines are counted over bins of 100 ms. While none comes, packets wait for the next, as in mahimahi.
    """
    times: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        word = line.strip()
        if not (word.isascii() and word.isdigit() and int(word[:12]) <= LONGEST * 1000 and len(word) <= 12):
            raise ScenarioError(f"{name}:{number}: {word[:40]!r} is not a time in milliseconds, a day at most")
        if times and int(word) < times[-1]:
            raise ScenarioError(f"{name}:{number}: {word} ms comes after {times[-1]} ms: times must not go back")
        times.append(int(word))
    if not times or times[-1] == 0:
        raise ScenarioError(f"{name}:{max(1, len(times))}: the trace starts over at its last time, which must not be 0")
    period = times[-1] / 1000
    bins = max(1, round(period / BIN))
    packets = [0] * bins
    for time in times:
        packets[max(0, -(-time * bins // times[-1]) - 1)] += 1  # a bin has its end, not its beginning
    return Trace(tuple(_merged(packets, period / bins)), period)


def _merged(packets: list[int], width: float) -> Iterator[Sample]:
    """Yield one sample per bin that differs from the previous one."""
    gaps = [0] * len(packets)  # empty bins until something leaves; what comes after the last one is the first one
    for number in reversed(range(2 * len(packets))):
        here = number % len(packets)
        gaps[here] = 0 if packets[here] else gaps[(here + 1) % len(packets)] + 1
    before: Sample | None = None
    for number, gap in enumerate(gaps):
        bits = 8 * wire_bytes(DELIVERY_MTU) * packets[(number + gap) % len(packets)]
        sample = Sample(number * width, {"rate": min(MAXIMUM_RATE, round(bits / width))}, round(gap * width, 6))
        if before is None or (sample.numbers, sample.hold) != (before.numbers, before.hold):
            yield sample
        before = sample
