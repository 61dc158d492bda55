"""Judgements at and around their limits."""

import pytest

from testbed.link.netem import ideal_goodput
from testbed.verdict import (
    Verdict,
    judge_bytes,
    judge_compute,
    judge_goodput,
    judge_load,
    judge_rtt,
    judge_share,
    worst,
)


@pytest.mark.parametrize(
    ("asked", "measured", "grade"),
    [
        (0.040, 0.040, "faithful"),
        (0.040, 0.0407, "faithful"),  # 2 % are 0.8 ms
        (0.040, 0.0409, "suspect"),
        (0.040, 0.0391, "suspect"),
        (0.040, 0.0441, "invalid"),  # five times that
        (0.001, 0.00129, "faithful"),  # at least 0.3 ms
        (0.001, 0.00131, "suspect"),
        (0.001, 0.00251, "invalid"),
    ],
)
def test_round_trips(asked, measured, grade):
    assert judge_rtt("a-b", asked, measured).grade == grade


def test_jitter_widens_what_is_allowed_and_silence_is_never_faithful():
    assert judge_rtt("a-b", 0.001, 0.0031, jitter=0.002).grade == "faithful"
    assert judge_rtt("a-b", 0.001, None) == Verdict("invalid", ("a-b: no packet came back",))
    assert judge_rtt("a-b", 0.040, 0.0409).reasons == ("a-b: round trip 40.90 ms instead of 40.00 ms",)


@pytest.mark.parametrize(
    ("factor", "grade"), [(1.0, "faithful"), (0.981, "faithful"), (0.97, "suspect"), (1.11, "invalid")]
)
def test_goodput_is_judged_against_what_tcp_can_carry(factor, grade):
    assert judge_goodput("a>b", 100_000_000, factor * ideal_goodput(100_000_000)).grade == grade


def test_what_was_not_asked_or_not_measured_is_not_judged():
    assert judge_goodput("a>b", None, 1e9).grade == "faithful"
    assert judge_goodput("a>b", 1000, None).grade == "faithful"
    assert judge_share("a>b", "lost", 0.01, None, 0).grade == "faithful"


@pytest.mark.parametrize(
    ("asked", "measured", "packets", "grade"),
    [
        (0.01, 0.0129, 1500, "faithful"),
        (0.01, 0.0202, 1500, "faithful"),  # 4 σ are 1.03 points
        (0.01, 0.0204, 1500, "suspect"),
        (0.0, 0.0029, 1500, "faithful"),
        (0.0, 0.0031, 1500, "suspect"),
        (0.0, 0.02, 1500, "invalid"),
    ],
)
def test_losses_are_judged_like_coins(asked, measured, packets, grade):
    assert judge_share("a>b", "lost", asked, measured, packets).grade == grade


@pytest.mark.parametrize(
    ("idle", "box", "grade", "reasons"),
    [(0.5, 0.5, "faithful", 0), (0.09, 0.5, "suspect", 1), (0.5, 0.81, "suspect", 1), (0.05, 0.96, "invalid", 2)],
)
def test_a_machine_that_is_too_busy(idle, box, grade, reasons):
    verdict = judge_load(idle, box)
    assert (verdict.grade, len(verdict.reasons)) == (grade, reasons)


def test_workers_that_wait_for_processors_or_compute_too_long():
    assert judge_compute(None).grade == "faithful"
    assert judge_compute(0.09, late=0.04) == Verdict("faithful")
    assert judge_compute(0.16).reasons == (
        "a worker was ready and had no processor 16% of the time: this machine's doing, no network's",
    )
    verdict = judge_compute(0.16, late=0.2)
    assert (verdict.grade, len(verdict.reasons)) == ("suspect", 2)
    assert verdict.reasons[1].startswith("20% of the gradients took longer than the compute time asked for")


def test_nothing_is_known_of_the_load_of_a_cell_that_was_too_short():
    assert judge_load(None, None) == Verdict("faithful")


@pytest.mark.parametrize(
    ("trainer", "port", "grade"),
    [
        (1_000_000, 1_029_000, "faithful"),
        (1_000_000, 971_000, "faithful"),
        (1_000_000, 1_031_000, "suspect"),
        (1_000_000, 840_000, "invalid"),
        (99_999, 200_000, "faithful"),  # connections alone are more than 3 % of so little
    ],
)
def test_bytes_on_the_port(trainer, port, grade):
    assert judge_bytes("w0", trainer, port).grade == grade


def test_what_tcp_sent_again_explains_more_bytes_but_not_fewer():
    assert judge_bytes("w0", 1_000_000, 1_080_000, resent=60_000).grade == "faithful"
    assert judge_bytes("w0", 1_000_000, 1_080_000, resent=40_000).grade == "suspect"
    assert judge_bytes("w0", 1_000_000, 900_000, resent=100_000).grade == "suspect"
    assert judge_bytes("w0", 1_000_000, 1_000_000, resent=500_000).grade == "faithful"


def test_the_worst_grade_with_all_reasons():
    found = worst([Verdict("suspect", ("a",)), Verdict("faithful"), Verdict("invalid", ("b", "c")), Verdict("suspect")])
    assert found == Verdict("invalid", ("a", "b", "c"))
    assert worst([]) == Verdict("faithful")


def test_a_machine_that_others_use_as_well_is_suspect():
    assert judge_load(0.5, 0.2, 0.02).grade == "faithful"
    verdict = judge_load(0.5, 0.2, 0.19)
    assert verdict.grade == "suspect"
    assert verdict.reasons == ("this virtual machine was denied 19% of its processors: links and workers were late",)
