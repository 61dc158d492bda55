"""Calibration of links that are in this kernel: plain queues in netem's place, so that it runs on any."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.network import calibrate, measure
from testbed.network.daemon import Daemon
from testbed.network.messages import attach_pfifo

from .examples import network
from .isolated import isolated

PAIR = network("{topology: chain, link: {latency: 1ms, rate: 10mbit, loss: 1%}}", workers=2)


class KeptHere:
    """A handle of a network whose daemon is this process."""

    state = SimpleNamespace(box="host")

    def __init__(self, daemon: Daemon) -> None:
        self._keeper = daemon
        self.counters = daemon.counters

    def call(self, operation: str) -> Any:
        return getattr(self._keeper, operation)()

    @contextmanager
    def namespace(self, worker: str) -> Iterator[int]:
        yield self._keeper.workers[worker]


def test_it_neither_spins_nor_takes_a_real_time_class(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[bool] = []
    sleeps: list[float] = []
    real_run, real_sleep = measure.Loop.run_until, time.sleep

    def run_until(self: measure.Loop, deadline: float, *, spin: bool = False) -> None:
        waits.append(spin)
        real_run(self, deadline, spin=spin)

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        real_sleep(seconds)

    monkeypatch.setattr(measure.Loop, "run_until", run_until)
    monkeypatch.setattr(measure.time, "sleep", sleep)
    monkeypatch.setattr(calibrate, "SECOND_LOOKS", 0)

    def run() -> tuple[int, set[bool], int]:
        directory = Path(tempfile.mkdtemp(prefix="tb"))
        daemon = Daemon(PAIR, directory, "host")
        try:
            daemon.build(attach_pfifo)
            found = calibrate._Calibrator(KeptHere(daemon), PAIR, 1.0).run(streams=True)  # type: ignore[arg-type]
            assert found.probes[0].rtt is not None
            assert found.probes[0].there.packets > 0
            return os.sched_getscheduler(0), set(waits), len(sleeps)
        finally:
            daemon.close()
            shutil.rmtree(directory)

    scheduler, spins, sleeps_taken = isolated(run)
    assert scheduler == os.SCHED_OTHER
    assert spins == {False}
    assert sleeps_taken > 100  # between packets
