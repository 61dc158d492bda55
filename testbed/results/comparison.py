"""The comparison table: one row per method and setting, spreads over repeats, all-reduce as yardstick. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.results.status import status
from testbed.results.verdict import ORDER

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
    exchange_s: float | None  # of a step's messages, hidden behind the gradient or not; None: not known
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
    queued: float | None = None  # share of its time that the worker worst off was ready and had no processor

    @property
    def divergence(self) -> str:
        """In words, where it diverged: "diverged at step 86", "1 of 3 diverged"; empty where it did not."""
        total = self.runs + self.failed + self.invalid + self.diverged
        if not self.diverged:
            return ""
        if self.diverged < total:
            return f"{self.diverged} of {total} diverged"
        who = "" if total == 1 else f"all {total} "
        return f"{who}diverged at step {self.diverged_step}" + (" or later" if who else "")


def compare(results: Sequence[Mapping[str, Any]], *, with_invalid: bool = False) -> list[Line]:
    """Rows in the order of the plan. Invalid cells are left out of the numbers unless asked for."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in results:
        groups.setdefault((result.get("setting", ""), method_label(result)), []).append(result)
    lines = [_line(setting, method, some, with_invalid) for (setting, method), some in groups.items()]
    baselines = {setting: line for (setting, _), line in zip(groups, lines, strict=True) if _is_baseline(groups, line)}
    return [_with_speedup(line, baselines.get(line.setting)) for line in lines]


def method_label(result: Mapping[str, Any]) -> str:
    """As people call it: "choco sign", "powergossip rank 2 iterations 4". Other options, another label."""
    options = dict(result["options"])
    named = [_value(value) if key == "compressor" else f"{key} {_value(value)}" for key, value in options.items()]
    return " ".join([result["method"], *named])


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_value(inner)}" if inner not in (None, {}) else key for key, inner in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_baseline(groups: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]], line: Line) -> bool:
    first = groups[line.setting, line.method][0]
    return bool(first["method"] == BASELINE and not first["options"])


def _line(setting: str, method: str, results: Sequence[Mapping[str, Any]], with_invalid: bool) -> Line:
    worked = [result for result in results if status(result) == "done"]
    diverged = [result["diverged"]["step"] for result in results if status(result) == "diverged"]
    good = [r for r in worked if with_invalid or r["verdict"]["grade"] != "invalid"]
    steps = [result["step_s"] for result in good]
    targets = [result["target"] for result in good if result["target"]]
    reached = [target["seconds"] for target in targets if target["seconds"] is not None]
    grades = [result["verdict"]["grade"] for result in worked]
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
        parts_s={part: statistics.fmean(r["parts_s"][part] for r in good) for part in good[0]["parts_s"]}
        if good
        else {},
        exchange_s=_mean([result["exchange_s"] for result in good if result.get("exchange_s") is not None]),
        floor_s=_mean([result["floor_s"] for result in good]),
        target_s=_mean(reached) if targets and len(reached) == len(targets) and not diverged else None,
        target_spread=_spread(reached),
        reached=len(reached),
        target=_target_text(targets[0]) if targets else None,
        bytes_per_step=_mean([result["bytes_per_step"] for result in good]),
        accuracy=_mean([r["final"]["test_accuracy"] for r in good if "test_accuracy" in r["final"]]),
        loss=_mean([r["final"]["test_loss"] for r in good if "test_loss" in r["final"]]),
        speedup=None,
        speedup_of="",
        verdict=max(grades, key=ORDER.index) if grades else "failed" if failed else "diverged",
        reasons=tuple(dict.fromkeys(_reasons([result for result in results if status(result) != "diverged"]))),
        backend=next((result["backend"] for result in good if "backend" in result), "gloo"),
        congestion=next((result["congestion"] for result in good if "congestion" in result), ""),
        suspect=sum(result["verdict"]["grade"] == "suspect" for result in good),
        queued=_mean([result["queued"] for result in good if result.get("queued") is not None]),
    )


def _reasons(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """What spoke against a verdict, and who was lost on the way or came back."""
    faults = [one["text"] for result in results for key in ("lost", "rejoined") for one in result.get(key, ())]
    return [*faults, *(reason for result in results for reason in result["verdict"]["reasons"])]


def _target_text(target: Mapping[str, Any]) -> str:
    value = target["value"]
    return f"{100 * value:.6g}%" if target["metric"] == "accuracy" else f"loss {value:g}"


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / 2 if values else 0.0


def _with_speedup(line: Line, baseline: Line | None) -> Line:
    """Time to target where both got there; where a target was set and one did not, no number at all. Nor where a repeat
    diverged: such a method is not to be had for that time."""
    if baseline is None or line.diverged or baseline.diverged:
        return line
    fields = dict(vars(line))
    if line.target is not None:
        if line.target_s and baseline.target_s:
            fields |= {"speedup": baseline.target_s / line.target_s, "speedup_of": "time to target"}
    elif line.step_s and baseline.step_s:
        fields |= {"speedup": baseline.step_s / line.step_s, "speedup_of": "time per step"}
    return Line(**fields)
