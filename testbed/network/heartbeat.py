"""A heartbeat for the guest's kernel. The agent starts it in the delay box; standard library only.

User-Mode-Linux (6.1) may fall asleep on a packet: one that comes between its last look and its sleep is noticed only
with the next signal, which on an idle network can be its own next timer, hundreds of milliseconds later. Timers that
expire all the time bound that. Their signal is ignored, so that the kernel does all of it, and no process has to run.
"""

from __future__ import annotations

import ctypes
import signal

PERIOD = 0.01  # seconds; the kernel does not let an ignored timer expire more often than its tick
TIMERS = 10  # evenly spread, so that one expires every millisecond
CLOCK_MONOTONIC = 1


class _Event(ctypes.Structure):
    """struct sigevent"""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),  # 0: by signal
        ("rest", ctypes.c_char * 48),
    )


class _Schedule(ctypes.Structure):
    """struct itimerspec"""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


def start() -> None:
    """From now on, until this process ends."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "timer_create"):  # before glibc 2.34
        libc = ctypes.CDLL("librt.so.1")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    period = int(PERIOD * 1e9)
    for number in range(1, TIMERS + 1):
        timer = ctypes.c_void_p()
        event = _Event(signal=signal.SIGUSR1)
        schedule = _Schedule(0, period, 0, number * period // TIMERS)
        failed = libc.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
        if failed or libc.timer_settime(timer, 0, ctypes.byref(schedule), None):
            raise OSError("the guest cannot set timers")
