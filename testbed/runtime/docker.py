"""`runtime: docker`: each worker in its own container, attached to the emulated network.

The containers live for all cells of a run, without Docker networks and capabilities, with a read-only root and their
own limits. Their network namespaces replace those that the network daemon made; nothing else about the network
changes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import ImageNotFound

import testbed
from testbed.errors import MissingError, TestbedError, TrainingError
from testbed.network import state
from testbed.network.client import Client, uninterrupted
from testbed.network.waiting import readable
from testbed.runtime import engine, hostimage
from testbed.runtime.base import USER, Allowance, Outcome, Place, Runtime, out_of_memory
from testbed.runtime.container_main import identity
from testbed.runtime.container_spec import Directory, Start, specification
from testbed.runtime.container_worker import END_SECONDS, NEEDED, START_SECONDS, ContainerWorker
from testbed.runtime.process import ONE_THREAD
from testbed.tasks import store
from testbed.worker.job import Job
from testbed.worker.lost import may_lose
from testbed.worker.progress import Board
from testbed.worker.team import Team

READY_SECONDS, SECONDS_PER_WORKER = 60.0, 4.0  # importing torch takes over a second of a processor, for each
LOOK_SECONDS = 1.0  # between two looks at containers that have not called yet
AT_ONCE = 8  # requests to the engine


class DockerRuntime(Runtime):
    """One container per worker."""

    name = "docker"

    @classmethod
    def check(cls) -> None:
        engine.check()

    def __init__(self, place: Place) -> None:
        self._place = place
        self._handle: Client | None = None
        self._allowances: Sequence[Allowance] = ()
        self._folder = state.base() / f"{state.own_name()}{engine.FOLDER}"
        names = [worker.name for worker in place.network.workers]
        self._members = [ContainerWorker(name, self._folder / name) for name in names]
        self._team = Team(names)
        self._client = engine.connect()
        try:
            with engine.speaking("tell what it is"):
                self._info = self._client.info()
            self._start = self._prepare()
            self._launch(self._members)
        except BaseException:
            with uninterrupted():
                self.close()
            raise

    def environment(self) -> dict[str, Any]:
        engine_is = {"version": self._info["ServerVersion"], "storage": self._info["Driver"]}
        return {"image": self._place.image, "image_id": self._start.image, "engine": engine_is}

    def _prepare(self) -> Start:
        """Prepare what all containers have in common; remove what killed runs left."""
        place, image = self._place, self._place.image
        with engine.speaking("remove what earlier runs left"):
            for container in engine.leftovers(self._client):
                container.remove(force=True, v=True)
        engine.remove_folders()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = image == "host"
        if own:
            with engine.speaking("make the image for this machine's own Python"):
                found = hostimage.ensure(self._client)
        else:
            found = _find(self._client, image)
        for path in (place.lent, place.notices):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        lent = Directory(str(place.lent), writable=True)  # of which only the running cell's is theirs
        directories = [*(hostimage.directories() if own else ()), lent, Directory(str(place.notices))]
        environment = {**ONE_THREAD}
        if own:  # this testbed, however it was found here
            environment["PYTHONPATH"] = str(Path(testbed.__file__).resolve().parent.parent)
        if (data := store.directory(place.data)).is_dir():
            directories.append(Directory(str(data.resolve())))
            environment["TESTBED_DATA"] = str(data.resolve())
        for path in place.code:
            _check_readable(path)
            directories.append(Directory(str(path)))
        return Start(
            image=found,
            python=sys.executable if own else "python",
            directories=tuple(directories),
            environment=environment,
            hosts={worker.name: worker.address for worker in place.network.workers},
            run=place.run.name,
            network=place.network.name,
            controller=state.own_name(),
        )

    def _launch(self, members: Sequence[ContainerWorker]) -> None:
        """Make and start containers; they import torch meanwhile. No thread stays behind: we fork later."""

        def create(member: ContainerWorker) -> None:
            gpus = [gpu.uuid for gpu in self._place.gpus.get(member.name, ())]
            arguments = specification(self._start, member.name, str(member.folder), gpus)
            member.create(self._client, arguments)

        image = self._place.image
        task, hint = ("start a container", None) if image == "host" else (f"start a container from {image}", NEEDED)
        with engine.speaking(task, hint), ThreadPoolExecutor(min(AT_ONCE, len(members))) as pool:
            list(pool.map(create, members))

    def attach(self, handle: Client) -> None:
        """Attach the network to the containers while they import torch. Measuring has priority over them."""
        self._handle = handle
        self._plug_in(self._members)

    def _plug_in(self, members: Sequence[ContainerWorker]) -> None:
        """Attach each worker's network as soon as its container calls."""
        handle = self._handle
        assert handle

        def called(member: ContainerWorker) -> bool:
            member.answer()
            handle.call("adopt", worker=member.name, pid=member.pid)
            return True

        self._each(members, called, "did not start")

    def _await_ready(self, members: Sequence[ContainerWorker]) -> None:
        """Wait until all have imported everything; check that they are the same testbed as this one."""
        ours = identity()

        def ready(member: ContainerWorker) -> bool:
            if (theirs := member.become_ready()) is None:
                return False
            check_same(self._place.image, ours, theirs)
            return True

        self._each(members, ready, "were not ready")

    def _each(
        self, members: Sequence[ContainerWorker], hear: Callable[[ContainerWorker], bool], otherwise: str
    ) -> None:
        """Read from every container until it has said all, in the order in which they speak."""
        waiting = list(members)
        end = time.monotonic() + READY_SECONDS + SECONDS_PER_WORKER * len(members)
        while waiting:
            speaking = readable(waiting, LOOK_SECONDS)
            for member in speaking:
                if hear(member):
                    waiting.remove(member)
            if not speaking:
                self._look_for_dead(waiting)
            if waiting and time.monotonic() > end:
                names = ", ".join(member.name for member in waiting)
                raise TrainingError(f"the containers of {names} {otherwise} in time", hint="is the machine busy?")

    def _look_for_dead(self, waiting: Sequence[ContainerWorker]) -> None:
        """Find containers that ended before they called."""
        with engine.speaking("tell how the containers are"):
            for member in waiting:
                if member.has_ended():
                    raise member.ended_early()

    # A cell

    def start(self, jobs: Sequence[Job], board: Board, logs: Path, allowances: Sequence[Allowance]) -> None:
        self._logs, self._allowances = logs, allowances
        self.shortcomings = _unlimited(self._info, allowances)
        self._await_ready([member for member in self._members if member.importing])
        self._revive([member for member in self._members if not member.ready])
        self._limit()
        self._team = Team([member.name for member in self._members], may_lose(jobs[0]))
        os.chown(jobs[0].directory, USER, USER)  # itself alone: nothing of a worker's is ever changed
        board.lend(USER, USER)
        for member, job in zip(self._members, jobs, strict=True):
            member.begin(job, logs / f"{member.name}.log")
        for rank in range(len(jobs)):
            self._hear(rank, START_SECONDS)  # that it has started

    def _revive(self, dead: Sequence[ContainerWorker]) -> None:
        """Restart containers that ended in an earlier cell."""
        if not dead:
            return
        for member in dead:
            member.remove(self._log(member))
        self._launch(dead)
        self._plug_in(dead)
        self._await_ready(dead)

    def _limit(self) -> None:
        with engine.speaking("limit what workers may use"):
            for member, allowance in zip(self._members, self._allowances, strict=True):
                member.limit(allowance)

    def pids(self) -> Sequence[int]:
        return [member.worker_pid for member in self._members]

    def poll(self, seconds: float) -> Outcome | None:
        waiting = {self._members[rank]: rank for rank in self._team.working}
        pending = any(member.pending for member in waiting)
        limit = 0.0 if pending else self._team.wait_at_most(time.monotonic(), seconds)
        speaking = readable([*waiting], limit) if waiting else []
        for member, rank in waiting.items():
            if member in speaking or member.pending or member.overdue:
                self._hear(rank)
        if not self._team.over(time.monotonic()):
            return None
        outcome = self._outcome(self._team.failure())  # first: whom we end now is no reason why the cell has failed
        for member in self._members:
            member.end_worker()
        return outcome

    def _hear(self, rank: int, within: float = 0.0) -> None:
        if ended := self._members[rank].hear(within):
            self._team.ended(rank, time.monotonic(), ended.error)

    def _outcome(self, failure: TestbedError | None) -> Outcome:
        if failure and (starved := [member for member in self._members if member.out_of_memory]):
            return out_of_memory([member.name for member in starved], starved[0].allowance.memory)
        return Outcome(failure)

    def kill(self, rank: int) -> None:
        self._members[rank].signal(signal.SIGKILL)

    def freeze(self, rank: int, frozen: bool) -> None:
        self._members[rank].signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def restart(self, rank: int, job: Job) -> None:
        member = self._members[rank]
        if rank in self._team.working:  # it was killed just now
            self._hear(rank, END_SECONDS)
        if not self._team.may_return(rank):
            return
        if not member.ready:
            self._revive([member])
            self._limit()
        member.begin(job, self._logs / f"{member.name}.log")
        self._team.returned(rank)
        self._hear(rank, START_SECONDS)

    # The end

    def close(self) -> None:
        problems: list[TestbedError] = []

        def remove(member: ContainerWorker) -> None:
            try:
                member.remove(self._log(member))
            except TestbedError as error:
                problems.append(error)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(remove, self._members))
        shutil.rmtree(self._folder, ignore_errors=True)
        self._client.close()
        if problems:  # the containers end by themselves, since nobody is at the other end of their sockets
            self._folder.mkdir(mode=0o700, parents=True)  # by which testbed down --all knows that some are left
            print(f"note: {problems[0]}; testbed down --all removes what is left", file=sys.stderr)

    def _log(self, member: ContainerWorker) -> Path:
        return self._place.run / "containers" / f"{member.name}.log"


def _find(client: DockerClient, image: str) -> str:
    """Return the image's id; MissingError where no image has that name, or it is not a valid name."""
    hint = "docker image ls shows what there is, testbed image build makes one; image: host needs none"
    try:
        with engine.speaking(f"find the image {image}", hint):
            return str(client.images.get(image).id)
    except MissingError as error:
        if isinstance(error.__cause__, ImageNotFound):
            raise MissingError(f"there is no image {image} on this machine", hint=hint) from error
        raise


def check_same(image: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """Check that an image holds the same testbed as this one."""
    if ours == theirs:
        return
    other = "the same version from other sources" if ours["version"] == theirs["version"] else theirs["version"]
    raise MissingError(
        f"this is testbed {ours['version']}, but the image {image} has {other}: results would not compare",
        hint="build the image again: testbed image build",
    )


def _check_readable(directory: Path) -> None:
    """Check that others, such as the containers' user, can read it."""
    if directory.stat().st_mode & 0o005 != 0o005:
        raise MissingError(
            f"workers in containers are another user, who may not read {directory}",
            hint=f"chmod o+rx {directory}, or use --runtime process",
        )


def _unlimited(info: Mapping[str, Any], allowances: Sequence[Allowance]) -> list[str]:
    """Return the allowances that this engine cannot enforce, in words."""
    asked = {
        "memory": ("MemoryLimit", any(one.memory is not None for one in allowances)),
        "processor time": ("CpuCfsQuota", any(one.cpus is not None for one in allowances)),
        "which processors": ("CPUSet", any(one.cores for one in allowances)),
    }
    words = "could not be limited: the Docker engine says that the kernel has no such control group"
    return [f"{what} {words}" for what, (key, wanted) in asked.items() if wanted and not info.get(key, True)]
