"""A killed run that goes on ends where an undisturbed one ends, bit for bit."""

import os
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from testbed import methods
from testbed.errors import TrainingError
from testbed.worker import checkpoint
from testbed.worker.checkpoint import Checkpoints
from testbed.worker.job import Training
from testbed.worker.local import train_local
from testbed.worker.memory import run_in_memory

from .workers import Bowl, bowl, ring

TRAINING = Training(steps=20, lr=0.1, momentum=0.9, nesterov=True, eval_every=5, checkpoint_every=4)
SPECS = [
    "dpsgd",
    {"choco": {"compressor": "sign", "gamma": 0.4}},
    {"dcd": {"compressor": {"quantize": "8bit"}}},
    "ecd",
    {"deepsqueeze": {"compressor": "sign"}},
    "powergossip",
    "ring",
    "naive",
    "ef_sign",
    "sgp",
    {"allreduce": {"compressor": {"quantize": "8bit"}}},
]


def mortal(once, rank, size, seed):
    """Worker 1 is killed in step 14, the first time."""
    return Bowl(rank, size, seed, kill_at=14 if rank == 1 else None, once=once)


def comparable(results):
    return [[(row.worker, row.step, row.metric, row.value, row.bytes_sent) for row in r.metrics] for r in results]


@pytest.mark.parametrize("spec", [*SPECS, "allreduce"], ids=str)
def test_resumes_after_a_kill(tmp_path, spec):
    method = methods.make(spec)
    undisturbed = train_local(4, method, bowl, ring(4), TRAINING)
    task = partial(mortal, tmp_path / "killed")
    with pytest.raises(TrainingError, match="w1 was killed by SIGKILL"):
        train_local(4, method, task, ring(4), TRAINING, directory=tmp_path / "cell")
    assert max(Checkpoints(tmp_path / "cell", 0, 4).usable()) in (8, 12)
    resumed = train_local(4, method, task, ring(4), TRAINING, directory=tmp_path / "cell", resume=True)
    for a, b in zip(undisturbed, resumed, strict=True):
        assert np.array_equal(a.x, b.x)
        assert b.seconds > 0
        assert any("resumed after step" in warning for warning in b.warnings)
    assert comparable(undisturbed) == comparable(resumed)
    assert not (tmp_path / "cell" / "checkpoints").exists()
    assert not (tmp_path / "cell" / "snapshots").exists()


class Stumbling(Bowl):
    """Fails in step 14, the first time."""

    failed = False

    def gradient(self, step, out):
        if step == 14 and self._rank == 1 and not Stumbling.failed:
            Stumbling.failed = True
            raise TrainingError("stumbled")
        return super().gradient(step, out)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_kind_of_state_comes_back(tmp_path, spec):
    method = methods.make(spec)
    undisturbed = run_in_memory(4, method, bowl, ring(4), TRAINING)
    Stumbling.failed = False
    with pytest.raises(TrainingError, match="stumbled"):
        run_in_memory(4, method, Stumbling, ring(4), TRAINING, directory=tmp_path)
    resumed = run_in_memory(4, method, Stumbling, ring(4), TRAINING, directory=tmp_path, resume=True)
    assert all(np.array_equal(a.x, b.x) for a, b in zip(undisturbed, resumed, strict=True))
    assert comparable(undisturbed) == comparable(resumed)


def test_checkpoints_change_nothing():
    with_them, without = (
        run_in_memory(3, methods.make("dcd"), bowl, ring(3), Training(steps=10, checkpoint_every=every))
        for every in (2, 0)
    )
    assert all(np.array_equal(a.x, b.x) for a, b in zip(with_them, without, strict=True))


def test_resuming_without_checkpoints_starts_afresh(tmp_path):
    fresh = run_in_memory(2, methods.make("dpsgd"), bowl, ring(2), Training(steps=3), directory=tmp_path, resume=True)
    assert fresh[0].last("train_loss") is not None


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    class Failing(Bowl):
        def gradient(self, step, out):
            if step == 5:
                raise TrainingError("stop here")
            return super().gradient(step, out)

    with pytest.raises(TrainingError, match="stop here"):
        run_in_memory(
            2, methods.make("dpsgd"), Failing, ring(2), Training(steps=9, checkpoint_every=2), directory=tmp_path
        )
    other = Training(steps=9, checkpoint_every=2, momentum=0.9)
    with pytest.raises(TrainingError, match="another model or other training options"):
        run_in_memory(2, methods.make("dpsgd"), bowl, ring(2), other, directory=tmp_path, resume=True)


def test_batch_statistics_come_back(tmp_path):
    """Buffers of a module are part of the state, though not of x."""

    class Normed(Bowl):
        def __init__(self, rank, size, seed, fail_at=None):
            super().__init__(rank, size, seed)
            self.module = torch.nn.BatchNorm1d(5)
            self._fail_at = fail_at

        def gradient(self, step, out):
            if step == self._fail_at:
                raise TrainingError("stop here")
            self.module(self._normal("batch", step)[:35].view(7, 5))
            loss = super().gradient(step, out)
            out[:5] += self.module.running_mean
            return loss

        def evaluate(self, x):
            return {"loss": float(self.module.running_mean.sum())}

    training = Training(steps=9, checkpoint_every=3, eval_every=3)
    method = methods.make("dpsgd")
    undisturbed = run_in_memory(2, method, Normed, ring(2), training)
    with pytest.raises(TrainingError, match="stop here"):
        run_in_memory(2, method, partial(Normed, fail_at=7), ring(2), training, directory=tmp_path)
    resumed = run_in_memory(2, method, Normed, ring(2), training, directory=tmp_path, resume=True)
    assert comparable(undisturbed) == comparable(resumed)
    tested = [row.value for row in undisturbed[0].metrics if row.worker == 0 and row.metric == "test_loss"]
    assert len(set(tested)) == 4, "each snapshot was judged with its own statistics"


def interrupted(folder, spec="dpsgd"):
    """Checkpoints of steps 4, 8 and perhaps 12; what an undisturbed training gives."""
    method = methods.make(spec)
    undisturbed = run_in_memory(4, method, bowl, ring(4), TRAINING)
    Stumbling.failed = False
    with pytest.raises(TrainingError, match="stumbled"):
        run_in_memory(4, method, Stumbling, ring(4), TRAINING, directory=folder)
    return method, undisturbed


def resumed(folder, method):
    return run_in_memory(4, method, Stumbling, ring(4), TRAINING, directory=folder, resume=True)


def same(undisturbed, again):
    assert all(np.array_equal(a.x, b.x) for a, b in zip(undisturbed, again, strict=True))
    assert comparable(undisturbed) == comparable(again)


def first_step(results):
    """From which the trace is."""
    (step,) = {int(result.spans["step"].min()) for result in results}
    return step


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGES = {
    "flipped": flip,
    "cut": lambda file: os.truncate(file, 100),
    "gone": lambda file: file.unlink(),
    "a pipe": lambda file: (file.unlink(), os.mkfifo(file)),
    "a directory": lambda file: (file.unlink(), file.mkdir()),
    "a pickle": lambda file: file.write_bytes(pickle.dumps({"step": 12})),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_where_one_is_damaged_all_go_on_from_the_step_before(tmp_path, damage):
    method, undisturbed = interrupted(tmp_path)
    newest = max(Checkpoints(tmp_path, 2, 4).usable())
    damage(tmp_path / "checkpoints" / f"{newest:08d}" / "2.pt")
    again = resumed(tmp_path, method)
    same(undisturbed, again)
    assert first_step(again) == newest - 4
    assert all(any(f"resumed after step {newest - 4}:" in one for one in result.warnings) for result in again)
    assert not list(tmp_path.glob("checkpoints/*/*.pt"))


def test_where_one_has_none_left_all_begin_anew_and_say_so(tmp_path):
    method, undisturbed = interrupted(tmp_path)
    for file in tmp_path.glob("checkpoints/*/3.pt"):
        flip(file)
    again = resumed(tmp_path, method)
    same(undisturbed, again)
    assert first_step(again) == 0
    assert all("begun anew" in " ".join(result.warnings) for result in again)


def test_a_checkpoint_without_its_snapshots_is_of_no_use(tmp_path):
    method, undisturbed = interrupted(tmp_path)
    os.truncate(tmp_path / "snapshots" / "00000000.1", 20)
    again = resumed(tmp_path, method)
    same(undisturbed, again)
    assert first_step(again) == 0


def test_another_testbed_does_not_read_it(tmp_path, monkeypatch):
    interrupted(tmp_path)
    assert Checkpoints(tmp_path, 0, 4).usable()
    monkeypatch.setattr("testbed.worker.checkpoint.__version__", "0.0.0")
    assert not Checkpoints(tmp_path, 0, 4).usable()


def test_the_clock_goes_on(tmp_path):
    method, _ = interrupted(tmp_path)
    kept = Checkpoints(tmp_path, 0, 4).usable()
    before = kept[max(kept)]["loop"]["elapsed_ns"] / 1e9
    again = resumed(tmp_path, method)
    times = [row.time_s for row in again[0].metrics if row.metric == "train_loss"]
    assert times == sorted(times)
    assert again[0].seconds > before == pytest.approx(times[max(kept) - 1], abs=0.5)


def test_a_directory_that_another_worker_removes_meanwhile(tmp_path, monkeypatch):
    """Both are possible at any moment: it is listed and then gone, or made and gone before it has a file."""
    checkpoints = Checkpoints(tmp_path, 0, 1)
    assert checkpoints.usable() == {}
    monkeypatch.setattr(Checkpoints, "_steps", lambda self: [4, 8])
    assert [step for step in (4, 8) if checkpoints._complete(step)] == []
    left, real = [2], Path.mkdir

    def mkdir(self, *words, **options):
        real(self, *words, **options)
        if left[0]:
            left[0] -= 1
            self.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with checkpoint._opened(tmp_path / "checkpoints/00000004/0.part") as file:
        assert file.writable()
