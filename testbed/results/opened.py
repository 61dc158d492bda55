"""A run's directory as tables: what notebooks, `analysis/` and the report read. `testbed.open_run(path)` makes it.

Tables are read when first asked for and kept. A trace may have tens of millions of rows: what only needs sums or one
cell takes `time_by_kind` or `trace_of`, which hold one cell in memory at a time.
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
from pyarrow import parquet

from testbed.errors import ScenarioError, StorageError
from testbed.network.shaping import ideal_goodput
from testbed.results import swept
from testbed.results.comparison import compare, method_label
from testbed.results.rundir import RunDirectory
from testbed.results.show import calibration, newest
from testbed.results.status import outcome
from testbed.results.stored import read_table, reading
from testbed.results.verdict import Verdict, judge_goodput, judge_loss, judge_rtt, worst
from testbed.scenario.read import read
from testbed.worker.trace import KINDS

if TYPE_CHECKING:
    from testbed.network.calibrate import Probe, Way
    from testbed.plan import Plan
    from testbed.scenario.model import Scenario

WORDS = ("metric", "kind", "name", "counter")  # columns of few words in many rows
NETWORK = "network."  # keys of a sweep that belong to a link, too


def open_run(path: str | Path) -> Run:
    """The run in a directory. ScenarioError where there is none."""
    return Run(RunDirectory.open(Path(path)))


class Run:
    """One run, finished or not. Every table says of which cell a row is: `cell`, `setting` (the swept values in
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
        """Its scenario as plain data, every default spelt out."""
        file = self.path / "scenario.yaml"
        data: dict[str, Any] = read(file.read_text(), str(file)).data or {}
        return data

    @cached_property
    def scenario(self) -> Scenario:
        """Its scenario, validated; files that it names must still be where they were."""
        from testbed.resume import own_scenario

        return own_scenario(self.directory)

    @cached_property
    def plan(self) -> Plan:
        """What was built and run, made again from the scenario."""
        from testbed.plan import plan

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
        """One row per cell of the plan, done or not, in the plan's order."""
        columns = swept.columns(self.sweep)
        rows = []
        for cell in self.directory.read_json("cells.json", []):
            own = {
                "cell": cell["id"],
                "setting": cell.get("setting", ""),
                "method": method_label(cell),
                "family": cell["method"],
                "repeat": cell.get("repeat", 0),
                "seed": cell.get("seed"),
                "workers": cell.get("workers"),
                "point": cell.get("point", 0),
                "variant": cell.get("variant", 0),
            }
            # A key that is swept and has a column anyway (workers, seed) is there already.
            rows.append({**(columns[own["variant"]] if columns else {}), **own})
        frame = pd.DataFrame(rows)
        return frame[[*own, *(name for name in frame if name not in own)]] if rows else frame

    @property
    def swept(self) -> list[str]:
        """The names of the columns that a sweep made, numbers only where all values are."""
        return [name.removesuffix(swept.TEXT) for name in map(str, self.cells) if name.endswith(swept.TEXT)]

    @cached_property
    def raw(self) -> dict[str, dict[str, Any]]:
        """What each finished cell's result.json says, by cell."""
        return {result["id"]: result for result in self.directory.results()}

    @cached_property
    def results(self) -> pd.DataFrame:
        """One row per finished cell, also those that failed or diverged (`error`): times, bytes, last metrics, verdict
        (or that it failed or diverged)."""
        return self._joined(pd.DataFrame([{"cell": cell, **_flat(result)} for cell, result in self.raw.items()]))

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """How faithful each cell's emulation was: a row per reason against it, and one without reason if none is."""
        rows = [
            {"cell": cell, "grade": result["verdict"]["grade"], "reason": reason}
            for cell, result in self.raw.items()
            for reason in result["verdict"]["reasons"] or [""]
        ]
        return self._joined(pd.DataFrame(rows))

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Loss, accuracy and consensus distance by worker (−1: their average) and step, with time and bytes."""
        return self._all("metrics.parquet")

    @cached_property
    def counters(self) -> pd.DataFrame:
        """What links, ports, processes and processors counted, five times a second."""
        return self._all("counters.parquet")

    @cached_property
    def trace(self) -> pd.DataFrame:
        """Every span of every worker of every cell. Large: see trace_of and time_by_kind."""
        return self._all("trace.parquet")

    def trace_of(
        self, cell: str, columns: Sequence[str] | None = None, kinds: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """The spans of one cell; of these columns and kinds alone, which is quicker."""
        table = self.trace_table(cell, None if columns is None else list(dict.fromkeys([*columns, "kind"])))
        if kinds is not None:
            if unknown := set(kinds) - set(KINDS):
                raise ScenarioError(f"there are no spans of kind {min(unknown)}", hint=f"kinds: {', '.join(KINDS)}")
            table = table.filter(pc.is_in(table["kind"].cast(pa.string()), pa.array(kinds)))
        frame: pd.DataFrame = table.to_pandas(split_blocks=True, self_destruct=True)
        return frame if columns is None else frame[list(columns)]

    def trace_table(self, cell: str, columns: Sequence[str] | None = None) -> Any:
        """The same as a pyarrow table, not kept."""
        if cell not in set(self.cells["cell"]):
            raise ScenarioError(
                f"{self.path} has no cell {cell}", hint=f"it has {', '.join(self.cells['cell'][:5])}, …"
            )
        file = self.directory.cell(cell) / "trace.parquet"
        if not file.is_file():
            raise StorageError(f"cell {cell} has no trace", hint="it is not done, or it failed before it began")
        return read_table(file, columns=columns)

    @cached_property
    def time_by_kind(self) -> pd.DataFrame:
        """Seconds, spans and bytes of each cell's workers by kind of span: one cell in memory at a time."""
        wanted = ["worker", "kind", "start_ns", "end_ns", "bytes_logical", "bytes_wire"]
        tables = []
        for cell in self._with("trace.parquet"):
            table = self.trace_table(cell, wanted)
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
        """Each cell's metrics over steps: `value` (mean over the workers' own models; the averaged model's where only
        that was judged), `time_s` (of the last worker), `bytes_sent` (mean over workers)."""
        wanted = [("value", "mean"), ("time_s", "max"), ("bytes_sent", "mean")]
        tables = []
        for cell in self._with("metrics.parquet"):
            table = read_table(self.directory.cell(cell) / "metrics.parquet")
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
        """One row per network, measured pair and direction: what was asked, what was measured, how that is judged."""
        local = [name for name, key in zip(self.swept, self.sweep, strict=True) if key.startswith(NETWORK)]
        columns = [name for name in self._swept_columns() if name.removesuffix(swept.TEXT) in local]
        at = self.cells.drop_duplicates("point").set_index("point")[columns] if len(self.cells) else pd.DataFrame()
        rows = []
        for point in newest(self.directory.read_json("links.json", [])):
            known = {"point": point["point"], "setting": point["label"]}
            known |= at.loc[point["point"]].to_dict() if point["point"] in at.index else {}
            for probe in calibration(point).probes:
                rows += [{**known, **row} for row in _directions(probe, point.get("mtu", 1500))]
        return pd.DataFrame(rows)

    def compare(self, *, with_invalid: bool = False) -> pd.DataFrame:
        """The report's table: one row per setting and method, means over repeats, invalid cells left out."""
        rows = []
        for line in compare(list(self.raw.values()), with_invalid=with_invalid):
            row = asdict(line)
            rows.append({**row, **{f"{part}_s": value for part, value in row.pop("parts_s").items()}})
        frame = pd.DataFrame(rows).drop(columns="parts_s", errors="ignore")
        if not rows:
            return frame
        columns = ["setting", "family", *self._swept_columns()]
        known = self.cells.drop_duplicates(["setting", "method"])[["method", *columns]]
        return frame.merge(known, on=["setting", "method"], how="left", suffixes=("", "_swept"))

    def _swept_columns(self) -> list[str]:
        return [name for name in map(str, self.cells) if name.removesuffix(swept.TEXT) in self.swept]

    def _joined(self, frame: pd.DataFrame) -> pd.DataFrame:
        """With what each row's cell is in front."""
        if frame.empty:
            return frame
        clash = [name for name in frame if name in self.cells and name != "cell"]
        return self.cells.merge(frame.drop(columns=clash), on="cell", how="inner")

    def _with(self, name: str) -> Iterator[str]:
        """Finished cells that have this file, in the plan's order."""
        return (cell for cell in self.raw if (self.directory.cell(cell) / name).is_file())

    def _all(self, name: str) -> pd.DataFrame:
        """A table of all cells. Words are stored once, so that a row costs little more than its numbers."""
        known = self.cells.set_index("cell")
        tables = []
        for cell in self._with(name):
            file = self.directory.cell(cell) / name
            with reading(file):
                words = [word for word in WORDS if word in parquet.read_schema(file).names]
            table = read_table(file, read_dictionary=words)
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
    """A column that says the same in every row, in a byte each for words."""
    if isinstance(value, str):
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int16()), rows), pa.array([value]))
    if isinstance(value, float):
        return pa.repeat(pa.scalar(value, pa.float64()), rows)
    return pa.repeat(pa.scalar(None if value is None else int(value), pa.int64()), rows)


def _flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's result in one row."""
    target = result.get("target") or {}
    times = ("seconds", "step_s", "exchange_s", "floor_s")
    same = ("error", "steps", *times, "bytes_per_step", "wire_bytes", "overruns", "queued", "idle")
    return {
        **{name: result.get(name) for name in same},
        **{f"{part}_s": value for part, value in result.get("parts_s", {}).items()},
        **result.get("final", {}),
        "target": target.get("metric"),
        "target_value": target.get("value"),
        "target_step": target.get("step"),
        "target_s": target.get("seconds"),
        "memory_bytes": result.get("memory_per_worker"),
        "diverged_step": (result.get("diverged") or {}).get("step"),
        "verdict": outcome(result),
        "reasons": tuple(result["verdict"]["reasons"]),
        "options": result["options"],
        "decided": result.get("decided", {}),
        "cell_s": result.get("cell_s"),
    }


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
            "grade": verdict.grade,
            "reasons": verdict.reasons,
        }


def _judged(probe: Probe, way: Way, name: str, mtu: int) -> Verdict:
    silent = probe.may_be_silent and probe.rtt is None
    answered = Verdict("faithful") if silent else judge_rtt(probe.name, probe.latency, probe.rtt, probe.jitter)
    carried = judge_goodput(name, way.rate, way.goodput, mtu)
    return worst([answered, carried, judge_loss(name, way.loss, way.lost, way.packets)])
