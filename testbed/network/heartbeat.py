"""A heartbeat for the guest's kernel, from outside: `python heartbeat.py KERNEL ARGUMENTS…` becomes that kernel.

User-Mode-Linux (6.1) can miss wake-ups. A packet that arrives between its last look and its sleep waits for the next
signal, and a timer that expires while an earlier one is being served is dropped: everything that netem holds back may
then stay there. An alarm every millisecond makes the kernel look again. Interval timers and ignored signals survive
exec, so the alarm needs no sender, and is harmless until the kernel can take it.

Standard library only, and no package around it: it is run as a file.
"""

import os
import signal
import sys

FIRST, PERIOD = 1.0, 0.001  # seconds

if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, FIRST, PERIOD)
    os.execvp(sys.argv[1], sys.argv[1:])
