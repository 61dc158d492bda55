"""Directions equal those of torch.optim.SGD, bit for bit."""

import pytest
import torch

from testbed.flat import Layout
from testbed.worker.job import Training
from testbed.worker.optimiser import Optimiser

LAYOUT = Layout.of([("weight", (4, 3)), ("bias", (4,)), ("embedding", (5, 2)), ("norm", (2,))])


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"weight_decay": 0.1},
        {"momentum": 0.5, "nesterov": True, "weight_decay": 0.01},
    ],
)
def test_as_torch(options, vectors):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(LAYOUT.numel, generator=generator)
    theirs = [torch.nn.Parameter(view.clone()) for view in LAYOUT.views(x)]
    groups = [
        {"params": [p for p in theirs if p.dim() > 1 or vectors]},
        {"params": [p for p in theirs if p.dim() == 1 and not vectors], "weight_decay": 0.0},
    ]
    sgd = torch.optim.SGD([group for group in groups if group["params"]], lr=0.05, **options)
    ours = Optimiser(Training(lr=0.05, decay_vectors=vectors, **options), x, LAYOUT)
    for _ in range(5):
        gradient = torch.randn(LAYOUT.numel, generator=generator)
        for parameter, view in zip(theirs, LAYOUT.views(gradient.clone()), strict=True):
            parameter.grad = view
        sgd.step()
        x.add_(ours.direction(gradient), alpha=-0.05)
        assert torch.equal(x, torch.cat([p.detach().reshape(-1) for p in theirs]))
