"""Networks in a kernel that has netem: the host box, chosen by itself. `test_guest.py` boots the kernel and runs these.

The machine they run on is a hardened one: its own filter of return paths is on, and new namespaces inherit it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from network.examples import COMMAND, fastest, network
from network.examples import command as short_command
from network.test_rootless import as_nobody, home  # noqa: F401  # a fixture
from network.traces_of import left_behind, traces

import testbed
from testbed.network import calibrate, measure, state
from testbed.network.client import Client

INHERITED = Path("/proc/sys/net/ipv4/conf")
WORKERS = 8
RING = f"""
name: ring
workers: {WORKERS}
network: {{topology: ring, link: {{latency: 5ms, rate: 50mbit}}}}
methods: [allreduce]
"""
PLAN = network("{topology: ring, link: {latency: 5ms, rate: 50mbit}}", workers=WORKERS, name="ring")
LIMIT = 300  # seconds; nothing takes a tenth of it on an idle machine
OPPOSITE = [(f"w{number}", f"w{number + WORKERS // 2}") for number in range(WORKERS // 2)]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return short_command(*words, timeout=LIMIT)


@pytest.fixture(scope="module", autouse=True)
def _hardened() -> None:
    for which in ("all", "default"):
        (INHERITED / which / "rp_filter").write_text("1")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tb") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_STATE", folder)
        yield Path(folder)


@pytest.fixture(scope="module")
def ring(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What `net up` said; the network is up."""
    file = tmp_path_factory.mktemp("ring") / "ring.yaml"
    file.write_text(RING)
    before = traces(place)
    up = command("net", "up", str(file))
    assert up.returncode in (0, 6), up.stdout + up.stderr  # 6: a machine too busy to be faithful
    yield up.stdout
    down = command("down")
    assert (down.returncode, down.stdout) == (0, "ring is down\n"), down.stderr
    assert left_behind(before, place) == {}


def test_the_doctor_finds_netem_and_chooses_this_kernel() -> None:
    done = command("doctor", "--json")
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0, done.stderr
    assert found["box"]["found"] == "host: this kernel has netem"
    assert found["netem in this kernel"]["ok"]


def test_the_links_live_in_this_kernel_and_all_were_measured(ring: str) -> None:
    assert "8 workers, 8 links, up after" in ring
    assert "box host: this kernel has netem" in ring
    assert "links, asked / measured" in ring
    assert "no answer" not in ring
    assert "reach each other" not in ring
    (agent,) = Path(f"/proc/{daemon()}/task/{daemon()}/children").read_text().split()
    assert b"serve_host" in Path(f"/proc/{agent}/cmdline").read_bytes()


def daemon() -> int:
    return state.pick("ring").daemon


@pytest.mark.usefixtures("ring")
def test_every_worker_reaches_every_other_one_after_the_time_that_was_asked_for() -> None:
    """Opposite ones, too, whose way back is another way: the routers do not inherit the machine's filter."""
    assert (INHERITED / "default" / "rp_filter").read_text() == "1\n"
    pairs = list(combinations(range(WORKERS), 2))
    names = [(f"w{a}", f"w{b}") for a, b in pairs]
    assert set(OPPOSITE) < set(names)
    found = fastest(Client(state.pick("ring")), *names, count=2)
    latencies = [PLAN.forwarding.path(*pair).rtt for pair in pairs]
    assert min(latencies) == pytest.approx(0.010, rel=0.01)
    assert max(latencies) == pytest.approx(0.040, rel=0.01)
    assert [name for name, time in zip(names, found, strict=True) if time is None] == []
    assert all(time is not None and time >= asked for time, asked in zip(found, latencies, strict=True))


@pytest.mark.usefixtures("ring")
def test_measuring_neither_spins_nor_takes_a_real_time_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold up the packets that it measures: this kernel leaves them to an ordinary thread."""
    spins = set()
    real = measure.Loop.run_until

    def run_until(self: measure.Loop, deadline: float, *, spin: bool = False) -> None:
        spins.add(spin)
        real(self, deadline, spin=spin)

    monkeypatch.setattr(measure.Loop, "run_until", run_until)

    def look(inner: Client) -> tuple[int, int, set[bool], bool]:
        found = calibrate._Calibrator(inner, PLAN, 1.0).run(streams=False)
        answered = all(probe.rtt is not None for probe in found.probes)
        return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), spins, answered

    assert Client(state.pick("ring")).run(look) == (os.SCHED_OTHER, 0, {False}, True)


@pytest.mark.usefixtures("ring")
def test_a_command_runs_in_a_worker() -> None:
    assert command("exec", "w3", "--", "hostname").stdout == "w3\n"
    ping = command("exec", "w0", "--", "ping", "-c1", "-W5", "w4")
    assert (ping.returncode, "1 received" in ping.stdout) == (0, True), ping.stdout
    assert command("exec", "w0", "--", "false").returncode == 1


@pytest.mark.usefixtures("ring")
def test_a_link_changes_and_comes_back() -> None:
    handle = Client(state.pick("ring"))
    assert command("net", "set", "w0-w1", "latency=60ms").returncode == 0
    assert "latency=60ms" in command("status").stdout
    (slow,) = fastest(handle, ("w0", "w1"))
    assert slow is not None
    assert slow >= 0.120
    assert command("net", "set", "w0-w1", "down").returncode == 0
    assert fastest(handle, ("w0", "w1"), patience=0.3) == [None]
    assert command("net", "set", "w0-w1", "up", "latency=5ms").returncode == 0
    (back,) = fastest(handle, ("w0", "w1"))
    assert back is not None
    assert 0.010 <= back < 0.120


@pytest.mark.usefixtures("ring")
def test_mininets_shell_works() -> None:
    words = [*COMMAND, "shell"]
    done = subprocess.run(words, input="pingall\nlinks\n", capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^0% dropped \((\d+)/\1 received\)$", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.usefixtures("place")
def test_an_inherited_filter_of_return_paths_is_noticed(tmp_path: Path) -> None:
    """Without our own setting opposite workers of the ring do not reach each other, and calibration says so."""
    source = Path(testbed.__file__).parent
    shutil.copytree(source, tmp_path / "testbed", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "testbed" / "network" / "sysctls.py"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(line for line in lines if "rp_filter" not in line))
    (tmp_path / "open.yaml").write_text(RING.replace("name: ring", "name: open"))
    words = [*COMMAND, "net", "up", "open.yaml", "--no-calibrate"]
    broken = {**os.environ, "PYTHONPATH": str(tmp_path)}
    up = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=tmp_path, env=broken)
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        found = calibrate.calibrate(Client(state.pick("open")), PLAN, streams=False).verdict
    finally:
        assert command("down", "open").returncode == 0
    assert found.grade == "invalid"
    (said,) = [reason for reason in found.reasons if "reach each other" in reason]
    assert said.startswith("4 of 28 pairs of workers that were asked")


def test_an_ordinary_user_needs_no_root(home: Path) -> None:  # noqa: F811
    before = traces(home)
    (home / "ring.yaml").write_text(RING)
    up = as_nobody(home, "net", "up", "ring.yaml", "--no-calibrate")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "box host: this kernel has netem" in up.stdout
    ping = as_nobody(home, "exec", "w0", "--", "ping", "-c1", "-W5", "w4")
    assert "1 received" in ping.stdout, ping.stdout + ping.stderr
    assert as_nobody(home, "net", "set", "w0-w1", "latency=50ms").returncode == 0
    assert "latency=50ms" in as_nobody(home, "status").stdout
    assert as_nobody(home, "down").stdout == "ring is down\n"
    assert left_behind(before, home) == {"files": [str(home / "state")]}  # the empty place of networks to come
