"""What runs in a worker's container: imports torch once and forks the worker of one cell after another.

`python -m testbed.runtime.inside SOCKET` is the entry point of every image. The controller is at the other end of the
socket, which is the only way out of the container but for the emulated network; the container ends with it.
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
from testbed.errors import TestbedError
from testbed.network.processes import adopt_orphans
from testbed.network.wire import read_line, send_line
from testbed.runtime import nursery, strays
from testbed.worker.job import Job


def main() -> None:
    """Argument: the path of the controller's socket."""
    control = socket.socket(socket.AF_UNIX)
    control.connect(sys.argv[1])
    adopt_orphans()
    _end_with(control)
    nursery.import_everything()
    send_line(control, {"ready": identity()})
    while (request := read_line(control)) is not None:
        send_line(control, {"done": _run(control, request)})


def identity() -> dict[str, str]:
    """Which testbed this is: results of another one would not be comparable."""
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


def _run(control: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    """One job in a fork; how it ended."""
    from testbed.worker.crew import run_forked
    from testbed.worker.transport import PeerLostError

    job = Job.from_json(request["job"])
    died = ""

    def dies(_: int, how: str) -> bool:
        nonlocal died
        died = how
        return False

    try:
        nursery.preload(job)
        work = partial(_work, control, job, Path(request["log"]))
        run_forked([work], [job.name_of(job.rank)], started=partial(_tell_started, control), may_lose=dies)
    except TestbedError as error:
        lost = {"peer": error.peer, "step": error.step} if isinstance(error, PeerLostError) else None
        return {**nursery.told(error), "died": died, "lost": lost}
    finally:
        strays.end_adopted()
    return {"error": None}


def _tell_started(control: socket.socket, pids: list[int]) -> None:
    """By a descriptor: out there, the worker's process has another number."""
    process = os.pidfd_open(pids[0])
    send_line(control, {"started": True}, [process])
    os.close(process)


def _work(control: socket.socket, job: Job, log: Path) -> None:
    """In a fresh worker process."""
    nursery.redirect(log)
    control.close()
    os.chdir(job.directory)  # the one place it can write to
    nursery.train(job)


if __name__ == "__main__":
    main()
