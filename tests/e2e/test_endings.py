"""How runs end: interrupted, killed, out of disk or memory. One clear message, the right code, nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from running import (
    COMMAND,
    Place,
    assert_ran,
    assert_told_that_the_disk_is_full,
    forkserver_of,
    losses,
    wait_for,
    workers_of,
    write,
)

pytestmark = [pytest.mark.netem, pytest.mark.beside, pytest.mark.slow]

TOYS = Path(__file__).parents[1] / "toys.py"
METHODS = "[allreduce, dpsgd, {choco: {compressor: sign, gamma: 0.4}}]"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for pid in place.processes():  # only where a test failed
        os.kill(pid, signal.SIGKILL)


def result(run: Path, cell: str) -> dict:
    return json.loads((run / "cells" / cell / "result.json").read_text())


@pytest.mark.parametrize(
    ("number", "code", "moment"),
    [
        (signal.SIGINT, 130, "building"),
        (signal.SIGTERM, 143, "measuring"),
        (signal.SIGINT, 130, "training"),
        (signal.SIGTERM, 143, "training"),
    ],
)
def test_a_signal_ends_everything_in_order(place: Place, number: signal.Signals, code: int, moment: str) -> None:
    file = write(place.folder, compute="{step_time: 1s}", slow_motion="1")
    process = place.start("up", file, "--out", "run", start_new_session=True)
    moments = {
        "building": lambda: place.state.is_dir() and list(place.state.iterdir()),
        "measuring": lambda: forkserver_of(process),
        "training": lambda: workers_of(process),
    }
    wait_for(moments[moment], process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: whatever it has forked gets it, too
    else:
        process.send_signal(number)
    _, errors = process.communicate()
    said = [line for line in errors.splitlines() if not line.startswith("note: ")]
    assert process.returncode == code
    assert len(said) == 1
    assert "0 of 2 cells are done; testbed up --resume" in said[0]
    assert place.left_behind() == []


def test_the_run_of_a_killed_controller_can_be_finished_as_if_nothing_had_happened(place: Place) -> None:
    file = write(place.folder, methods=METHODS, compute="{step_time: 30ms}", slow_motion="1")
    process = place.start("up", file, "--out", "killed", "--no-calibrate")
    first, second = place.folder / "killed/cells/v0-allreduce-r0", place.folder / "killed/cells/v0-dpsgd-r0"
    wait_for((first / "result.json").exists, process)
    wait_for(lambda: second.exists() and workers_of(process), process)
    process.kill()
    process.communicate()
    assert place.run("down", "--all").returncode == 0
    assert place.left_behind() == []
    assert not (second / "result.json").exists()

    before = (first / "result.json").stat().st_mtime_ns
    done = place.run("up", "--resume", "killed", "--no-calibrate")
    assert_ran(done)
    assert "2 of 3 cells are missing" in done.stdout
    assert (first / "result.json").stat().st_mtime_ns == before

    undisturbed = place.run("up", file, "--out", "whole", "--no-calibrate")
    assert_ran(undisturbed)
    cells = sorted(path.name for path in (place.folder / "whole/cells").iterdir())
    assert len(cells) == 3
    for cell in cells:
        curves = [losses(place.folder / run / "cells" / cell) for run in ("killed", "whole")]
        assert curves[0] == curves[1]
        assert all(len(curve) == 12 for curve in curves[0].values())
    assert place.left_behind() == []


LONG = "{steps: 60, lr: 0.05, eval_every: 20, checkpoint_every: 5}"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_an_interrupted_cell_goes_on_from_its_checkpoint(place: Place, number: signal.Signals) -> None:
    methods = "[{choco: {compressor: sign, gamma: 0.4}}]"
    file = write(place.folder, methods=methods, training=LONG, compute="{step_time: 30ms}")
    process = place.start("up", file, "--out", "cut", "--no-calibrate")
    lent = place.folder / "cut/lent"
    wait_for(lambda: len(list(lent.glob("*/checkpoints/*/*.pt"))) >= 6, process)
    process.send_signal(number)
    process.communicate()
    assert place.run("down", "--all").returncode == 0
    assert place.left_behind() == []
    assert list(lent.glob("*/checkpoints/*/2.pt"))

    assert_ran(place.run("up", "--resume", "cut", "--no-calibrate"))
    assert_ran(place.run("up", file, "--out", "whole", "--no-calibrate"))
    (cell,) = (path.name for path in (place.folder / "whole/cells").iterdir())
    cut, whole = (place.folder / run / "cells" / cell for run in ("cut", "whole"))
    assert metrics(cut) == metrics(whole)
    assert all(len(curve) == 60 for curve in losses(cut).values())
    found, uncut = (result(place.folder / run, cell) for run in ("cut", "whole"))
    assert any("resumed after step" in warning for warning in found["warnings"])
    assert found["steps"] == 60
    assert found["seconds"] >= 60 * 0.03, "the time before the interruption counts"
    for key in ("bytes_per_step", "floor_s", "final"):
        assert found[key] == pytest.approx(uncut[key], rel=0.02), key
    first = min(row["step"] for row in parquet.read_table(cut / "trace.parquet").to_pylist())
    assert first >= 5
    assert first % 5 == 0
    assert not lent.exists()
    assert not (cut / "files").exists()
    assert place.left_behind() == []


def metrics(cell: Path) -> list[tuple[object, ...]]:
    """All that was measured of the training and the final models, but for times."""
    rows = parquet.read_table(cell / "metrics.parquet").to_pylist()
    return sorted((row["worker"], row["step"], row["metric"], row["value"], row["bytes_sent"]) for row in rows)


@pytest.mark.parametrize("victim", ["worker", "forkserver"])
def test_a_killed_worker_fails_its_cell_alone(place: Place, victim: str) -> None:
    process = place.start(
        "up", write(place.folder, compute="{step_time: 100ms}", slow_motion="1"), "--out", "run", "--no-calibrate"
    )
    workers = wait_for(lambda: (found := workers_of(process)) and len(found) == 3 and found, process)
    os.kill(workers[1] if victim == "worker" else forkserver_of(process), signal.SIGKILL)
    output, errors = process.communicate()
    assert process.returncode == 5, errors
    failed, fine = (result(place.folder / "run", f"v0-{name}-r0") for name in ("allreduce", "dpsgd"))
    assert ("w1 was killed by SIGKILL" if victim == "worker" else "that forks the workers ended") in failed["error"]
    assert fine["error"] is None
    assert failed["error"] in output.replace("\n", " ")
    assert place.left_behind() == []


@pytest.mark.parametrize("size", ["8k", "20k", "90k"])
def test_a_full_disk_is_told_in_one_line(place: Place, size: str) -> None:
    """Too small for the scenario, for the environment, for what workers write."""
    write(place.folder)
    (place.folder / "full").mkdir()
    script = f"mount -t tmpfs -o size={size} none full && exec {' '.join(COMMAND)} up small.yaml --out full/run"
    done = place.shell(f"{script} --no-calibrate")
    assert_told_that_the_disk_is_full(done)
    assert place.left_behind() == []


def test_a_read_only_place_is_refused_before_anything_is_started(place: Place) -> None:
    write(place.folder)
    (place.folder / "fixed").mkdir()
    script = f"mount -t tmpfs -o ro none fixed && exec {' '.join(COMMAND)} up small.yaml --out fixed/run"
    done = place.shell(script)
    assert done.returncode == 1
    assert "cannot write the run's results to fixed/run: Read-only file system" in done.stderr
    assert not place.state.exists()


def test_methods_that_misbehave_fail_alone_and_say_why(place: Place) -> None:
    """Also what a worker can see and do: nothing but its own network, its own directory, its own share of memory."""
    shutil.copy(TOYS, place.folder)
    toys = ["Hog", "Poison", "Crash", "Nosy"]
    methods = "[" + ", ".join([*(f"toys.py:{toy}" for toy in toys), "dpsgd"]) + "]"
    file = write(place.folder, workers="{count: 3, memory: 150mb}", methods=methods)
    (place.folder / "elsewhere").mkdir()
    done = place.run("up", file, "--out", "elsewhere/run", "--no-calibrate")
    run = place.folder / "elsewhere/run"
    assert done.returncode == 5, done.stderr
    hog, poison, crash, nosy = (result(run, f"v0-toys.py-{toy.lower()}-r0") for toy in toys)
    usual = result(run, "v0-dpsgd-r0")

    if any("memory could not be limited" in text for text in usual["shortcomings"]):
        assert hog["error"] is None  # where control groups may not be used, that is said and nothing happens
    else:
        assert hog["error"] == "w1 ran out of memory: the scenario allows 150 MB each"
    assert "w1: 1.weight holds NaN or Inf at step 4" in poison["error"]
    assert poison["diverged"] == {"worker": "w1", "step": 4}
    assert "lower the learning rate" in poison["hint"]
    assert "diverged at step 4" in done.stdout
    assert len(losses(run / "cells/v0-toys.py-poison-r0")[1]) == 4  # kept until then
    assert (run / "cells/v0-toys.py-poison-r0/trace.parquet").is_file()
    assert crash["error"] == "w1: ZeroDivisionError: division by zero"
    assert crash["diverged"] is None
    assert usual["error"] is None
    assert 0 < usual["memory_per_worker"] < 150e6

    said = place.run("logs", run, "w1", "--cell", "v0-toys.py-crash-r0").stdout
    assert "about to divide" in said
    assert "toys.py" in said.split("Traceback")[1]

    assert nosy["error"] is None
    seen = json.loads((run / "cells/v0-toys.py-nosy-r0/files/nosy.json").read_text())
    assert seen == {
        "interfaces": ["eth0", "lo"],
        "in_sys": ["eth0", "lo"],
        "capabilities": 0,
        "writable": [],
        "own_directory": True,
        "networks": [],
        "unix_sockets": 0,
        "interface_down": False,
        "new_network": False,
        "hosts_network": False,
        "remount": False,
    }
    assert losses(run / "cells/v0-toys.py-nosy-r0") == losses(run / "cells/v0-dpsgd-r0")
    assert place.left_behind() == []


def test_two_at_the_same_time(place: Place) -> None:
    first = place.start("up", write(place.folder, compute="{step_time: 5s}", slow_motion="1"), "--no-calibrate")
    wait_for(lambda: workers_of(first), first)
    (run,) = (place.folder / "runs").iterdir()
    intruder = place.run("up", "--resume", run)
    assert intruder.returncode == 1
    assert "another testbed up is running in" in intruder.stderr
    second = place.run("up", write(place.folder, name="other.yaml"), "--no-calibrate")
    assert_ran(second)
    assert "is up, too" in second.stderr
    assert len(list((place.folder / "runs").iterdir())) == 2
    assert first.poll() is None, "the second took the first one down"
    first.send_signal(signal.SIGINT)
    first.communicate()
    assert place.left_behind() == []


def test_a_network_that_is_kept_is_there_until_it_is_taken_down(place: Place) -> None:
    done = place.run("up", write(place.folder), "--only", "dpsgd", "--out", "run", "--no-calibrate", "--keep")
    assert_ran(done)
    (network,) = place.state.iterdir()
    assert f"testbed down {network.name} ends it" in done.stdout
    assert not any("forkserver" in words for words in place.processes().values())
    assert place.run("exec", "w0", "--", "true").returncode == 0
    assert place.run("down", network.name).returncode == 0
    assert place.left_behind() == []
    cells = sorted(path.name for path in (place.folder / "run/cells").iterdir())
    assert cells == ["v0-dpsgd-r0"]
