"""Processes and what came of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from testbed.network.processes import cpu_seconds, descendants

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
