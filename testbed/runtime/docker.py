"""`runtime: docker`: each worker in a container of its own, which the emulated network is plugged into.

The containers live for all cells of a run, with no network of Docker's, no capability, a read-only root and limits of
their own. Their network namespaces take the place of those that the keeper made, so that everything else about the
network stays as it is.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import ImageNotFound

import testbed
from testbed.errors import MissingError, TestbedError, TrainingError
from testbed.network import state
from testbed.network.handle import Handle, uninterrupted
from testbed.runtime import engine, hostimage
from testbed.runtime.base import Allowance, Outcome, Place, Runtime, out_of_memory
from testbed.runtime.container import USER, Directory, Start, specification
from testbed.runtime.inside import identity
from testbed.runtime.member import NEEDED, Member
from testbed.runtime.nursery import told
from testbed.runtime.process import ONE_THREAD
from testbed.tasks import store
from testbed.worker.crew import GRACE, explanation
from testbed.worker.job import Job
from testbed.worker.lost import may_lose

READY_SECONDS, SECONDS_PER_WORKER = 60.0, 4.0  # importing torch takes over a second of a processor, for each
LOOK_SECONDS = 1.0  # between two looks at containers that have not called yet
AT_ONCE = 8  # requests to the engine


class DockerRuntime(Runtime):
    """One container per worker."""

    name = "docker"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._handle: Handle | None = None
        self._allowances: Sequence[Allowance] = ()
        self._deadline: float | None = None  # once a worker has failed: how long the others have to say what they know
        self._may_lose: Callable[[int, str], bool] | None = None
        self._folder = state.base() / f"{state.own_name()}{engine.FOLDER}"
        names = [worker.name for worker in place.network.workers]
        self._members = [Member(name, self._folder / name) for name in names]
        self._lent: Path | None = None  # the running cell's directory
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
        """All that containers have in common; what killed runs left is removed."""
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
        directories = [*(hostimage.directories() if own else ()), Directory(str(place.run / "cells"), writable=True)]
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

    def _launch(self, members: Sequence[Member]) -> None:
        """Make and start containers; they import torch while we go on. No thread is left: others of us fork."""

        def create(member: Member) -> None:
            gpus = [gpu.uuid for gpu in self._place.gpus.get(member.name, ())]
            arguments = specification(self._start, member.name, str(member.folder), gpus)
            member.create(self._client, arguments)

        image = self._place.image
        task, hint = ("start a container", None) if image == "host" else (f"start a container from {image}", NEEDED)
        with engine.speaking(task, hint), ThreadPoolExecutor(min(AT_ONCE, len(members))) as pool:
            list(pool.map(create, members))

    def attach(self, handle: Handle) -> None:
        """The network goes to the containers while they import torch: whoever measures it goes before them."""
        self._handle = handle
        self._plug_in(self._members)

    def _plug_in(self, members: Sequence[Member]) -> None:
        """As soon as each calls, its network becomes the worker's."""
        handle = self._handle
        assert handle

        def called(member: Member) -> None:
            member.answer()
            handle.call("adopt", worker=member.name, pid=member.pid)

        self._each(members, called, "did not start")

    def _await_ready(self, members: Sequence[Member]) -> None:
        """Until they have imported everything, and are the same testbed as this one."""
        self._each(
            members, lambda member: check_same(self._place.image, identity(), member.become_ready()), "were not ready"
        )

    def _each(self, members: Sequence[Member], hear: Callable[[Member], None], otherwise: str) -> None:
        """Hear every one, in the order in which they speak."""
        waiting = list(members)
        end = time.monotonic() + READY_SECONDS + SECONDS_PER_WORKER * len(members)
        while waiting:
            readable, _, _ = select.select(waiting, [], [], LOOK_SECONDS)
            for member in readable:
                hear(member)
                waiting.remove(member)
            if not readable:
                self._look_for_dead(waiting)
            if waiting and time.monotonic() > end:
                names = ", ".join(member.name for member in waiting)
                raise TrainingError(f"the containers of {names} {otherwise} in time", hint="is the machine busy?")

    def _look_for_dead(self, waiting: Sequence[Member]) -> None:
        """A container that ended before it called."""
        with engine.speaking("tell how the containers are"):
            for member in waiting:
                if member.has_ended():
                    raise member.ended_early()

    # A cell

    def start(self, jobs: Sequence[Job], logs: Path, allowances: Sequence[Allowance]) -> None:
        self._logs, self._allowances, self._deadline = logs, allowances, None
        self.shortcomings = _unlimited(self._info, allowances)
        self._await_ready([member for member in self._members if member.importing])
        self._revive([member for member in self._members if not member.ready])
        self._limit()
        self._lent = Path(jobs[0].directory)
        _give(self._lent, USER, USER)
        self._may_lose = may_lose(jobs[0])
        for member, job in zip(self._members, jobs, strict=True):
            member.begin(job, logs / f"{member.name}.log")
        for member in self._members:
            self._hear(member)  # that it has started

    def _revive(self, dead: Sequence[Member]) -> None:
        """Containers that ended in an earlier cell begin anew."""
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
        waiting = [member for member in self._members if not member.heard]
        if self._deadline is not None:
            seconds = min(seconds, max(0.0, self._deadline - time.monotonic()))
        for member in select.select(waiting, [], [], seconds)[0] if waiting else ():
            self._hear(member)
        late = self._deadline is not None and time.monotonic() >= self._deadline
        if not late and not all(member.heard for member in self._members):
            return None
        for member in self._members:
            member.end_worker()
        self._take_back()
        return self._outcome()

    def _take_back(self) -> None:
        if self._lent:
            _give(self._lent, os.geteuid(), os.getegid())
            self._lent = None

    def _hear(self, member: Member) -> None:
        died = member.hear()
        if died and self._may_lose:
            member.lost = self._may_lose(self._members.index(member), died)
        if member.error and not member.lost and self._deadline is None:
            self._deadline = time.monotonic() + GRACE

    def _outcome(self) -> Outcome:
        failed = [member for member in self._members if member.error and not member.lost]
        if not failed and all(member.lost for member in self._members):
            failed = self._members
        if not failed:
            return Outcome()
        if starved := [member for member in self._members if member.out_of_memory]:
            return out_of_memory([member.name for member in starved], starved[0].allowance.memory)
        error = explanation(failed, self._members)
        return Outcome(**told(error))

    def kill(self, rank: int) -> None:
        self._members[rank].signal(signal.SIGKILL)

    def freeze(self, rank: int, frozen: bool) -> None:
        self._members[rank].signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def restart(self, rank: int, job: Job) -> None:
        member = self._members[rank]
        if not member.heard:  # it was killed just now
            self._hear(member)
        if not member.lost or self._deadline is not None:
            return  # the others do not go on without it
        if not member.ready:
            self._revive([member])
            self._limit()
        member.begin(job, self._logs / f"{member.name}.log")
        self._hear(member)

    # The end

    def close(self) -> None:
        problems: list[TestbedError] = []

        def remove(member: Member) -> None:
            try:
                member.remove(self._log(member))
            except TestbedError as error:
                problems.append(error)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(remove, self._members))
        with suppress(OSError):  # ends of others' making; what follows must be done
            self._take_back()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._client.close()
        if problems:  # the containers end by themselves, since nobody is at the other end of their sockets
            self._folder.mkdir(mode=0o700, parents=True)  # by which testbed down --all knows that some are left
            print(f"note: {problems[0]}; testbed down --all removes what is left", file=sys.stderr)

    def _log(self, member: Member) -> Path:
        return self._place.run / "containers" / f"{member.name}.log"


def _find(client: DockerClient, image: str) -> str:
    """The image's identity; MissingError where there is none of that name, or it is no name."""
    hint = "docker image ls shows what there is, testbed image build makes one; image: host needs none"
    try:
        with engine.speaking(f"find the image {image}", hint):
            return str(client.images.get(image).id)
    except MissingError as error:
        if isinstance(error.__cause__, ImageNotFound):
            raise MissingError(f"there is no image {image} on this machine", hint=hint) from error
        raise


def check_same(image: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """Whether an image has the testbed that this is."""
    if ours == theirs:
        return
    other = "the same version from other sources" if ours["version"] == theirs["version"] else theirs["version"]
    raise MissingError(
        f"this is testbed {ours['version']}, but the image {image} has {other}: results would not compare",
        hint="build the image again: testbed image build",
    )


def _give(directory: Path, user: int, group: int) -> None:
    """A cell's directory is the workers' while they train, and nobody else's files are."""
    for path in (directory, *directory.rglob("*")):
        with suppress(FileNotFoundError):  # closed in the middle of a cell, workers may still be ending
            os.chown(path, user, group, follow_symlinks=False)


def _check_readable(directory: Path) -> None:
    """By others, which the containers' user is one of."""
    if directory.stat().st_mode & 0o005 != 0o005:
        raise MissingError(
            f"workers in containers are another user, who may not read {directory}",
            hint=f"chmod o+rx {directory}, or use --runtime process",
        )


def _unlimited(info: Mapping[str, Any], allowances: Sequence[Allowance]) -> list[str]:
    """What of the allowances this engine cannot enforce, in words."""
    asked = {
        "memory": ("MemoryLimit", any(one.memory is not None for one in allowances)),
        "processor time": ("CpuCfsQuota", any(one.cpus is not None for one in allowances)),
        "which processors": ("CPUSet", any(one.cores for one in allowances)),
    }
    words = "could not be limited: the Docker engine says that the kernel has no such control group"
    return [f"{what} {words}" for what, (key, wanted) in asked.items() if wanted and not info.get(key, True)]
