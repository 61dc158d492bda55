"""Workers in real containers on a real network: the same results to the bit, no way out, and a clear end however they
end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet
import pytest
from engine import own_engine
from running import Place, assert_ran, wait_for, write

from testbed.runtime import hostimage
from testbed.runtime.container_spec import CONTROLLER, NETWORK, RUN, WORKER

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

pytestmark = [pytest.mark.docker, pytest.mark.netem, pytest.mark.beside, pytest.mark.slow]

HERE = Path(__file__).parent
LONG = "{steps: 4000, lr: 0.05}"
SHORT = "{steps: 12, lr: 0.05, eval_every: 6}"


@pytest.fixture
def place(engine: DockerClient, tmp_path: Path) -> Iterator[Place]:
    """With the engine's address in the environment. Others may read here: containers' users are others."""
    tmp_path.chmod(0o755)
    place = Place(tmp_path)
    yield place
    for pid in place.processes():  # only where a test failed
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for container in ours(engine, place):
        container.remove(force=True)


def ours(engine: DockerClient, place: Place) -> list[Container]:
    found = engine.containers.list(all=True, filters={"label": CONTROLLER}, ignore_removed=True)
    return [one for one in found if one.labels[RUN].startswith(place.folder.name)]


def container(engine: DockerClient, place: Place, worker: str) -> Container:
    return next(one for one in ours(engine, place) if one.labels[WORKER] == worker)


def run_name(place: Place) -> str:
    """For --out: runs of other tests, at the same time on the same engine, have other names."""
    return f"{place.folder.name}-run"


def result(place: Place, cell: str) -> dict[str, Any]:
    return json.loads((place.folder / run_name(place) / "cells" / cell / "result.json").read_text())


def rows(cell: Path) -> list[tuple[Any, ...]]:
    """Everything that was measured of the training, but for the time it took."""
    table = parquet.read_table(cell / "metrics.parquet").to_pylist()
    return sorted((row["worker"], row["step"], row["metric"], row["value"], row["bytes_sent"]) for row in table)


def training(place: Place, cell: str) -> Callable[[], bool]:
    """Whether the workers of a cell are under way."""
    log = place.folder / run_name(place) / "lent" / cell / "progress"
    return lambda: log.is_file() and any(log.read_bytes()[8:16]) and log.read_bytes()[0] > 3


def test_the_same_to_the_bit_as_with_processes(engine: DockerClient, place: Place) -> None:
    file = write(place.folder, training=SHORT, methods="[allreduce, dpsgd, {choco: {compressor: sign}}]")
    for words in (["process", "--no-calibrate", "--out", "other"], ["docker", "--out", run_name(place)]):
        done = place.run("up", file, "--runtime", *words)
        assert_ran(done)
    one, two = place.folder / "other/cells", place.folder / run_name(place) / "cells"
    for cell in sorted(path.name for path in one.iterdir()):
        assert rows(one / cell) == rows(two / cell), cell
        found = result(place, cell)
        assert found["error"] is None
        assert found["shortcomings"] == []
        assert found["memory_per_worker"] > 0
        for name, counted in found["payload"].items():  # the bytes really went through the containers' eth0
            assert counted["trainer"] <= counted["port"] < 1.5 * counted["trainer"] + 20_000, name
        for path in (two / cell).rglob("*"):
            assert path.stat().st_uid == os.getuid(), path
        assert sorted(path.name for path in (two / cell / "logs").iterdir()) == ["w0.log", "w1.log", "w2.log"]
    links = json.loads((two.parent / "links.json").read_text())
    assert [probe["rtt"] >= 0.5 * probe["latency"] for probe in links[0]["probes"]] == [True] * 3
    record = json.loads((two.parent / "environment.json").read_text())
    assert (record["runtime"], record["image"]) == ("docker", "host")
    assert record["engine"]["version"]
    assert place.left_behind() == []
    assert ours(engine, place) == []


def test_there_is_no_way_out_and_no_more_memory_than_allowed(engine: DockerClient, place: Place) -> None:
    for file in (HERE / "prisoner.py", HERE.parent / "toys.py"):
        shutil.copy(file, place.folder)
    file = write(
        place.folder,
        workers="{count: 2, memory: 150mb, cpus: 0.7}",
        training=SHORT,
        methods="[dpsgd, prisoner.py:Prisoner, toys.py:Hog, toys.py:Crash, toys.py:Poison, allreduce]",
    )
    with socket.create_server(("127.0.0.1", 0)) as service:
        (place.folder / "port").write_text(str(service.getsockname()[1]))
        process = place.start("up", file, "--runtime", "docker", "--out", run_name(place), "--no-calibrate")
        wait_for(training(place, "v0-dpsgd-r0"), process)
        limits = container(engine, place, "w1").attrs["HostConfig"]
        _, words = process.communicate()
        service.settimeout(0.1)
        with pytest.raises(TimeoutError):
            service.accept()
    assert process.returncode == 5, words
    cells = place.folder / run_name(place) / "cells"

    prisoner = "v0-prisoner.py-prisoner-r0"
    seen = json.loads((cells / prisoner / "files" / "prisoner.json").read_text())
    assert seen.pop("internet") in ("ENETUNREACH", "EHOSTUNREACH", "TimeoutError")
    assert seen == {
        "user": 65534,
        "capabilities": 0,
        "no_new_privileges": "1",
        "processes": "1",
        "interfaces": ["eth0", "lo"],
        "in_sys": ["eth0", "lo"],
        **dict.fromkeys(("link_down", "raw_socket", "new_network", "new_user", "remount", "sysctl"), False),
        **dict.fromkeys(("host_socket", "finished_cell", "beside_cells", "notices", "system", "root", "engine"), False),
        "host": "ECONNREFUSED",
        "own_directory": True,
    }
    assert rows(cells / prisoner) == rows(cells / "v0-dpsgd-r0")

    assert limits["NetworkMode"] == "none"
    assert 150_000_000 < limits["Memory"] == limits["MemorySwap"] < 500_000_000  # with what torch takes
    assert limits["CpuQuota"] / limits["CpuPeriod"] == pytest.approx(0.7)
    hog, crash, poison = (result(place, f"v0-toys.py-{toy}-r0") for toy in ("hog", "crash", "poison"))
    assert hog["error"] == "w1 ran out of memory: the scenario allows 150 MB each"
    assert crash["error"] == "w1: ZeroDivisionError: division by zero"
    assert "about to divide" in (cells / "v0-toys.py-crash-r0/logs/w1.log").read_text()
    assert poison["diverged"] == {"worker": "w1", "step": 4}
    assert result(place, "v0-allreduce-r0")["error"] is None
    assert place.left_behind() == []


def test_a_container_that_is_killed_ends_its_cell_and_no_other(engine: DockerClient, place: Place) -> None:
    file = write(place.folder, training=LONG, methods="[dpsgd, allreduce]", compute="{step_time: 5ms}", slow_motion="1")
    words = ["--runtime", "docker", "--out", run_name(place), "--no-calibrate"]
    process = place.start("up", file, *words)
    wait_for(training(place, "v0-dpsgd-r0"), process)
    container(engine, place, "w1").kill()
    second = "v0-allreduce-r0"
    wait_for(training(place, second), process)
    error = result(place, "v0-dpsgd-r0")["error"]
    assert error.startswith("w1 is gone: its container ended (exit code 137, SIGKILL) in step ")
    container(engine, place, "w2").stop(timeout=0)
    _, said = process.communicate()
    assert process.returncode == 5, said
    assert result(place, second)["error"].startswith("w2 is gone: its container ended (exit code 1")
    assert place.left_behind() == []
    assert ours(engine, place) == []


def test_faults_come_to_containers_too(engine: DockerClient, place: Place) -> None:
    events = "[{at: step 4, kill: w2, for: 300ms}, {at: step 8, freeze: w1, for: 200ms}]"
    file = write(
        place.folder,
        network=f"{{topology: ring, link: {{latency: 1ms, rate: 200mbit}}, events: {events}}}",
        training="{steps: 150, lr: 0.05}",
        compute="{step_time: 10ms}",
        slow_motion="1",
        on_failure="continue",
        methods="[dpsgd]",
    )
    done = place.run("up", file, "--runtime", "docker", "--out", run_name(place), "--no-calibrate")
    assert_ran(done)
    found = result(place, "v0-dpsgd-r0")
    assert not any(event["problem"] for event in found["events"])
    happened = [(event["subject"], event["what"].split(" in ")[0]) for event in found["events"]]
    for event in (("w2", "killed"), ("w1", "frozen for 200ms"), ("w1", "goes on"), ("w2", "rejoined")):
        assert event in happened
    assert [lost["worker"] for lost in found["lost"]] == ["w2"]
    assert "it was killed" in found["lost"][0]["text"]


def test_a_container_that_is_killed_while_it_starts_costs_one_cell(engine: DockerClient, place: Place) -> None:
    file = write(place.folder, methods="[dpsgd, allreduce]")
    process = place.start("up", file, "--runtime", "docker", "--out", run_name(place), "--no-calibrate")
    wait_for(
        (place.folder / run_name(place) / "cells/v0-dpsgd-r0").exists, process
    )  # the others import torch, or train
    container(engine, place, "w1").kill()
    _, words = process.communicate()
    assert process.returncode == 5, words
    failed, done = (result(place, f"v0-{method}-r0") for method in ("dpsgd", "allreduce"))
    assert "container ended" in failed["error"]
    assert failed["hint"] == "ended by somebody? docker events may tell"
    assert done["error"] is None
    assert ours(engine, place) == []
    assert place.left_behind() == []


def test_containers_end_with_a_controller_that_was_killed(engine: DockerClient, place: Place) -> None:
    bystander = engine.containers.create(hostimage.ensure(engine), ["/nothing"], labels={"else": "testbed"})
    try:
        file = write(place.folder, training=LONG, methods="[dpsgd]", compute="{step_time: 5ms}", slow_motion="1")
        process = place.start("up", file, "--runtime", "docker", "--out", run_name(place), "--no-calibrate")
        wait_for(training(place, "v0-dpsgd-r0"), process)
        labels = container(engine, place, "w0").labels
        assert labels[NETWORK] == f"small-{process.pid}"
        process.kill()
        process.communicate()
        end = time.monotonic() + 60
        while any(one.status != "exited" for one in ours(engine, place)):
            assert time.monotonic() < end, "the containers go on"
            time.sleep(0.1)
        assert len(ours(engine, place)) == 3
        done = place.run("down", "--all")
        assert all(f"{labels[NETWORK]}-w{rank} is gone" in done.stdout for rank in range(3))
        assert ours(engine, place) == []
        assert place.left_behind() == []
        bystander.reload()
    finally:
        bystander.remove(force=True)


def test_an_engine_that_stops_ends_the_run_clearly(place: Place) -> None:
    with contextmanager(own_engine)() as engine:
        place.environment["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
        file = write(
            place.folder, training=LONG, methods="[dpsgd, allreduce]", compute="{step_time: 5ms}", slow_motion="1"
        )
        process = place.start("up", file, "--runtime", "docker", "--out", run_name(place), "--no-calibrate")
        wait_for(training(place, "v0-dpsgd-r0"), process)
        assert len(ours(engine, place)) == 3
    _, words = process.communicate()
    assert process.returncode == 3, words
    assert "the Docker engine could not" in words
    assert "0 of 2 cells are done; testbed up --resume" in words
    assert "its container ended" in result(place, "v0-dpsgd-r0")["error"]
    assert "containers may be left, but there is no Docker engine" in place.run("down", "--all").stderr
    (mark,) = place.state.glob("*.workers")
    mark.rmdir()
    assert place.left_behind() == []


def test_an_image_that_cannot_serve_is_refused(engine: DockerClient, place: Place) -> None:
    name = "testbed-test/other"
    folder = place.folder / "image"
    folder.mkdir()
    (folder / "python").write_text("#!/nothing\n")
    subprocess.run(["tar", "-C", str(folder), "-cf", str(place.folder / "image.tar"), "."], check=True)
    engine.api.import_image_from_file(str(place.folder / "image.tar"), repository=name, tag="none")
    try:
        file = write(place.folder, runtime=f"{{docker: {{image: '{name}:none'}}}}", methods="[dpsgd]")
        done = place.run("up", file, "--out", run_name(place))
        assert done.returncode == 3, done.stderr
        assert "w0's container ended before it was ready" in done.stderr
        assert "an image needs a python with testbed and torch" in done.stderr
        for wrong, words in (
            (f"{name}:nowhere", f"there is no image {name}:nowhere on this machine"),
            ("No Name", "the Docker engine could not find the image No Name: "),
        ):
            file = write(place.folder, runtime=f"{{docker: {{image: '{wrong}'}}}}", methods="[dpsgd]")
            done = place.run("up", file, "--out", f"{run_name(place)}-2")
            assert done.returncode == 3
            assert words in done.stderr
            assert "docker image ls shows what there is" in done.stderr
            shutil.rmtree(place.folder / f"{run_name(place)}-2")
    finally:
        engine.images.remove(f"{name}:none")
    assert place.left_behind() == []
