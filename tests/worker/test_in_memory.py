"""Threads instead of processes: the same contract, kept more strictly."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from testbed.compressors.base import option
from testbed.errors import TrainingError
from testbed.methods.allreduce import AllReduce
from testbed.methods.base import Method
from testbed.methods.dpsgd import DPSGD
from testbed.worker.job import Training
from testbed.worker.memory import run_in_memory

from .workers import bowl, ring


@dataclass(frozen=True)
class Wrong(Method):
    """A method with one mistake."""

    name = "wrong"
    paper = ""
    form = "B"

    mistake: str = option("", help="which one", parse=str)

    def init(self, peer):
        return {"channel": peer.channel(peer.x.nbytes), "kept": None}

    def step(self, peer, state):
        channel, message = state["channel"], peer.x.view(torch.uint8)
        if self.mistake == "raises" and peer.rank == 1 and peer.step == 2:
            raise TrainingError("w1 has had enough")
        if self.mistake == "does not send" and peer.rank == 1:
            return
        channel.send(message)
        if self.mistake == "changes":
            peer.x.add_(1.0)
        received = channel.receive()
        if self.mistake == "keeps" and state["kept"] is not None:
            peer.x.copy_(state["kept"].view(torch.float32))
        state["kept"] = next(iter(received.values()))


def run(mistake, **options):
    return run_in_memory(3, Wrong(mistake), bowl, ring(3), Training(steps=4), **options)


def test_a_message_changed_under_way_is_noticed():
    with pytest.raises(TrainingError, match="changed its message to w"):
        run("changes")


def test_received_messages_are_spoiled_by_the_next_send():
    spoiled = torch.full((4,), 0xA5, dtype=torch.uint8).view(torch.float32).item()
    assert all((result.x == np.float32(spoiled)).all() for result in run("keeps"))


def test_the_failure_itself_is_raised_and_nobody_waits_for_it():
    with pytest.raises(TrainingError, match="w1 has had enough"):
        run("raises")


def test_rounds_that_do_not_match_end_at_the_deadline():
    with pytest.raises(TrainingError, match=r"w\d: nothing from w1 in step \d after 1 s"):
        run("does not send", message_timeout=1.0)


def test_dpsgd_keeps_the_mean_and_comes_together():
    results = run_in_memory(4, DPSGD(), bowl, ring(4), Training(steps=200, lr=0.05))
    mean = np.mean([result.x for result in results], axis=0)
    target = np.mean([bowl(rank, 4, 1)._target.numpy() for rank in range(4)], axis=0)
    assert np.abs(mean - target).max() < 0.1
    consensus = [row.value for result in results for row in result.metrics if row.metric == "consensus"]
    assert 0 < consensus[-1] < 1


def test_all_reduce_is_the_same_on_all():
    results = run_in_memory(3, AllReduce(), bowl, ring(3), Training(steps=5))
    assert all(np.array_equal(result.x, results[0].x) for result in results)
    assert [sum(result.bytes_sent.values()) for result in results] == [5 * (2 * 2 * 35 * 4 // 3)] * 3
