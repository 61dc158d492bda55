"""The same again and again: networks up and down, and many cells in one run. Nothing may pile up."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from running import Place, write

from tests.stress.trial import Trial

GROWTH = 1.10, 4 << 20  # by which memory may have grown between the first quarter of a run and the last: times, bytes


def many_networks(trial: Trial) -> None:
    """Up and down."""
    place = Place(trial.folder)
    file = write(trial.folder, workers="8")
    while trial.going:
        up = place.run("net", "up", file, "--no-calibrate")
        down = place.run("down", "small")
        trial.count("networks")
        if up.returncode or down.returncode:
            trial.fail(f"network {trial.counts['networks']}: {up.stderr[-200:]} {down.stderr[-200:]}")
        if left := place.left_behind():
            trial.fail(f"network {trial.counts['networks']}: left behind {left}")


def many_cells(trial: Trial) -> None:
    """One run of more cells than there is time for: open files and memory of all that lives as long as the run."""
    place = Place(trial.folder)
    file = write(trial.folder, training="{steps: 3, eval_every: 3}", repeat="1000", methods="[dpsgd]")
    process = place.start("up", file, "--out", "run", "--no-calibrate")
    seen: dict[int, list[tuple[int, int]]] = {}
    names: dict[int, str] = {}
    while trial.going and process.poll() is None:
        time.sleep(1.0)
        if not any(trial.folder.glob("run/cells/*/result.json")):
            continue  # what is needed anyway comes with the first cell
        there = place.processes()
        names |= {pid: _name(words) for pid, words in there.items()}
        for pid in there:
            with suppress(OSError, ValueError):
                seen.setdefault(pid, []).append((_memory(pid), len(os.listdir(f"/proc/{pid}/fd"))))
    process.send_signal(2)
    _, words = process.communicate(timeout=300)
    if process.returncode != 130:
        trial.fail(f"ended with {process.returncode}: {words[-300:]}")
        return
    trial.count("cells", sum((cell / "result.json").exists() for cell in (trial.folder / "run/cells").iterdir()))
    longest = max(map(len, seen.values()), default=0)
    for pid, samples in seen.items():
        if len(samples) > 0.9 * longest and longest >= 20:
            _judge(trial, names[pid], samples)
    if left := place.left_behind():
        trial.fail(f"left behind {left}")


def _judge(trial: Trial, name: str, samples: list[tuple[int, int]]) -> None:
    quarter = len(samples) // 4
    first, last = samples[quarter : 2 * quarter], samples[-quarter:]
    memory = [max(one for one, _ in part) for part in (first, last)]
    files = [max(one for _, one in part) for part in (first, last)]
    trial.facts.append(f"{name} {memory[0] >> 20} → {memory[1] >> 20} MB, {files[0]} → {files[1]} open files")
    if memory[1] > GROWTH[0] * memory[0] + GROWTH[1]:
        trial.fail(f"{name} grows: {memory[0] >> 20} to {memory[1] >> 20} MB")
    if files[1] > files[0] + 5:
        trial.fail(f"{name} leaks descriptors: {files[0]} to {files[1]}")


def _name(words: str) -> str:
    """What a process is, from its command line: the module or the program that it runs."""
    parts = words.split()
    if "-m" in parts[:-1]:
        return parts[parts.index("-m") + 1].rpartition(".")[2]
    return Path(parts[0]).name


def _memory(pid: int) -> int:
    """Bytes that it shares with nobody."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private"))
