"""`python -m tests.stress [--minutes 18] [--seed N] [PART …]`: every trial in turn; exit 1 if one failed.

The seed is printed, so that a failure can be repeated (as far as timing allows). What comes out is a table in Markdown,
to be pasted into docs/reliability.md. Everything runs with a state directory of its own: networks of others are not
touched, and what is killed is known by its process id. It ends two minutes after its time at the latest.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where tests find what they share

from running import Place

from tests.stress.fuzz_runs import fuzz_runs
from tests.stress.fuzz_scenarios import fuzz_scenarios
from tests.stress.kill_storm import kill_storm
from tests.stress.soak import many_cells, many_networks
from tests.stress.trial import Trial, figures

# Each with its share of the time.
PARTS: dict[str, tuple[float, Callable[[Trial], None]]] = {
    "scenarios": (0.10, fuzz_scenarios),
    "runs": (0.10, fuzz_runs),
    "kills": (0.45, kill_storm),
    "networks": (0.20, many_networks),
    "cells": (0.15, many_cells),
}
GRACE = 120  # seconds for what has begun to come to its end
MOST_SHOWN = 20  # failures of one trial


class OverdueError(Exception):
    """The time is over, and the grace, too."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all unless named")
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    chosen = {name: part for name, part in PARTS.items() if not arguments.parts or name in arguments.parts}
    print(f"seed {arguments.seed}", flush=True)
    done: dict[str, tuple[Trial, float]] = {}
    with _bounded(60 * arguments.minutes + GRACE):
        for name, (share, run) in chosen.items():
            seconds = 60 * arguments.minutes * share / sum(share for share, _ in chosen.values())
            began = time.monotonic()
            trial = _tried(name, run, random.Random(f"{arguments.seed} {name}"), seconds)
            done[name] = trial, time.monotonic() - began
            print(f"{name}: {trial}", flush=True)
            if trial.overdue:
                break
    print("\n" + figures(done, seed=arguments.seed))
    failures = {name: trial.failures for name, (trial, _) in done.items()}
    for name, some in failures.items():
        for failure in some[:MOST_SHOWN]:
            print(f"FAILED {name}: {failure}")
    return 1 if any(failures.values()) or len(done) < len(chosen) else 0


def _tried(name: str, run: Callable[[Trial], None], chance: random.Random, seconds: float) -> Trial:
    """One part, in a directory of its own; however it ends, what it started ends with it."""
    with tempfile.TemporaryDirectory(prefix=f"stress-{name}-", ignore_cleanup_errors=True) as folder:
        trial = Trial(Path(folder), chance, time.monotonic() + seconds)
        try:
            run(trial)
        except OverdueError:
            trial.overdue = True
            trial.fail("it took too long, and was ended")
        except Exception as error:  # noqa: BLE001  # of the trial itself: the others shall be run, too
            trial.fail(f"the trial broke off: {type(error).__name__}: {str(error)[:300]}")
        finally:
            _end_rest(Place(trial.folder))
    return trial


def _end_rest(place: Place) -> None:
    """Known by their environment, which names the trial's own directory."""
    while left := place.processes():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    def overdue(*_: object) -> None:
        raise OverdueError

    signal.signal(signal.SIGVTALRM, overdue)  # readers of damaged files have a time limit of their own: SIGALRM
    watch = os.fork()
    if watch == 0:
        _watch(seconds)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(watch, signal.SIGKILL)
        os.waitpid(watch, 0)


def _watch(seconds: float) -> None:
    """In a process of its own, which ends with the one that it watches."""
    parent, end = os.getppid(), time.monotonic() + seconds
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while os.getppid() == parent and time.monotonic() < end:
        time.sleep(0.5)
    if os.getppid() == parent:
        os.kill(parent, signal.SIGVTALRM)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
