"""Workers that are out for harm, in real runs of both runtimes: nothing outside their cell changes, every cell ends
with a clear reason, in bounded time and without a traceback, and the cells after it run as if nothing had been.

probes.py tries what must be refused, sabotage.py does what a worker can do and must not get far with.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running import COMMAND, Place, assert_told_that_the_disk_is_full, write

from testbed.safe_files import remove_tree

pytestmark = [pytest.mark.netem, pytest.mark.slow]

HERE = Path(__file__).parent
SECRET = "only root may know or change this\n"
KINDS = ("symlink", "hardlink", "fifo", "socket", "directory", "sparse", "deep")
FINE = "fine"  # instead of a reason: the cell ends well
REFUSALS = {
    "EPERM",
    "EACCES",
    "EROFS",
    "ENOENT",
    "ESRCH",
    "ENOSYS",
    "ENXIO",
    "ENODEV",
    "EXDEV",
    "EFBIG",
    "EAFNOSUPPORT",
}
UNREACHABLE = {"ENETUNREACH", "EHOSTUNREACH", "TimeoutError", "ECONNREFUSED"}

UNUSABLE = r"w1 left results that cannot be used: worker\.1\.parcel "
NONSENSE = r"w1 reported something that makes no sense"
LOST = r"w[02]: (nothing from|the connection to) w1 .*"
LATE = r"the cell took longer than the scenario's deadline"
KILLED = r"w1 was killed by SIGKILL"
GONE = r"w1 (ended with exit code \d+|was killed by SIG\w+)|w1: .*|" + LOST
CONTRADICTION = r"the workers' results contradict each other: .*"
# By act, how its cell must end where a failure ends it, in the order in which they run
STOP: dict[str, dict[str, str]] = {
    "files": {
        **{f"replace-result {kind}": UNUSABLE for kind in KINDS},
        **{f"replace-all-results {kind}": KILLED for kind in ("symlink", "fifo", "directory", "deep")},
        "replace-meeting-place directory": r"w\d.*",
        "truncate-progress": r"w\d was killed by SIGBUS.*",
        "absurd-progress": FINE,
        "forged-notices": FINE,
        "odd-names": FINE,
    },
    "words": {
        **{f"report {kind}": NONSENSE for kind in ("endless", "deep", "pickle", "types", "negative")},
        "report half": LOST,
        "report success": LOST,
        "report others": r"w0 is the one",
        "report storage": r"cannot write to /: No space left on device",
        "report diverged": r"no",
        "report text": r".*owned.*",
        "raise-hostile-text": r"w1: RuntimeError: .*owned.*",
        "close-descriptors": GONE,
        "write-to-descriptors": rf"{NONSENSE}|{GONE}",
        "leave-with-success": GONE,
        "segfault": r"w1 was killed by SIGSEGV",
    },
    "results": {
        **{f"result {kind}": UNUSABLE for kind in ("endless-time", "wrong-types", "negative-spans", "huge-numbers")},
        "result of-another": r"w[01] left results that cannot be used: .*",
        **{f"result {kind}": UNUSABLE for kind in ("endless-lists", "deep", "pickle", "other-shape")},
        "result hostile-words": FINE,
        "result slow": FINE,
        **{f"result {kind}": rf"{FINE}|{CONTRADICTION}" for kind in ("late-spans", "no-time")},
    },
    "greed": {
        "take-memory": r"w1 ran out of memory: the scenario allows \d+ MB each",
        "take-processes": FINE,
        "fork-bomb": rf"{GONE}|w1 (ran out of memory|is gone): .*",
        "talk-a-lot": FINE,
        "survive": FINE,
    },
}
# The same where the others go on
CONTINUE: dict[str, str] = {
    **{f"replace-everything-and-die {kind}": FINE for kind in KINDS},
    "forged-notices": FINE,
    "absurd-progress": FINE,
    "stop": rf"{LATE}|{LOST}",
    "hold-meeting-place": rf"{LATE}|{LOST}",
}
SCENARIO = """
name: hostile
workers: {count: 3, memory: 400mb}
network: {topology: ring, link: {latency: 1ms, rate: 200mbit}}
task: digits
training: {steps: 4, lr: 0.05, eval_every: 2}
patience: 6s
"""


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def runtime(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        request.getfixturevalue("engine")
    return str(request.param)


@pytest.fixture
def place(runtime: str, tmp_path: Path) -> Iterator[Place]:
    """Made once the engine can be found (`runtime`). Others may read here, as containers' users must. What is left of a
    failed test is ended and removed: nested too deeply for what pytest removes directories with."""
    tmp_path.chmod(0o755)
    place = Place(tmp_path)
    try:
        yield place
    finally:
        for pid in place.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for run in tmp_path.glob("run*"):
            remove_tree(run)


@dataclass(frozen=True)
class Done:
    """A run that has ended."""

    code: int
    said: str
    run: Path

    def result(self, cell: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / "cells" / cell / "result.json").read_text())
        return found

    def cells(self) -> dict[str, str]:
        """By act (or method), the cell's id."""
        planned = json.loads((self.run / "cells.json").read_text())
        return {one["options"].get("act", one["method"]): one["id"] for one in planned}


def attack(place: Place, runtime: str, methods: str, **values: str) -> Done:
    """A run of these methods between canaries, of which nothing may have changed when it is over."""
    beside = place.folder / "beside"  # all that workers see of what is the user's
    beside.mkdir()
    for name in ("probes.py", "sabotage.py"):
        shutil.copy(HERE / name, beside)
    canary = place.folder / "canary"
    canary.write_text(SECRET)
    canary.chmod(0o600)
    before = canary.stat()
    file = write(beside, SCENARIO, "hostile.yaml", methods=methods, **values)
    with ExitStack() as services:
        marks = services.enter_context(Services(place.folder))
        name = f"run-{place.folder.name}"
        process = place.start("up", file, "--runtime", runtime, "--out", name, "--no-calibrate")
        marks["pids"] = [process.pid, os.getpid()]
        (beside / "marks.json").write_text(json.dumps({**marks, "canary": str(canary), "state": str(place.state)}))
        out, errors = process.communicate(timeout=280)
    said = out + errors
    assert "Traceback" not in said, said
    assert "\x1b" not in said, said
    assert "\x00" not in said
    after = canary.stat()
    assert canary.read_text() == SECRET
    for kept in ("st_mode", "st_uid", "st_nlink", "st_size", "st_mtime_ns", "st_ctime_ns"):
        assert getattr(after, kept) == getattr(before, kept), kept
    assert place.left_behind() == []
    assert_tame(place.folder / name)
    return Done(process.returncode, said, place.folder / name)


class Services:
    """Things of root's that answer whoever gets through to them; nobody may."""

    def __init__(self, folder: Path) -> None:
        paths = [Path(f"/run/tbhostile{os.getpid()}.sock"), folder / "open.sock"]
        self._paths = paths
        self._abstract = f"\0testbed-hostile-{os.getpid()}"
        self._listening = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for one, address in zip(self._listening, [*map(str, paths), self._abstract], strict=True):
            one.bind(address)
            one.listen()
        for path in paths:
            path.chmod(0o666)
        self._listening.append(socket.create_server(("127.0.0.1", 0)))

    def __enter__(self) -> dict[str, Any]:
        group = next((path for path in map(Path, GROUPS) if path.exists()), Path("/sys/fs/cgroup/cgroup.procs"))
        port = self._listening[-1].getsockname()[1]
        return {"sockets": [*map(str, self._paths), self._abstract], "port": port, "group": str(group)}

    def __exit__(self, *_: object) -> None:
        for one in self._listening:
            one.settimeout(0)
            with pytest.raises(BlockingIOError):
                one.accept()
            one.close()
        for path in self._paths:
            path.unlink()


GROUPS = ("/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/cgroup.procs")


def assert_tame(run: Path) -> None:
    """All that is left is ours, and nothing but plain files and directories."""
    for folder, directories, files in os.walk(run):
        for path in [os.path.join(folder, name) for name in (*directories, *files)]:
            found = os.lstat(path)
            assert stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode), path
            assert not found.st_mode & 0o6022, (path, oct(found.st_mode))
            assert found.st_uid == os.getuid(), path
        if folder.count("/d") > 50:  # of a nest, that is enough; what is beside it is still looked at
            directories.clear()


def assert_ended(done: Done, expected: Mapping[str, str]) -> None:
    """Every cell as it must, each followed by one that is fine."""
    wrong = {}
    for act, cell in done.cells().items():
        found = done.result(cell)
        how = FINE if found["error"] is None else found["error"]
        if not re.match(expected.get(act, FINE), how, re.DOTALL):
            wrong[act] = how
    assert wrong == {}
    assert done.code == 5, done.said


def names(acts: Mapping[str, str]) -> str:
    cells = [f"{{sabotage.py:Saboteur: {{act: {act}}}}}" for act in acts]
    return f"[{', '.join([*cells, 'dpsgd'])}]"


def test_what_is_refused(place: Place, runtime: str) -> None:
    done = attack(place, runtime, "[dpsgd, probes.py:Prober]")
    assert done.code in (0, 6), done.said
    told = json.loads((done.run / "cells" / done.cells()["probes.py:Prober"] / "files/told.json").read_text())
    assert set(told["allowed"].values()) == {""}, told["allowed"]
    through = {act: how for act, how in told["forbidden"].items() if how not in REFUSALS | UNREACHABLE}
    assert through == {}
    assert len(told["forbidden"]) >= 100
    for home in told["facts"].pop("homes"):
        assert Path(sys.base_prefix).is_relative_to(home), "of homes, only what leads to this Python is to be seen"
    assert set(told["facts"].pop("groups")) <= {65534}
    assert told["facts"] == {
        "capabilities": 0,
        "no_new_privileges": 1,
        "user": 65534,
        "processes": [1],
        "interfaces": ["eth0", "lo"],
        "in_sys": ["eth0", "lo"],
    }


@pytest.mark.parametrize("part", list(STOP))
def test_how_cells_end_where_a_failure_ends_them(place: Place, runtime: str, part: str) -> None:
    waits = {"patience": "40s"} if part == "greed" else {}  # a thousand processes take their time on a busy machine
    done = attack(place, runtime, names(STOP[part]), **waits)
    assert_ended(done, STOP[part])
    shown = subprocess.run(
        place.command(["show", str(done.run)]), capture_output=True, text=True, env=place.environment, check=False
    )
    assert shown.returncode == 0
    assert "\x1b" not in shown.stdout
    if part == "greed":
        forked = (done.run / "cells" / done.cells()["take-processes"] / "files/processes.json").read_text()
        assert 0 < int(forked) < 3000


def test_how_cells_end_where_the_others_go_on(place: Place, runtime: str) -> None:
    done = attack(place, runtime, names(CONTINUE), on_failure="continue", deadline="20s")
    assert_ended(done, CONTINUE)
    for act, cell in done.cells().items():
        lost = [one["worker"] for one in done.result(cell)["lost"]]
        assert lost == (["w1"] if act.startswith("replace-everything") else []), act


@pytest.mark.parametrize("runtime", ["process"], indirect=True)  # an engine does not see mounts of others
def test_a_worker_that_fills_the_disk_ends_the_run_clearly(place: Place) -> None:
    shutil.copy(HERE / "sabotage.py", place.folder)
    write(place.folder, SCENARIO, "hostile.yaml", methods=names({"take-disk": ""}))
    (place.folder / "full").mkdir()
    mount = "mount -t tmpfs -o size=16m,mode=755 none full"
    done = place.shell(f"{mount} && exec {' '.join(COMMAND)} up hostile.yaml --out full/run --no-calibrate --no-report")
    assert_told_that_the_disk_is_full(done)
    assert place.left_behind() == []
