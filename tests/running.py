"""What the tests of whole runs share: starting `testbed up` as people do, and finding what it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

COMMAND = [sys.executable, "-m", "testbed.cli"]
LIMIT = 240  # seconds; nothing takes a fifth of it on an idle machine
CGROUPS = Path("/sys/fs/cgroup")

SCENARIO = """
name: small
workers: 3
network: {topology: ring, link: {latency: 1ms, rate: 200mbit}}
task: digits
training: {steps: 12, lr: 0.05, eval_every: 6}
methods: [allreduce, dpsgd]
"""


def write(folder: Path, text: str = SCENARIO, name: str = "small.yaml", **values: str) -> Path:
    """A scenario file; `values` replace or add top-level lines, e.g. methods="[dpsgd]"."""
    lines = text.strip().splitlines()
    for key, value in values.items():
        lines = [line for line in lines if not line.startswith(f"{key}:")] + [f"{key}: {value}"]
    file = folder / name
    file.write_text("\n".join(lines) + "\n")
    return file


def assert_ran(done: subprocess.CompletedProcess[str]) -> None:
    """Every cell ended well; the verdict may be what it is on a busy machine (exit code 6)."""
    assert done.returncode in (0, 6), done.stdout[-3000:] + done.stderr


def assert_told_that_the_disk_is_full(done: subprocess.CompletedProcess[str]) -> None:
    """In a line, with a hint at most."""
    assert done.returncode == 1, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert "No space left on device" in said[0]
    assert "Traceback" not in done.stderr
    assert len(said) <= 2


class Place:
    """A directory for one test's networks and runs; everything started from here can be found again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "s"
        self.environment = {**os.environ, "TESTBED_STATE": str(self.state), "COLUMNS": "150"}

    def command(self, words: Sequence[str | Path]) -> list[str]:
        """With the report left out, which has tests of its own, unless the words ask for it."""
        spared = ["--no-report"] if words[0] == "up" and "--report" not in words else []
        return [*COMMAND, *(str(word) for word in words if word != "--report"), *spared]

    def run(self, *words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            **options,
        )

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        """In a mount namespace of its own, which ends with it."""
        words = ["unshare", "--mount", "sh", "-c", script]
        return subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )

    def start(self, *words: str | Path, **options: Any) -> subprocess.Popen[str]:
        # Python takes over SIGINT only where it is not ignored, as it is below a shell's background job.
        def as_in_a_terminal() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        return subprocess.Popen(
            self.command(words),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=as_in_a_terminal,
            **options,
        )

    def processes(self) -> dict[int, str]:
        """All that was started from here and still runs, with what it is."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and f"TESTBED_STATE={self.state}\0" in (entry / "environ").read_text() + "\0":
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()
            except OSError:
                continue
        return {pid: words for pid, words in found.items() if words}  # a zombie has none

    def left_behind(self) -> list[str]:
        """Processes, directories and control groups; some seconds are given to those that are ending."""
        end = time.monotonic() + 20
        while (left := self._left()) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def _left(self) -> list[str]:
        directories = [str(path) for path in self.state.iterdir()] if self.state.is_dir() else []
        return [*map(str, self.processes().items()), *directories]


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """Until it holds; fails where the process ends before."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if found := condition():
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("it never happened")


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def forkserver_of(process: subprocess.Popen[str]) -> int | None:
    for child in children(process.pid):
        try:
            if "testbed.runtime.forkserver" in Path(f"/proc/{child}/cmdline").read_text():
                return child
        except OSError:
            continue
    return None


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Process ids in the order of ranks, once there are some."""
    forkserver = forkserver_of(process)
    return [child for child in children(forkserver) if _is_worker(child)] if forkserver else []


def _is_worker(pid: int) -> bool:
    """Forked by the fork server; what else it starts are the first processes of their namespaces."""
    try:
        return "testbed.runtime.forkserver" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it has just ended
        return False


def losses(cell: Path) -> dict[int, list[float]]:
    """By worker, the loss of every step, to the bit."""
    table = parquet.read_table(cell / "metrics.parquet").to_pylist()
    found: dict[int, list[float]] = {}
    for row in sorted(table, key=lambda row: row["step"]):
        if row["metric"] == "train_loss":
            found.setdefault(row["worker"], []).append(row["value"])
    return found
