"""A process that has imported torch and forks the workers of one cell after another, each into its own network.

`process.py` starts it and talks to it over a socket; it ends with whoever started it, and its workers with it.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.network import namespaces, state
from testbed.network.handle import Handle
from testbed.network.wire import read_line, send_line


def main() -> None:
    """Argument: the descriptor of the controller's socket."""
    namespaces.die_with_parent()
    control = socket.socket(fileno=int(sys.argv[1]))
    begin = read_line(control)
    assert begin is not None
    handle = Handle(state.State(**begin["network"]))
    handle.join()  # before torch starts threads
    _import_everything()
    send_line(control, {"ready": True})
    while (request := read_line(control)) is not None:
        send_line(control, {"done": _run_cell(control, handle, request)})


def _import_everything() -> None:
    """What workers need is imported once, here; importing torch takes over a second of processor time."""
    import numpy  # noqa: F401
    import torch

    import testbed.worker.gloo
    import testbed.worker.loop  # noqa: F401

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, pages that all workers share


def _run_cell(control: socket.socket, handle: Handle, request: dict[str, Any]) -> dict[str, Any]:
    """Fork the workers, wait for all of them; what went wrong, if anything."""
    from testbed.worker.crew import run_forked
    from testbed.worker.job import Job

    jobs = [Job.from_json(text) for text in request["jobs"]]
    names = [job.name_of(job.rank) for job in jobs]
    calls = [partial(_work, handle.state, job, Path(request["logs"]), request["cores"]) for job in jobs]
    try:
        run_forked(calls, names, started=lambda pids: send_line(control, {"started": pids}))
    except TestbedError as error:
        return {"error": str(error), "hint": error.hint}
    return {"error": None, "hint": None}


def _work(network: state.State, job: Any, logs: Path, cores: list[list[int]]) -> None:
    """In a fresh worker process: into its place, then train."""
    from testbed.runtime.confine import confine
    from testbed.worker.loop import run_job

    name = job.name_of(job.rank)
    _redirect(logs / f"{name}.log")
    if cores:
        os.sched_setaffinity(0, cores[job.rank])
    handle = Handle(network)
    with handle.namespace(name) as namespace:
        namespaces.setns(namespace)
    os.environ["GLOO_SOCKET_IFNAME"] = job.interface
    for shortcoming in confine(Path(job.directory)):
        print(f"note: {shortcoming}", flush=True)
    run_job(job)


def _redirect(log: Path) -> None:
    """Nothing to read, everything said goes to the worker's log."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)


if __name__ == "__main__":
    main()
