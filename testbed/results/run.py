"""A run's directory as tables, for notebooks, `analysis/` and the report. `testbed.open_run(path)` makes it.

Tables are read when first asked for and kept. A trace may have tens of millions of rows: for sums or one cell use
`time_by_kind` or `trace_of`, which hold one cell in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from testbed.errors import ScenarioError, StorageError
from testbed.link.netem import ideal_goodput
from testbed.results import swept
from testbed.results.cell import CellResult, PlannedCell, method_label
from testbed.results.columns import cell_row
from testbed.results.comparison import compare
from testbed.results.directory import RunDirectory
from testbed.results.parquet import SCHEMAS, WORD, read_table, there
from testbed.results.surroundings import newest
from testbed.safe_files import DamagedError
from testbed.scenario.sweep import short_names
from testbed.verdict import Verdict, judge_goodput, judge_rtt, worst
from testbed.worker.trace import KINDS

if TYPE_CHECKING:
    from testbed.network.probes import Probe, Way
    from testbed.plan.model import Plan
    from testbed.scenario.model import Scenario

NETWORK = "network."  # keys of a sweep that belong to a link, too


def open_run(path: str | Path) -> Run:
    """Open the run in a directory. ScenarioError where there is none."""
    return Run(RunDirectory.open(Path(path)))


class Run:
    """One run, finished or not. Every table identifies the cell of each row: `cell`, `setting` (the swept values in
    words), `method` (as in the report), `family` (the method without its options), `repeat`, `seed`, and a column for
    each swept key (numbers in base units, and as text in a column that ends with _text)."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.path = directory.path
        self.name = directory.path.name

    def __repr__(self) -> str:
        return f"<run {self.name}: {len(self.results)} of {len(self.cells)} cells>"

    @cached_property
    def data(self) -> dict[str, Any]:
        """Return its scenario as plain data, every default spelt out."""
        return self.directory.scenario_data()

    @cached_property
    def scenario(self) -> Scenario:
        """Return its scenario, validated; files that it names must still be where they were."""
        from testbed.results.own_scenario import own_scenario

        return own_scenario(self.directory)

    @cached_property
    def plan(self) -> Plan:
        """Return what was built and run, made again from the scenario."""
        from testbed.plan.make import plan

        return plan(self.scenario)

    @property
    def sweep(self) -> Mapping[str, Sequence[Any]]:
        return self.data.get("sweep") or {}

    @property
    def learns(self) -> bool:
        """Whether gradients were computed. With `compute: emulated` only times and bytes mean something."""
        compute = self.data.get("compute")
        return not (isinstance(compute, Mapping) and "emulated" in compute)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Return one row per cell of the plan, done or not, in the plan's order."""
        columns = swept.columns(self.sweep)
        rows = []
        for cell in self.planned:
            own = {
                "cell": cell.id,
                "setting": cell.setting,
                "method": method_label(cell),
                "family": cell.method,
                "repeat": cell.repeat,
                "seed": cell.seed,
                "workers": cell.workers,
                "point": cell.point,
                "variant": cell.variant,
            }
            if columns and cell.variant >= len(columns):
                raise DamagedError(self.path / "cells.json", f"{cell.id} is of a variant that the sweep does not have")
            # A key that is swept and has a column anyway (workers, seed) is there already.
            rows.append({**(columns[cell.variant] if columns else {}), **own})
        if not rows:
            return pd.DataFrame(columns=["cell", "setting", "method", "family", "repeat", "seed", "workers", "point"])
        frame = pd.DataFrame(rows)
        return frame[[*own, *(name for name in frame if name not in own)]]

    @property
    def swept(self) -> list[str]:
        """Return the names of the columns that a sweep made, numbers only where all values are."""
        return [name.removesuffix(swept.TEXT) for name in map(str, self.cells) if name.endswith(swept.TEXT)]

    @cached_property
    def planned(self) -> list[PlannedCell]:
        """Return what every cell of the plan is, done or not."""
        return self.directory.cells()

    @cached_property
    def raw(self) -> dict[str, CellResult]:
        """Return what each finished cell's result.json says, by cell."""
        return {result.id: result for result in self.directory.results()}

    @property
    def damaged(self) -> list[str]:
        """Return what could not be read so far, in words: the tables lack it."""
        return self.directory.complaints()

    @cached_property
    def results(self) -> pd.DataFrame:
        """Return one row per finished cell, also those that failed or diverged (`error`): times, bytes, last metrics,
        verdict (or that it failed or diverged)."""
        return self._joined(pd.DataFrame([{"cell": cell, **cell_row(result)} for cell, result in self.raw.items()]))

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """Return how faithful each cell's emulation was: a row per reason against it, or one without a reason."""
        rows = [
            {"cell": cell, "grade": result.verdict.grade, "reason": reason}
            for cell, result in self.raw.items()
            for reason in result.verdict.reasons or [""]
        ]
        return self._joined(pd.DataFrame(rows))

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Return loss, accuracy and consensus distance by worker (−1: their average) and step, with time and bytes."""
        return self._all("metrics.parquet")

    @cached_property
    def counters(self) -> pd.DataFrame:
        """Return what links, ports, processes and processors counted, five times a second."""
        return self._all("counters.parquet")

    @cached_property
    def trace(self) -> pd.DataFrame:
        """Return every span of every worker of every cell. Large: see trace_of and time_by_kind."""
        return self._all("trace.parquet")

    def trace_of(
        self, cell: str, columns: Sequence[str] | None = None, kinds: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Return the spans of one cell; of these columns and kinds alone, which is quicker."""
        table = self.trace_table(cell, None if columns is None else list(dict.fromkeys([*columns, "kind"])))
        if kinds is not None:
            if unknown := set(kinds) - set(KINDS):
                raise ScenarioError(f"there are no spans of kind {min(unknown)}", hint=f"kinds: {', '.join(KINDS)}")
            table = table.filter(pc.is_in(table["kind"].cast(pa.string()), pa.array(kinds)))
        frame: pd.DataFrame = table.to_pandas(split_blocks=True, self_destruct=True)
        return frame if columns is None else frame[list(columns)]

    def trace_table(self, cell: str, columns: Sequence[str] | None = None) -> Any:
        """Return the same as a pyarrow table, not kept."""
        if cell not in set(self.cells["cell"]):
            raise ScenarioError(
                f"{self.path} has no cell {cell}", hint=f"it has {', '.join(self.cells['cell'][:5])}, …"
            )
        file = self.directory.cell(cell) / "trace.parquet"
        if not there(file):
            raise StorageError(f"cell {cell} has no trace", hint="it is not done, or it failed before it began")
        return read_table(file, columns=columns)

    @cached_property
    def time_by_kind(self) -> pd.DataFrame:
        """Return seconds, spans and bytes of each cell's workers by kind of span: one cell in memory at a time."""
        wanted = ["worker", "kind", "start_ns", "end_ns", "bytes_logical", "bytes_wire"]
        tables = []
        for cell, table in self._tables("trace.parquet", columns=wanted):
            table = table.append_column("ns", pc.subtract(table["end_ns"], table["start_ns"]))
            sums = [("ns", "sum"), ("ns", "count"), ("bytes_logical", "sum"), ("bytes_wire", "sum")]
            found = table.group_by(["worker", "kind"]).aggregate(sums).to_pandas()
            tables.append(found.assign(cell=cell, kind=found["kind"].astype(str)))
        if not tables:
            return pd.DataFrame()
        frame = pd.concat(tables, ignore_index=True)
        frame["seconds"] = frame.pop("ns_sum") / 1e9
        names = {"ns_count": "spans", "bytes_logical_sum": "bytes_logical", "bytes_wire_sum": "bytes_wire"}
        return self._joined(frame.rename(columns=names))

    @cached_property
    def metrics_by_step(self) -> pd.DataFrame:
        """Return each cell's metrics over steps: `value` (mean over the workers' own models; the averaged model's where
        only that was evaluated), `time_s` (of the last worker), `bytes_sent` (mean over workers)."""
        wanted = [("value", "mean"), ("time_s", "max"), ("bytes_sent", "mean")]
        tables = []
        for cell, table in self._tables("metrics.parquet"):
            own = table.filter(pc.greater_equal(table["worker"], 0))
            other = table.filter(pc.invert(pc.is_in(table["metric"], pc.unique(own["metric"]))))
            found = own.group_by(["metric", "step"]).aggregate(wanted).to_pandas()
            shared = other.group_by(["metric", "step"]).aggregate(wanted).to_pandas()
            shared["bytes_sent_mean"] /= max(1, len(pc.unique(own["worker"])))  # an average counts the bytes of all
            tables.append(pd.concat([found, shared]).assign(cell=cell))
        if not tables:
            return pd.DataFrame()
        frame = pd.concat(tables, ignore_index=True).rename(columns={f"{name}_{how}": name for name, how in wanted})
        return self._joined(frame.sort_values(["cell", "metric", "step"]))

    @cached_property
    def links(self) -> pd.DataFrame:
        """Return one row per network, measured pair and direction: asked, measured, and its verdict."""
        local = [name for key, name in short_names(list(self.sweep)).items() if key.startswith(NETWORK)]
        columns = [name for name in self._swept_columns() if name.removesuffix(swept.TEXT) in local]
        at = self.cells.drop_duplicates("point").set_index("point")[columns] if len(self.cells) else pd.DataFrame()
        rows = []
        for network in newest(self.directory.networks()):
            known: dict[Any, Any] = {"point": network.point, "setting": network.label}
            known |= at.loc[network.point].to_dict() if network.point in at.index else {}
            for probe in network.probes:
                rows += [{**known, **row} for row in _directions(probe, network.mtu)]
        return pd.DataFrame(rows)

    def compare(self, *, with_invalid: bool = False) -> pd.DataFrame:
        """Return the report's table: one row per setting and method, means over repeats, invalid cells left out."""
        rows = []
        for line in compare(list(self.raw.values()), with_invalid=with_invalid):
            row = asdict(line)
            parts = {f"{part}_s": value for part, value in row.pop("parts_s").items()}
            others = row.pop("measured")
            rows.append({**row, **others, **parts})
        frame = pd.DataFrame(rows)
        if not rows:
            return frame
        columns = ["setting", "family", *self._swept_columns()]
        known = self.cells.drop_duplicates(["setting", "method"])[["method", *columns]]
        return frame.merge(known, on=["setting", "method"], how="left", suffixes=("", "_swept"))

    def _swept_columns(self) -> list[str]:
        return [name for name in map(str, self.cells) if name.removesuffix(swept.TEXT) in self.swept]

    def _joined(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Put the description of each row's cell in front."""
        if frame.empty:
            return frame
        clash = [name for name in frame if name in self.cells and name != "cell"]
        return self.cells.merge(frame.drop(columns=clash), on="cell", how="inner")

    def _tables(self, name: str, **options: Any) -> Iterator[tuple[str, Any]]:
        """Yield a table of each finished cell that has it, in the plan's order; damaged ones are left out."""
        for cell in self.raw:
            if there(file := self.directory.cell(cell) / name):
                table = None
                with self.directory.skipping():
                    table = read_table(file, **options)
                if table is not None:
                    yield cell, table

    def _all(self, name: str) -> pd.DataFrame:
        """Return a table of all cells. Words are stored once, so that a row costs little more than its numbers."""
        known = self.cells.set_index("cell")
        tables = []
        words = [column for column, kind in SCHEMAS[name].items() if kind == WORD]
        for cell, table in self._tables(name, read_dictionary=words):
            for column, value in {"cell": cell, **known.loc[cell]}.items():
                if column not in table.column_names:
                    table = table.append_column(column, _repeated(value, table.num_rows))
            tables.append(table)
        if not tables:
            return pd.DataFrame()
        whole = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
        del tables
        front = [name for name in ("cell", *known.columns) if name in whole.column_names]
        whole = whole.select([*front, *(name for name in whole.column_names if name not in front)])
        frame: pd.DataFrame = whole.to_pandas(split_blocks=True, self_destruct=True)
        return frame


def _repeated(value: Any, rows: int) -> Any:
    """Return a column with the same value in every row, in a byte each for words."""
    if isinstance(value, str):
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int16()), rows), pa.array([value]))
    if isinstance(value, float):
        return pa.repeat(pa.scalar(value, pa.float64()), rows)
    return pa.repeat(pa.scalar(None if value is None else int(value), pa.int64()), rows)


def _directions(probe: Probe, mtu: int) -> Iterator[dict[str, Any]]:
    for way, source, target in ((probe.there, probe.source, probe.target), (probe.back, probe.target, probe.source)):
        name = f"{source}>{target}"
        verdict = _judged(probe, way, name, mtu)
        yield {
            "link": name,
            "source": source,
            "target": target,
            "hops": probe.hops,
            "rtt_asked_s": probe.latency,
            "rtt_s": probe.rtt,
            "rtt_spread_s": probe.spread,
            "rate_asked": way.rate,
            "goodput_asked": None if way.rate is None else ideal_goodput(way.rate, mtu),
            "goodput": way.goodput,
            "loss_asked": way.loss,
            "loss": way.lost,
            "packets": way.packets,
            **{f"{count}_asked": one.asked for count, one in way.counted.items()},
            **{count: one.measured for count, one in way.counted.items()},
            "grade": verdict.grade,
            "reasons": verdict.reasons,
        }


def _judged(probe: Probe, way: Way, name: str, mtu: int) -> Verdict:
    silent = probe.may_be_silent and probe.rtt is None
    answered = Verdict("faithful") if silent else judge_rtt(probe.name, probe.latency, probe.rtt, probe.jitter)
    carried = judge_goodput(name, way.rate, way.goodput, mtu)
    return worst([answered, carried, way.judge_shares(name)])
