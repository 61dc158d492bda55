"""Processes and what came of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from testbed.network.processes import cpu_seconds, descendants, softirq_seconds

WITH_GRANDCHILD = "import subprocess; subprocess.run(['sleep', '60'])"


def test_children_come_before_theirs_and_the_dead_have_none() -> None:
    with subprocess.Popen([sys.executable, "-c", WITH_GRANDCHILD], start_new_session=True) as child:
        try:
            while len(found := descendants(child.pid)) < 1:
                time.sleep(0.01)
            every = descendants(os.getpid())
            assert every.index(child.pid) < every.index(found[0])
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    assert descendants(child.pid) == []


def test_processor_time_of_the_living_and_the_dead() -> None:
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) == before:
        sum(range(10_000))
    with subprocess.Popen(["true"]) as ended:
        pass
    assert cpu_seconds(ended.pid) == 0


def test_softirqs_of_each_processor():
    text = "cpu  9 0 9 9 9 0 218 88\ncpu0 22463 0 8285 20948 220 3 51 41 0 0\ncpu10 1 0 2 3 4 5 167 46\nintr 1 2 3\n"
    assert softirq_seconds(text, 100) == {"cpu0": 0.51, "cpu10": 1.67}
    assert softirq_seconds("cpu 1 2 3 4\ncpu0 1 2 3 4\n", 100) == {}  # not counted here
    assert softirq_seconds("", 100) == {}


def test_softirqs_of_this_machine():
    found = softirq_seconds(Path("/proc/stat").read_text(), os.sysconf("SC_CLK_TCK"))
    assert len(found) == os.cpu_count()
    assert all(seconds >= 0 for seconds in found.values())
