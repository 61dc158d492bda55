"""However a network ends, nothing stays: no namespace, interface, process, mount or file."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from network.examples import COMMAND, command, fastest, network
from network.traces_of import Traces, left_behind, traces

from testbed.cli import cli
from testbed.errors import NetworkError
from testbed.network import state
from testbed.network.client import Client, start
from testbed.network.state import State

pytestmark = [pytest.mark.netem, pytest.mark.beside]

PAIR = network("{topology: chain, link: {latency: 2ms, rate: 100mbit}}", workers=2, name="pair")
SCENARIO = """
name: pair
workers: 2
network: {topology: chain, link: {latency: 2ms, rate: 100mbit}}
methods: [allreduce]
"""
# From before the claim over the boot, the building and the measuring to the time when it is up, in seconds.
MOMENTS = [0.1, 0.4, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2, 4.0]


LAST_WORDS = "testbed exec w0"  # what the command says when the network is up, on its own


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tb") as made:
        monkeypatch.setenv("TESTBED_STATE", made)
        yield Path(made)


@pytest.fixture
def before(folder: Path) -> Iterator[Traces]:
    """What was there; whatever a failed test leaves is taken down before the next."""
    yield traces(folder)
    for directory, found in state.everything():
        state.end(directory, found)


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "pair.yaml"
    file.write_text(SCENARIO)
    return str(file)


def net_up(scenario: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "net", "up", scenario],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C goes to the whole group: so do ours
    )


def keeper_of(name: str) -> State:
    found = state.find(name)
    assert found
    return found


def test_a_network_that_is_up_is_seen_and_gone_after_down(folder: Path, before: Traces, scenario: str) -> None:
    """The snapshot would notice."""
    up = command("net", "up", scenario, "--no-calibrate")
    assert up.returncode == 0, up.stderr
    during = traces(folder) - before
    assert during["processes"]
    assert len(during["namespaces"]) >= 3  # both workers' and the box's
    assert any("control" in str(path) for path in during["files"])
    assert "interfaces" not in during  # not in the namespace of whoever builds it
    down = command("down")
    assert (down.returncode, down.stdout) == (0, "pair is down\n")
    assert left_behind(before, folder) == {}


def test_closing_a_handle_leaves_nothing(folder: Path, before: Traces) -> None:
    handle, _ = start(PAIR)
    assert fastest(handle, ("w0", "w1"))[0]
    handle.close()
    assert left_behind(before, folder) == {}


def interrupted(scenario: str, number: signal.Signals, moment: float, *, group: bool) -> tuple[int, str]:
    """Start `net up` and send it a signal after a while; its exit status and what it said."""
    process = net_up(scenario)
    time.sleep(moment)
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_moment(moment: float, folder: Path, before: Traces, scenario: str) -> None:
    """In good time nothing is left; too late, the network is up as if nothing had been."""
    status, said = interrupted(scenario, signal.SIGINT, moment, group=True)
    if LAST_WORDS in said:
        assert keeper_of("pair").alive()
        assert command("down", "pair").returncode == 0
    elif moment > 0.3:  # before, the interpreter itself was only starting
        assert (status, "interrupted" in said) == (130, True), said
    assert left_behind(before, folder) == {}


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.2, 0.7, 0.9, 1.1, 1.5, 2.0, 3.0])
def test_a_sudden_death_of_the_command_at_any_moment(
    moment: float, folder: Path, before: Traces, scenario: str
) -> None:
    """SIGKILL leaves no time to clean up: the daemon does it, without anybody's help."""
    status, said = interrupted(scenario, signal.SIGKILL, moment, group=False)
    if LAST_WORDS in said:
        assert status in (0, -signal.SIGKILL)
        assert command("down", "pair").returncode == 0, said
    else:
        assert left_behind(before, folder, besides="files") == {}
        # Killed between claiming the name and starting the daemon, only the claim is left, and that is no obstacle.
        if any(folder.iterdir()):
            assert command("down", "--all").returncode == 0
    assert left_behind(before, folder) == {}


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.6, 1.6])
def test_a_polite_end_of_the_command(moment: float, folder: Path, before: Traces, scenario: str) -> None:
    _, said = interrupted(scenario, signal.SIGTERM, moment, group=False)
    if LAST_WORDS in said:
        command("down", "pair")
    assert left_behind(before, folder) == {}


@pytest.mark.slow
def test_impatient_ctrl_c_does_not_cut_the_clean_up_short(folder: Path, before: Traces, scenario: str) -> None:
    process = net_up(scenario)
    time.sleep(1.5)
    for _ in range(20):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.02)
        if process.poll() is not None:
            break
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert left_behind(before, folder) == {}


def test_a_sudden_death_of_the_keeper(folder: Path, before: Traces, scenario: str) -> None:
    """Its files stay, and say so; the rest is the kernel's to clean up."""
    assert command("net", "up", scenario, "--no-calibrate").returncode == 0
    daemon = keeper_of("pair")
    os.kill(daemon.daemon, signal.SIGKILL)
    assert left_behind(before, folder, besides="files") == {}
    assert daemon.directory.is_dir()
    shown = command("status")
    assert "no network is up" in shown.stdout
    assert "pair is a leftover" in shown.stdout
    gone = command("exec", "w0", "--", "true")
    assert gone.returncode == 4
    assert "no network is up" in gone.stderr
    assert command("down", "--all").stdout == "pair is down\n"
    assert left_behind(before, folder) == {}


def test_after_a_sudden_death_the_name_can_be_used_again(folder: Path, before: Traces) -> None:
    handle, _ = start(PAIR)
    os.kill(handle.state.daemon, signal.SIGKILL)
    os.waitpid(handle.state.daemon, 0)
    again, _ = start(PAIR)
    assert fastest(again, ("w0", "w1"))[0]
    again.close()
    assert left_behind(before, folder) == {}


def test_a_sudden_death_of_the_box_ends_the_network_loudly(folder: Path, before: Traces, scenario: str) -> None:
    assert command("net", "up", scenario, "--no-calibrate").returncode == 0
    daemon = keeper_of("pair")
    (box,) = [int(child) for child in Path(f"/proc/{daemon.daemon}/task/{daemon.daemon}/children").read_text().split()]
    inner = [int(child) for child in Path(f"/proc/{box}/task/{box}/children").read_text().split()]
    os.kill(inner[0] if inner else box, signal.SIGKILL)  # the guest's kernel, or the host box's agent
    assert left_behind(before, folder, besides="files") == {}
    assert daemon.directory.is_dir()
    assert "box ended by itself" in (daemon.directory / "daemon.log").read_text()
    assert command("down", "pair").returncode == 0
    assert left_behind(before, folder) == {}


def test_a_command_in_a_worker_ends_with_the_network(folder: Path, before: Traces, scenario: str) -> None:
    assert command("net", "up", scenario, "--no-calibrate").returncode == 0
    running = subprocess.Popen([*COMMAND, "exec", "w0", "--", "sleep", "600"], stderr=subprocess.PIPE, text=True)
    while not any(words.startswith("sleep 600") for _, words in traces(folder).processes):
        time.sleep(0.05)
    os.kill(keeper_of("pair").daemon, signal.SIGKILL)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 4
    assert "pair went down while sleep ran in w0" in said
    assert command("down", "--all").returncode == 0
    assert left_behind(before, folder) == {}


def test_a_network_ends_with_whoever_started_it_whatever_that_left_running(folder: Path, before: Traces) -> None:
    """A child that lives on has the lifeline open, too."""
    starter = os.fork()
    if starter == 0:
        try:
            _handle = start(PAIR)
            if os.fork() == 0:
                time.sleep(3)
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(starter, 0)
    deadline = time.monotonic() + 2.0
    while (found := state.find("pair")) and found.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not (found and found.alive())
    assert left_behind(before, folder) == {}


def test_down_while_it_is_being_built(folder: Path, before: Traces, scenario: str) -> None:
    process = net_up(scenario)
    while not state.find("pair"):
        time.sleep(0.01)
    down = CliRunner().invoke(cli, ["down", "pair"])  # in here: by the time a new process ran, all might be built
    said, _ = process.communicate(timeout=60)
    assert (down.exit_code, down.output) == (0, "pair is down\n")
    assert process.returncode == 4, said
    assert "Traceback" not in said
    assert "could not be built" in said or "taken down while it was being built" in said
    assert left_behind(before, folder) == {}


def test_several_downs_at_once(folder: Path, before: Traces, scenario: str) -> None:
    assert command("net", "up", scenario, "--no-calibrate").returncode == 0
    processes = [
        subprocess.Popen([*COMMAND, "down", "--all"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(3)
    ]
    for process in processes:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
    assert left_behind(before, folder) == {}


def test_down_ends_the_one_that_is_meant(folder: Path, before: Traces) -> None:
    one, _ = start(network("{topology: chain}", workers=2, name="one"))
    other, _ = start(network("{topology: chain}", workers=2, name="other"))
    assert "several networks are up (one, other)" in command("down").stderr
    assert command("down", "one").returncode == 0
    assert not one.state.alive()
    assert fastest(other, ("w0", "w1"))[0]
    with pytest.raises(NetworkError, match="daemon of one is gone"):
        one.call("status")
    assert command("down").stdout == "other is down\n"
    assert left_behind(before, folder) == {}


def test_a_network_that_cannot_be_built_leaves_nothing_and_says_why(folder: Path, before: Traces) -> None:
    plan = network("{topology: chain, congestion: nosuch}", workers=2, name="pair")
    with pytest.raises(NetworkError, match="congestion control nosuch cannot be used here"):
        start(plan)
    assert left_behind(before, folder) == {}


def test_a_full_disk_leaves_nothing_and_says_so(folder: Path, before: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("testbed.plan.file.to_json", full)
    with pytest.raises(NetworkError, match="No space left on device"):
        start(PAIR)
    assert left_behind(before, folder) == {}


def test_a_handle_outlives_its_maker_once_detached(folder: Path, before: Traces) -> None:
    starter = os.fork()
    if starter == 0:
        try:
            handle, _ = start(PAIR)
            handle.detach()
        finally:
            os._exit(0)
    os.waitpid(starter, 0)
    time.sleep(0.3)
    found = state.pick("pair")
    handle = Client(found)
    assert fastest(handle, ("w0", "w1"))[0]
    handle.close()
    assert left_behind(before, folder) == {}
