from itertools import islice, pairwise, takewhile
from statistics import mean

from testbed.plan.timeline import at_steps, at_times
from testbed.scenario.load import loads

from .examples import SHORT

WORKERS = [f"w{rank}" for rank in range(8)]
LINKS = [("w0", "w1"), ("w1", "w2"), ("w2", "w3")]


def events(*written):
    return loads(SHORT + "network:\n  events:\n" + "".join(f"    - {line}\n" for line in written)).network.events


def times(*written, links=LINKS):
    return at_times(events(*written), WORKERS, links)


def test_actions_come_in_the_order_of_time():
    actions = list(
        times(
            "{at: 30s, kill: w1}", "{at: 10s, link: [w0, w1], rate: 1mbit, for: 5s}", "{at: 20s, slow: w2, factor: 3}"
        )
    )
    assert [(action.at, action.verb) for action in actions] == [(10, "link"), (20, "slow"), (30, "kill")]
    assert actions[0].directions == (("w0", "w1"), ("w1", "w0"))
    assert actions[0].change.rate == 10**6
    assert actions[0].change.latency is None
    assert actions[0].lasting == 5
    assert (actions[1].workers, actions[1].factor) == (("w2",), 3)
    assert (actions[2].workers, actions[2].lasting) == (("w1",), None)


def test_steps_are_apart_from_times():
    both = events("{at: step 20, kill: w1}", "{at: 1s, kill: w2}", "{at: step 10, freeze: w3, for: 2s}")
    assert [(action.at, action.workers) for action in at_steps(both)] == [(10, ("w3",)), (20, ("w1",))]
    assert [action.workers for action in at_times(both, WORKERS)] == [("w2",)]


def test_repetition():
    actions = list(times("{at: 5s, freeze: w1, for: 1s, every: 10s, until: 30s}"))
    assert [action.at for action in actions] == [5, 15, 25]
    assert {action.lasting for action in actions} == {1}


def test_repetition_without_end_is_lazy():
    assert [action.at for action in islice(times("{at: 0s, kill: w1, every: 1s}"), 3)] == [0, 1, 2]


def test_flapping_is_going_down_again_and_again():
    actions = list(times("{at: 0s, flap: [w0, w1], until: 25s}"))
    assert [(action.at, action.verb, action.lasting) for action in actions] == [
        (0, "down", 1),
        (10, "down", 1),
        (20, "down", 1),
    ]
    (action,) = times("{at: 0s, flap: [w0, w1], every: 60s, for: 2s, until: 25s}")
    assert action.lasting == 2


def test_partitions():
    (action, heal) = times("{at: 1s, partition: [[w0, w1], [w2]]}", "{at: 2s, heal}")
    assert action.groups == (("w0", "w1"), ("w2",))
    assert heal.verb == "heal"


def test_random_events_are_a_poisson_process():
    actions = list(times("{random: {kind: kill, every: 10s}, until: 20000s}"))
    gaps = [b.at - a.at for a, b in pairwise(actions)]
    assert 9 < mean(gaps) < 11
    assert 0.3 < mean(gap < 5 for gap in gaps) < 0.5  # 1 - exp(-1/2) = 0.39
    assert {action.workers for action in actions} == {(name,) for name in WORKERS}
    assert {action.lasting for action in actions} == {None}


def test_random_events_depend_on_their_seed_alone():
    def first(*written):
        return [(action.at, action.workers) for action in islice(times(*written), 5)]

    one = "{random: {kind: kill, every: 10s, seed: 1}}"
    assert first(one) == first(one)
    assert first(one) != first(one.replace("seed: 1", "seed: 2"))


def test_two_random_events_are_independent():
    two = "{random: {kind: kill, every: 10s}, until: 100s}"
    actions = list(times(two, two))
    assert len({action.at for action in actions}) == len(actions)


def test_random_targets():
    actions = list(islice(times("{random: {kind: slow, every: 1s, among: [w1, w2], factor: 4, for: 3s}}"), 50))
    assert {action.workers for action in actions} == {("w1",), ("w2",)}
    assert {(action.factor, action.lasting) for action in actions} == {(4, 3)}
    actions = list(islice(times("{random: {kind: down, every: 1s, among: [w0, w1, w2]}}"), 50))
    assert {action.directions for action in actions} == {
        (("w0", "w1"), ("w1", "w0")),
        (("w1", "w2"), ("w2", "w1")),
    }
    assert {action.lasting for action in actions} == {5}


def test_random_events_begin_at_their_time():
    later = list(takewhile(lambda action: action.at < 200, times("{at: 100s, random: {kind: kill, every: 5s}}")))
    assert later
    assert all(action.at > 100 for action in later)


def test_random_events_without_a_target_do_not_happen():
    assert list(times("{random: {kind: down, every: 1s}}", links=[])) == []
