"""The contract of every task: views, gradients, determinism. The specs stand for all models and ways to feed them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from testbed.tasks.base import Task, make

SPECS: dict[str, Any] = {
    "digits": "digits",
    "logistic": {"model": "logistic", "split": {"dirichlet": 0.5}},
    "quadratic": {"model": "quadratic", "shape": [7, 3], "hessian": "heterogeneous", "noise": 1.0},
    "cnn": {"model": "cnn", "channels": 4, "hidden": 16, "reshuffle": True, "batch": 16},
    "resnet-group": {"model": "resnet20", "width": 8, "batch": 8},
    "resnet-batch": {"model": "resnet20", "width": 4, "norm": "batch", "batch": 8, "augment": False},
    "lstm": {"model": "lstm", "hidden": 16, "layers": 2, "batch": 4, "bptt": 10},
    "gpt": {"model": "gpt", "width": 16, "heads": 2, "layers": 2, "batch": 4, "bptt": 16, "split": "by-source"},
}


def bound(spec: Any, data_dir: Path, rank: int = 1, seed: int = 3) -> tuple[Task, Tensor]:
    task = make(spec, rank=rank, size=4, seed=seed, data_dir=data_dir)
    x = task.initial()
    task.bind(x)
    return task, x


@pytest.mark.parametrize("name", SPECS)
def test_gradient_equals_finite_differences(name: str, data_dir: Path) -> None:
    task, x = bound(SPECS[name], data_dir)
    step = 5
    out = torch.empty_like(x)
    loss = task.gradient(step, out)
    assert loss == pytest.approx(task.loss_of_step(step).item(), rel=1e-6)
    start = x.clone()

    def along(direction: Tensor, reach: float) -> float:
        losses = []
        for sign in (1, -1):
            x.copy_(start + sign * reach * direction)
            with torch.no_grad():
                losses.append(task.loss_of_step(step).item())
        x.copy_(start)
        return (losses[0] - losses[1]) / (2 * reach)

    norm = float(out.norm())
    assert along(out / norm, 3e-4) == pytest.approx(norm, rel=3e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        direction = torch.randn(len(x), generator=generator)
        direction = direction / direction.norm() + 0.3 * out / norm  # never orthogonal to the gradient
        assert along(direction, 3e-4) == pytest.approx(float(direction @ out), rel=3e-2)


@pytest.mark.parametrize("name", SPECS)
def test_parameters_and_gradients_are_views(name: str, data_dir: Path) -> None:
    task, x = bound(SPECS[name], data_dir)
    assert x.dtype == torch.float32
    assert x.shape == (task.layout.numel,)
    assert task.module is not None
    first, second = torch.empty_like(x), torch.empty_like(x)
    task.gradient(0, first)
    kept = first.clone()
    task.gradient(1, second)
    assert torch.equal(first, kept), "an earlier gradient was overwritten"
    parameters = list(task.module.parameters())
    assert len(parameters) == len(task.layout.slots)
    for parameter, slot in zip(parameters, task.layout.slots, strict=True):
        assert parameter.shape == slot.shape
        assert parameter.data_ptr() == x.data_ptr() + 4 * slot.start
    before = task.loss_of_step(0).item()
    x.mul_(0.5).add_(0.01)
    assert task.loss_of_step(0).item() != before, "the model does not see the buffer"
    other = task.initial()
    task.bind(other)
    x.zero_()
    assert task.loss_of_step(0).item() == pytest.approx(before, rel=1e-6)


@pytest.mark.parametrize("name", SPECS)
def test_backward_fills_the_flat_gradient(name: str, data_dir: Path) -> None:
    """What DDP and its like do: loss_of_step, backward, and the flat buffer holds the gradient."""
    task, x = bound(SPECS[name], data_dir)
    task.grad.zero_()
    task.loss_of_step(2).backward()
    expected = torch.empty_like(x)
    collected = task.grad.clone()
    task.gradient(2, expected)
    torch.testing.assert_close(collected, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SPECS)
def test_evaluation_disturbs_nothing(name: str, data_dir: Path) -> None:
    task, x = bound(SPECS[name], data_dir)
    out, again = torch.empty_like(x), torch.empty_like(x)
    kept = x.clone()
    loss = task.gradient(0, out)
    here = task.evaluate(x)
    assert task.evaluate(1.5 * x)["loss"] != here["loss"]
    assert task.evaluate(x) == here
    assert torch.equal(x, kept)
    assert task.gradient(0, again) == loss
    assert torch.equal(out, again)
    second = {"quadratic": "suboptimality", "lstm": "perplexity", "gpt": "perplexity"}.get(name, "accuracy")
    assert set(here) == {"loss", second}


@pytest.mark.parametrize("name", SPECS)
def test_ranks_start_equal_and_draw_different_batches(name: str, data_dir: Path) -> None:
    (a, x), (b, y) = (bound(SPECS[name], data_dir, rank) for rank in (0, 1))
    assert torch.equal(x, y)
    assert not torch.equal(x, bound(SPECS[name], data_dir, 0, seed=4)[1])
    assert a.evaluate(x) == b.evaluate(x)
    assert a.gradient(0, torch.empty_like(x)) != b.gradient(0, torch.empty_like(x))


def fingerprint(spec: Any, data_dir: Path) -> str:
    """Of the start, and of gradients in a run and out of order."""
    task, x = bound(spec, data_dir)
    total = hashlib.sha256(x.numpy().tobytes())
    out = torch.empty_like(x)
    for step in (0, 1, 2, 40, 1):
        task.gradient(step, out)
        total.update(out.numpy().tobytes())
        x.add_(out, alpha=-0.01)
    return total.hexdigest()


def test_another_process_computes_the_same_bits(data_dir: Path) -> None:
    code = (
        "import json, sys, torch; from pathlib import Path; torch.set_num_threads(1);"
        "from tests.tasks.test_gradient import SPECS, fingerprint;"
        "print(json.dumps({name: fingerprint(spec, Path(sys.argv[1])) for name, spec in SPECS.items()}))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(data_dir)], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: fingerprint(spec, data_dir) for name, spec in SPECS.items()}


def test_tasks_leave_torchs_random_numbers_alone(data_dir: Path) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    task, x = bound(SPECS["lstm"], data_dir)
    task.gradient(0, torch.empty_like(x))
    assert torch.equal(torch.rand(3), expected)


def test_dropout_varies_with_the_step_and_the_rank_only(data_dir: Path) -> None:
    spec = {**SPECS["lstm"], "batch": 1000}  # every worker's whole share, in every step
    task, x = bound(spec, data_dir)
    out = torch.empty_like(x)
    assert task.gradient(0, out) == task.gradient(0, out)
    assert task.gradient(0, out) != task.gradient(1, out)


class Loss(nn.Module):
    """How a task goes into DDP: the loss of a step as the forward pass."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.module = task.module
        self.task = task

    def forward(self, step: int) -> Tensor:
        return self.task.loss_of_step(step)


@pytest.mark.parametrize("name", ["digits", "quadratic"])
def test_ddp_wraps_a_task(name: str, data_dir: Path, tmp_path: Path) -> None:
    task, x = bound(SPECS[name], data_dir)
    expected = torch.empty_like(x)
    task.gradient(4, expected)
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(Loss(task))
        task.grad.zero_()
        wrapped(4).backward()
        torch.testing.assert_close(task.grad, expected)
        assert next(iter(task.module.parameters())).data_ptr() == x.data_ptr()
    finally:
        dist.destroy_process_group()
