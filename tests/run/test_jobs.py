"""From a cell to what each worker is told."""

from pathlib import Path

import pytest

from testbed.plan.make import plan
from testbed.run.jobs import INTERFACE, allowances, jobs, own_code, training
from testbed.runtime.base import Allowance
from testbed.scenario.load import loads
from testbed.worker.job import Job

TEXT = """
workers: 3
network: {topology: ring}
task: {data: digits, model: {mlp: {hidden: [16]}}, batch: 8}
training:
  {steps: 7, lr: 0.2, momentum: 0.5, warmup: 2, eval_every: 3, schedule: {milestones: {at: [4, 6], factor: 0.5}}}
compute: {step_time: 30ms}
methods: [allreduce, {choco: {compressor: sign}}]
deadline: 50s
repeat: 2
seed: 9
"""


def made(text: str = TEXT, **changes: str):
    return plan(loads(text, "s.yaml", [f"{key}={value}" for key, value in changes.items()]))


def test_one_job_per_worker_with_everything_it_needs():
    scenario = made()
    cell = scenario.cells[3]
    todo = jobs(scenario, cell, Path("/cell"), Path("/news"), None)
    assert [job.rank for job in todo] == [0, 1, 2]
    assert {job.size for job in todo} == {3}
    one = todo[1]
    assert one.method == {"choco": {"compressor": "sign"}}
    assert (one.seed, cell.repeat) == (10, 1)
    assert (one.directory, one.rendezvous, one.progress) == ("/cell", "/cell/rendezvous", "/cell/progress")
    assert (one.interface, one.names) == (INTERFACE, ("w0", "w1", "w2"))
    assert one.task == {"model": "mlp", "hidden": [16], "data": "digits", "batch": 8}
    assert one.beside == str(Path().resolve())
    assert [sum(row) for row in one.gossip[0]] == pytest.approx([1, 1, 1])
    assert jobs(scenario, scenario.cells[0], Path("/cell"), Path("/news"), None)[0].method == "allreduce"


def test_jobs_travel_as_text():
    scenario = made()
    (job, *_) = jobs(scenario, scenario.cells[1], Path("/cell"), Path("/news"), Path("/data"))
    assert Job.from_json(job.to_json()) == job


def test_training_in_the_workers_words():
    told = training(made().variants[0])
    assert (told.steps, told.lr, told.momentum, told.warmup, told.eval_every) == (7, 0.2, 0.5, 2, 3)
    assert (told.schedule, told.milestones, told.lr_factor) == ("milestones", (4, 6), 0.5)
    assert (told.compute.mode, told.compute.step_time) == ("step_time", 0.03)
    assert [told.lr_at(step) for step in (0, 1, 3, 4, 6)] == pytest.approx([0.1, 0.2, 0.2, 0.1, 0.05])


def test_the_other_ways_to_compute():
    assert training(made(compute="real").variants[0]).compute.mode == "real"
    emulated = training(made(compute="{emulated: 40ms}").variants[0]).compute
    assert (emulated.mode, emulated.step_time) == ("emulated", 0.04)


def allowed(workers: str, cores: int) -> list[Allowance]:
    scenario = made(workers=workers)
    return allowances(scenario.variants[0], scenario.network, list(range(10, 10 + cores)))


def test_no_limits_unless_asked_for():
    assert allowed("3", 4) == [Allowance()] * 3


def test_cores_are_given_out_in_turn():
    assert [one.cores for one in allowed("{count: 3, cpus: 1}", 2)] == [(10,), (11,), (10,)]
    assert [one.cores for one in allowed("{count: 3, cpus: 2}", 4)] == [(10, 11), (12, 13), (10, 11)]
    assert [one.cores for one in allowed("{count: 3, cpus: 9}", 4)] == [(10, 11, 12, 13)] * 3


def test_a_part_of_a_core_is_a_share_of_it():
    first, second, third = allowed("{count: 3, cpus: {w0: 1.5, w2: 0.25}}", 4)
    assert first == Allowance((10, 11), 1.5)
    assert second == Allowance()
    assert third == Allowance((12,), 0.25)


def test_memory_is_for_each():
    assert allowed("{count: 3, memory: 2gb}", 2) == [Allowance(memory=2_000_000_000)] * 3


def test_code_of_ones_own_is_found_wherever_it_is_named():
    assert own_code(made()) == ()
    here = Path().resolve()
    own = "[allreduce, {choco: {compressor: {../lib/mine.py:Mine: {bits: 2}}}}]"
    assert own_code(made(methods=own)) == tuple(sorted({here, here.parent / "lib"}))
    assert own_code(made(methods="[mine.py:Mine]")) == (here,)
