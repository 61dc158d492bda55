from __future__ import annotations

import pytest
import torch

from testbed.tasks.base import make
from testbed.tasks.quadratic import QuadraticTask


def tasks(size: int = 4, **options: object) -> list[QuadraticTask]:
    made = [make({"model": "quadratic", **options}, rank=rank, size=size, seed=5) for rank in range(size)]
    assert all(isinstance(task, QuadraticTask) for task in made)
    return made  # type: ignore[return-value]


@pytest.mark.parametrize("hessian", ["shared", "heterogeneous"])
def test_the_mean_gradient_vanishes_at_the_optimum_and_only_there(hessian: str) -> None:
    workers = tasks(hessian=hessian)
    optimum = workers[0].optimum
    total = torch.zeros_like(optimum)
    out = torch.empty_like(optimum)
    for task in workers:
        task.bind(optimum.clone())
        task.gradient(0, out)
        assert out.abs().max() > 0.1, "the workers disagree"
        total += out
    assert total.abs().max() < 1e-5
    assert workers[0].evaluate(optimum)["suboptimality"] < 1e-9
    assert workers[0].evaluate(optimum + 0.1)["suboptimality"] > 1e-3


def test_evaluation_is_the_mean_of_the_workers_losses() -> None:
    workers = tasks(hessian="heterogeneous")
    x = workers[0].initial()
    losses = []
    for task in workers:
        task.bind(x)
        losses.append(task.gradient(0, torch.empty_like(x)))
    here = workers[2].evaluate(x)
    assert here["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    least = workers[2].evaluate(workers[2].optimum)["loss"]
    assert here["suboptimality"] == pytest.approx(here["loss"] - least, rel=1e-6)


def test_a_shared_hessian_is_shared_and_a_heterogeneous_one_is_not() -> None:
    """Gradients differ by the optima alone: the difference does not depend on x."""
    for hessian, same in (("shared", True), ("heterogeneous", False)):
        a, b = tasks(size=2, hessian=hessian)
        differences = []
        for x in (torch.zeros(2500), torch.ones(2500)):
            out = [torch.empty(2500), torch.empty(2500)]
            for task, into in ((a, out[0]), (b, out[1])):
                task.bind(x)
                task.gradient(0, into)
            differences.append(out[0] - out[1])
        assert torch.allclose(*differences, atol=1e-5) is same


def test_noise_has_the_asked_deviation_and_no_mean() -> None:
    (task,), (still,) = tasks(size=1, noise=2.0), tasks(size=1)
    x = task.initial()
    task.bind(x)
    still.bind(x)
    exact, out = torch.empty_like(x), torch.empty_like(x)
    still.gradient(0, exact)
    noise = torch.stack([(task.gradient(step, out), out - exact)[1] for step in range(50)])
    assert float(noise.std()) == pytest.approx(2.0, rel=0.02)
    assert abs(float(noise.mean())) < 0.03
    assert abs(float((noise[0] * noise[1]).mean())) < 0.3, "steps are not independent"


def test_gradient_descent_reaches_the_optimum() -> None:
    (task,) = tasks(size=1)
    x = task.initial()
    task.bind(x)
    out = torch.empty_like(x)
    for step in range(600):
        task.gradient(step, out)
        x.sub_(out)
    torch.testing.assert_close(x, task.optimum, atol=1e-4, rtol=0)
