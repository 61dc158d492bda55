"""The comparison's arithmetic and its honesty, with results made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.results import cell
from testbed.results.cell import PlannedCell

from .made import compare


def result(method: str = "dpsgd", *, setting: str = "", grade: str = "faithful", **values: Any) -> dict[str, Any]:
    return {
        "method": method,
        "options": {},
        "setting": setting,
        "error": None,
        "step_s": 0.1,
        "parts_s": {"compute": 0.06, "codec": 0.0, "wait": 0.03, "mix": 0.0, "other": 0.01},
        "floor_s": 0.02,
        "bytes_per_step": 1000.0,
        "final": {"test_accuracy": 0.9, "test_loss": 0.3},
        "target": None,
        "verdict": {"grade": grade, "reasons": [] if grade == "faithful" else [f"{grade} because"]},
        **values,
    }


def reached(seconds: float | None) -> dict[str, Any]:
    return {"metric": "accuracy", "value": 0.9, "step": None if seconds is None else 10, "seconds": seconds}


def failed(method: str = "dpsgd", error: str = "w1 died") -> dict[str, Any]:
    return {
        "method": method,
        "options": {},
        "setting": "",
        "error": error,
        "verdict": {"grade": "invalid", "reasons": [error]},
    }


def diverged(method: str = "dpsgd", step: int = 86, **values: Any) -> dict[str, Any]:
    error = f"w1: head holds NaN or Inf at step {step} (loss nan): the training has diverged"
    emulation = {"grade": "suspect", "reasons": ["the processors were only 3% idle"]}
    found = {**failed(method, error), "hint": "warm up", "verdict": emulation}
    return {**found, "diverged": {"worker": "w1", "step": step}, **values}


def method_label(described: dict[str, Any]) -> str:
    return cell.method_label(PlannedCell("some", **described))


def test_labels_are_short_but_tell_options_apart():
    assert method_label({"method": "ddp", "options": {"rank": 2}}) != method_label(
        {"method": "ddp", "options": {"start": 2}}
    )
    assert method_label({"method": "dpsgd", "options": {}}) == "dpsgd"
    assert method_label({"method": "dcd", "options": {"compressor": {"quantize": "8bit"}}}) == "dcd quantize 8bit"
    assert method_label({"method": "choco", "options": {"compressor": "sign", "gamma": 0.4}}) == "choco sign gamma 0.4"
    for nothing in (None, {}):
        own = {"compressor": {"mine.py:Half": nothing}, "gamma": 0}
        assert method_label({"method": "choco", "options": own}) == "choco mine.py:Half gamma 0"


def test_repeats_are_averaged_and_their_spread_is_told():
    (line,) = compare([result(step_s=0.1), result(step_s=0.2), result(step_s=0.3)])
    assert (line.runs, line.step_s, line.step_spread) == (3, pytest.approx(0.2), pytest.approx(0.1))


def test_speedup_per_step_where_there_is_no_target():
    baseline, gossip = compare([result("allreduce", step_s=0.4), result(step_s=0.1)])
    assert (baseline.speedup, gossip.speedup) == (1, 4)
    assert gossip.speedup_of == "time per step"


def test_speedup_to_the_target_where_both_reached_it():
    lines = compare([result("allreduce", target=reached(8.0)), result(step_s=9.9, target=reached(2.0))])
    assert (lines[1].speedup, lines[1].speedup_of) == (4, "time to target")
    assert lines[1].target == "90%"


@pytest.mark.parametrize(("baseline", "method"), [(8.0, None), (None, 2.0), (None, None)])
def test_no_speedup_where_one_did_not_reach_the_target(baseline, method):
    lines = compare([result("allreduce", target=reached(baseline)), result(target=reached(method))])
    assert lines[1].speedup is None
    assert lines[1].target_s == method


def test_a_method_reached_the_target_only_if_every_repeat_did():
    (line,) = compare([result(target=reached(2.0)), result(target=reached(None))])
    assert (line.target_s, line.reached) == (None, 1)


def test_invalid_cells_count_for_nothing_unless_asked_for():
    results = [result(step_s=0.1), result(step_s=0.9, grade="invalid")]
    (line,) = compare(results)
    assert (line.runs, line.invalid, line.step_s, line.verdict) == (1, 1, 0.1, "invalid")
    assert line.reasons == ("invalid because",)
    (line,) = compare(results, with_invalid=True)
    assert (line.runs, line.step_s) == (2, pytest.approx(0.5))


def test_failed_cells_are_told_and_do_not_hide_the_others():
    (line,) = compare([result(), failed()])
    assert (line.runs, line.failed, line.verdict) == (1, 1, "faithful")
    assert line.reasons == ("w1 died",)
    (line,) = compare([failed()])
    assert (line.runs, line.step_s, line.parts_s, line.verdict) == (0, None, {}, "failed")


def test_a_training_that_diverged_is_no_failure_and_no_number():
    (line,) = compare([diverged()])
    assert (line.runs, line.failed, line.diverged, line.diverged_step) == (0, 0, 1, 86)
    assert (line.step_s, line.verdict, line.reasons) == (None, "diverged", ())
    assert line.divergence == "diverged at step 86"
    (line,) = compare([diverged(step=90), diverged(step=80)])
    assert line.divergence == "all 2 diverged at step 80 or later"
    (line,) = compare([diverged(), failed()])
    assert (line.failed, line.diverged, line.verdict, line.divergence) == (1, 1, "failed", "1 of 2 diverged")


def test_where_some_repeats_diverged_the_others_times_are_shown_but_nothing_is_won_by_them():
    results = [result("allreduce", target=reached(8.0)), result(step_s=0.2, target=reached(2.0)), diverged()]
    _, line = compare(results)
    assert (line.runs, line.step_s, line.reached, line.divergence) == (1, 0.2, 1, "1 of 2 diverged")
    assert (line.target_s, line.speedup, line.verdict) == (None, None, "faithful")
    assert compare([result("allreduce"), result(), diverged()])[1].speedup is None
    assert compare([result("allreduce"), diverged("allreduce"), result()])[1].speedup is None


def test_each_setting_has_its_own_yardstick():
    lines = compare(
        [
            result("allreduce", setting="fast", step_s=0.1),
            result("allreduce", setting="slow", step_s=1.0),
            result(setting="fast", step_s=0.1),
            result(setting="slow", step_s=0.1),
        ]
    )
    assert [(line.setting, line.method, line.speedup) for line in lines] == [
        ("fast", "allreduce", 1),
        ("slow", "allreduce", 1),
        ("fast", "dpsgd", 1),
        ("slow", "dpsgd", 10),
    ]


def test_a_variant_of_all_reduce_is_no_yardstick():
    variant = result("allreduce", options={"bucket": "1mb"}, step_s=0.4)
    assert [line.speedup for line in compare([variant, result()])] == [None, None]


def test_targets_of_loss_and_metrics_that_are_missing():
    (line,) = compare([result(final={"test_loss": 0.5}, target={"metric": "loss", "value": 0.25, "seconds": None})])
    assert (line.target, line.accuracy, line.loss) == ("loss 0.25", None, 0.5)


def test_nothing_yet():
    assert compare([]) == []
