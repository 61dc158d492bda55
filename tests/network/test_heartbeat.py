"""The alarm that outlives exec."""

from __future__ import annotations

import subprocess
import sys

from testbed.network.box import HEARTBEAT

KERNEL = """
import signal, sys
beats = 0
def beat(*_):
    global beats
    beats += 1
assert signal.getsignal(signal.SIGALRM) == signal.SIG_IGN
signal.signal(signal.SIGALRM, beat)
while beats < 20:
    signal.pause()
print(sys.argv[1:], signal.getitimer(signal.ITIMER_REAL)[1])
"""


def test_a_program_gets_alarms_that_it_did_not_ask_for_and_none_before_it_can_take_them() -> None:
    command = [sys.executable, "-IBS", str(HEARTBEAT), sys.executable, "-c", KERNEL, "mem=1M", "quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "['mem=1M', 'quiet'] 0.001\n", done.stderr
