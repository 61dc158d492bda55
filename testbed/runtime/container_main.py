"""The main program of a worker's container: imports torch once and forks the worker of one cell after another.

`python -m testbed.runtime.container_main SOCKET` is the entry point of every image. The controller is at the other end
of the socket, the only way out of the container besides the emulated network; the container ends with it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import select
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import testbed
from testbed.network.processes import adopt_orphans
from testbed.network.wire import read_line, send_line
from testbed.runtime import forkserver
from testbed.runtime.confine import filter_calls
from testbed.worker.job import Job


def main() -> None:
    """Argument: the path of the controller's socket."""
    control = socket.socket(socket.AF_UNIX)
    control.connect(sys.argv[1])
    adopt_orphans()
    _end_with(control)
    forkserver.import_everything()
    send_line(control, {"ready": identity()})
    logs: list[int] = []
    while (request := read_line(control, logs)) is not None:
        log = logs.pop()
        send_line(control, {"done": forkserver.reported(partial(_run, control, request, log))})
        os.close(log)


def identity() -> dict[str, str]:
    """Return which testbed this is: results of another one would not be comparable."""
    source, total = Path(testbed.__file__).parent, hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        total.update(f"{path.relative_to(source)}\n".encode())
        total.update(path.read_bytes())
    return {"version": testbed.__version__, "source": total.hexdigest()[:16]}


def _end_with(control: socket.socket) -> None:
    """End this process, and with it the container, as soon as the controller is gone. By a signal: there may be no
    threads before the fork, and while a worker trains we wait for it."""

    def look(*_: Any) -> None:
        gone = select.poll()
        gone.register(control, select.POLLRDHUP)
        if gone.poll(0):
            os._exit(0)

    signal.signal(signal.SIGIO, look)
    fcntl.fcntl(control, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(control, fcntl.F_SETFL, fcntl.fcntl(control, fcntl.F_GETFL) | os.O_ASYNC)
    look()  # it may have gone before


def _run(control: socket.socket, request: dict[str, Any], log: int) -> None:
    """One job in a fork; raises what went wrong."""
    from testbed.worker.forked import ForkedWorkers

    job = Job.from_json(request["job"])
    forkserver.preload(job)
    work, name = partial(_work, control, job, log), job.name_of(job.rank)
    with ForkedWorkers([work], [name], trusted=False, size=job.size) as crew:
        _tell_started(control, crew.pids)
        while not crew.over:
            crew.wait()
    crew.results()


def _tell_started(control: socket.socket, pids: list[int]) -> None:
    """Report the start by a descriptor: on the host, the worker's process has another id."""
    process = os.pidfd_open(pids[0])
    send_line(control, {"started": True}, [process])
    os.close(process)


def _work(control: socket.socket, job: Job, log: int) -> None:
    """Run the job in a fresh worker process."""
    from testbed.worker.forked import close_inherited

    forkserver.redirect(log)
    control.close()
    close_inherited()
    os.chdir(job.directory)  # the one place it can write to
    forkserver.train(job, filter_calls(Path(job.directory), unix_sockets=job.backend == "nccl"))


if __name__ == "__main__":
    main()
