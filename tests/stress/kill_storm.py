"""Runs in which something is killed at a random moment: nothing is left, and a resumed run ends as if undisturbed.

Anything may be killed: the controller, the network daemon, the guest, the fork server, a worker. The controller may
also get the signals that people send.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from running import Place, losses, write

from tests.stress.trial import Trial

METHODS = "[allreduce, dpsgd, {choco: {compressor: sign}}]"
POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TRIES = 4  # to resume


def kill_storm(trial: Trial) -> None:
    place = Place(trial.folder)
    file = write(trial.folder, methods=METHODS, compute="{step_time: 40ms}", slow_motion="1")
    began = time.monotonic()
    place.run("up", file, "--out", "undisturbed", "--no-calibrate")
    whole = time.monotonic() - began
    expected = {cell.name: losses(cell) for cell in (trial.folder / "undisturbed/cells").iterdir()}
    while trial.going:
        _one(trial, place, file, whole, expected)


def _one(trial: Trial, place: Place, file: Path, whole: float, expected: dict[str, dict[int, list[float]]]) -> None:
    number = trial.counts["runs"]
    run = trial.folder / f"run{number}"
    trial.count("runs")
    process = place.start("up", file, "--out", run.name, "--no-calibrate")
    time.sleep(trial.chance.uniform(0.3, whole))
    what = _kill_one(trial, place, process.pid)
    process.communicate(timeout=300)
    place.run("down", "--all")
    if left := place.left_behind():
        trial.fail(f"run {number}, {what}: left behind {left}")
    if not (run / "scenario.yaml").exists():  # which is written last
        trial.count("ended before they began")
        return
    for _ in range(TRIES):
        done = place.run("up", "--resume", run.name, "--no-calibrate")
        if done.returncode in (0, 6):
            break
    else:
        trial.fail(f"run {number}, {what}: cannot be resumed: exit {done.returncode}, {done.stderr[-300:]}")
        return
    trial.count("resumed")
    for cell, curve in expected.items():
        if losses(run / "cells" / cell) != curve:
            trial.fail(f"run {number}, {what}: {cell} has other losses")


def _kill_one(trial: Trial, place: Place, controller: int) -> str:
    """Kill something of the run; what it was."""
    there = place.processes()
    if not there:
        return "nothing was there to be killed"
    victim = trial.chance.choice(sorted(there))
    sent = trial.chance.choice([signal.SIGKILL, *POLITE]) if victim == controller else signal.SIGKILL
    trial.count("kills")
    with suppress(ProcessLookupError):
        os.kill(victim, sent)
    return f"{sent.name} to {there[victim][:60]}"
