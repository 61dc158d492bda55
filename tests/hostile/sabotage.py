"""A method that does one harmful thing, named in a scenario as {sabotage.py:Saboteur: {act: …}}. test_hostile.py knows
how a run must end after each. Beside the scenario, `marks.json` says where the canary is."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from testbed.methods.base import Peer
from testbed.methods.dpsgd import DPSGD, State
from testbed.worker import forked
from testbed.worker.result import JobResult

MARKS = Path(__file__).with_name("marks.json")
CULPRIT, WHEN = 1, 1  # the rank, and the step
DEPTH = 1500
HOSTILE_TEXT = "\x1b]0;owned\x07\x1b[2J\x1b[31m\u202egnp\x00\r\n" + "x" * 9000

# Everything in the lent directory that the controller makes, reads or removes, and what it once wrote there
OF_RESULTS = [
    f"{kind}.{rank}.{end}" for rank in (0, 1, 2) for kind in ("worker", "unfinished") for end in ("parcel", "part")
]
OF_NOTICES = [
    f"{name}.{rank}{end}"
    for rank in (0, 1, 2)
    for name, end in (("lost", ".part"), ("lost", ".0.json"), ("back", ".1"))
]
OF_NOTICES += ["orders", "progress", "w0.log", "w1.log", "logs", "files", "result.json", "result.part", "verdict.json"]
OF_NOTICES += ["trace.parquet", "metrics.parquet", "counters.parquet", "rendezvous.rejoin", "checkpoints"]


@dataclass(frozen=True)
class Saboteur(DPSGD):
    """Behaves until it is time."""

    name = "saboteur"
    act: str = ""

    def step(self, peer: Peer, state: State) -> None:
        super().step(peer, state)
        if (peer.rank, peer.step) == (CULPRIT, WHEN):
            print(f"about to {self.act}", flush=True)
            name, _, kind = self.act.partition(" ")
            ACTS[name](kind) if kind else ACTS[name]()


def put(kind: str, name: str) -> None:
    """Something else where a file should be."""
    path = Path(name)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    canary = json.loads(MARKS.read_text())["canary"]
    if kind == "symlink":
        path.symlink_to(canary)
    elif kind == "hardlink":
        Path("mine").write_text("x")
        os.link("mine", path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "directory":
        path.mkdir(mode=0o000)
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 1 << 32)
    else:
        nest(path)


def nest(path: Path) -> None:
    """Deeper than anything that calls itself can follow, longer than a path may be."""
    back = os.open(".", os.O_RDONLY)
    path.mkdir()
    os.chdir(path)
    for _ in range(DEPTH):
        os.mkdir("d")
        os.chdir("d")
    os.fchdir(back)
    os.close(back)


def replace_everything_and_die(kind: str) -> None:
    """The old hole: what the controller writes when a worker dies, where the worker has put a link."""
    names = [*OF_NOTICES, "unfinished.1.parcel", "unfinished.2.parcel"]
    for name in names if kind != "deep" else ["lost.1.part", "unfinished.2.parcel"]:
        put(kind, name)
    die()


def replace_all_results(kind: str) -> None:
    """As soon as all have begun, so that others cannot write theirs either."""
    for name in OF_RESULTS if kind != "deep" else ["worker.0.parcel", "unfinished.1.parcel"]:
        put(kind, name)
    die()


def replace_result(kind: str) -> None:
    JobResult.write = lambda self, directory: put(kind, f"worker.{self.rank}.parcel")  # type: ignore[method-assign]


def replace_meeting_place(kind: str) -> None:
    put(kind, "rendezvous")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def segfault() -> None:
    ctypes.string_at(0)


def hold_meeting_place() -> None:
    with open("rendezvous", "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(600)


def truncate_progress() -> None:
    os.truncate("progress", 0)


def absurd_progress() -> None:
    """In everybody's record, and answers to questions that nobody asked."""
    rows = [(-(2**63), 2**63 - 1, -1, float("nan"), float("-inf")), (2**63 - 1, -1, 2**63 - 1, 1e308, 1e308)]
    with open("progress", "r+b") as file:
        for rank in (0, 1, 2):
            file.seek(128 * rank)
            file.write(struct.pack("=qqqdd", *rows[rank % 2]))
            file.seek(128 * rank + 64)
            file.write(struct.pack("=qqqqq", 1, 2**63 - 1, 1, 1, -(2**63)))
    with open("progress", "ab") as file:
        file.write(b"\xff" * 1_000_000)


def forged_notices() -> None:
    """Says in its own directory that w0 died and came back."""
    loss = {"rank": 0, "why": "was killed", "at": 0.0, "step": 1, "life": 0}
    Path("lost.0.0.json").write_text(json.dumps(loss))
    Path("back.0.1").touch()
    Path("orders").write_bytes(b"\xff" * 4096)


# What it says of itself


def report_with(content: bytes, length: int | None = None) -> None:
    """Through the pipe to whoever forked it, and then nothing more."""
    pipe, _ = forked._kept
    data = memoryview(struct.pack("=q", len(content) if length is None else length) + content)
    with suppress(OSError):
        while data:
            data = data[os.write(pipe, data) :]
    time.sleep(600)


def descriptors() -> Iterator[int]:
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        with suppress(OSError):
            os.fstat(int(name))
            if int(name) > 2:
                yield int(name)


def failure(**changed: Any) -> bytes:
    fields = {
        "kind": "training",
        "message": "no",
        "hint": None,
        "peer": None,
        "step": 1,
        "worker": None,
        "why": None,
        "silent": [],
    }
    return json.dumps({"failure": {**fields, **changed}}).encode()


REPORTS: dict[str, Callable[[], None]] = {
    "endless": lambda: report_with(b'{"failure": "' + b"x" * 100_000_000),
    "deep": lambda: report_with(b"[" * 60_000),
    "pickle": lambda: report_with(
        b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94."
    ),
    "types": lambda: report_with(failure(message=["no"], hint=7)),
    "negative": lambda: report_with(b"{}", length=-5),
    "half": lambda: report_with(b'{"failure"', length=1000),
    "success": lambda: report_with(b'{"failure": null}'),
    "others": lambda: report_with(failure(kind="peer_lost", peer=10**6, step=-5, message="w0 is the one")),
    "storage": lambda: report_with(failure(kind="storage", message="cannot write to /: No space left on device")),
    "diverged": lambda: report_with(failure(kind="diverged", worker=HOSTILE_TEXT[:3000], step=2**61)),
    "text": lambda: report_with(failure(message=HOSTILE_TEXT[:3000], hint=HOSTILE_TEXT[:3000])),
}


def report(kind: str) -> None:
    REPORTS[kind]()


def raise_hostile_text() -> None:
    raise RuntimeError(HOSTILE_TEXT)


def close_descriptors() -> None:
    os.closerange(0, 1024)


def write_to_descriptors() -> None:
    for fd in descriptors():
        with suppress(OSError):
            os.set_blocking(fd, False)
            os.write(fd, os.urandom(4096))
    os._exit(0)


# What it leaves as its result


def result(kind: str) -> None:
    honest = JobResult.write

    def write(self: JobResult, directory: Path) -> None:
        if kind in RESULTS:
            honest(replace(self, **RESULTS[kind](self)), directory)
        else:
            (directory / "worker.1.parcel").write_bytes(PARCELS[kind]())

    JobResult.write = write  # type: ignore[method-assign]


RESULTS: dict[str, Callable[[JobResult], dict[str, Any]]] = {
    "of-another": lambda _: {"rank": 0},
    "endless-time": lambda _: {"seconds": float("inf")},
    "wrong-types": lambda _: {"warnings": {"a": [1]}, "decided": [[]]},
    "negative-spans": lambda one: {"spans": _backwards(one.spans)},
    "late-spans": lambda one: {"spans": _late(one.spans)},
    "other-shape": lambda _: {"x": np.zeros(3, np.float32)},
    "huge-numbers": lambda _: {"bytes_sent": {0: 10**30}, "tcp_bytes_sent": -1},
    "hostile-words": lambda _: {"warnings": [HOSTILE_TEXT[:1500]], "decided": {HOSTILE_TEXT[:50]: 1.0}},
    "slow": lambda _: {"seconds": 1e9, "tcp_bytes_again": 1 << 53, "bytes_sent": {0: 1 << 53, -1: 1 << 53}},
    "no-time": lambda _: {"seconds": 0.0, "metrics": [], "spans": np.zeros(0, _.spans.dtype)},
}
PARCELS: dict[str, Callable[[], bytes]] = {
    "endless-lists": lambda: (
        b'{"text": {"metrics": [' + b"[]," * 20_000_000 + b'[]]}, "arrays": {"spans": 0, "x": 0}}\n'
    ),
    "deep": lambda: b"[" * 10_000_000 + b"\n",
    "pickle": lambda: b"\x80\x04\x95\n",
}


def _backwards(spans: Any) -> Any:
    turned = spans.copy()
    turned["start_ns"], turned["end_ns"] = spans["end_ns"] + 1, spans["start_ns"]
    return turned


def _late(spans: Any) -> Any:
    """Each by itself could be."""
    late = spans.copy()
    late["start_ns"] = late["end_ns"]
    return late


# What it takes


def take_memory() -> None:
    kept = []
    while True:
        kept.append(b"x" * 10_000_000)


def take_processes() -> None:
    """Until somebody says no, then it goes on training; the children wait."""
    children = []
    with suppress(OSError):
        while len(children) < 3000:
            children.append(os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ))
    Path("processes.json").write_text(json.dumps(len(children)))


def fork_bomb() -> None:
    """All of them, without an end; the first leaves the others behind."""
    first, end = os.getpid(), time.monotonic() + 2
    while os.getpid() != first or time.monotonic() < end:
        with suppress(OSError):
            os.fork()
    os._exit(3)


def take_disk() -> None:
    with open("all-of-it", "wb") as file:
        while True:
            file.write(b"x" * 1_000_000)


def talk_a_lot() -> None:
    text = (HOSTILE_TEXT[:200] + "\n").encode()
    for _ in range(500):
        os.write(1, text * 500)


def odd_names() -> None:
    for name in (b"\x1b[2J", b"\xff\xfe", b"a\nb", b"-rf", b"x" * 255, "\u202e".encode(), b" ", b"*", b"%s{}"):
        Path(os.fsdecode(name)).write_text("x")
        os.mkfifo(b"pipe-" + name[:200])
    for kind in ("symlink", "hardlink", "fifo", "socket", "directory", "sparse", "deep"):
        put(kind, f"odd-{kind}")
    for number in range(500):
        Path(f"many-{number}").touch()


def survive() -> None:
    """As a daemon: another session, another parent, deaf to what ends its parent."""
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # nobody's death is ours
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)


def leave_with_success() -> None:
    sys.stdout.flush()
    os._exit(0)


ACTS: dict[str, Callable[..., None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and not isinstance(value, type)
}
