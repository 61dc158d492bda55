"""How long a worker waits for a message: longer than anything the scenario itself causes."""

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan.make import plan
from testbed.plan.timeouts import longest_outage, longest_step, model_bytes, patience
from testbed.run.jobs import jobs
from testbed.scenario.load import load, loads

BASE = "workers: 4\nmethods: [dpsgd, allreduce]\n"
QUICK = BASE + "compute: {step_time: 10ms}\n"
MODEL = 1_000_000


def made(text: str):
    whole = plan(loads(text, "scenario.yaml"))
    return whole.variants[0], whole.points[0].network, whole.points[0].gossip


def waits(text: str, size: int = MODEL) -> float:
    return patience(*made(text), size)


def test_ten_seconds_where_steps_are_short():
    assert waits(QUICK, size=35_000) == 10


def test_slow_networks_get_twenty_steps():
    slow = QUICK + "network: {link: {latency: 100ms, rate: 1mbit}}"
    step = longest_step(*made(slow), MODEL)
    assert step > 8 + 0.1  # a megabyte at a megabit per second, and its way
    assert waits(slow) == pytest.approx(20 * step)


def test_stragglers_and_links_at_their_worst_count():
    usual = longest_step(*made(QUICK), MODEL)
    slowed = longest_step(*made(QUICK + "network: {events: [{at: 5s, slow: w1, factor: 50}]}"), MODEL)
    assert slowed - usual == pytest.approx(0.49)
    narrow = "network: {events: [{at: 5s, link: [w0, w1], rate: 1mbit}]}"
    assert longest_step(*made(QUICK + narrow), MODEL) > 8 > usual


def test_a_real_gradient_may_take_a_while():
    assert waits(BASE) >= 40


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        ("{at: 5s, down: [w0, w1], for: 7s}", 7),
        ("{at: step 5, partition: [[w0], [w1, w2, w3]], for: 3s}", 3),
        ("{at: 5s, flap: [w0, w1], for: 2s, every: 20s}", 2),
        ("{at: 5s, flap: [w0, w1]}", 1),
        ("{random: {kind: down, every: 60s}}", 5),
        ("{at: 5s, down: [w0, w1]}, {at: 25s, up: [w1, w0]}", 20),
        ("{at: 5s, partition: [[w0], [w1]]}, {at: 9s, heal}", 4),
        ("{at: 5s, down: [w0, w1]}, {at: 25s, up: [w1, w2]}", 0),  # stays down: to be given up on
        ("{at: step 5, down: [w0, w1]}, {at: 25s, up: [w0, w1]}", 0),  # who knows how long
        ("{at: 5s, freeze: w0, for: 60s}", 0),  # a fault to be noticed
        ("{at: 5s, link: [w0, w1], rate: 1mbit, for: 60s}", 0),
    ],
)
def test_outages_that_end_are_waited_for(events, seconds):
    scenario, network, _ = made(QUICK + f"network: {{events: [{events}]}}")
    assert longest_outage(scenario, network) == pytest.approx(seconds)


def test_tcp_needs_as_long_again():
    assert waits(QUICK + "network: {events: [{at: 5s, down: [w0, w1], for: 7s}]}", size=1000) == 24


def test_traces_count(tmp_path: Path):
    (tmp_path / "t.csv").write_text("time,rate\n0s,10mbit\n2s,100kbit\n")
    (tmp_path / "m.trace").write_text("1\n2\n5000\n")  # five seconds without a packet
    text = (
        QUICK + "network: {links: [{between: [w0, w1], trace: t.csv}, {between: [w1, w2], trace: {mahimahi: m.trace}}]}"
    )
    (tmp_path / "scenario.yaml").write_text(text)
    whole = plan(load(tmp_path / "scenario.yaml"))
    point = whole.points[0]
    assert longest_step(whole.variants[0], point.network, point.gossip, MODEL) >= 80
    assert longest_outage(whole.variants[0], point.network) > 4


def test_the_scenario_has_the_last_word():
    assert waits(QUICK + "patience: 3s") == 3
    assert waits(BASE + "deadline: 30s") == 30


def test_jobs_carry_it_and_whether_losses_are_tolerated():
    whole = plan(loads(QUICK + "on_failure: continue\npatience: 4s", "scenario.yaml"))
    by_method = {cell.method: jobs(whole, cell, Path("cell"), Path("news"), None) for cell in whole.cells}
    assert {job.message_timeout for todo in by_method.values() for job in todo} == {4.0}
    assert {name: todo[0].tolerant for name, todo in by_method.items()} == {"dpsgd": True, "allreduce": False}
    stops = plan(loads(QUICK, "scenario.yaml"))
    assert not any(jobs(stops, cell, Path("cell"), Path("news"), None)[0].tolerant for cell in stops.cells)


@pytest.mark.parametrize(
    ("task", "count"),
    [
        ("digits", 8970),
        ({"model": "resnet20", "data": "cifar10"}, 272_474),
        ({"model": "quadratic", "shape": [20]}, 20),
    ],
)
def test_the_size_of_a_model(task, count):
    assert model_bytes(task) == 4 * count


def test_a_model_of_no_possible_size():
    with pytest.raises(ScenarioError, match="the model cannot be built: Storage size"):
        model_bytes({"model": "mlp", "hidden": [10**11, 10**9]})
