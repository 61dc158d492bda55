"""A worker dies, is started again and rejoins: real processes, real connections. In every case all come to an end."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from testbed.methods.base import Method
from testbed.results.digest import bytes_handed_over
from testbed.topology.gossip import Gossip
from testbed.worker.job import Compute, Job
from testbed.worker.progress import Answer, Board, Notice, Phase, Progress
from testbed.worker.rejoin import _nbytes, _packed, _unpack
from testbed.worker.trace import CODES

from .stage import TRAINING, Ended, Script, Stage, kill, play, restart, until, work
from .workers import Bowl, ring

N, DEAD, STEPS = 5, 2, TRAINING.steps
BACK = until(lambda stage: DEAD in stage.returned)
ALL = list(range(N))
METHODS = {
    "dpsgd": {"dpsgd": {}},
    "naive": {"naive": {}},
    "deepsqueeze": {"deepsqueeze": {}},  # γ was tuned before it came
    "dcd": {"dcd": {}},
    "ecd": {"ecd": {}},
    "choco": {"choco": {"gamma": 0.2}},
    "choco-icml": {"choco": {"compressor": {"topk": "25%"}, "order": "icml"}},
    "powergossip": {"powergossip": {"iterations": 2}},
}


def chain(n: int) -> Gossip:
    W = np.zeros((n, n))
    for i in range(n - 1):
        W[i, i + 1] = W[i + 1, i] = 1 / 3
    return Gossip("chain", (W + np.diag(1 - W.sum(1)),))


def showing_state(job: Job, method: Method, task: Any):
    """Leaves behind what the worker knows of others and of itself."""
    kind = type(method)
    original = kind.finish

    def finish(self: Method, peer: Any, state: Any) -> None:
        original(self, peer, state)
        known = {name: getattr(state, name, {}) for name in ("replicas", "estimates", "copies")}
        edges = {other: (edge.p, edge.q) for other, edge in getattr(state, "edges", {}).items()}
        rounds = tuple(state.rounds) if hasattr(state, "rounds") else (state.neighbours,)
        weights = [now.weights for now in rounds]
        content = {**known, "edges": edges, "weights": weights, "public": self.public(peer, state)}
        torch.save(content, Path(job.directory).parent / f"state.{job.rank}")

    kind.finish = finish  # type: ignore[method-assign]  # in this process alone
    return work(job, method, task)


@pytest.mark.parametrize("name", METHODS)
def test_every_gossip_method_takes_a_worker_back(tmp_path, name):
    ended = play(tmp_path, METHODS[name], ring(N), [kill(DEAD, at=10), restart(DEAD, after=3)], call=showing_state)
    assert sorted(ended.results) == ALL
    (rejoin,) = ended.stage.rejoins.done
    assert (rejoin.rank, rejoin.life, rejoin.source) == (DEAD, 1, 1)
    (loss,) = ended.stage.lost.all()
    assert loss.step < rejoin.step
    steps = [row.step for row in ended.results[DEAD].metrics if row.metric == "train_loss"]
    assert steps == list(range(rejoin.step + 1, STEPS + 1))
    assert all(np.isfinite(result.x).all() for result in ended.results.values())
    assert sorted(consensus(ended)) == list(range(0, STEPS + 1, 20))  # each evaluated once
    states = [torch.load(tmp_path / f"state.{rank}", weights_only=True) for rank in ALL]
    for rank in ALL:
        for other in ring(N).neighbours(rank):
            for name_of_replicas in ("replicas", "estimates", "copies"):
                if states[rank][name_of_replicas]:
                    assert torch.equal(states[rank][name_of_replicas][other], states[other]["public"])
            for mine, theirs in zip(
                states[rank]["edges"].get(other, ()), states[other]["edges"].get(rank, ()), strict=True
            ):
                assert torch.equal(mine, theirs)
            assert states[rank]["weights"][0][other] == states[other]["weights"][0][rank]
        assert set(states[rank]["weights"][0]) == ring(N).neighbours(rank)


def consensus(ended: Ended) -> dict[int, float]:
    rows = [row for result in ended.results.values() for row in result.metrics if row.metric == "consensus"]
    assert len(rows) == len({row.step for row in rows})
    return {row.step: row.value for row in rows}


@pytest.mark.parametrize("name", ["dpsgd", "dcd"])
def test_in_the_end_they_are_as_close_as_if_nothing_had_happened(tmp_path, name):
    for run in ("quiet", "disturbed"):
        (tmp_path / run).mkdir()
    quiet = play(tmp_path / "quiet", name, ring(N), [])
    disturbed = play(tmp_path / "disturbed", name, ring(N), [kill(DEAD, at=10), restart(DEAD)])
    assert disturbed.stage.returned == [DEAD]
    assert consensus(disturbed)[STEPS] == pytest.approx(consensus(quiet)[STEPS], rel=0.05)


@pytest.mark.parametrize("threads", [False, True])
def test_what_follows_is_gossip_on_the_whole_graph_again(tmp_path, threads):
    """Gradient first, so the dead worker sends nothing in the step it dies in: all of it is exact."""
    step, lr = 7, 0.05

    def task(rank: int, size: int, seed: int) -> Bowl:
        return Bowl(rank, size, seed, kill_at=step if rank == DEAD else None, once=tmp_path / "died")

    training = replace(TRAINING, momentum=0.0)
    acts = [until(lambda stage: DEAD in stage.lost.ranks()), _restart_now(DEAD)]
    spec = {"dpsgd": {"order": "B"}}
    ended = play(tmp_path, spec, ring(N), acts, task=task, training=training, watch_every=int(threads))
    (rejoin,) = ended.stage.rejoins.done
    tasks = [Bowl(rank, N, 1) for rank in range(N)]
    X = torch.stack([task.initial() for task in tasks])
    whole = ring(N).matrices[0]
    without = whole.copy()
    without[np.arange(N), np.arange(N)] += whole[:, DEAD]
    without[:, DEAD] = 0
    for now in range(STEPS):
        if now == rejoin.step:
            X[DEAD] = X[rejoin.source]
        for x, one in zip(X, tasks, strict=True):
            one.bind(x)
            gradient = torch.empty_like(x)
            one.gradient(now, gradient)
            x -= lr * gradient
        W = without if step <= now < rejoin.step else whole
        X = torch.from_numpy(W @ X.double().numpy()).float()
    for rank, result in ended.results.items():
        assert np.allclose(result.x, X[rank], atol=1e-5)


def _restart_now(*ranks: int) -> Script:
    def act(stage: Stage) -> bool:
        for rank in ranks:
            stage.restart(rank)
        return True

    return act


def test_all_bytes_are_counted_and_the_time_is_on_record(tmp_path):
    ended = play(tmp_path, "dcd", ring(N), [kill(DEAD, at=10), restart(DEAD)])
    (rejoin,) = ended.stage.rejoins.done
    nbytes = 4 * Bowl(0, N, 1).layout.numel
    assert rejoin.nbytes == 8 + 3 * nbytes  # a model here, a replica each way with the other neighbour
    for result in ended.results.values():
        if result.rank not in (1, 3):  # where a connection is closed, the kernel no longer knows of its bytes
            kernel = result.tcp_bytes_sent + result.tcp_bytes_before
            assert abs(kernel - bytes_handed_over(result, N)) <= 300  # connecting
        spans = result.spans[result.spans["kind"] == CODES["rejoin"]]
        assert bool(len(spans)) == (result.rank in (1, DEAD, 3))
        assert set(spans["step"]) <= {rejoin.step}
    assert ended.results[1].bytes_sent[DEAD] > ended.results[3].bytes_sent[DEAD]  # the model was w1's
    clocks = [row.time_s for row in ended.results[DEAD].metrics if row.metric == "train_loss"]
    others = [row.time_s for row in ended.results[1].metrics if row.metric == "train_loss"][rejoin.step :]
    assert len(clocks) == len(others) > 4
    for own, other in ((clocks, others), (others, clocks)):  # one clock for all: nobody is two steps ahead of another
        assert all(later > earlier for later, earlier in zip(own[2:], other, strict=False))


def test_killed_twice(tmp_path):
    acts = [kill(DEAD, at=8), restart(DEAD), BACK, kill(DEAD, at=20), restart(DEAD)]
    ended = play(tmp_path, "dcd", ring(N), acts)
    assert sorted(ended.results) == ALL
    assert [(rejoin.rank, rejoin.life) for rejoin in ended.stage.rejoins.done] == [(DEAD, 1), (DEAD, 2)]
    assert [loss.life for loss in ended.stage.lost.all()] == [0, 1]


def test_two_neighbours_at_once(tmp_path):
    ended = play(tmp_path, METHODS["choco"], ring(N), [kill(2, 3, at=8), restart(2, 3, after=2)])
    assert sorted(ended.results) == ALL
    assert sorted(ended.stage.returned) == [2, 3]
    first, second = ended.stage.rejoins.done
    assert first.step < second.step


def test_back_while_another_is_dead(tmp_path):
    ended = play(tmp_path, METHODS["powergossip"], ring(N), [kill(2, 3, at=8), restart(2)])
    assert sorted(ended.results) == [0, 1, 2, 4]
    assert ended.stage.returned == [2]
    assert ended.stage.lost.ranks() == {3}


def test_whoever_has_no_neighbour_waits_for_one(tmp_path):
    """w3's only neighbour is dead, too: it comes back after that one."""
    ended = play(tmp_path, "dcd", chain(4), [kill(2, 3, at=8), restart(3), restart(2, after=6)])
    assert sorted(ended.results) == [0, 1, 2, 3]
    assert ended.stage.returned == [2, 3]


def test_parts_that_ran_apart_meet_again(tmp_path):
    """Without w1, w0 is alone and quicker than the others: it waits for them."""

    class Slower(Bowl):
        def gradient(self, step: int, out: torch.Tensor) -> float:
            if self._rank > 1:
                torch.sum(torch.ones(2_000_000))
            return super().gradient(step, out)

    ended = play(tmp_path, "dcd", chain(4), [kill(1, at=5), restart(1, after=10)], task=Slower)
    assert sorted(ended.results) == [0, 1, 2, 3]
    assert ended.stage.returned == [1]


def test_before_anybody_has_noticed(tmp_path):
    """The neighbours compute for 300 ms when it is killed, and it is up again long before they look."""
    training = replace(TRAINING, steps=8, eval_every=4, compute=Compute("step_time", 0.3))
    ended = play(tmp_path, "dcd", ring(N), [kill(DEAD, at=1), restart(DEAD)], training=training)
    assert sorted(ended.results) == ALL
    (rejoin,), (loss,) = ended.stage.rejoins.done, ended.stage.lost.all()
    assert rejoin.step - loss.step <= 4


def test_on_a_graph_that_changes(tmp_path):
    hops = [1, 2, 4]
    one_peer = Gossip("one-peer", tuple((np.eye(N) + np.roll(np.eye(N), hop, axis=1)) / 2 for hop in hops))
    ended = play(tmp_path, "dpsgd", one_peer, [kill(DEAD, at=8), restart(DEAD, after=2)])
    assert sorted(ended.results) == ALL
    assert ended.stage.returned == [DEAD]


@pytest.mark.parametrize("phase", [Phase.PROPOSED, Phase.GO])
@pytest.mark.parametrize("victim", [DEAD, 1, 3])
def test_somebody_is_killed_in_the_middle_of_it(tmp_path, phase, victim):
    """The one that comes back, whose model it is to take, or another neighbour: the others go on in any case."""

    def strike(stage: Stage) -> bool:
        if stage.progress.notice().phase != phase:
            return False
        stage.kill(victim)
        return True

    ended = play(tmp_path, "dcd", ring(N), [kill(DEAD, at=8), restart(DEAD), strike], message_timeout=3)
    living = set(ended.results)
    assert living >= set(ALL) - {victim, DEAD}
    assert victim not in living
    lives = [(loss.rank, loss.life) for loss in ended.stage.lost.all()]
    assert ((DEAD, 1) in lives) == (DEAD not in living)
    assert all(result.last("train_loss") is not None for result in ended.results.values())
    if phase == Phase.PROPOSED and victim != DEAD:
        assert ended.stage.returned == [DEAD]  # who was to meet it and died is not waited for


def test_too_late(tmp_path):
    ended = play(tmp_path, "dpsgd", ring(N), [kill(DEAD, at=STEPS - 12), restart(DEAD, after=10)])
    assert sorted(ended.results) == [0, 1, 3, 4]
    assert [loss.why for loss in ended.stage.lost.all()] == [
        "was killed by SIGKILL",
        "started again, but too late to rejoin",
    ]


def test_nobody_to_come_back_to(tmp_path):
    ended = play(tmp_path, "dpsgd", chain(3), [kill(1, 2, at=8), restart(2)])
    assert sorted(ended.results) == [0]
    assert ended.stage.lost.ranks() == {1, 2}


def test_a_death_of_ones_own_is_one_like_any_other(tmp_path):
    """Killed by itself (as by want of memory), not by the script."""

    def task(rank: int, size: int, seed: int) -> Bowl:
        return Bowl(rank, size, seed, kill_at=9 if rank == DEAD else None, once=tmp_path / "died")

    acts = [until(lambda stage: DEAD in stage.lost.ranks()), _restart_now(DEAD)]
    assert sorted(play(tmp_path, "ecd", ring(N), acts, task=task).results) == ALL


def test_buffers_of_all_kinds_travel_with_the_model():
    places = [torch.zeros(1, dtype=torch.int64), torch.zeros(3), torch.zeros((), dtype=torch.int64), torch.zeros(2, 2)]
    given = [torch.tensor([1 << 40]), torch.randn(3), torch.tensor(7), torch.randn(2, 2)]
    message = _packed(given)
    assert message.numel() == _nbytes(places)
    _unpack(message, places)
    assert all(map(torch.equal, given, places))


def test_what_controller_and_workers_tell_each_other(tmp_path):
    watching = Board(tmp_path / "progress", tmp_path / "orders", 3)
    assert watching.notice() == Notice()
    told = Notice(4, Phase.PROPOSED, 1, 2, 30)
    watching.put_notice(told)
    watching.set_present(2, 4)
    watching.refuse(1, 2)
    own = Progress(tmp_path / "progress", tmp_path / "orders", 3)
    assert (own.notice(), own.notice_number, own.present(4), own.refused(1)) == (told, 4, [2], 2)
    own.put_answer(1, Answer(ready=2, nbytes=1 << 40))
    assert watching.answer(1) == Answer(ready=2, nbytes=1 << 40)
    assert (watching.answer(0), watching.present(4), watching.refused(1)) == (Answer(), [2], 2)


def test_a_notice_is_never_seen_half_written(tmp_path):
    writing = Board(tmp_path / "progress", tmp_path / "orders", 1)
    child = os.fork()
    if child == 0:
        reading, last = Progress(tmp_path / "progress", tmp_path / "orders", 1), 0
        while last < 20_000:
            notice = reading.notice()
            if notice.number and (notice.rank != notice.number or notice.step != -notice.number):
                os._exit(1)
            last = notice.number
        os._exit(0)
    for number in range(1, 20_001):
        writing.put_notice(Notice(number, Phase.GO, number, 0, -number))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
