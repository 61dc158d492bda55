"""The comparison on terminals of all widths."""

import io

import pytest
from rich.console import Console

from testbed.results.table import show_comparison

from .made import compare
from .test_comparison import diverged, failed, reached, result


def shown(results, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    show_comparison(compare(results), console)
    return console.file.getvalue().splitlines()


RESULTS = [
    result("allreduce", step_s=0.4, target=reached(8.0)),
    result("dpsgd", target=reached(2.0), grade="suspect"),
    result("choco", target=reached(None)),
    failed("dcd", "w1: RuntimeError: [enforce fail at alloc_cpu.cpp] no memory"),
]


def rows(lines: list[str]) -> dict[str, list[str]]:
    cells = ([cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│"))
    return {row[0]: row[1:] for row in cells}


def test_all_columns_where_there_is_room():
    found = rows(shown(RESULTS, 150))
    assert found["dpsgd"] == ["100.0", "60.0", "0.0", "30.0", "10.0", "20.0", "2.00", "90.0%", "1.0", "4.00", "suspect"]
    assert found["choco"][6] == "not reached"
    assert found["choco"][9] == "–"
    assert found["dcd"] == ["–"] * 10 + ["failed"]


def test_what_diverged_says_so_where_others_have_a_time():
    found = rows(shown([*RESULTS, diverged("ecd")], 150))
    assert found["ecd"] == ["–"] * 6 + ["diverged at step 86"] + ["–"] * 4
    found = rows(shown([result("allreduce"), diverged("ecd")], 150))
    assert found["ecd"] == ["diverged at step 86"] + ["–"] * 9
    found = rows(shown([result("ecd", target=reached(2.0)), diverged("ecd"), failed("ecd")], 150))
    assert (found["ecd"][6], found["ecd"][10]) == ("1 of 3 diverged", "faithful (1 failed, 1 of 3 diverged)")


@pytest.mark.parametrize("width", [150, 110, 90, 70, 50, 30])
def test_every_width_shows_every_method_its_speed_and_its_verdict(width):
    lines = shown(RESULTS, width)
    assert all(len(line) <= width for line in lines)
    text = " ".join(" ".join(lines).replace("│", " ").split())
    for words in ("allreduce", "choco", "dcd", "100.0", "400.0", "suspect", "failed", "4.00"):
        assert words in text
    if width < 100:
        assert "a wider terminal also shows: = compute" in text


def test_text_of_errors_is_not_taken_for_markup():
    assert any("[enforce fail at alloc_cpu.cpp]" in line for line in shown(RESULTS, 150))


def test_settings_are_told_once_each():
    results = [
        result(method, setting=f"rate={rate}") for rate in ("1mbit", "5mbit") for method in ("allreduce", "dpsgd")
    ]
    lines = shown(results, 150)
    assert [sum(f"rate={rate}" in line for line in lines) for rate in ("1mbit", "5mbit")] == [1, 1]


def test_doubts_that_differ_only_in_numbers_are_told_once():
    busy = [
        result(method, verdict={"grade": "suspect", "reasons": [f"only {number}% idle"]})
        for number, method in enumerate(("allreduce", "dpsgd", "choco"))
    ]
    lines = shown(busy, 150)
    assert [line for line in lines if "idle" in line] == [
        "allreduce: only 0% idle (and 2 more like it, with other numbers)"
    ]


def test_nothing_to_compare_yet():
    assert shown([], 80) == ["no cell is done yet"]


def test_the_title_says_what_is_compared():
    assert "by the time to the target" in shown(RESULTS, 150)[0]
    without = shown([result("allreduce"), result("dpsgd")], 150)[0]
    assert "fastest steps here (no target is set: how many steps each needs is not compared)" in without


def test_repeats_that_reached_the_target_at_different_times_have_a_spread():
    found = rows(shown([result("dpsgd", target=reached(time)) for time in (2.0, 3.0)], 150))
    assert found["dpsgd"][6] == "2.50 ±0.50"
