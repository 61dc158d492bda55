"""Pure gossip: who starts where, what counts as agreement, and that gossip really gets there at its known rate."""

from __future__ import annotations

import pytest
import torch

from testbed.errors import ScenarioError
from testbed.methods import make as make_method
from testbed.scenario.load import loads
from testbed.tasks.base import make
from testbed.worker.job import Training
from testbed.worker.local import gossip_named
from testbed.worker.memory import run_in_memory


def task(rank: int, size: int = 8, seed: int = 5):
    return make({"model": "consensus", "shape": [20, 30]}, rank=rank, size=size, seed=seed)


def starts(size: int = 8) -> torch.Tensor:
    """Where the first step takes each worker."""
    places = []
    for rank in range(size):
        worker = task(rank, size)
        x, gradient = worker.initial(), torch.empty(600)
        worker.bind(x)
        worker.gradient(0, gradient)
        places.append(x - gradient)
    return torch.stack(places)


def test_the_first_step_leads_each_worker_elsewhere_and_no_later_one_anywhere():
    places = starts()
    assert torch.cdist(places, places).fill_diagonal_(100.0).min() > 20
    assert places.std() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(places, starts())
    worker, gradient = task(3), torch.ones(600)
    worker.bind(torch.randn(600))
    worker.gradient(1, gradient)
    assert not gradient.any()


def test_autograd_finds_the_same_gradient():
    worker, gradient = task(2), torch.empty(600)
    worker.bind(torch.zeros(600))
    for step in (0, 1):
        worker.gradient(step, gradient)
        worker.module.x.grad = None
        worker.loss_of_step(step).backward()
        assert torch.allclose(worker.module.x.grad.view(-1), gradient)


def test_the_loss_is_the_distance_from_the_true_mean():
    places = starts()
    mean = places.mean(0)
    losses = [task(0).evaluate(place)["loss"] for place in places]
    assert sum(losses) / 8 == pytest.approx(1.0, rel=1e-5)
    assert task(5).evaluate(mean)["loss"] < 1e-12
    assert task(5).evaluate(mean + 1)["loss"] > 0.5, "agreement on a wrong value is no agreement"


@pytest.mark.parametrize(("gamma", "factor"), [(1.0, 0.6476), (1.3084, 0.5543)])
def test_gossip_converges_at_the_rate_of_its_graph(gamma, factor):
    """Squared error per step on a ring of eight: λ2² of I + γ(W − I)."""
    training = Training(steps=16, lr=1.0, momentum=0.0, eval_every=1)
    method = make_method({"dpsgd": {"gamma": gamma}})
    results = run_in_memory(8, method, task, gossip_named("ring", 8, 1), training)
    tested = [m for result in results for m in result.metrics if m.metric == "test_loss" and m.worker >= 0]
    loss = {step: sum(m.value for m in tested if m.step == step) for step in (8, 16)}
    assert (loss[16] / loss[8]) ** (1 / 8) == pytest.approx(factor, abs=0.01)


def test_training_that_would_go_on_by_itself_is_refused():
    text = "workers: 4\nmethods: [dpsgd]\ntask: consensus\ntraining:\n  lr: 1\n  momentum: 0.9\n"
    with pytest.raises(ScenarioError, match=r"s.yaml:6: training.momentum: the consensus task needs momentum: 0"):
        loads(text, "s.yaml")
    assert loads(text.replace("0.9", "0")).task.spec == {"model": "consensus"}


def test_shapes_must_have_sizes():
    with pytest.raises(ScenarioError, match="shape"):
        make({"model": "consensus", "shape": [0, 3]}, rank=0, size=2, seed=1)
