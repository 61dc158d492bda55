"""Cells' traces for Perfetto and chrome://tracing, in the Chrome trace event format. `testbed trace` calls `write`.

A process per worker, with lanes for computing, coding and both directions of each edge; an arrow from where a message
was sent to where it arrived; beside them the counters of links, ports and processes. Times are exact to the nanosecond
and begin at 0 with each cell's first span, so that cells written into one file lie below each other.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from testbed.errors import ScenarioError, StorageError
from testbed.report.perfetto_counters import Sample, instants, samples
from testbed.results.exchanges import EDGE, messages
from testbed.results.run import Run
from testbed.worker.trace import KINDS

Integers = NDArray[np.int64]

CODEC = ("compress", "decompress")
OUT, IN = ("send",), ("wait", "receive", "fault")  # with a peer, they have a lane for their direction of the edge
CATEGORIES = {kind: "codec" if kind in CODEC else "network" if kind in OUT + IN else "compute" for kind in KINDS}
COMPUTE_LANE, CODEC_LANE, ALL_LANE, FIRST_EDGE = 0, 1, 2, 3
TIDS = 1_000_000  # per process, so that no two lanes of a file have a number in common
SLICE, SENT, CAME, BESIDE = range(4)  # kinds of events
CHUNK = 50_000  # events that are text in memory at a time


@dataclass(frozen=True)
class Selection:
    """The wanted part of a cell."""

    first: int = 0
    end: int | None = None  # the first step that is not
    workers: frozenset[int] | None = None  # None: all

    @staticmethod
    def parse(steps: str | None, workers: str | None) -> Selection:
        """Parse "10:20" (10 to 19, as Python counts), ":20", "10:" or "10", and "w0,w3"."""
        first, end = 0, None
        if steps is not None:
            before, colon, after = steps.partition(":")
            try:
                first = int(before or 0)
                end = (int(after) if after else None) if colon else first + 1
            except ValueError:
                first, end = 0, 0
            if first < 0 or (end is not None and end <= first):
                raise ScenarioError(f"--steps {steps} is no range", hint="10:20 is steps 10 to 19, 10 is one step")
        if workers is None:
            return Selection(first, end)
        names = [name.strip().removeprefix("w") for name in workers.split(",")]
        if not all(name.isdecimal() for name in names):
            raise ScenarioError(f"--workers {workers} names no workers", hint="write for example w0,w3")
        return Selection(first, end, frozenset(map(int, names)))

    def of(self, table: Any) -> Any:
        """Return the rows of a trace that belong to it."""
        wanted = pc.greater_equal(table["step"], self.first)
        if self.end is not None:
            wanted = pc.and_(wanted, pc.less(table["step"], self.end))
        if self.workers is not None:
            ranks = pa.array(sorted(self.workers), pa.int32())
            wanted = pc.and_(wanted, pc.is_in(table["worker"].cast(pa.int32()), ranks))
        return table.filter(wanted)


@dataclass
class Written:
    """What a file holds."""

    spans: int = 0
    arrows: int = 0
    samples: int = 0


@dataclass
class Spans:
    """Selected spans of one cell as columns, times from the cell's beginning."""

    worker: Integers
    kind: Integers  # as in KINDS
    step: Integers
    peer: Integers
    start: Integers
    end: Integers
    bytes_logical: Integers
    bytes_wire: Integers
    zero: int  # the cell's beginning on the monotonic clock
    lane: Integers = field(init=False)
    lanes: list[tuple[int, int, int]] = field(init=False)  # (worker, lane, sublane) of the file, from top to bottom
    place: Integers = field(init=False)  # of each span, among these

    def __post_init__(self) -> None:
        self.lane = np.full(len(self), COMPUTE_LANE, dtype=np.int64)
        self.lane[self.are(*CODEC)] = CODEC_LANE
        for direction, kinds in enumerate((OUT, IN)):
            here = self.are(*kinds)
            self.lane[here] = np.where(self.peer[here] < 0, ALL_LANE, FIRST_EDGE + 2 * self.peer[here] + direction)
        codes = (self.worker << 40) | (self.lane << 16) | _sublanes(self)
        found, self.place = np.unique(codes, return_inverse=True)
        self.lanes = [(code >> 40, code >> 16 & 0xFFFFFF, code & 0xFFFF) for code in found.tolist()]

    def __len__(self) -> int:
        return len(self.start)

    def are(self, *kinds: str) -> NDArray[np.bool_]:
        return np.isin(self.kind, [KINDS.index(kind) for kind in kinds])


def write(run: Run, cells: Sequence[str], file: Path, selection: Selection | None = None) -> Written:
    """Write these cells into one file, gzipped if its name ends with .gz; one cell is in memory at a time."""
    selection, written = selection or Selection(), Written()
    about = [{"cell": cell, **_described(run, cell)} for cell in cells]
    with _opened(file) as out:
        out.write('{"displayTimeUnit":"ms","otherData":' + json.dumps({"run": run.name, "cells": about}))
        out.write(',"traceEvents":[\n')
        pid, comma = 1, ""
        for cell in cells:
            spans = _read(run, cell, selection)
            title = f"{cell} " if len(cells) > 1 else ""
            ranks = sorted(set(spans.worker.tolist()))
            pids = {rank: pid + number for number, rank in enumerate(ranks)}
            network = pid + len(ranks)
            pid = network + 1
            for chunk in _texts(_names(spans, pids, network, title), _events(run, cell, spans, pids, network, written)):
                out.write(comma + ",\n".join(chunk))
                comma = ",\n"
        out.write("\n]}\n")
    return written


@contextmanager
def _opened(file: Path) -> Iterator[IO[str]]:
    """Open a file that appears only when it is complete."""
    unfinished = file.with_name(f"{file.name}.part")
    try:
        with gzip.open(unfinished, "wt", 5) if file.suffix == ".gz" else unfinished.open("w") as out:
            yield out
        unfinished.rename(file)
    except OSError as error:
        raise StorageError(f"cannot write {file}: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _described(run: Run, cell: str) -> dict[str, Any]:
    result = run.raw.get(cell)
    row = run.cells.set_index("cell").loc[cell]
    found = {"verdict": result.verdict.grade, "error": result.error} if result else {"verdict": None, "error": None}
    return {"method": row["method"], "setting": row["setting"], **found}


def _read(run: Run, cell: str, selection: Selection) -> Spans:
    table = run.trace_table(cell)
    zero = pc.min(table["start_ns"]).as_py() or 0
    chosen = selection.of(table)
    if not chosen.num_rows:
        raise ScenarioError(
            f"cell {cell} has no such spans",
            hint=f"it has workers 0 to {pc.max(table['worker']).as_py()}, steps 0 to {pc.max(table['step']).as_py()}",
        )
    kinds = pc.index_in(chosen["kind"].cast(pa.string()), pa.array(KINDS))
    columns = {name: chosen[name].to_numpy().astype(np.int64) for name in chosen.column_names if name != "kind"}
    start, end = columns.pop("start_ns") - zero, columns.pop("end_ns") - zero
    return Spans(kind=kinds.to_numpy().astype(np.int64), start=start, end=end, zero=zero, **columns)


def _sublanes(spans: Spans) -> Integers:
    """Return each span's sublane, 0 for nearly all. Spans of a lane must nest; one that only overlaps another goes to
    the next lane, as does a message that is sent while the last is still on its way."""
    found = np.zeros(len(spans), dtype=np.int64)
    order = np.lexsort((-spans.end, spans.start))
    open_ends: dict[tuple[int, int], list[list[int]]] = {}
    columns = (column[order].tolist() for column in (spans.worker, spans.lane, spans.start, spans.end))
    for index, worker, lane, start, end in zip(order.tolist(), *columns, strict=True):
        found[index] = _room(open_ends.setdefault((worker, lane), []), start, end)
    return found


def _room(stacks: list[list[int]], start: int, end: int) -> int:
    """Return the first lane in which this span lies within the last open one, or in which all are over."""
    for number, ends in enumerate(stacks):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return number
    stacks.append([end])
    return len(stacks) - 1


def _names(spans: Spans, pids: dict[int, int], network: int, title: str) -> Iterator[str]:
    """Yield the names of processes and lanes, and their order."""
    for rank, pid in pids.items():
        yield from _metadata("process", pid, 0, f"{title}w{rank}", pid)
    yield from _metadata("process", network, 0, f"{title}network", network)
    yield from _metadata("thread", network, network * TIDS, "events", 0)
    for number, (worker, lane, sublane) in enumerate(spans.lanes, 1):
        name = _lane_name(lane) + (f" ({sublane + 1})" if sublane else "")
        yield from _metadata("thread", pids[worker], pids[worker] * TIDS + number, name, number)


def _lane_name(lane: int) -> str:
    if lane < FIRST_EDGE:
        return {COMPUTE_LANE: "compute", CODEC_LANE: "codec", ALL_LANE: "all-reduce"}[lane]
    peer, direction = divmod(lane - FIRST_EDGE, 2)
    return f"{('to', 'from')[direction]} w{peer}"


def _metadata(what: str, pid: int, tid: int, name: str, rank: int) -> Iterator[str]:
    for key, arguments in (("name", {"name": name}), ("sort_index", {"sort_index": rank})):
        yield json.dumps({"ph": "M", "name": f"{what}_{key}", "pid": pid, "tid": tid, "args": arguments})


def _texts(*parts: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for part in parts:
        for text in part:
            chunk.append(text)
            if len(chunk) >= CHUNK:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def arrows(spans: Spans) -> tuple[Integers, Integers]:
    """Return which span sent a message and which one received or waited for it: of the n-th from a worker to another in
    a step, where both are there."""
    every = pd.DataFrame({"worker": spans.worker, "kind": spans.kind, "step": spans.step, "peer": spans.peer})
    known = pd.concat([messages(every, kind) for kind in ("receive", "wait")])
    pairs = known.drop_duplicates([*EDGE, "nth"])  # where its arrival was seen, that is where an arrow ends
    source, target = pairs["sent"].to_numpy(np.int64), pairs["came"].to_numpy(np.int64)
    possible = _inside(spans, target) >= spans.start[source]
    return source[possible], target[possible]


def _inside(spans: Spans, rows: Integers) -> Integers:
    """Return the last moment of each: at its very end, a span is no longer there for an arrow to point to."""
    return np.maximum(spans.start[rows], spans.end[rows] - 1)


def _events(run: Run, cell: str, spans: Spans, pids: dict[int, int], network: int, written: Written) -> Iterator[str]:
    """Yield all events in order of time; at the same time the longer span first, then arrows."""
    source, target = arrows(spans)
    beside = _beside(run, cell, spans, pids, network)
    n, flows, others = len(spans), len(source), len(beside)
    times = [spans.start, spans.start[source], _inside(spans, target), np.array([one.at for one in beside], np.int64)]
    length = np.concatenate([spans.end - spans.start, np.zeros(2 * flows + others, np.int64)])
    phase = np.repeat([SLICE, SENT, CAME, BESIDE], [n, flows, flows, others])
    row = np.concatenate([np.arange(n), source, target, np.arange(others)])
    flow = np.concatenate([np.zeros(n, np.int64), np.arange(flows), np.arange(flows), np.zeros(others, np.int64)])
    when = np.concatenate(times)
    order = np.lexsort((-length, phase, when))
    written.spans, written.arrows, written.samples = written.spans + n, written.arrows + flows, written.samples + others
    heads = [
        f'"pid":{pids[rank]},"tid":{pids[rank] * TIDS + number},"ts":'
        for number, (rank, *_) in enumerate(spans.lanes, 1)
    ]
    for begin in range(0, len(order), CHUNK):
        part = order[begin : begin + CHUNK]
        rows = row[part]
        slices = iter(_slices(spans, rows[phase[part] == SLICE]))
        lanes = spans.place[np.where(phase[part] == BESIDE, 0, rows)].tolist()
        columns = (column[part].tolist() for column in (when, phase, flow))
        for at, what, number, one, lane in zip(*columns, rows.tolist(), lanes, strict=True):
            if what == BESIDE:
                yield beside[one].text
                continue
            head = f"{heads[lane]}{at // 1000}.{at % 1000:03d}"
            if what == SLICE:
                yield f"{{{head}{next(slices)}}}"
            else:
                end = '"s"' if what == SENT else '"f","bp":"e"'
                yield f'{{{head},"ph":{end},"id":"{network}.{number}","name":"message","cat":"message"}}'


def _slices(spans: Spans, rows: Integers) -> Iterator[str]:
    """Yield the rest of each of these spans' events, after its beginning."""
    names = ("kind", "start", "end", "step", "peer", "bytes_logical", "bytes_wire")
    columns = (getattr(spans, name)[rows].tolist() for name in names)
    heads = [f',"ph":"X","name":"{kind}","cat":"{CATEGORIES[kind]}","dur":' for kind in KINDS]
    for kind, start, end, step, peer, logical, wire in zip(*columns, strict=True):
        about = f'"step":{step}'
        if peer >= 0:
            about += f',"peer":"w{peer}"'
        if logical or wire:
            about += f',"bytes_logical":{logical},"bytes_wire":{wire}'
        yield f'{heads[kind]}{(end - start) // 1000}.{(end - start) % 1000:03d},"args":{{{about}}}'


@dataclass(frozen=True)
class _Beside:
    """An event other than a span: when, and what to write."""

    at: int
    text: str


def _beside(run: Run, cell: str, spans: Spans, pids: dict[int, int], network: int) -> list[_Beside]:
    """Return what was counted, and what happened to links and workers, while the selected spans lasted."""
    first, last = int(spans.start.min()), int(spans.end.max())
    processes = {f"w{rank}": pid for rank, pid in pids.items()}
    file = run.directory.cell(cell) / "counters.parquet"
    found = []
    for sample in samples(file, spans.zero, first, last, processes):
        found.append(_Beside(sample.at, _counter(sample, processes.get(sample.worker, network))))
    for at, text in instants(file, spans.zero, first, last):
        event = {"ph": "i", "s": "g", "name": text, "cat": "event", "pid": network, "tid": network * TIDS}
        found.append(_Beside(at, json.dumps({**event, "ts": at / 1000})))
    return found


def _counter(sample: Sample, pid: int) -> str:
    event = {"ph": "C", "name": sample.track, "pid": pid, "tid": 0, "ts": sample.at / 1000}
    return json.dumps({**event, "args": {sample.unit: sample.value}})
