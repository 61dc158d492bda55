"""A cell of the plan → the job of each worker. Pure; the controller calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from testbed.plan.gpus import backend
from testbed.plan.model import Cell, NetworkPlan, Plan
from testbed.plan.timeouts import model_bytes, patience
from testbed.runtime.base import Allowance
from testbed.worker.job import Compute, Job, Training, graph_of

if TYPE_CHECKING:
    from testbed.methods.base import Method
    from testbed.scenario.model import Scenario
    from testbed.scenario.training import Compute as ScenarioCompute

WATCH_EVERY = 5  # steps, where messages arrive while gradients are computed: arrivals are recorded in one of them
INTERFACE = "eth0"  # every worker's only one, in every runtime


def jobs(
    plan: Plan, cell: Cell, directory: Path, notices: Path, data_dir: Path | None, *, resume: bool = False
) -> list[Job]:
    """Return one job per worker. Workers write into one directory and read the controller's notices from the other."""
    scenario = plan.variants[cell.variant]
    point = plan.points[cell.point]
    factor = point.network.slow_motion
    job = Job(
        rank=0,
        size=len(point.network.workers),
        method={cell.method: dict(cell.options)} if cell.options else cell.method,
        task=scenario.task.spec,
        **graph_of(point.gossip),
        training=training(scenario, checkpoints=_method(scenario, cell).resumes),
        directory=str(directory),
        rendezvous=str(directory / "rendezvous"),
        seed=cell.seed,
        backend=backend(point.gpus, tolerant=_may_lose_workers(scenario)),
        interface=INTERFACE,
        message_timeout=factor * patience(scenario, point.network, point.gossip, model_bytes(scenario.task.spec)),
        slow_motion=factor,
        pacing=scenario.transport.pacing,
        resume=resume,
        tolerant=scenario.on_failure == "continue" and survives(scenario, cell),
        data_dir=None if data_dir is None else str(data_dir),
        watch_every=WATCH_EVERY if _method(scenario, cell).overlaps else 0,  # else waiting shows it
        names=tuple(worker.name for worker in point.network.workers),
        progress=str(directory / "progress"),
        notices=str(notices),
        beside=str(scenario.resolve(".").resolve()),
    )
    seen = [tuple(gpu.uuid for gpu in point.gpus.get(name, ())) for name in job.names]
    shares = [min(1.0, cpus or 1.0) for cpus in (_cpus(scenario, name) for name in job.names)]
    return [
        replace(job, rank=rank, gpus=some, device="cuda" if some else "cpu", cpu_share=shares[rank])
        for rank, some in enumerate(seen)
    ]


def _may_lose_workers(scenario: Scenario) -> bool:
    """Whether workers may be lost, or rejoin, while the others go on."""
    return scenario.on_failure == "continue" or any(event.kill or event.restart for event in scenario.network.events)


def own_code(plan: Plan) -> tuple[Path, ...]:
    """Return the directories of user-supplied methods and compressors, which workers must be able to read."""
    folder = plan.variants[0].resolve(".").resolve()
    names = {name for cell in plan.cells for name in _strings([cell.method, cell.options]) if ":" in name}
    files = {(folder / name.rpartition(":")[0]).resolve() for name in names if ".py:" in name}
    return tuple(sorted({folder, *(file.parent for file in files)})) if names else ()


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in nested lists and mappings, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings([key, inner])
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


def survives(scenario: Scenario, cell: Cell) -> bool:
    """Whether the cell's method can go on without a worker."""
    return _method(scenario, cell).survives


def rejoinable(scenario: Scenario, cell: Cell) -> bool:
    """Whether it can also take a worker back."""
    return _method(scenario, cell).rejoins


def _method(scenario: Scenario, cell: Cell) -> Method:
    from testbed.methods import make

    return make({cell.method: dict(cell.options)}, scenario.resolve("."))


def training(scenario: Scenario, *, checkpoints: bool = True) -> Training:
    """Translate the scenario's training section for the worker."""
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
        checkpoint_every=(given.checkpoint_every or 0) if checkpoints else 0,
        compute=compute(scenario.compute),
    )


def compute(given: ScenarioCompute) -> Compute:
    if given.step_time is not None:
        return Compute("step_time", float(given.step_time))
    if given.emulated is not None:
        return Compute("emulated", float(given.emulated))
    return Compute()


def _cpus(scenario: Scenario, worker: str) -> float | None:
    wanted = scenario.workers.cpus
    return wanted.get(worker) if isinstance(wanted, dict) else wanted


def allowances(scenario: Scenario, network: NetworkPlan, available: Sequence[int]) -> list[Allowance]:
    """Return what each worker may use. Processors are assigned in turn; a worker without a setting in the scenario may
    use all of them."""
    wanted = scenario.workers
    memory = None if wanted.memory is None else int(wanted.memory)
    found, next_core = [], 0
    for worker in network.workers:
        cpus = _cpus(scenario, worker.name)
        if cpus is None:
            found.append(Allowance(memory=memory))
            continue
        whole = min(ceil(cpus), len(available))
        cores = tuple(sorted({available[(next_core + i) % len(available)] for i in range(whole)}))
        next_core += whole
        found.append(Allowance(cores, float(cpus) if cpus < whole else None, memory))
    return found
