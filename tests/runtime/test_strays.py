"""What outlives a worker is ended: at once by who forked the worker, later by what is written in its environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from testbed.network import state
from testbed.runtime import strays

DAEMON = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
PARENT = f"""
import os, subprocess, sys
from testbed.network.processes import adopt_orphans, descendants
from testbed.runtime import strays
adopt_orphans()
for _ in range(3):
    subprocess.run([sys.executable, "-c", {DAEMON!r}], check=True)
before = len(descendants(os.getpid()))
strays.end_adopted()
print(before, len(descendants(os.getpid())))
strays.end_adopted()
"""


def test_children_of_those_that_have_ended_are_adopted_and_ended():
    done = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["3", "0"]


def there(pid: int) -> bool:
    return state.start_time(pid) is not None


def test_only_what_is_left_of_runs_that_are_over_is_ended():
    sleep = ["sleep", "600"]
    ours, gone = strays.marked(), {strays.MARK: "4194304999-1"}
    with (
        subprocess.Popen(sleep, env={**os.environ, **ours}) as kept,
        subprocess.Popen(sleep, env={**os.environ, **gone}) as left,
        subprocess.Popen(sleep) as unknown,
    ):
        try:
            end = time.monotonic() + 10
            while Path(f"/proc/{left.pid}/cmdline").read_bytes() != b"sleep\x00600\x00" and time.monotonic() < end:
                time.sleep(0.01)
            found = strays.left_over()
            assert found[left.pid] == "sleep 600"
            assert not found.keys() & {kept.pid, unknown.pid, os.getpid()}
            assert f"process {left.pid} (sleep 600)" in strays.remove_leftovers()
            assert left.wait(10) < 0
            assert there(kept.pid)
            assert there(unknown.pid)
        finally:
            for process in (kept, left, unknown):
                process.kill()


def test_ending_what_has_ended_is_no_error():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert strays.end([process.pid]) == []
