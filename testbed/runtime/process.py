"""`runtime: process`: each worker is forked from the fork server into its own network namespace. Nothing to install."""

from __future__ import annotations

import json
import os
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
from testbed.network.agent import allow_descriptors
from testbed.network.client import Client
from testbed.network.processes import descendants
from testbed.network.waiting import readable
from testbed.network.wire import send_line
from testbed.runtime import strays
from testbed.runtime.base import PROCESSES, USER, Allowance, Outcome, Place, Runtime, out_of_memory
from testbed.runtime.cgroups import Groups
from testbed.tasks import store
from testbed.worker import reports
from testbed.worker.job import Job, all_to_json
from testbed.worker.progress import Board

# Workers share cores, and the libraries' own threads would be there before the fork
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
OWN_DESCRIPTORS = 500  # beside one for each worker: of the network, of files
END_SECONDS = 5.0  # for the kernel to take a killed worker apart


class ProcessRuntime(Runtime):
    """Talks to the fork server."""

    name = "process"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._log = place.run / "nursery.log"
        self._groups = Groups()
        self._limits: Sequence[Allowance] = ()
        self._names: list[str] = []
        self._pids: list[int] = []
        self._ends: list[int | None] = []  # descriptors of the workers' processes; None: it has ended
        self._done: dict[str, Any] | None = None  # how the cell ended, where something else was asked meanwhile
        self._launch()

    def _launch(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs, self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "testbed.runtime.forkserver", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **ONE_THREAD, **strays.marked()},
                start_new_session=True,  # Ctrl-C is for the controller, which ends us in order
            )
        self._ready = False
        self._unread = b""

    def attach(self, handle: Client) -> None:
        self._handle = handle
        self._send({"network": asdict(handle.state)})

    def start(self, jobs: Sequence[Job], board: Board, logs: Path, allowances: Sequence[Allowance]) -> None:
        self._forget()  # of a start that went wrong
        allow_descriptors(OWN_DESCRIPTORS + len(jobs))
        if self._process.poll() is not None:  # ended in an earlier cell
            self._control.close()
            self._launch()
            self.attach(self._handle)
        if not self._ready:
            self._ready = self._read()["ready"]
        self._names = [job.name_of(job.rank) for job in jobs]
        self._limits = allowances
        self._groups = _groups(dict(zip(self._names, allowances, strict=True)))
        self.shortcomings = self._groups.shortcomings
        self._done = None
        if os.geteuid() == 0:
            os.chown(jobs[0].directory, USER, USER)  # itself alone: nothing of a worker's is ever changed
            board.lend(USER, USER)
        workers = [self._place_of(job) for job in jobs]
        self._send({"jobs": all_to_json(jobs), "workers": workers, "logs": str(logs), "readable": self._readable()})
        self._pids = list(self._read()["started"])
        self._ends = [_descriptor(pid) for pid in self._pids]

    def _readable(self) -> list[str]:
        """Return what workers read beside Python and their jobs: user code and data."""
        data = store.directory(self._place.data)
        return [str(path) for path in (*self._place.code, data) if path.is_dir()]

    def _place_of(self, job: Job) -> dict[str, Any]:
        """Return where a job's worker belongs on this machine."""
        cores, name = list(self._limits[job.rank].cores), self._names[job.rank]
        most = None if self._groups.processes_limited else PROCESSES * len(self._names)  # those of all count, then
        return {"cores": cores, "groups": self._groups.joined_by(name), "processes": most}

    def pids(self) -> Sequence[int]:
        return self._pids

    def poll(self, seconds: float) -> Outcome | None:
        waiting = self._done is None and not self._unread
        if waiting and not readable([self._control], seconds):
            return None
        try:
            outcome = Outcome(reports.failure(self._done or self._read()["done"], len(self._names)))
        except TrainingError as error:
            outcome = Outcome(error)
        if outcome.cause:
            outcome = self._out_of_memory() or outcome
        self._forget()
        return outcome

    def _out_of_memory(self) -> Outcome | None:
        if not (names := self._groups.out_of_memory()):
            return None
        return out_of_memory(names, self._limits[self._names.index(names[0])].memory)

    def kill(self, rank: int) -> None:
        self._signal(rank, signal.SIGKILL)

    def restart(self, rank: int, job: Job) -> None:
        self._send({"restart": {"job": job.to_json(), **self._place_of(job)}})
        answer = self._read()
        if "done" in answer:
            self._done = answer["done"]
            answer = self._read()
        if (pid := answer["restarted"]) is not None:
            if (end := self._ends[rank]) is not None:
                os.close(end)
            self._pids[rank], self._ends[rank] = pid, _descriptor(pid)

    def freeze(self, rank: int, frozen: bool) -> None:
        self._signal(rank, signal.SIGSTOP if frozen else signal.SIGCONT)

    def _signal(self, rank: int, number: signal.Signals) -> None:
        if (end := self._ends[rank]) is not None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                signal.pidfd_send_signal(end, number)

    def close(self) -> None:
        started = descendants(self._process.pid)
        self._process.kill()  # the kernel then kills its workers
        self._process.wait()
        strays.end(started)  # and what these have started
        self._control.close()
        self._forget()

    def _forget(self) -> None:
        """Forget the workers: they have ended, or are about to."""
        for end in self._ends:
            if end is not None:
                readable([end], END_SECONDS)
                os.close(end)
        self._pids, self._ends = [], []
        self._groups.close()

    def _send(self, words: dict[str, Any]) -> None:
        with suppress(ConnectionError):  # it has ended, which reading its answer shows
            send_line(self._control, words)

    def _read(self) -> dict[str, Any]:
        """Return the fork server's next line; it may have written several."""
        while b"\n" not in self._unread:
            try:
                data = self._control.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                killed = " (it was killed)" if self._end() == -signal.SIGKILL else ""
                words = self._log.read_text(errors="replace").strip().splitlines()[-3:]
                text = "".join(f"\n  {line}" for line in words)
                raise TrainingError(f"the process that forks the workers ended{killed}{text}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self) -> int:
        """Wait for the fork server, which has closed its socket; return the exit code if it ended by itself."""
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return 0


def _descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _groups(allowances: dict[str, Allowance]) -> Groups:
    return Groups.make(
        memory={name: one.memory for name, one in allowances.items() if one.memory is not None},
        cpus={name: one.cpus for name, one in allowances.items() if one.cpus is not None},
        processes=dict.fromkeys(allowances, PROCESSES),
    )
