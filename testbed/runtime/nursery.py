"""A process that has imported torch and forks the workers of one cell after another, each into its own network.

`process.py` starts it and talks to it over a socket; it ends with whoever started it, and its workers with it. What it
does before and after the fork, a container's does as well (inside.py).
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from testbed.errors import DivergedError, StorageError, TestbedError, TrainingError
from testbed.network import namespaces, state
from testbed.network.handle import Handle
from testbed.network.processes import adopt_orphans
from testbed.network.wire import read_line, send_line
from testbed.runtime import groups, strays
from testbed.worker.job import Job


def main() -> None:
    """Argument: the descriptor of the controller's socket."""
    namespaces.die_with_parent()
    adopt_orphans()
    control = socket.socket(fileno=int(sys.argv[1]))
    rootless = os.geteuid() != 0
    if not rootless:
        import_everything()  # while the network is being built
    begin = read_line(control)
    if begin is None:  # whoever started us has changed its mind
        return
    handle = Handle(state.State(**begin["network"]))
    handle.join()
    if rootless:
        import_everything()  # not before: only a process without threads may join
    send_line(control, {"ready": True})
    while (request := read_line(control)) is not None:
        if "restart" in request:  # just when the cell had ended
            send_line(control, {"restarted": None})
        else:
            send_line(control, {"done": _run_cell(control, handle, request)})


def import_everything() -> None:
    """What workers need is imported once, here; importing torch takes over a second of processor time."""
    gc.disable()  # while modules are loaded there is nothing to collect, and looking takes a tenth of the time
    import numpy  # noqa: F401
    import torch

    import testbed.tasks.spec
    import testbed.worker.gloo
    import testbed.worker.loop  # noqa: F401
    from testbed import methods

    methods.available()
    torch.set_num_threads(1)
    if torch.version.cuda is None:  # with CUDA, the backward pass would start threads
        _warm_up()
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, pages that all workers share
    gc.enable()


def _warm_up() -> None:
    """One small training step, so that the first cell is not the one that pays for loading torch's kernels."""
    import torch
    from torch.nn import functional

    image, kernel = torch.ones(2, 1, 4, 4), torch.ones(4, 1, 3, 3, requires_grad=True)
    hidden = functional.conv2d(image, kernel, padding=1).flatten(1).relu()
    loss = functional.cross_entropy(hidden @ torch.ones(64, 3), torch.tensor([0, 1]))
    loss.backward()  # type: ignore[no-untyped-call]


def _run_cell(control: socket.socket, handle: Handle, request: dict[str, Any]) -> dict[str, Any]:
    """Fork the workers, again where asked to, and wait for all of them; what went wrong, if anything."""
    from testbed.worker.crew import Crew
    from testbed.worker.lost import may_lose

    workers = request["workers"]
    jobs = [Job.from_json(worker["job"]) for worker in workers]
    names = [job.name_of(job.rank) for job in jobs]
    begin = partial(_work, control, handle, Path(request["logs"]))
    calls = [partial(begin, job, worker) for job, worker in zip(jobs, workers, strict=True)]
    try:
        preload(jobs[0])
        with Crew(calls, names, may_lose=may_lose(jobs[0])) as crew:
            send_line(control, {"started": crew.pids})
            while not crew.over:
                if crew.wait(also=[control]) and (again := read_line(control)) is not None:
                    job = Job.from_json(again["restart"]["job"])
                    send_line(control, {"restarted": crew.restart(job.rank, partial(begin, job, again["restart"]))})
        crew.results()
    except TestbedError as error:
        return told(error)
    finally:
        strays.end_adopted()
    return {"error": None}


def told(error: TestbedError) -> dict[str, Any]:
    """What the controller hears of it: the fields of runtime.base.Outcome."""
    diverged = {"worker": error.worker, "step": error.step} if isinstance(error, DivergedError) else None
    storage = isinstance(error, StorageError)
    return {"error": str(error), "hint": error.hint, "storage": storage, "diverged": diverged}


def preload(job: Job) -> None:
    """What the method imports when it starts, for all workers at once. Not for methods of one's own: what they do to
    this process would be done to the cells after theirs, too."""
    from testbed import methods

    name = job.method if isinstance(job.method, str) else next(iter(job.method))
    if ":" not in name:
        methods.make(job.method, Path(job.beside) if job.beside else None).preload()


def _work(control: socket.socket, handle: Handle, logs: Path, job: Job, worker: dict[str, Any]) -> None:
    """In a fresh worker process: into its place, then train."""
    from testbed.runtime.confine import confine

    name = job.name_of(job.rank)
    redirect(logs / f"{name}.log")
    control.close()
    handle.disconnect()  # shared with all the others; each needs one of its own
    groups.join(worker["groups"])
    if worker["cores"]:
        os.sched_setaffinity(0, worker["cores"])
    own = Handle(handle.state)
    with own.namespace(name) as namespace:
        namespaces.setns(namespace)
    own.disconnect()  # workers have no say in what the network is
    train(job, confine(Path(job.directory), hidden=handle.directory.parent))


def train(job: Job, shortcomings: Sequence[str] = ()) -> None:
    """In a worker's process, once it is where it shall be, or as far as that could be done."""
    from testbed.worker.loop import run_job

    for shortcoming in shortcomings:
        print(f"note: {shortcoming}", flush=True)  # also where it fails, and has no result to warn in
    name = job.name_of(job.rank)
    os.environ["GLOO_SOCKET_IFNAME"] = job.interface
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(job.gpus)  # in time: CUDA looks when it is first used
    try:
        run_job(job, shortcomings=shortcomings)
    except TestbedError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise TrainingError(
            f"{name}: {type(error).__name__}: {error}", hint=f"testbed logs RUN {name} shows where"
        ) from error


def redirect(log: Path) -> None:
    """Nothing to read, everything said goes to the worker's log."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)


if __name__ == "__main__":
    main()
