"""One worker's container during a run, and the connection to it. The docker runtime has one for each worker."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import DockerException, NotFound

from testbed.errors import MissingError, TestbedError, TrainingError, WorkerDiedError
from testbed.network.waiting import readable
from testbed.network.wire import ClosedError, Line, LineReader, send_line
from testbed.runtime import cgroups
from testbed.runtime.base import Allowance
from testbed.runtime.container_spec import SOCKET, limits
from testbed.runtime.engine import speaking
from testbed.runtime.forkserver import open_log
from testbed.worker import reports
from testbed.worker.job import Job

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

START_SECONDS = 60.0  # for a container to fork its worker
END_SECONDS = 5.0  # for the engine to see that a container has ended, for the kernel to take a worker apart
KILL_SECONDS = 30.0  # for a container to say that its worker was killed, with all that the worker had started
WORDS = 5  # lines of a container's last words that an error shows
BY_OTHERS = "ended by somebody? docker events may tell"
NEEDED = "an image needs a python with testbed and torch (testbed image build makes one); image: host needs nothing"


@dataclass(frozen=True)
class Ended:
    """How a worker ended."""

    error: TestbedError | None


class ContainerWorker:
    """A container, running or not, and the state of its worker in this cell."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder  # the container sees it, and in it the socket to us
        self.allowance = Allowance()  # in force
        self.importing = False  # it has called, and imports everything
        self.ready = False  # has done so, and waits for a job
        self.pid = 0  # of the process that forks the worker
        self._container: Container | None = None
        self._listener: socket.socket | None = None
        self._control: socket.socket | None = None
        self._reader: LineReader | None = None
        self._lines: deque[Line] = deque()  # that have come and were not heard yet
        self._worker: int | None = None  # a descriptor of its process
        self._group: Path | None = None  # that limits its memory
        self._own = 0  # bytes that it takes without a worker
        self._ended_by_others = False
        self.forget()

    # The container

    def create(self, client: DockerClient, arguments: dict[str, Any]) -> None:
        """Create a container that will call us."""
        self.folder.mkdir(mode=0o755)
        self._listener = _listen(self.folder / SOCKET)
        self.allowance = Allowance()
        self._container = client.containers.create(**arguments)
        self._container.start()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there is something to read."""
        peer = self._control or self._listener
        return -1 if peer is None else peer.fileno()

    def answer(self) -> None:
        """Accept its call. Call when readable."""
        assert self._listener
        self._control, _ = self._listener.accept()
        self._listener.close()
        self._listener = None
        self._reader, self._lines = LineReader(self._control, descriptors=1), deque()
        who = self._control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid, _, _ = struct.unpack("=iii", who)
        self.importing = True

    def become_ready(self) -> dict[str, str] | None:
        """Read that it is ready, and which testbed it is; None: not yet. Call when readable."""
        try:
            if (answer := self._line()) is None:
                return None
            identity = _identity(answer[0].get("ready"))
        except (ClosedError, ValueError):
            self.importing = False
            raise self.ended_early() from None
        self.importing = False
        self._group = cgroups.memory_group(self.pid)
        self._own = cgroups.usage(self._group) if self._group else 0
        self.ready = True
        return identity

    def limit(self, allowance: Allowance) -> None:
        """Set what its worker may use from now on."""
        if allowance != self.allowance and self._container:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            self._container.update(**limits(allowance, sorted(os.sched_getaffinity(0)), memory, self._own))
            self.allowance = allowance

    def has_ended(self) -> bool:
        """Whether the engine says that it has ended."""
        assert self._container
        self._container.reload()
        return self._container.status in ("exited", "dead")

    def ended_early(self) -> TestbedError:
        """Blame what its image lacks, unless something else ended it: then it may restart in the next cell."""
        words = f"{self.name}'s container ended before it was ready: {self.how_it_ended()}"
        if self._ended_by_others:
            return TrainingError(words, hint=BY_OTHERS)
        return MissingError(words, hint=NEEDED)

    def how_it_ended(self) -> str:
        """Describe how it ended, with its last output if it was not ready yet."""
        self._ended_by_others = True
        try:
            state = self._final_state()
        except NotFound:
            return "it was removed"
        except (DockerException, OSError):
            return "the Docker engine does not answer any more"
        if state.get("OOMKilled") and not self._kills:  # kills: of an earlier worker
            self.out_of_memory = True
            return "out of memory"
        code = int(state.get("ExitCode", 0))
        self._ended_by_others = code - 128 in (signal.SIGKILL, signal.SIGTERM)
        how = f"exit code {code}" + (f", {signal.Signals(code - 128).name}" if code - 128 in _SIGNALS else "")
        said = [] if self.ready else self.log().strip().splitlines()[-WORDS:]
        return (state.get("Error") or how) + "".join(f"\n  {line}" for line in said)

    def _final_state(self) -> dict[str, Any]:
        assert self._container
        end = time.monotonic() + END_SECONDS
        while not self.has_ended() and time.monotonic() < end:
            time.sleep(0.02)
        state: dict[str, Any] = self._container.attrs["State"]
        return state

    def log(self) -> str:
        """Return the container's own output; its workers have logs of their own."""
        if self._container is None:
            return ""
        with suppress(DockerException, OSError):
            text: bytes = self._container.logs()
            return text.decode(errors="replace")
        return ""

    def remove(self, log: Path) -> None:
        """Remove it for good; its output stays in the file."""
        self.forget()
        self.importing = self.ready = False
        for peer in (self._control, self._listener):
            if peer:
                peer.close()  # it ends by itself, then, even where the engine does not answer
        self._control = self._listener = self._reader = None
        self._lines.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._container is None:
            return
        if words := self.log():
            with suppress(OSError):  # a full disk: the container must go all the same
                log.parent.mkdir(exist_ok=True)
                with log.open("a") as file:
                    file.write(words)
        container, self._container = self._container, None
        with speaking(f"remove the container {container.name}"), suppress(NotFound):
            container.remove(force=True, v=True)

    # The worker in it

    def forget(self) -> None:
        """Forget what was read about the last worker."""
        if self._worker is not None:
            os.close(self._worker)
            self._worker = None
        self.worker_pid = 0
        self.working = False  # nothing was heard of its end yet
        self.out_of_memory = False  # whether the kernel has killed the worker, or all of it, for want of memory
        self._killed = 0.0  # when, if we have
        self._size = 1
        self._kills: int = cgroups.kills(self._group) if self._group else 0

    def begin(self, job: Job, log: Path) -> None:
        """Fork a worker for this job; its log is written through a descriptor of ours."""
        self.forget()
        self._size, self.working = job.size, True
        if self._control:
            out = open_log(log)
            with suppress(OSError):  # it has ended, which `hear` notices
                send_line(self._control, {"job": job.to_json()}, [out])
            os.close(out)

    def hear(self, within: float = 0.0) -> Ended | None:
        """Read its next message within some seconds: how the worker ended; None: it has started, or there was no
        message. Messages are hostile input: one that makes no sense ends the container."""
        if self.overdue and not self.pending:
            return self._gave_up("was killed, and its container did not say so")
        try:
            if (answer := self._line(within)) is None:
                return self._gave_up("did not answer") if within else None
            words, descriptors = answer
            if words == {"started": True}:
                self._see(descriptors)
                return None
            _close(descriptors)
            failure = reports.failure(words.get("done"), self._size)
        except ClosedError:
            return self._gave_up(f"is gone: its container ended ({self.how_it_ended()})")
        except ValueError as error:
            return self._gave_up(f"said something that makes no sense: {error}")
        self.working = False
        self.out_of_memory = bool(self._group and cgroups.kills(self._group) > self._kills)
        return Ended(failure)

    def _see(self, descriptors: Sequence[int]) -> None:
        """Find the worker behind the one descriptor that it sent."""
        pid = _pid(descriptors[0]) if len(descriptors) == 1 and self._worker is None else None
        if pid is None:
            _close(descriptors)
            raise ValueError("a worker that is none")
        self._worker, self.worker_pid = descriptors[0], pid

    def _gave_up(self, why: str) -> Ended:
        self.working = self.ready = False
        return Ended(WorkerDiedError(f"{self.name} {why}", hint=BY_OTHERS, worker=self.name, why=why))

    @property
    def started(self) -> bool:
        return self._worker is not None

    @property
    def overdue(self) -> bool:
        """Whether its worker was killed a while ago and it has not said so: the worker may have taken it over."""
        return bool(self._killed) and self.working and time.monotonic() > self._killed + KILL_SECONDS

    def signal(self, number: signal.Signals) -> None:
        if self._worker is not None:
            if number == signal.SIGKILL:
                self._killed = self._killed or time.monotonic()
            with suppress(ProcessLookupError):  # it has ended meanwhile
                signal.pidfd_send_signal(self._worker, number)

    def end_worker(self) -> None:
        """End the worker; the container then waits for the next job. One that does not confirm is given up."""
        if not (self.working and self.ready):
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        self.hear(END_SECONDS)
        if self.working:
            self.ready = False

    @property
    def pending(self) -> bool:
        """Whether something has arrived already."""
        return bool(self._lines)

    def _line(self, within: float = 0.0) -> Line | None:
        """Return the next line, if all of it arrives in time."""
        end = time.monotonic() + within
        while not self._lines:
            if self._reader is None:
                raise ClosedError("there is no container")
            if not readable([self], max(0.0, end - time.monotonic())):
                return None
            self._lines.extend(self._reader.read())
            if not self._lines and time.monotonic() >= end:
                return None
        return self._lines.popleft()


def _identity(words: Any) -> dict[str, str]:
    """Return which testbed it is."""
    if not isinstance(words, dict) or not all(isinstance(words.get(key), str) for key in ("version", "source")):
        raise ValueError("no identity")
    return {key: words[key][:100] for key in ("version", "source")}


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


_SIGNALS = {number.value for number in signal.Signals}


def _listen(path: Path) -> socket.socket:
    """Let the container's user connect; no other user of this machine can reach the socket's directory."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen(1)
    return listener


def _pid(process: int) -> int | None:
    """Return the host's id of the process behind a descriptor; 0 once it has ended, None where it has no process."""
    found = re.search(r"^Pid:\s*(-?\d+)", Path(f"/proc/self/fdinfo/{process}").read_text(), re.MULTILINE)
    return max(0, int(found[1])) if found else None
