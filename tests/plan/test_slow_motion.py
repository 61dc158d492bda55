"""Which factor a network needs on a machine: arithmetic, and the trial of the methods that it begins with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.errors import ScenarioError
from testbed.methods import make
from testbed.plan.make import plan
from testbed.plan.model import Plan
from testbed.plan.slow_motion import FACTORS, Load, Room, check, enough, impossible, step_seconds, with_factors
from testbed.run.trial import load, paced
from testbed.scenario.load import loads
from testbed.tasks import base

MILLISECOND = 1e-3
MB = 1e6
SCENARIO = """
name: auto
workers: {workers}
network: {{topology: ring, link: {{latency: {latency}, rate: {rate}}}}}
task: digits
compute: {compute}
methods: [allreduce, ring, ddp, dpsgd, {{dcd: {{compressor: {{quantize: 8bit}}}}}}, powergossip]
"""


def planned(
    workers: int = 8, latency: str = "0.13ms", rate: str = "100mbit", compute: str = "{emulated: 50ms}"
) -> Plan:
    return plan(loads(SCENARIO.format(workers=workers, latency=latency, rate=rate, compute=compute), "auto.yaml"), 2)


def codec(milliseconds: float, given: float = 50, **more: float) -> Load:
    """A gossip method with small messages."""
    return Load("some", milliseconds * MILLISECOND, given=given * MILLISECOND, messages=2, per_edge=1000, **more)


def chosen(made: Plan, *some: Load, cores: int = 2) -> float:
    return enough(made.network, made.gossip, some, Room(cores))


@pytest.mark.parametrize(
    ("load", "factor"),
    [
        (codec(0.1), 1),  # next to nothing
        (codec(0.5), 1),
        (codec(2), 2),
        (codec(5), 3),  # a tenth of a step
        (codec(50), 6),  # half of it: 1.25 · 8 workers on 2 cores is 5
        (codec(500), 6),  # nearly all of it
        (codec(0.1, gradient=0.010), 1),  # 8 of these take two cores 40 ms, and have 50
        (codec(0.1, gradient=0.018), 2),  # 72 ms; 90 with what is to spare
        (codec(0.1, gradient=0.200), 24),
    ],
)
def test_what_workers_need_of_processors(load: Load, factor: float) -> None:
    assert chosen(planned(), load) == factor


def test_workers_with_a_core_each_need_no_slow_motion() -> None:
    assert chosen(planned(), codec(50, gradient=0.04), cores=16) == 1


def test_a_real_gradient_is_given_its_own_time() -> None:
    real = Load("real", gradient=0.1, messages=2, per_edge=1000)
    assert chosen(planned(), real) == 6  # all of a step: as many times longer as there are workers for a core


def test_slow_links_give_the_processors_time() -> None:
    heavy = replace(codec(5), per_edge=1.1 * MB)
    assert [chosen(planned(rate=rate), heavy) for rate in ("1gbit", "100mbit", "10mbit")] == sorted(
        [chosen(planned(rate=rate), heavy) for rate in ("1gbit", "100mbit", "10mbit")], reverse=True
    )
    assert chosen(planned(rate="10mbit"), heavy) == 1


def test_what_the_box_carries() -> None:
    """Two workers with a core each; their link alone is too fast."""
    big = Load("big", given=1.0, messages=2, per_edge=100 * MB)
    factors = [chosen(planned(2, rate=rate), big, cores=64) for rate in ("1gbit", "10gbit", "34gbit")]
    assert factors[0] == 1
    assert 1 < factors[1] < factors[2]


def test_the_largest_factor_that_links_allow_where_none_is_enough() -> None:
    far = planned(latency="10s")
    assert impossible(far.network, 32)
    assert not impossible(far.network, 24)
    assert chosen(far, codec(0.1, gradient=100.0)) == 24


def test_every_factor_is_one_of_the_list() -> None:
    for milliseconds in (0.1, 1, 3, 10, 30):
        for gradient in (0, 0.01, 0.1, 1):
            assert chosen(planned(), codec(milliseconds, gradient=gradient)) in FACTORS


def test_an_all_reduce_takes_a_rings_time() -> None:
    made = planned(4, rate="10mbit")
    reduced = Load("allreduce", given=0.01, reduced=1 * MB)
    assert step_seconds(made.network, made.gossip, reduced) == pytest.approx(0.01 + 1.5 * 8 / 10, rel=0.01)


@pytest.mark.parametrize(
    ("link", "factor"),
    [("latency: 10s, rate: 1mbit", 64), ("latency: 1s, rate: 1mbit, jitter: 100ms", 64), ("rate: 10kbit", 64)],
)
def test_a_factor_with_which_links_cannot_be_emulated_is_refused(link: str, factor: float) -> None:
    text = f"workers: 2\nnetwork: {{topology: chain, link: {{{link}}}}}\nmethods: dpsgd\nslow_motion: {factor}\n"
    with pytest.raises(ScenarioError, match=r"slow.yaml:4: slow_motion 64: link w0-w1: ") as caught:
        plan(loads(text, "slow.yaml"))
    assert caught.value.hint == "choose a smaller factor"
    check(loads(text.replace("64", "1"), "slow.yaml"), planned().network)


@pytest.mark.parametrize(
    ("line", "chooses"),
    [
        ("compute: real", False),
        ("compute: {step_time: 20ms}", True),
        ("compute: {emulated: 20ms}", True),
        ("slow_motion: auto", True),
        ("compute: {emulated: 20ms}\nslow_motion: 1", False),
        ("slow_motion: 2.5", False),
    ],
)
def test_who_chooses(line: str, chooses: bool) -> None:
    assert loads(f"workers: 2\nmethods: dpsgd\n{line}\n", "s.yaml").chooses_slow_motion is chooses


@pytest.mark.parametrize("value", ["0.5", "65", "fast", "-1", "true"])
def test_factors_that_make_no_sense(value: str) -> None:
    with pytest.raises(ScenarioError, match="slow_motion"):
        loads(f"workers: 2\nmethods: dpsgd\nslow_motion: {value}\n", "s.yaml")


def test_a_trial_tells_messages_and_bytes() -> None:
    made = planned(4)
    task = base.make("digits", rank=1, size=4, seed=1)
    whole = 4.0 * task.layout.numel
    found = {
        name: load(name, make(name), task, made.gossip, gradient=0.0, given=0.05)
        for name in ("allreduce", "ring", "dpsgd", "ddp")
    }
    assert found["allreduce"].reduced == found["ddp"].reduced == whole
    assert (found["dpsgd"].per_edge, found["dpsgd"].messages, found["dpsgd"].rounds) == (whole, 2, 1)
    assert sum(found["ring"].by_offset.values()) == pytest.approx(2 * 3 / 4 * whole, rel=0.01)
    assert all(0 < one.codec < 1 for name, one in found.items() if name != "ddp")


def test_all_methods_of_a_scenario_are_tried() -> None:
    made, notes = paced(planned(compute="{step_time: 1ms}"), Room(1))
    assert notes == []
    assert made.network.slow_motion > 1, "eight gradients of about a millisecond on half a core"
    again, _ = paced(planned(compute="{step_time: 1ms}"), Room(1), known={0: 3.0})
    assert again.network.slow_motion == 3.0


def test_a_trial_that_fails_is_told() -> None:
    scenario = loads(SCENARIO.format(workers=4, latency="1ms", rate="1mbit", compute="{step_time: 1s}"), "auto.yaml")
    broken = scenario.model_copy(update={"task": scenario.task.model_copy(update={"data": "nowhere"})})
    made, notes = paced(replace(plan(scenario), variants=(broken,)), Room(2))
    assert made.network.slow_motion == 1
    assert len(notes) == 1
    assert notes[0].startswith("slow motion was chosen without a trial of the methods: ")


def test_one_factor_for_all_cells_of_a_network() -> None:
    made = with_factors(planned(), {0: 6.0})
    assert {made.points[cell.point].network.slow_motion for cell in made.cells} == {6.0}
