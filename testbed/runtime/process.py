"""`runtime: process`: each worker is forked from the nursery into its own network namespace. Nothing to install."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.errors import TrainingError
from testbed.network.handle import Handle
from testbed.network.wire import read_line, send_line
from testbed.runtime.base import Outcome, Runtime
from testbed.worker.job import Job


class ProcessRuntime(Runtime):
    """Talks to the nursery."""

    name = "process"

    def __init__(self, handle: Handle, log: Path) -> None:
        self._control, theirs = socket.socketpair()
        self._log = log
        with theirs, log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testbed.runtime.nursery", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the controller, which ends us in order
            )
        send_line(self._control, {"network": asdict(handle.state)})
        self._ready = False
        self._pids: list[int] = []

    def start(self, jobs: Sequence[Job], logs: Path, cores: Sequence[Sequence[int]]) -> None:
        if not self._ready:
            self._read("ready")
            self._ready = True
        request = {"jobs": [job.to_json() for job in jobs], "logs": str(logs), "cores": [list(some) for some in cores]}
        send_line(self._control, request)
        self._pids = list(self._read("started"))

    def pids(self) -> Sequence[int]:
        return self._pids

    def poll(self, seconds: float) -> Outcome | None:
        if not select.select([self._control], [], [], seconds)[0]:
            return None
        done: dict[str, str | None] = self._read("done")
        return Outcome(done["error"], done["hint"])

    def kill(self, rank: int) -> None:
        os.kill(self._pids[rank], signal.SIGKILL)

    def freeze(self, rank: int, frozen: bool) -> None:
        os.kill(self._pids[rank], signal.SIGSTOP if frozen else signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()  # the kernel then kills its workers
        self._process.wait()
        self._control.close()

    def _read(self, key: str) -> Any:
        answer = read_line(self._control)
        if answer is None:
            words = self._log.read_text(errors="replace").strip().splitlines()[-3:]
            raise TrainingError("the process that forks the workers ended" + "".join(f"\n  {line}" for line in words))
        return answer[key]
