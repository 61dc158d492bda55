"""The comparison table: one row per method and setting, spreads over repeats, all-reduce as baseline. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from testbed.results import columns
from testbed.results.cell import CellResult, Target
from testbed.results.status import status
from testbed.verdict import ORDER

BASELINE = "allreduce"


@dataclass(frozen=True)
class Line:
    """One method at one setting."""

    setting: str  # the swept values: of the network, or of anything else
    method: str
    runs: int  # that count
    failed: int
    invalid: int  # left out
    diverged: int
    diverged_step: int | None  # at which that was first seen, in any of them
    step_s: float | None
    step_spread: float  # half the range over repeats
    parts_s: Mapping[str, float]
    exchange_s: float | None  # of a step's slowest messages, hidden behind the gradient or not; None: not known
    floor_s: float | None
    target_s: float | None  # None: not reached, or no target
    target_spread: float  # half the range over repeats
    reached: int  # runs that reached the target
    target: str | None
    bytes_per_step: float | None
    accuracy: float | None
    loss: float | None
    speedup: float | None  # over the baseline at the same setting: time to target, else time per step
    speedup_of: str
    verdict: str
    reasons: tuple[str, ...]
    backend: str = "gloo"  # that carried the messages
    congestion: str = ""  # control of TCP; empty: not on record
    suspect: int = 0  # of the runs that count
    exchange_spread_s: float | None = None  # over steps
    least_s: float | None = None  # that a step needs with these gradients, this codec and the floor
    queued: float | None = None  # share of its time that the worker worst off was ready and had no processor
    measured: Mapping[str, float | None] = field(default_factory=dict)  # all other numbers of the table of columns

    @property
    def divergence(self) -> str:
        """Say where it diverged: "diverged at step 86", "1 of 3 diverged"; empty where it did not."""
        total = self.runs + self.failed + self.invalid + self.diverged
        if not self.diverged:
            return ""
        if self.diverged < total:
            return f"{self.diverged} of {total} diverged"
        who = "" if total == 1 else f"all {total} "
        return f"{who}diverged at step {self.diverged_step}" + (" or later" if who else "")


FIELDS = frozenset(one.name for one in fields(Line))


def compare(results: Sequence[CellResult], *, with_invalid: bool = False) -> list[Line]:
    """Return rows in the order of the plan. Invalid cells are left out of the numbers unless asked for."""
    groups: dict[tuple[str, str], list[CellResult]] = {}
    for result in results:
        groups.setdefault((result.setting, result.method), []).append(result)
    lines = [_line(setting, method, some, with_invalid) for (setting, method), some in groups.items()]
    baselines = {setting: line for (setting, _), line in zip(groups, lines, strict=True) if _is_baseline(groups, line)}
    return [_with_speedup(line, baselines.get(line.setting)) for line in lines]


def _is_baseline(groups: Mapping[tuple[str, str], Sequence[CellResult]], line: Line) -> bool:
    first = groups[line.setting, line.method][0].cell
    return first.method == BASELINE and not first.options


def _line(setting: str, method: str, results: Sequence[CellResult], with_invalid: bool) -> Line:
    worked = [result for result in results if status(result) == "done"]
    diverged = [result.diverged.step for result in results if status(result) == "diverged" and result.diverged]
    good = [result for result in worked if with_invalid or result.verdict.grade != "invalid"]
    steps = [result.step_s for result in good if result.step_s is not None]
    targets = [result.target for result in good if result.target]
    reached = [target.seconds for target in targets if target.seconds is not None]
    grades = [result.verdict.grade for result in worked]
    failed = len(results) - len(worked) - len(diverged)
    return Line(
        setting=setting,
        method=method,
        runs=len(good),
        failed=failed,
        invalid=len(worked) - len(good),
        diverged=len(diverged),
        diverged_step=min(diverged, default=None),
        step_s=_mean(steps),
        step_spread=_spread(steps),
        parts_s=_parts(good),
        exchange_s=_mean(result.exchange_s for result in good),
        exchange_spread_s=_mean(result.exchange_spread_s for result in good),
        least_s=_mean(result.least_s for result in good),
        floor_s=_mean(result.floor_s for result in good),
        target_s=_mean(reached) if targets and len(reached) == len(targets) and not diverged else None,
        target_spread=_spread(reached),
        reached=len(reached),
        target=_target_text(targets[0]) if targets else None,
        bytes_per_step=_mean(result.bytes_per_step for result in good),
        accuracy=_mean(result.final.get("test_accuracy") for result in good),
        loss=_mean(result.final.get("test_loss") for result in good),
        speedup=None,
        speedup_of="",
        verdict=max(grades, key=ORDER.index) if grades else "failed" if failed else "diverged",
        reasons=tuple(dict.fromkeys(_reasons([result for result in results if status(result) != "diverged"]))),
        backend=good[0].backend if good else "gloo",
        congestion=next((result.congestion for result in good if result.congestion), ""),
        suspect=sum(result.verdict.grade == "suspect" for result in good),
        queued=_mean(result.queued for result in good),
        measured=dict(columns.means(good, FIELDS)),
    )


def _parts(good: Sequence[CellResult]) -> dict[str, float]:
    """Return the parts of a step."""
    names = good[0].parts_s if good else {}
    return {name: statistics.fmean(result.parts_s.get(name, 0.0) for result in good) for name in names}


def _reasons(results: Sequence[CellResult]) -> list[str]:
    """Return what spoke against a verdict, and which workers were lost or rejoined."""
    faults = [one.text for result in results for one in result.came_and_went]
    return [*faults, *(reason for result in results for reason in result.verdict.reasons)]


def _target_text(target: Target) -> str:
    return f"{100 * target.value:.6g}%" if target.metric == "accuracy" else f"loss {target.value:g}"


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / 2 if values else 0.0


def _with_speedup(line: Line, baseline: Line | None) -> Line:
    """Add the ratio of times to target where both got there; where a target was set and one did not, no number at all.
    Nor where a repeat diverged: such a method cannot be relied on for that time."""
    if baseline is None or line.diverged or baseline.diverged:
        return line
    if line.target is None:
        return _sooner(line, line.step_s, baseline.step_s, "time per step")
    return _sooner(line, line.target_s, baseline.target_s, "time to target")


def _sooner(line: Line, own: float | None, other: float | None, what: str) -> Line:
    return replace(line, speedup=other / own, speedup_of=what) if own and other else line
