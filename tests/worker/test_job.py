"""Jobs travel as JSON; learning rates follow their schedule."""

from dataclasses import replace
from math import cos, pi

import numpy as np
import pytest

from testbed.worker.job import Compute, Job, Training

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
        deadline=5.0,
    )
    assert Job.from_json(job.to_json()) == job
    assert np.array_equal(Job.from_json(job.to_json()).gossip_graph().matrices[0], ring(4).matrices[0])


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
