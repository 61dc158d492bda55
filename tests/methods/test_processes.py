"""Every method over real processes and sockets gives, bit for bit, what it gives in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from testbed.compressors import make as compressor
from testbed.methods import available

from .processes import IN_MEMORY, SPECS, TRAINING, N, task

STOCK = ("allreduce", "ddp", "ddp-fp16", "ddp-powersgd")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, np.ndarray]:
    out = tmp_path_factory.mktemp("processes") / "trained.npz"
    script = Path(__file__).with_name("processes.py")
    run = subprocess.run([sys.executable, script, out], capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    return np.load(out)


def test_no_method_is_missing():
    assert {name.split("-")[0] for name in SPECS} == set(available())


@pytest.mark.parametrize("name", [name for name in IN_MEMORY if name not in STOCK])
def test_processes_equal_memory(trained, name):
    assert np.array_equal(trained[f"{name}/processes"], trained[f"{name}/memory"])
    assert np.isfinite(trained[f"{name}/processes"]).all()


@pytest.mark.parametrize(("name", "other"), [("dpsgd", "dpsgd-serial"), ("dcd", "dcd-serial")])
def test_overlap_changes_nothing(trained, name, other):
    assert np.array_equal(trained[f"{name}/processes"], trained[f"{other}/processes"])


@pytest.mark.parametrize("name", ["allreduce", "allreduce-8bit", "ring", "ef_sign", "ddp", "ddp-fp16", "ddp-powersgd"])
def test_all_models_are_equal(trained, name):
    X = trained[f"{name}/processes"]
    assert all(np.array_equal(x, X[0]) for x in X)


@pytest.mark.parametrize(("name", "tolerance"), [("ring", 1e-6), ("ddp", 1e-6), ("ddp-fp16", 1e-3)])
def test_all_reduces_agree(trained, name, tolerance):
    """The backend sums in an order of its own, so not to the last bit."""
    expected, moved = trained["allreduce/memory"], np.abs(trained["allreduce/memory"] - task(0, N, 1).initial().numpy())
    assert moved.max() > 0.01
    assert np.abs(trained["allreduce/processes"] - expected).max() < 1e-6
    assert np.abs(trained[f"{name}/processes"] - expected).max() < tolerance


def test_powersgd_trains(trained):
    start = task(0, N, 1).initial().numpy()
    exact, low_rank = (trained[f"{name}/processes"][0] - start for name in ("ddp", "ddp-powersgd"))
    assert exact @ low_rank / np.linalg.norm(exact) / np.linalg.norm(low_rank) > 0.5
    assert not np.array_equal(exact, low_rank)


def test_bytes(trained):
    """What was handed to the backend: a message to each of two neighbours per step."""
    layout = task(0, N, 1).layout
    steps = TRAINING.steps
    assert (trained["dpsgd/bytes"] == steps * 2 * 4 * layout.numel).all()
    assert (trained["dpsgd-pairs/bytes"] == steps * 4 * layout.numel).all()
    assert (trained["sgp-changing/bytes"] == steps * 4 * layout.numel).all()
    for name in ("sgp-arcs", "sgp-overlap-arcs"):  # and the weight, to two workers from w0
        assert (trained[f"{name}/bytes"] == steps * 4 * (layout.numel + 1) * np.array([2, 1, 1, 1])).all()
    for name, spec in (("dcd", {"quantize": "8bit"}), ("choco", {"topk": "1%"}), ("naive", {"quantize": "4bit"})):
        assert (trained[f"{name}/bytes"] == steps * 2 * compressor(spec).bind(layout, 0).nbytes).all()
