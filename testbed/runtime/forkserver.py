"""The fork server: has imported torch and forks the workers of one cell after another, each into its own network.

`process.py` starts it and talks to it over a socket; it ends with the process that started it, and its workers with it.
Containers do the same before and after the fork (container_main.py).
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError, TrainingError
from testbed.network import namespaces, state
from testbed.network.agent import allow_descriptors
from testbed.network.client import Client
from testbed.network.processes import adopt_orphans
from testbed.network.wire import read_line, send_line
from testbed.runtime import cgroups, strays
from testbed.runtime.confine import confine, limit
from testbed.runtime.needs import needs_of
from testbed.runtime.pidspace import PidSpaces
from testbed.worker.job import Job, all_from_json

OWN_DESCRIPTORS, DESCRIPTORS = 100, 6  # each worker has some: its report, its end, its process-id namespace


def main() -> None:
    """Argument: the descriptor of the controller's socket."""
    namespaces.die_with_parent()
    adopt_orphans()
    control = socket.socket(fileno=int(sys.argv[1]))
    rootless = os.geteuid() != 0
    if not rootless:
        import_everything()  # while the network is being built
    begin = read_line(control)
    if begin is None:  # the starting process has changed its mind
        return
    handle = Client(state.State(**begin["network"]))
    handle.join()
    if rootless:
        import_everything()  # not before: only a process without threads may join
    send_line(control, {"ready": True})
    while (request := read_line(control)) is not None:
        if "restart" in request:  # just when the cell had ended
            send_line(control, {"restarted": None})
        else:
            send_line(control, {"done": reported(partial(_run_cell, control, handle, request))})


def import_everything() -> None:
    """Import what workers need once, here; importing torch takes over a second of processor time."""
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
    """Take one small training step, so that the first cell does not pay for loading torch's kernels."""
    import torch
    from torch.nn import functional

    image, kernel = torch.ones(2, 1, 4, 4), torch.ones(4, 1, 3, 3, requires_grad=True)
    hidden = functional.conv2d(image, kernel, padding=1).flatten(1).relu()
    loss = functional.cross_entropy(hidden @ torch.ones(64, 3), torch.tensor([0, 1]))
    loss.backward()  # type: ignore[no-untyped-call]


def _run_cell(control: socket.socket, handle: Client, request: dict[str, Any]) -> None:
    """Fork the workers, again where asked to, and wait for all of them; raises what went wrong."""
    from testbed.worker.forked import ForkedWorkers
    from testbed.worker.lost import may_lose

    workers, spaces = request["workers"], PidSpaces()
    jobs = all_from_json(request["jobs"])
    allow_descriptors(OWN_DESCRIPTORS + DESCRIPTORS * len(jobs))
    names = [job.name_of(job.rank) for job in jobs]
    begin = partial(_work, control, handle, spaces, request)
    calls = [partial(begin, job, worker) for job, worker in zip(jobs, workers, strict=True)]
    preload(jobs[0])
    with ForkedWorkers(calls, names, may_lose=may_lose(jobs[0]), trusted=False, surroundings=spaces) as crew:
        send_line(control, {"started": crew.pids})
        while not crew.over:
            if crew.wait(also=[control]) and (again := read_line(control)) is not None:
                job = Job.from_json(again["restart"]["job"])
                send_line(control, {"restarted": crew.restart(job.rank, partial(begin, job, again["restart"]))})
    crew.results()


def reported(run: Callable[[], None]) -> dict[str, Any]:
    """How a cell's workers ended, in plain data; nothing that they have started is left."""
    from testbed.worker import reports

    try:
        run()
    except TestbedError as error:
        return reports.of(error)
    finally:
        strays.end_adopted()
    return reports.of(None)


def preload(job: Job) -> None:
    """Import what the method imports when it starts, once for all workers. Not for user-supplied methods: their side
    effects on this process would reach later cells, too."""
    from testbed import methods

    name = job.method if isinstance(job.method, str) else next(iter(job.method))
    if ":" not in name:
        methods.make(job.method, Path(job.beside) if job.beside else None).preload()


def _work(
    control: socket.socket,
    handle: Client,
    spaces: PidSpaces,
    request: dict[str, Any],
    job: Job,
    worker: dict[str, Any],
) -> None:
    """Set up a fresh worker process, then train."""
    from testbed.worker.forked import close_inherited, die_with_parent

    name = job.name_of(job.rank)
    redirect(open_log(Path(request["logs"]) / f"{name}.log"))
    control.close()
    handle.disconnect()  # shared with all the others; each needs one of its own
    unlimited = cgroups.join(worker["groups"])
    if (most := worker["processes"]) is not None:
        limit("NPROC", most)
    if worker["cores"]:
        os.sched_setaffinity(0, worker["cores"])
    own = Client(handle.state)
    with own.namespace(name) as namespace:
        namespaces.setns(namespace)
    own.disconnect()  # workers have no say in what the network is
    close_inherited()
    needs = needs_of(job, map(Path, request["readable"]), own_processes=not spaces.shortcoming)
    shortcomings = [*unlimited, *confine(Path(job.directory), handle.directory.parent, needs)]
    die_with_parent()
    train(job, [spaces.shortcoming, *shortcomings] if spaces.shortcoming else shortcomings)


def train(job: Job, shortcomings: Sequence[str] = ()) -> None:
    """Train in a worker's process once it is confined, as far as that was possible."""
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
        hint = f"testbed logs RUN {name} shows where"
        raise TrainingError(f"{type(error).__name__}: {error}", hint=hint).said_by(name) from error


def open_log(log: Path) -> int:
    """Return a descriptor for a worker's log; the worker gets only that, and cannot choose where it leads."""
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def redirect(log: int) -> None:
    """Give the worker an empty standard input and send all its output to its log."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(old, new)
    os.close(nothing)
    os.close(log)


if __name__ == "__main__":
    main()
