"""A worker as its method sees it: how long gradients take, and whom channels lead to."""

import time

import numpy as np
import pytest
import torch

from testbed.errors import ScenarioError
from testbed.topology.gossip import Gossip
from testbed.worker.clock import Clock
from testbed.worker.job import Compute, Training, matrices
from testbed.worker.memory import MemoryTransport, Switchboard
from testbed.worker.peer import WorkerPeer
from testbed.worker.trace import CODES, Trace

from .workers import Bowl, make_job


class SlowBowl(Bowl):
    """Takes its time."""

    def gradient(self, step, out):
        time.sleep(0.02)
        return super().gradient(step, out)


def make_peer(training=None, task=None, gossip=None, n=1, **options):
    job = make_job(n, "unused", training=training or Training(), **options)
    if gossip:
        job = make_job(n, "unused", training=training or Training(), gossip=matrices(gossip.matrices), **options)
    trace = Trace(job.rank)
    transport = MemoryTransport(job.rank, Switchboard(n, 5.0), trace)
    return WorkerPeer(job, task or Bowl(0, 1, 1), transport, trace, Clock(trace)), trace


def compute_times(trace):
    spans = trace.spans()
    chosen = spans[spans["kind"] == CODES["compute"]]
    return (chosen["end_ns"] - chosen["start_ns"]) / 1e9


def test_padding_makes_every_gradient_at_least_the_step_time():
    peer, trace = make_peer(Training(compute=Compute("step_time", 0.03)))
    plain, _ = make_peer()
    for step in range(4):
        peer.begin(step)
        plain.begin(step)
        assert torch.equal(peer.direction(), plain.direction()), "only the time changes"
    assert (compute_times(trace) >= 0.03).all()
    assert peer.overruns == 0


def test_a_gradient_that_takes_longer_is_counted():
    peer, trace = make_peer(Training(compute=Compute("step_time", 0.001)), SlowBowl(0, 1, 1))
    for step in range(3):
        peer.begin(step)
        peer.direction()
    assert peer.overruns == 3
    assert (compute_times(trace) >= 0.02).all()


def test_emulated_gradients_are_cheap_deterministic_and_different():
    made = []
    for rank in (0, 0, 1):
        peer, trace = make_peer(Training(compute=Compute("emulated", 0.005)), SlowBowl(0, 1, 1), n=2, rank=rank)
        directions = []
        for step in range(3):
            peer.begin(step)
            directions.append(peer.direction().clone())
        made.append(torch.stack(directions))
        assert (compute_times(trace) >= 0.005).all()
        assert peer.overruns == 0, "the slow gradient was not computed"
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert not torch.equal(made[0][0], made[0][1])
    assert made[0].abs().sum() > 0


def test_emulated_zeros():
    peer, _ = make_peer(Training(compute=Compute("emulated", 0.0, pseudo_gradient=False)))
    assert not peer.direction().any()


def test_emulated_compute_has_nothing_for_ddp():
    peer, _ = make_peer(Training(compute=Compute("emulated", 0.0)))
    with pytest.raises(ScenarioError, match="no backward pass"):
        peer.direction_from(lambda: torch.zeros((), requires_grad=True))


def test_direction_from_a_given_loss():
    class Autograd(Bowl):
        """Gradients through autograd, into the flat buffer."""

        def bind(self, x):
            super().bind(x)
            self.parameter = torch.nn.Parameter(x)
            self.parameter.grad = self.grad

        def loss_of_step(self, step):
            return 0.5 * (self.parameter - self._target).square().sum()

    task = Autograd(0, 1, 1)
    peer, trace = make_peer(Training(momentum=0.9, compute=Compute("step_time", 0.02)), task)
    for _ in range(2):
        direction = peer.direction_from(peer.loss_of_step)
    assert torch.allclose(direction, 1.9 * (peer.x - task._target))
    assert peer.loss == pytest.approx(float(0.5 * (peer.x - task._target).square().sum()))
    assert (compute_times(trace) >= 0.019).all()


def test_default_channels_follow_a_changing_graph():
    """Round t of worker i: to i + 2^t, from i − 2^t."""
    n = 4
    cycle = tuple(0.5 * np.eye(n) + 0.5 * np.roll(np.eye(n), hop, axis=0) for hop in (1, 2))
    peer, _ = make_peer(gossip=Gossip("exponential", cycle), n=n, rank=1)
    rounds = peer.channel(8)._rounds
    assert [(r.targets, r.sources) for r in rounds] == [((2,), (0,)), ((3,), (3,))]
    peer.begin(1)  # a resumed run starts in the middle of the cycle
    assert [r.targets for r in peer.channel(8)._rounds] == [(3,), (2,)]
    assert [r.targets for r in peer.channel(8, targets=[0], sources=[])._rounds] == [(0,)]
