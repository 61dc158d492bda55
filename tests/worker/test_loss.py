"""A worker dies and the others go on: real processes, real connections."""

import json
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch

from testbed.errors import TrainingError
from testbed.methods import make
from testbed.worker import parcel
from testbed.worker.control import FileControl
from testbed.worker.forked import run_forked
from testbed.worker.job import Training
from testbed.worker.local import train_local
from testbed.worker.lost import Lost
from testbed.worker.trace import KINDS, SPAN
from testbed.worker.transport import ALL, PeerLostError

from .workers import Bowl, make_job, ring

N, DEAD, STEP, STEPS, LR = 5, 2, 5, 20, 0.05
TRAINING = Training(steps=STEPS, lr=LR, eval_every=4)


def doomed(mark: Path, rank: int, size: int, seed: int) -> Bowl:
    return Bowl(rank, size, seed, kill_at=STEP if rank == DEAD else None, once=mark)


def train(spec, directory: Path, **options):
    task = partial(doomed, directory / "died")
    return train_local(
        N,
        make(spec),
        task,
        ring(N),
        TRAINING,
        directory=directory / "cell",
        message_timeout=10,
        tolerant=True,
        **options,
    )


@pytest.mark.parametrize("threads", [False, True])
def test_survivors_train_on_what_is_left_of_the_graph(tmp_path, threads):
    """Gradient first, so the dead worker sends nothing in the step it dies in: what follows is exact."""
    results = train({"dpsgd": {"order": "B"}}, tmp_path, watch_every=int(threads))
    assert [result.rank for result in results] == [0, 1, 3, 4]
    tasks = [Bowl(rank, N, 1) for rank in range(N)]
    X = torch.stack([task.initial() for task in tasks])
    W = ring(N).matrices[0]
    for step in range(STEPS):
        for x, task in zip(X, tasks, strict=True):
            task.bind(x)
            gradient = torch.empty_like(x)
            task.gradient(step, gradient)
            x -= LR * gradient
        if step == STEP:
            W = W.copy()
            W[np.arange(N), np.arange(N)] += W[:, DEAD]
            W[:, DEAD] = 0
        X = torch.from_numpy(W @ X.double().numpy()).float()
    for result in results:
        assert np.allclose(result.x, X[result.rank], atol=1e-5)


@pytest.mark.parametrize(
    "spec",
    [
        "dpsgd",
        "naive",
        {"deepsqueeze": {"gamma": 0.1}},
        "dcd",
        "ecd",
        {"choco": {"gamma": 0.2}},
        {"powergossip": {"iterations": 2}},
    ],
    ids=str,
)
def test_all_gossip_methods_go_on(tmp_path, spec):
    results = train(spec, tmp_path)
    assert [result.rank for result in results] == [0, 1, 3, 4]
    assert all(len([row for row in r.metrics if row.metric == "train_loss"]) == STEPS for r in results)
    assert all(np.isfinite(result.x).all() for result in results)
    (loss,) = Lost(tmp_path / "cell").all()
    assert (loss.rank, loss.why) == (DEAD, "was killed by SIGKILL")


def test_evaluation_is_of_those_that_live(tmp_path):
    results = train("dpsgd", tmp_path)
    averages = {
        row.step: row.value for r in results for row in r.metrics if row.worker == -1 and row.metric == "consensus"
    }
    assert sorted(averages) == [0, 4, 8, 12, 16, 20]  # each once, although one of those who share the work is gone
    X = np.stack([result.x for result in results]).astype(np.float64)
    assert averages[STEPS] == pytest.approx(np.sqrt(np.square(X - X.mean(0)).sum() / len(X)), rel=1e-6)
    left = {path.name for path in (tmp_path / "cell").iterdir()}
    results_of = {f"worker.{rank}.parcel" for rank in (0, 1, 3, 4)}
    assert left == {"lost.2.0.json", "metrics.parquet", "trace.parquet", *results_of}
    trace = parquet.read_table(tmp_path / "cell" / "trace.parquet").to_pandas()
    assert set(trace[trace.kind == "fault"].worker) == {1, 3}  # its neighbours noticed, and nobody else
    assert set(trace[trace.kind == "fault"].peer) == {DEAD}
    later = trace[trace.step > STEP + 1]
    assert not ((later.peer == DEAD) & (later.kind.isin(["send", "wait"]))).any()


def test_two_die_one_after_the_other(tmp_path):
    def task(rank: int, size: int, seed: int) -> Bowl:
        return Bowl(rank, size, seed, kill_at={1: 3, 3: 9}.get(rank), once=tmp_path / f"died.{rank}")

    results = train_local(N, make("dcd"), task, ring(N), TRAINING, directory=tmp_path / "cell", tolerant=True)
    assert [result.rank for result in results] == [0, 2, 4]
    assert Lost(tmp_path / "cell").ranks() == {1, 3}


def test_nobody_is_left(tmp_path):
    def task(rank: int, size: int, seed: int) -> Bowl:
        return Bowl(rank, size, seed, kill_at=3, once=tmp_path / f"died.{rank}")

    with pytest.raises(TrainingError, match=r"w[0-4] was killed by SIGKILL"):
        train_local(N, make("dpsgd"), task, ring(N), TRAINING, tolerant=True)


@pytest.mark.parametrize("spec", ["allreduce", "ring", "ef_sign"])
def test_methods_that_need_everybody_end(tmp_path, spec):
    with pytest.raises(TrainingError, match="w2 was killed by SIGKILL"):
        train(spec, tmp_path)


def test_without_tolerance_all_end(tmp_path):
    task = partial(doomed, tmp_path / "died")
    with pytest.raises(TrainingError, match="w2 was killed by SIGKILL"):
        train_local(N, make("dpsgd"), task, ring(N), TRAINING)


def test_a_failure_is_not_a_loss(tmp_path):
    """An error in a worker is one in the program or the scenario: going on would hide it."""

    class Failing(Bowl):
        def gradient(self, step: int, out: torch.Tensor) -> float:
            if step == STEP and self._rank == DEAD:
                raise TrainingError("no more data")
            return super().gradient(step, out)

    with pytest.raises(TrainingError, match="w2: no more data"):
        train_local(N, make("dpsgd"), Failing, ring(N), TRAINING, directory=tmp_path, tolerant=True)


def test_a_worker_that_dies_before_training_ends_the_cell(tmp_path):
    def task(rank: int, size: int, seed: int) -> Bowl:
        if rank == DEAD:
            os.kill(os.getpid(), signal.SIGKILL)
        return Bowl(rank, size, seed)

    with pytest.raises(TrainingError, match="w2 was killed by SIGKILL"):
        train_local(N, make("dpsgd"), task, ring(N), TRAINING, directory=tmp_path, tolerant=True)


def test_a_frozen_worker_is_named_and_not_those_who_wait_for_others(tmp_path):
    """In a chain of waits the neighbours of the silent one give up first; those behind them a moment later."""

    class Freezing(Bowl):
        def gradient(self, step: int, out: torch.Tensor) -> float:
            if step == STEP and self._rank == DEAD:
                os.kill(os.getpid(), signal.SIGSTOP)
            return super().gradient(step, out)

    with pytest.raises(PeerLostError, match=r"w[13]: nothing from w2 in step \d") as raised:
        train_local(N, make("dpsgd"), Freezing, ring(N), TRAINING, directory=tmp_path, message_timeout=2.0)
    name = f"unfinished.{str(raised.value)[1]}"  # the other may not have had the time
    assert (parcel.read(tmp_path, name, {"spans": SPAN})[1]["spans"]["kind"] == KINDS.index("fault")).any()


def test_the_silent_one_is_named_where_all_wait_for_all():
    def work(rank: int) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        raise PeerLostError("nothing from the other workers", peer=ALL, step=3)

    with pytest.raises(PeerLostError, match=r"^w[02]: nothing from the other workers; not a word from w1$"):
        run_forked([partial(work, rank) for rank in range(3)])


def test_the_missing_one_is_the_one_who_did_not_speak():
    """w0 misses w1, who misses w2, who is silent: w1 knows more, even if w0 was quicker."""

    def work(rank: int) -> None:
        if rank == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.3 * rank)
        raise PeerLostError(f"nothing from w{rank + 1}", peer=rank + 1, step=0)

    with pytest.raises(PeerLostError, match="w1: nothing from w2"):
        run_forked([partial(work, rank) for rank in range(3)])


def test_who_may_be_lost_is_asked():
    asked = []

    def work(rank: int) -> int:
        if rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return rank

    def may_lose(rank: int, why: str) -> bool:
        asked.append((rank, why))
        return rank == 1

    assert run_forked([partial(work, rank) for rank in range(2)], may_lose=may_lose) == [0]
    with pytest.raises(TrainingError, match="w2 was killed"):
        run_forked([partial(work, rank) for rank in range(3)], may_lose=may_lose)
    assert sorted(set(asked)) == [(1, "was killed by SIGKILL"), (2, "was killed by SIGKILL")]


def test_a_loss_is_seen_by_all_and_forgotten_when_a_cell_begins(tmp_path):
    lost = Lost(tmp_path)
    assert not lost.has(1)
    timer = threading.Timer(0.1, lambda: Lost(tmp_path).mark(1, "was killed by SIGKILL"))
    timer.start()
    assert lost.has(1, within=10)
    timer.join()
    assert lost.ranks() == {1}
    assert json.loads((tmp_path / "lost.1.0.json").read_text())["why"] == "was killed by SIGKILL"
    lost.clear()
    assert lost.ranks() == frozenset()


def test_nobody_waits_for_the_lost_at_a_meeting(tmp_path):
    job = make_job(4, tmp_path)
    lost = Lost(tmp_path)

    def come(rank: int) -> tuple[int, list[int]]:
        control = FileControl(job.rendezvous, 4, 60, rank=rank, lost=lost)
        if rank == 3:
            return 0, []  # never comes
        at = control.meet("here")
        return at, list(control.present("here"))

    calls = [partial(come, rank) for rank in range(4)]

    def late_news(call):
        time.sleep(0.2)
        lost.mark(3, "was killed by SIGKILL")
        return call()

    results = run_forked([*calls[:2], partial(late_news, calls[2]), calls[3]])
    assert results[0] == results[1] == results[2]
    assert results[0][1] == [0, 1, 2]


def test_a_meeting_says_how_many_are_missing(tmp_path):
    job = make_job(3, tmp_path)
    with pytest.raises(TrainingError, match="2 of 3 workers did not come to 'here'"):
        FileControl(job.rendezvous, 3, 0.2, rank=0).meet("here")
