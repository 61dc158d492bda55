"""A cell of the plan → what each worker is told to do. Pure; the controller calls it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from testbed.plan import Cell, NetworkPlan, Plan
from testbed.worker.job import Compute, Job, Training, matrices

if TYPE_CHECKING:
    from testbed.scenario.model import Scenario
    from testbed.scenario.training import Compute as ScenarioCompute

INTERFACE = "eth0"  # every worker's only one, in every runtime
MESSAGE_DEADLINE = 60.0  # seconds without a message before a worker gives up, unless the network is slower than that


def jobs(plan: Plan, cell: Cell, directory: Path, data_dir: Path | None, *, resume: bool = False) -> list[Job]:
    """One job per worker."""
    scenario = plan.variants[cell.variant]
    point = plan.points[cell.point]
    job = Job(
        rank=0,
        size=len(point.network.workers),
        method={cell.method: dict(cell.options)} if cell.options else cell.method,
        task=scenario.task.spec,
        gossip=matrices(point.gossip.matrices),
        gossip_name=point.gossip.name,
        training=training(scenario),
        directory=str(directory),
        rendezvous=str(directory / "rendezvous"),
        seed=cell.seed,
        interface=INTERFACE,
        deadline=min(scenario.deadline, MESSAGE_DEADLINE),
        resume=resume,
        data_dir=None if data_dir is None else str(data_dir),
        names=tuple(worker.name for worker in point.network.workers),
        progress=str(directory / "progress"),
    )
    return [job.for_rank(rank) for rank in range(job.size)]


def training(scenario: Scenario) -> Training:
    """The scenario's training section in the worker's words."""
    given = scenario.training
    kind: Literal["constant", "cosine", "milestones"] = given.schedule.kind  # type: ignore[assignment]
    milestones = given.schedule.milestones
    return Training(
        steps=given.steps,
        lr=given.lr,
        momentum=given.momentum,
        nesterov=given.nesterov,
        weight_decay=given.weight_decay,
        warmup=given.warmup,
        schedule=kind,
        milestones=tuple(milestones.at) if milestones else (),
        lr_factor=milestones.factor if milestones else 0.1,
        eval_every=given.eval_every,
        compute=compute(scenario.compute),
    )


def compute(given: ScenarioCompute) -> Compute:
    if given.step_time is not None:
        return Compute("step_time", float(given.step_time))
    if given.emulated is not None:
        return Compute("emulated", float(given.emulated))
    return Compute()


def cores(scenario: Scenario, network: NetworkPlan, available: Sequence[int]) -> list[list[int]]:
    """Which processors each worker may use: as many as the scenario gives it, in turn; empty where it says nothing."""
    wanted: Any = scenario.workers.cpus
    if not wanted:
        return []
    each = max(1, int(wanted))
    return [
        [available[(rank * each + i) % len(available)] for i in range(each)] for rank in range(len(network.workers))
    ]
