import pytest

from testbed.errors import ScenarioError
from testbed.scenario.events import Step
from testbed.scenario.load import loads
from testbed.scenario.units import Duration

from .examples import SHORT


def event(written):
    return loads(SHORT + f"network:\n  events:\n    - {written}\n", "s.yaml").network.events[0]


@pytest.mark.parametrize(
    ("written", "verb"),
    [
        ("{at: 30s, link: [w0, w1], rate: 1mbit}", "link"),
        ("{at: 30s, from: w0, to: w1, rate: 1mbit}", "link"),
        ("{at: 30s, down: [w0, w1]}", "down"),
        ("{at: 30s, link: [w0, w1], down}", "down"),
        ("{at: 30s, link: [w0, w1], down: true}", "down"),
        ("{at: 30s, up: [w0, w1]}", "up"),
        ("{at: 30s, link: [w0, w1], up}", "up"),
        ("{at: 30s, flap: [w0, w1]}", "flap"),
        ("{at: 30s, partition: [[w0, w1], [w2, w3]]}", "partition"),
        ("{at: 30s, heal}", "heal"),
        ("{at: 30s, heal: true}", "heal"),
        ("{at: 30s, kill: w1}", "kill"),
        ("{at: 30s, restart: [w1, w2]}", "restart"),
        ("{at: 30s, freeze: w1, for: 5s}", "freeze"),
        ("{at: 30s, slow: w1, factor: 3}", "slow"),
        ("{random: {kind: kill, every: 60s}}", "random"),
    ],
)
def test_verbs(written, verb):
    assert event(written).verb == verb


def test_moments():
    assert event("{at: 30s, kill: w1}").at == Duration(30)
    assert not isinstance(event("{at: 30s, kill: w1}").at, Step)
    at = event("{at: step 100, kill: w1}").at
    assert isinstance(at, Step)
    assert at == 100
    assert str(at) == "step 100"


def test_directions_of_links():
    assert event("{at: 1s, link: [w0, w1], rate: 1mbit}").directions == (("w0", "w1"), ("w1", "w0"))
    assert event("{at: 1s, from: w0, to: w1, rate: 1mbit}").directions == (("w0", "w1"),)
    assert event("{at: 1s, link: [w0, w1], down}").directions == (("w0", "w1"), ("w1", "w0"))
    assert event("{at: 1s, kill: w0}").directions == ()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{kill: w1}", "s.yaml:5: network.events.0: when? Give at: 30s, or at: step 100"),
        ("{at: 30, kill: w1}", "network.events.0.at: 30 has no unit"),
        ("{at: step, kill: w1}", "'step' is not a step; write for example step 100"),
        ("{at: step -1, kill: w1}", "'step -1' is not a step"),
        ("{at: soon, kill: w1}", "'soon' is not a duration"),
        ("{at: soon, kill: w1}", "or a training step: step 100"),
        ("{at: 30s}", "an event does exactly one thing; one of: link, from, down"),
        ("{at: 30s, kill: w1, freeze: w2}", "an event does exactly one thing, not kill and freeze"),
        ("{at: 30s, heal: false}", "an event does exactly one thing"),
        ("{at: 30s, link: [w0, w1]}", "says nothing about the link; give any of: latency"),
        ("{at: 30s, from: w0, rate: 1mbit}", "from and to belong together"),
        ("{at: 30s, kill: w0, rate: 1mbit}", "rate goes with link: [w0, w1], not with kill"),
        ("{at: 30s, kill: w0, factor: 2}", "factor goes with slow, not with kill"),
        ("{at: 30s, slow: w0, factor: 1}", "network.events.0.factor: must be more than 1"),
        ("{at: 30s, up: [w0, w1], for: 5s}", "for does not go with up"),
        ("{random: {kind: kill, every: 9s}, for: 5s}", "for does not go with random; write it inside random"),
        ("{random: {kind: kill, every: 9s}, every: 5s}", "write it inside random"),
        ("{random: {kind: kill}}", "network.events.0.random: every is missing: Mean time"),
        ("{random: {every: 0, kind: kill}}", "random.every: must be at least 10ms"),
        ("{at: step 5, random: {kind: kill, every: 9s}}", "what repeats starts at a time, not at a step"),
        ("{at: step 5, kill: w0, every: 9s}", "what repeats starts at a time, not at a step"),
        ("{at: 5s, freeze: w0}", "for how long? Give for: 5s"),
        ("{at: 5s, down: [w0, w1], for: 9s, every: 9s}", "for (9s) must be shorter than every (9s)"),
        ("{at: 5s, down: [w0, w1], until: 9s}", "until goes with every, flap or random"),
        ("{at: 5s, partition: [[w0, w1]]}", "network.events.0.partition: needs at least 2 entries"),
        ("{at: 5s, partition: [[w0, w1], [w1]]}", "w1 is in two groups of the partition"),
        ("{at: 5s, kill: w8}", "s.yaml:5: network.events.0.kill.0: there is no w8; the workers are w0 to w7"),
        ("{at: 5s, kill: s0}", "network.events.0.kill.0: unknown worker 's0'"),
        ("{at: 5s, link: [w0, w9], down}", "there is no w9"),
        ("{at: 5s, partition: [[w0], [w8]]}", "network.events.0.partition.1.0: there is no w8"),
        ("{random: {kind: kill, every: 9s, among: [w8]}}", "network.events.0.random.among.0: there is no w8"),
        ("{at: 5s, kill: []}", "network.events.0.kill: needs at least 1 entry"),
        ("explosion", "network.events.0: should be a mapping with any of: at, link"),
    ],
)
def test_what_is_wrong_is_said(written, words):
    with pytest.raises(ScenarioError) as raised:
        event(written)
    assert words in str(raised.value)
