"""What a cell's result says of workers that died."""

import numpy as np

from testbed.errors import TrainingError, WorkerDiedError
from testbed.run.failures import describe, explain, returns, warnings
from testbed.run.faults import Done
from testbed.run.rejoin_coordinator import Rejoin
from testbed.topology.gossip import Gossip
from testbed.worker.lost import WorkerFailure
from testbed.worker.progress import Where
from testbed.worker.transport import ALL, PeerLostError

NAMES = ("w0", "w1", "w2", "w3")
WORKERS = [Where(step, 100_000_000_000, 0, 0.0, 0.0) for step in (40, 40, 31, 40)]
KILLED = Done("w2", "killed", 3.0, 3.001, kind="kill")


def died(worker: str) -> WorkerDiedError:
    return WorkerDiedError(f"{worker} was killed by SIGKILL", hint="dmesg?", worker=worker, why="was killed by SIGKILL")


def nothing_from(peer: int, silent: tuple[int, ...] = ()) -> PeerLostError:
    """The words do not matter."""
    error = PeerLostError("w0 heard nothing", hint="frozen?", peer=peer, step=11)
    error.silent = silent
    return error


def chain() -> Gossip:
    W = np.array([[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3
    return Gossip("chain", (W,))


def test_who_was_lost_when_and_how():
    (found,) = describe([WorkerFailure(2, "was killed by SIGKILL", 103.5, step=31)], NAMES, 100.0, {})
    assert (found.worker, found.step, found.at) == ("w2", 31, 3.5)
    assert found.text == "w2 was lost in step 31 (it was killed by SIGKILL); its neighbours went on without it"


def test_who_was_lost_once_it_was_through():
    (found,) = describe([WorkerFailure(2, "was killed by SIGKILL", 103.5, step=40)], NAMES, 100.0, {}, steps=40)
    assert "w2 was lost after its last step (it was" in found.text
    error, _ = explain(died("w2"), done=[], names=NAMES, workers=WORKERS, steps=WORKERS[2].step)
    assert error == "w2 was killed by SIGKILL after its last step"


def test_what_the_scenario_did_is_said_as_it_did_it():
    given_up = {(2, 0): Done("w2", "frozen for 8.0 s, too long for the others, and killed", 8.0, 8.1)}
    (found,) = describe([WorkerFailure(2, "was killed by SIGKILL", 103.5)], NAMES, 100.0, given_up)
    assert "(it was frozen for 8.0 s, too long for the others, and killed)" in found.text


def test_who_came_back_when_and_with_whose_model():
    gone = [
        WorkerFailure(2, "was killed by SIGKILL", 103.5, step=31),
        WorkerFailure(2, "was killed by SIGKILL", 109.0, step=70, life=1),
    ]
    back = [Rejoin(2, 1, 40, 1, 2_500_000, 105.0)]
    (found,) = returns(back, gone, NAMES, 100.0)
    assert found.text == (
        "w2 rejoined in step 40, 1.5 s after it was lost, with the model of w1 (2.50 MB on the network); its momentum "
        "began at 0"
    )
    assert (found.worker, found.left_step, found.left_at) == ("w2", 31, 3.5)
    assert (found.step, found.at, found.source, found.bytes) == (40, 5.0, "w1", 2_500_000)
    first, second = describe(gone, NAMES, 100.0, {}, back)
    assert "was lost in step 31" in first.text
    assert "was lost in step 70" in second.text


def test_who_was_lost_on_its_way_back():
    late = WorkerFailure(2, "started again, but too late to rejoin", 109.0, step=31, life=1)
    (found,) = describe([late], NAMES, 100.0, {})
    assert found.text == "w2 started again, but too late to rejoin"
    (found,) = describe([late], NAMES, 100.0, {(2, 1): Done("w2", "killed", 9.0, 9.0)})
    assert found.text == "w2 was killed on its way back"


def test_a_graph_that_falls_apart_is_a_warning():
    assert warnings([], NAMES, chain()) == []
    assert warnings({3}, NAMES, chain()) == []
    (warning,) = warnings({2}, NAMES, chain())
    assert "falls into 2 parts (w0+w1, w3)" in warning


def test_a_directed_graph_loses_its_mean():
    one_way = Gossip("circle", ((np.eye(4) + np.roll(np.eye(4), 1, axis=1)) / 2,))
    found = warnings({2}, NAMES, one_way)
    assert [warning.partition(":")[0] for warning in found] == ["circle is a directed graph"]


def test_a_death_names_the_step_and_the_event():
    error, hint = explain(died("w2"), done=[KILLED], names=NAMES, workers=WORKERS)
    assert error == "w2 was killed by SIGKILL in step 31"
    assert (
        hint == "an event of the scenario did it: at 3 s, w2 killed; on_failure: continue lets methods go on that can"
    )


def test_a_death_that_nobody_ordered_keeps_its_hint():
    error, hint = explain(died("w1"), done=[KILLED], names=NAMES, workers=WORKERS)
    assert (error, hint) == ("w1 was killed by SIGKILL in step 40", "dmesg?")


def test_a_method_that_needs_everybody_is_said_to():
    _, hint = explain(died("w2"), done=[KILLED], names=NAMES, workers=WORKERS, tolerant=True)
    assert "too few were left to go on" in (hint or "")
    _, hint = explain(died("w2"), done=[KILLED], names=NAMES, workers=WORKERS, needs_all="allreduce")
    assert hint is not None
    assert hint.endswith("allreduce cannot go on without a worker")


def test_silence_is_traced_to_the_freeze():
    frozen = Done("w1", "frozen for 30s", "step 10", 2.0, kind="freeze")
    for cause in (nothing_from(1), nothing_from(ALL, silent=(1,)), nothing_from(ALL, silent=(3, 1))):
        same, hint = explain(cause, done=[frozen], names=NAMES, workers=WORKERS)
        assert same == str(cause)
        assert hint is not None
        assert hint.startswith("an event of the scenario did it: at step 10, w1 frozen for 30s, longer than a worker")
    for cause in (nothing_from(3), nothing_from(ALL)):
        _, hint = explain(cause, done=[frozen], names=NAMES, workers=WORKERS)
        assert hint == "frozen?"


def test_other_errors_are_left_alone():
    cause = TrainingError("w2: was killed by SIGKILL, it says", hint="get some")
    assert explain(cause, done=[KILLED], names=NAMES, workers=WORKERS) == (str(cause), "get some")
