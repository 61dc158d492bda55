"""One worker's container while a run goes on, and the line to it. The docker runtime has one for each worker."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import DockerException, NotFound

from testbed.errors import DivergedError, MissingError, StorageError, TestbedError, TrainingError
from testbed.network.wire import read_line, send_line
from testbed.runtime import groups
from testbed.runtime.base import Allowance
from testbed.runtime.container import SOCKET, limits
from testbed.runtime.engine import speaking
from testbed.worker.job import Job
from testbed.worker.transport import PeerLostError

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

END_SECONDS = 5.0  # for the engine to see that a container has ended, for the kernel to take a worker apart
WORDS = 5  # lines of a container's last words that an error shows
BY_OTHERS = "ended by somebody? docker events may tell"
NEEDED = "an image needs a python with testbed and torch (testbed image build makes one); image: host needs nothing"


class Member:
    """A container that may not run (yet, or any more), and how its worker fared in this cell."""

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
        self._worker: int | None = None  # a descriptor of its process
        self._group: Path | None = None  # that limits its memory
        self._own = 0  # bytes that it takes without a worker
        self._ended_by_others = False
        self.forget()

    # The container

    def create(self, client: DockerClient, arguments: dict[str, Any]) -> None:
        """A container that will call us."""
        self.folder.mkdir(mode=0o755)
        self._listener = _listen(self.folder / SOCKET)
        self.allowance = Allowance()
        self._container = client.containers.create(**arguments)
        self._container.start()

    def fileno(self) -> int:
        """What becomes readable when there is something to hear."""
        peer = self._control or self._listener
        return -1 if peer is None else peer.fileno()

    def answer(self) -> None:
        """It calls. Call when readable."""
        assert self._listener
        self._control, _ = self._listener.accept()
        self._listener.close()
        self._listener = None
        who = self._control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid, _, _ = struct.unpack("=iii", who)
        self.importing = True

    def become_ready(self) -> dict[str, Any]:
        """It says that it is ready, and who it is. Call when readable."""
        answer = self._read()
        self.importing = False
        if answer is None:
            raise self.ended_early()
        self._group = groups.memory_group(self.pid)
        self._own = groups.usage(self._group) if self._group else 0
        self.ready = True
        identity: dict[str, Any] = answer["ready"]
        return identity

    def limit(self, allowance: Allowance) -> None:
        """What its worker may use from now on."""
        if allowance != self.allowance and self._container:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            self._container.update(**limits(allowance, sorted(os.sched_getaffinity(0)), memory, self._own))
            self.allowance = allowance

    def has_ended(self) -> bool:
        """As the engine sees it."""
        assert self._container
        self._container.reload()
        return self._container.status in ("exited", "dead")

    def ended_early(self) -> TestbedError:
        """Because of what its image lacks, unless somebody else ended it: then it may begin anew in the next cell."""
        words = f"{self.name}'s container ended before it was ready: {self.how_it_ended()}"
        if self._ended_by_others:
            return TrainingError(words, hint=BY_OTHERS)
        return MissingError(words, hint=NEEDED)

    def how_it_ended(self) -> str:
        """In words; its own last ones, too, if it had any before it was ready."""
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
        """What the container said beside its workers, which have logs of their own."""
        if self._container is None:
            return ""
        with suppress(DockerException, OSError):
            text: bytes = self._container.logs()
            return text.decode(errors="replace")
        return ""

    def remove(self, log: Path) -> None:
        """End it, now and for good; what it said stays in the file."""
        self.forget()
        self.importing = self.ready = False
        for peer in (self._control, self._listener):
            if peer:
                peer.close()  # it ends by itself, then, even where the engine does not answer
        self._control = self._listener = None
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
        """What was heard of the last worker."""
        if self._worker is not None:
            os.close(self._worker)
            self._worker = None
        self.worker_pid = 0
        self.error: TestbedError | None = None
        self.heard = 0.0
        self.out_of_memory = False  # whether the kernel has killed the worker, or all of it, for want of memory
        self.lost = False
        self._kills: int = groups.kills(self._group) if self._group else 0

    def begin(self, job: Job, log: Path) -> None:
        """Fork a worker for this job."""
        self.forget()
        if self._control:
            with suppress(OSError):  # it has ended; whoever hears it will know
                send_line(self._control, {"job": job.to_json(), "log": str(log)})

    def hear(self) -> str:
        """The next thing it says: that the worker has started, or how it ended; if it died, how. Call when readable."""
        descriptors: list[int] = []
        answer = self._read(descriptors)
        if answer and "started" in answer:
            (self._worker,) = descriptors
            self.worker_pid = _pid(self._worker)
            return ""
        self.heard = time.monotonic()
        if answer is None:
            self.ready = False
            how = f"is gone: its container ended ({self.how_it_ended()})"
            self.error = TrainingError(f"{self.name} {how}", hint=BY_OTHERS)
            return how
        self.out_of_memory = bool(self._group and groups.kills(self._group) > self._kills)
        done = answer["done"]
        if done["error"] is None:
            return ""
        if lost := done["lost"]:
            self.error = PeerLostError(done["error"], hint=done["hint"], peer=lost["peer"], step=lost["step"])
        elif done["storage"]:
            self.error = StorageError(done["error"], hint=done["hint"])
        elif diverged := done["diverged"]:
            self.error = DivergedError(done["error"], hint=done["hint"], **diverged)
        else:
            self.error = TrainingError(done["error"], hint=done["hint"])
        return str(done["died"])

    @property
    def started(self) -> bool:
        return self._worker is not None

    def signal(self, number: signal.Signals) -> None:
        if self._worker is not None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                signal.pidfd_send_signal(self._worker, number)

    def end_worker(self) -> None:
        """Whatever it does; then the container waits for the next job. One that does not say so is given up."""
        if self.heard or not self.ready:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if select.select([self], [], [], END_SECONDS)[0]:
            self.hear()
        if not self.heard:
            self.ready = False

    def _read(self, descriptors: list[int] | None = None) -> dict[str, Any] | None:
        assert self._control
        try:
            return read_line(self._control, descriptors)
        except (OSError, ValueError):
            return None


_SIGNALS = {number.value for number in signal.Signals}


def _listen(path: Path) -> socket.socket:
    """Which the container's user may connect to; nobody else of this machine can get at the directory."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen(1)
    return listener


def _pid(process: int) -> int:
    """The number, here, of the process behind a descriptor."""
    found = re.search(r"^Pid:\s*(-?\d+)", Path(f"/proc/self/fdinfo/{process}").read_text(), re.MULTILINE)
    return max(0, int(found[1])) if found else 0
