"""`runtime: process`: each worker is forked from the nursery into its own network namespace. Nothing to install."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.errors import TrainingError
from testbed.network.handle import Handle
from testbed.network.wire import read_line, send_line
from testbed.runtime.base import Allowance, Outcome, Runtime
from testbed.runtime.groups import Groups
from testbed.worker.job import Job

# Workers share cores, and the libraries' own threads would be there before the fork
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
END_SECONDS = 5.0  # for the kernel to take a killed worker apart


class ProcessRuntime(Runtime):
    """Talks to the nursery."""

    name = "process"

    def __init__(self, log: Path) -> None:
        self._log = log
        self._groups = Groups()
        self._limits: Sequence[Allowance] = ()
        self._names: list[str] = []
        self._pids: list[int] = []
        self._ends: list[int | None] = []  # descriptors of the workers' processes; None: it has ended
        self._launch()

    def _launch(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs, self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testbed.runtime.nursery", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **ONE_THREAD},
                start_new_session=True,  # Ctrl-C is for the controller, which ends us in order
            )
        self._ready = False

    def attach(self, handle: Handle) -> None:
        self._handle = handle
        with suppress(BrokenPipeError):  # it has ended; whoever reads its answer will know
            send_line(self._control, {"network": asdict(handle.state)})

    def start(self, jobs: Sequence[Job], logs: Path, allowances: Sequence[Allowance]) -> None:
        if self._process.poll() is not None:  # ended in an earlier cell
            self._control.close()
            self._launch()
            self.attach(self._handle)
        if not self._ready:
            self._read("ready")
            self._ready = True
        self._names = [job.name_of(job.rank) for job in jobs]
        self._limits = allowances
        self._groups = _groups(dict(zip(self._names, allowances, strict=True)))
        self.shortcomings = self._groups.shortcomings
        workers = [
            {"job": job.to_json(), "cores": list(allowance.cores), "groups": self._groups.joined_by(name)}
            for job, name, allowance in zip(jobs, self._names, allowances, strict=True)
        ]
        send_line(self._control, {"workers": workers, "logs": str(logs)})
        self._pids = list(self._read("started"))
        self._ends = [_descriptor(pid) for pid in self._pids]

    def pids(self) -> Sequence[int]:
        return self._pids

    def poll(self, seconds: float) -> Outcome | None:
        if not select.select([self._control], [], [], seconds)[0]:
            return None
        try:
            done: dict[str, Any] = self._read("done")
            outcome = Outcome(done["error"], done["hint"], done["storage"])
        except TrainingError as error:
            outcome = Outcome(str(error), error.hint)
        if outcome.error:
            outcome = self._out_of_memory() or outcome
        self._forget()
        return outcome

    def _out_of_memory(self) -> Outcome | None:
        """The kernel only kills; who was killed for want of memory is written elsewhere."""
        if not (names := self._groups.out_of_memory()):
            return None
        allowed = self._limits[self._names.index(names[0])].memory or 0
        return Outcome(
            f"{', '.join(names)} ran out of memory: the scenario allows {allowed / 1e6:.0f} MB each",
            "raise workers.memory, or take a smaller model or batch",
        )

    def kill(self, rank: int) -> None:
        self._signal(rank, signal.SIGKILL)

    def freeze(self, rank: int, frozen: bool) -> None:
        self._signal(rank, signal.SIGSTOP if frozen else signal.SIGCONT)

    def _signal(self, rank: int, number: signal.Signals) -> None:
        if (end := self._ends[rank]) is not None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                signal.pidfd_send_signal(end, number)

    def close(self) -> None:
        self._process.kill()  # the kernel then kills its workers
        self._process.wait()
        self._control.close()
        self._forget()

    def _forget(self) -> None:
        """The workers have ended, or are about to."""
        for end in self._ends:
            if end is not None:
                waiting = select.poll()
                waiting.register(end, select.POLLIN)
                waiting.poll(1000 * END_SECONDS)
                os.close(end)
        self._pids, self._ends = [], []
        self._groups.close()

    def _read(self, key: str) -> Any:
        try:
            answer = read_line(self._control)
        except OSError:
            answer = None
        if answer is None:
            self._process.kill()
            self._process.wait()
            words = self._log.read_text(errors="replace").strip().splitlines()[-3:]
            raise TrainingError("the process that forks the workers ended" + "".join(f"\n  {line}" for line in words))
        return answer[key]


def _descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _groups(allowances: dict[str, Allowance]) -> Groups:
    return Groups.make(
        memory={name: one.memory for name, one in allowances.items() if one.memory is not None},
        cpus={name: one.cpus for name, one in allowances.items() if one.cpus is not None},
    )
