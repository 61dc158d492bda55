"""What the page's comparison says of each line."""

from __future__ import annotations

import pytest
from results.made import cell_result, compare
from results.test_comparison import diverged, failed, reached, result

from testbed.report import tables


def columns(table: tables.Table) -> list[str]:
    return [column.name for column in table.columns]


def cell(table: tables.Table, row: int, name: str) -> tables.Cell:
    return table.rows[row].cells[columns(table).index(name)]


def test_only_columns_that_say_something():
    assert columns(tables.comparison(compare([result(final={})]))) == [
        "method", "× all-reduce", "ms per step", "floor, ms", "kB per step", "verdict",
    ]  # fmt: skip
    full = tables.comparison(compare([result(setting=name, target=reached(1.0)) for name in "aab"]))
    assert columns(full)[:3] == ["setting", "method", "s to 90 %"]
    assert "runs" in columns(full)


def test_spreads_misses_and_what_is_left_out_are_told():
    table = tables.comparison(
        compare(
            [
                result("dpsgd", target=reached(1.0)),
                result("dpsgd", target=reached(2.0)),
                result("dpsgd", target=reached(9.0), grade="invalid"),
                result("choco", target=reached(None)),
                result("choco", target=reached(3.0)),
                failed("dcd"),
            ]
        )
    )
    assert cell(table, 0, "s to 90 %") == tables.Cell("1.50", 1.5, "±0.50", "compared")
    assert cell(table, 0, "runs") == tables.Cell("2", 2.0, "1 invalid")
    assert cell(table, 1, "s to 90 %") == tables.Cell("not reached", None, "1 of 2 did", "missed")
    assert cell(table, 2, "s to 90 %") == tables.Cell("–")
    assert cell(table, 2, "verdict").text == "failed"
    assert [row.doubtful for row in table.rows] == [True, False, True]


def test_a_training_that_diverged_has_the_step_instead_of_a_time_and_no_verdict():
    ran = [result("allreduce", target=reached(1.0)), diverged("ecd"), result(target=reached(2.0)), diverged()]
    table = tables.comparison(compare(ran))
    assert cell(table, 1, "s to 90 %") == tables.Cell("diverged at step 86", None, kind="missed")
    assert (cell(table, 1, "ms per step").text, cell(table, 1, "verdict")) == ("–", tables.Cell("–"))
    assert cell(table, 1, "runs") == tables.Cell("0", 0.0, "1 diverged")
    assert cell(table, 2, "s to 90 %") == tables.Cell("not reached", None, "1 of 2 did", "missed")
    table = tables.comparison(compare([result("allreduce"), diverged("ecd")]))
    assert cell(table, 1, "ms per step").text == "diverged at step 86"


def test_bars_are_shares_of_the_longest_step_at_the_same_setting():
    table = tables.comparison(
        compare([result("a", step_s=0.2), result("b", step_s=0.1), result("b", setting="other", step_s=0.1)])
    )
    assert [{name: width for name, width, _ in row.bar.parts}["wait"] for row in table.rows if row.bar] == [
        pytest.approx(15), pytest.approx(15), pytest.approx(30),
    ]  # fmt: skip
    assert table.rows[0].bar is not None
    assert table.rows[0].bar.floor == pytest.approx(10)
    assert "wait 30 ms" in table.rows[0].bar.told


def test_reasons_that_differ_only_in_numbers_are_told_once():
    def busy(method: str, share: int):
        return cell_result(result(method, verdict={"grade": "suspect", "reasons": [f"only {share}% idle"]}))

    (found,) = tables.verdicts([busy("dpsgd", 3), busy("choco", 4), busy("choco", 4), cell_result(failed())])
    assert (found.reason, found.alike, found.cells) == ("only 3% idle", 1, ("dpsgd", "choco"))
    graver = cell_result(result("dcd", verdict={"grade": "invalid", "reasons": ["no packet came back"]}))
    assert [one.grade for one in tables.verdicts([busy("dpsgd", 3), graver])] == ["invalid", "suspect"]


def test_what_happened_is_in_the_order_of_time():
    lost = {"text": "w3 was lost", "at": 2.0}
    events = [
        {"subject": "w0-w1", "what": "rate=1mbit", "at": 1.0, "due": 1.0},
        {"subject": "w2", "what": "killed", "at": 3.0, "due": 3.0, "problem": "it had ended"},
    ]
    found = tables.happenings([cell_result(result(events=events, lost=[lost], repeat=1))])
    assert [(one.at, one.text) for one in found] == [
        (1.0, "w0-w1 rate=1mbit"),
        (2.0, "w3 was lost"),
        (3.0, "w2 killed"),
    ]
    assert found[2].problem == "it had ended"
    assert found[0].cell == "dpsgd · repeat 1"


def test_who_rejoined_is_told_once():
    rejoined = {"text": "w3 rejoined in step 9, 1.2 s after it was lost", "at": 2.0}
    events = [{"subject": "w3", "what": what, "at": 1.5, "due": 1.5} for what in ("restarted", "rejoined in step 9")]
    found = tables.happenings([cell_result(result(events=events, rejoined=[rejoined]))])
    assert [one.text for one in found] == ["w3 restarted", "w3 rejoined in step 9, 1.2 s after it was lost"]


def test_warnings_name_whom_they_concern_and_leave_losses_to_others():
    lost = {"text": "w3 was lost", "at": 2.0}
    results = [result(name, warnings=["w3 was lost", "lr is high"], lost=[lost]) for name in ("dpsgd", "allreduce")]
    assert tables.warnings(map(cell_result, results)) == [("lr is high", ("dpsgd", "all-reduce"))]
