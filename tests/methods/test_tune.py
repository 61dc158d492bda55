"""γ by simulation lands where the papers' tuning and independent simulations did, and is safe to train with."""

from __future__ import annotations

import pytest
import torch

from testbed.compressors import make as compressor
from testbed.errors import TrainingError
from testbed.flat import Layout
from testbed.methods import make, tune

from .harness import Cluster, one_peer, ring, spread
from .quadratic import Quadratic

LAYOUT = Layout.of([("M", (100, 100)), ("b", (100,))])


@pytest.mark.parametrize(
    ("spec", "least", "most"),
    [
        ({"topk": "1%"}, 0.025, 0.05),  # .0375
        ({"topk": "10%"}, 0.2, 0.4),  # .3
        ({"quantize": "4bit"}, 0.8, 1.0),
        ({"quantize": "8bit"}, 0.9, 1.0),
        ("sign", 0.4, 1.0),  # .45 by training
    ],
    ids=str,
)
def test_choco_on_a_ring_of_eight(spec, least, most):
    assert least <= tune.gamma("choco", compressor(spec), ring(8), LAYOUT) <= most


def test_deepsqueeze_is_more_careful():
    """§10: .01 to .05 with sign; no damping without compression."""
    assert 0.01 <= tune.gamma("deepsqueeze", compressor("sign"), ring(8), LAYOUT) <= 0.08
    assert tune.gamma("deepsqueeze", compressor("identity"), ring(8), LAYOUT) == 1.0
    assert tune.gamma("deepsqueeze", compressor("identity"), one_peer(4), LAYOUT) > 0.5


def test_larger_tensors_get_a_smaller_gamma_where_the_error_grows_with_them(monkeypatch):
    monkeypatch.setattr(tune, "STEPS", 100)
    qsgd = compressor({"qsgd": {"bits": 3, "scaled": True}})
    small, large = (tune.gamma("choco", qsgd, ring(4), Layout.of([("M", shape)])) for shape in ((30, 30), (1000, 1000)))
    assert large < small / 3


def test_no_gamma_for_what_does_not_contract():
    with pytest.raises(TrainingError, match="no γ"):
        tune.gamma("choco", compressor({"randomk": {"fraction": 0.02, "unbiased": True}}), ring(8), LAYOUT)


def test_all_workers_get_the_same_and_it_is_recorded(monkeypatch):
    monkeypatch.setattr(tune, "STEPS", 60)
    method = make({"choco": {"compressor": {"topk": "10%"}}})
    problem = Quadratic.of(4, LAYOUT.numel, noise=1.0)
    cluster = Cluster(method, ring(4), torch.zeros(LAYOUT.numel), problem.direction, lr=0.1, layout=LAYOUT)
    (chosen,) = {method.decided(state)["gamma"] for state in cluster.states}
    assert chosen == tune.gamma("choco", method.compressor, ring(4), LAYOUT, seed=1)


@pytest.mark.parametrize("spec", [{"quantize": "2bit"}, "sign"], ids=str)
def test_training_with_the_chosen_gamma_is_stable(spec):
    """In the less stable, overlapped order."""
    problem = Quadratic.of(8, 400, shared_hessian=True, noise=1.0)
    layout = Layout.of([("M", (20, 20))])

    def distance(method):
        return spread(Cluster(method, ring(8), torch.zeros(400), problem.direction, lr=0.1, layout=layout).run(80))

    assert distance(make({"choco": {"compressor": spec}})) < 20 * distance(make("dpsgd"))
