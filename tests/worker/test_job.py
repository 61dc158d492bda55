"""Jobs travel as JSON; learning rates follow their schedule."""

from dataclasses import replace
from math import cos, pi

import numpy as np
import pytest

from testbed.topology import mixing
from testbed.topology.named import named
from testbed.worker.job import Compute, Job, Training, all_from_json, all_to_json, graph_of

from .workers import make_job, ring


def test_a_job_survives_json(tmp_path):
    training = Training(milestones=(3, 5), schedule="milestones", compute=Compute("step_time", 0.06))
    job = make_job(
        4,
        tmp_path,
        rank=2,
        training=training,
        method={"choco": {"gamma": 0.4}},
        names=("a", "b", "c", "d"),
        message_timeout=5.0,
    )
    assert Job.from_json(job.to_json()) == job
    assert np.array_equal(Job.from_json(job.to_json()).gossip_graph().matrices[0], ring(4).matrices[0])


@pytest.mark.parametrize("gossip", [mixing.random_pairs(4, 7), mixing.push(named("star", 4), "star")])
def test_a_job_carries_its_gossip_graph(tmp_path, gossip):
    """Of one drawn in every round only the seed."""
    job = replace(make_job(4, tmp_path), **graph_of(gossip))
    found = Job.from_json(job.to_json()).gossip_graph()
    assert (found.name, found.kind, found.drawn) == (gossip.name, gossip.kind, gossip.drawn)
    for step in (0, 5, 1000):
        assert np.array_equal(found.matrix(step), gossip.matrix(step))
    assert len(job.to_json()) < 2000


def test_the_jobs_of_a_cell_share_what_they_have_in_common(tmp_path):
    n = 64
    first = replace(make_job(n, tmp_path), **graph_of(mixing.metropolis(named("ring", n), "ring")))
    jobs = [replace(first, rank=rank, gpus=(f"GPU-{rank}",)) for rank in range(n)]
    text = all_to_json(jobs)
    assert len(text) < 1.5 * len(first.to_json())
    found = all_from_json(text)
    assert found == jobs
    assert all(job.gossip is found[0].gossip for job in found)


def test_names(tmp_path):
    job = make_job(2, tmp_path)
    assert job.name_of(1) == "w1"
    assert replace(job, names=("paris", "tokyo")).name_of(1) == "tokyo"


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        (Training(lr=0.5, steps=4), [0.5, 0.5, 0.5, 0.5]),
        (Training(lr=0.4, steps=5, warmup=4), [0.1, 0.2, 0.3, 0.4, 0.4]),
        (Training(lr=1.0, steps=5, schedule="milestones", milestones=(2, 4)), [1.0, 1.0, 0.1, 0.1, 0.01]),
        (Training(lr=1.0, steps=2, milestones=(1,)), [1.0, 1.0]),  # only with its schedule
        (Training(lr=1.0, steps=4, schedule="cosine"), [(1 + cos(pi * t / 4)) / 2 for t in range(4)]),
        (
            Training(lr=1.0, steps=4, warmup=2, schedule="milestones", milestones=(1,), lr_factor=0.5),
            [0.5, 0.5, 0.5, 0.5],
        ),
    ],
)
def test_learning_rates(training, expected):
    assert [training.lr_at(step) for step in range(training.steps)] == pytest.approx(expected)
