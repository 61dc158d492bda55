"""The shell on a real network: a chain w0 - w1 - w2, entered as users and scripts do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from network.examples import COMMAND
from network.terminal import LIMIT, Terminal

from testbed.network.client import Client, start
from testbed.plan.make import plan
from testbed.scenario.load import loads

pytestmark = [pytest.mark.netem, pytest.mark.beside]

SCENARIO = """
name: chain
workers: 3
network:
  topology: chain
  link: {latency: 4ms, rate: 50mbit}
methods: [dpsgd]
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_STATE", str(tmp_path_factory.mktemp("s")))
        handle, _ = start(plan(loads(SCENARIO, "chain.yaml")).network)
        try:
            yield handle
        finally:
            handle.close()


def shell(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "shell", *arguments], input=script, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def net_set(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "net", "set", *words], capture_output=True, text=True, timeout=LIMIT, check=False)


def printed(script: str) -> str:
    done = shell(script)
    assert done.returncode == 0, done.stderr
    return done.stdout


def restored(network: Client) -> None:
    for name in ("w0-w1", "w1-w2"):
        shape = {"latency": 0.004, "rate": 50_000_000, "loss": 0.0, "up": True}
        network.set_link(name, shape, shape)


def test_commands_run_in_the_worker_that_is_named(network: Client) -> None:
    lines = printed("w0 hostname -I; hostname\nw2 hostname -I; hostname").split()
    addresses = [worker.address for worker in network.plan.workers]
    assert lines == [addresses[0], "w0", addresses[2], "w2"]


def test_names_of_workers_become_addresses_and_resolve(network: Client) -> None:
    address = network.plan.workers[1].address
    assert printed("w0 echo w1").strip() == address
    assert printed("w0 getent hosts 'w1'").split() == [address, "w1"]
    assert "w1" not in Path("/etc/hosts").read_text().split()


def test_only_the_workers_interfaces_are_there(network: Client) -> None:
    assert sorted(printed("w0 ls /sys/class/net").split()) == ["eth0", "lo"]


def test_workers_reach_each_other_with_the_asked_latency(network: Client) -> None:
    output = printed("pingall")
    assert "0% dropped (12/12 received)" in output
    measured = {
        (line.split()[0], target): float(ms)
        for line in output.splitlines()
        if "->" in line
        for target, ms in re.findall(r"(w\d) ([\d.]+) \(", line)
    }
    assert len(measured) == 6
    assert all(measured[pair] > 7 for pair in measured)
    assert measured["w0", "w2"] > 14
    assert "(16)" in output


def test_iperf_measures_the_asked_rate_and_not_more(network: Client) -> None:
    output = printed("iperf w0 w2 1")
    (goodput,) = re.findall(r"w0 -> w2: ([\d.]+) Mbit/s", output)
    assert 0 < float(goodput) <= 50
    assert "47.82 at 50mbit" in output


def test_links_change_while_the_network_runs(network: Client) -> None:
    try:
        output = printed("set w1-w0 rate=10mbit latency=50ms\npingall\nset w2>w1 loss=1%\nlinks")
        shown = output.splitlines()
        assert "w0-w1  latency=50ms rate=10mbit" in shown
        assert "w1>w2  latency=4ms rate=50mbit" in shown
        assert "w2>w1  latency=4ms rate=50mbit loss=1%" in shown
        assert float(re.findall(r"^w0 -> w1 ([\d.]+) \(100\)", output, re.MULTILINE)[0]) > 95
    finally:
        restored(network)


def test_a_link_can_be_cut_and_mended(network: Client) -> None:
    try:
        done = shell("link w0 w1 down\npingall 0.2")
        assert done.returncode == 1
        assert "w0 -> w1 X  w2 X" in done.stdout
        assert re.search(r"w2 -> w0 X  w1 [\d.]+ \(8\)", done.stdout)
        assert "67% dropped (4/12 received)" in done.stdout
        assert "0% dropped" in printed("link w1 w0 up\npingall")
    finally:
        restored(network)


def test_the_net_set_command_changes_the_same_links(network: Client) -> None:
    try:
        done = net_set("w1>w0", "rate=7mbit")
        assert done.stdout == "w1>w0  latency=4ms rate=7mbit\n"
        ab, ba = network.call("status")["links"]["w0-w1"]
        assert (ab["rate"], ba["rate"]) == (50_000_000, 7_000_000)
        wrong = net_set("w0-w2", "rate=7mbit")
        assert wrong.returncode == 4
        assert "links of w0: w0-w1" in wrong.stderr
    finally:
        restored(network)


def test_the_network_is_described(network: Client) -> None:
    output = printed("nodes\nnet\ndump")
    assert "workers: w0 w1 w2" in output
    assert "w1: w0 w2" in output
    assert f"<worker w2: eth0 {network.plan.workers[2].address}>" in output


def test_a_workers_shell_remembers(network: Client) -> None:
    output = printed("w0 cd /usr; X='a  b'\nw0 pwd; echo \"$X\"#1\nw1 pwd\nw0 exit\nw0 pwd")
    assert output.splitlines() == ["/usr", "a  b#1", os.getcwd(), os.getcwd()]


def test_a_script_ends_with_the_status_of_its_last_command(network: Client) -> None:
    assert shell("w0 false\nw0 true").returncode == 0
    assert shell("w0 true\nw0 (exit 7)").returncode == 7
    assert shell("w0 exit 3").returncode == 3
    assert shell("w0 kill -9 $$").returncode == 255
    assert shell("w0 false\nexit\nw0 exit 9").returncode == 1


def test_a_script_stops_at_a_command_that_is_refused(network: Client) -> None:
    done = shell("# comment\n\npingal\nw0 echo later")
    assert done.returncode == 2
    assert "did you mean 'pingall'?" in done.stderr
    assert "later" not in done.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("w7 ls", "neither a command nor a worker"),
        ("w0", "which command for w0"),
        ("xterm w0", "not offered"),
        ("set w0-w1", "nothing to set"),
        ("set w0-w9 rate=1mbit", "links of w0"),
        ("iperf w0", "two workers"),
        ("iperf w0 w0", "two different"),
        ("iperf w0 w9", "no worker w9"),
        ("link w0 w1 off", "not a setting"),
        ("pingall soon", "not a number of seconds"),
        ("source /nowhere", "cannot read"),
        ('set "w0', "No closing quotation"),
    ],
)
def test_mistakes_are_explained(network: Client, line: str, message: str) -> None:
    done = shell(line)
    assert done.returncode in (2, 4)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_mininets_own_commands_are_there(network: Client, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("# all of it\nw1 hostname\n")
    output = printed(f"py w0.cmd('hostname')\npx print(len(net))\nsource {tmp_path}/script\nsh hostname\nhelp")
    assert output.splitlines()[:5] == ["w0", "", "3", "w1", os.uname().nodename]
    commands = output.split()
    assert "pingall" in commands
    assert "xterm" not in commands


def test_the_right_network_is_asked_for(network: Client) -> None:
    assert shell("nodes", "--name", "chain").returncode == 0
    done = shell("nodes", "--name", "other")
    assert done.returncode == 4
    assert "up: chain" in done.stderr


BACKGROUND = "sleep 1234.{0} & setsid -f sleep 1235.{0}; (trap '' TERM; exec sleep 1236.{0}) &"


def sleepers(mark: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if command.startswith(b"sleep\x00123") and command.endswith(f".{mark}\0".encode()):
                found.append(int(entry.name))
    return found


def wait_until(condition: object, what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if callable(condition) and condition():
            return
        time.sleep(0.02)
    pytest.fail(f"{what} did not happen")


def test_leaving_stops_what_was_started_and_leaves_the_network(network: Client) -> None:
    mark = os.getpid()
    output = printed(f"w0 {BACKGROUND.format(mark)}\nw0 sleep 0.2; pgrep -c -f '^sleep 123.*[.]{mark}'")
    assert output.split() == ["3"]
    assert sleepers(mark) == []
    assert network.state.alive()
    assert network.call("status")["name"] == "chain"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_what_was_started_ends_however_the_shell_ends(network: Client, number: signal.Signals) -> None:
    mark = os.getpid() * 100 + number
    process = subprocess.Popen([*COMMAND, "shell"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin
    process.stdin.write(f"w0 {BACKGROUND.format(mark)}\nw1 sleep 1237.{mark}\n".encode())
    process.stdin.close()
    try:
        wait_until(lambda: len(sleepers(mark)) == 4, "the background jobs")
    finally:
        process.send_signal(number)
        process.wait(LIMIT)
    wait_until(lambda: not sleepers(mark), "the end of all background jobs")
    assert network.state.alive()


def test_when_the_network_goes_down_the_shell_ends_and_all_it_started(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_STATE", str(tmp_path))
        handle, _ = start(plan(loads(SCENARIO, "chain.yaml")).network)
        try:
            mark = os.getpid() * 100
            process = subprocess.Popen([*COMMAND, "shell"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stdin
            process.stdin.write(f"w0 {BACKGROUND.format(mark)}\nw1 sleep 1237.{mark}\nw1 echo later\n")
            process.stdin.flush()
            wait_until(lambda: len(sleepers(mark)) == 4, "the background jobs")
        finally:
            handle.close()
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 4
        assert "the network chain is down" in errors
        assert sleepers(mark) == []


@pytest.fixture
def terminal(network: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    opened = Terminal()
    yield opened
    opened.hangs_up()


def test_a_conversation(terminal: Terminal, tmp_path: Path) -> None:
    terminal.sees("chain> ")
    terminal.types("w0 echo I am $(hostname)\n")
    terminal.sees("I am w0")
    terminal.types("nonsense\n")
    terminal.sees("neither a command nor a worker")
    terminal.types("w0 false\n")
    terminal.sees("chain> ")
    terminal.types("exit\n")
    assert terminal.leaves() == 0  # a conversation has no status
    assert "I am" in (tmp_path / "testbed" / "history").read_text()


@pytest.mark.parametrize("command", ["sleep 1000", "while true; do sleep 1000; done", "while true; do :; done"])
def test_control_c_ends_the_command_and_not_the_shell(terminal: Terminal, command: str) -> None:
    terminal.sees("chain> ")
    terminal.types("w0 Y=kept\n")
    terminal.types(f"w0 echo start; {command}; echo wrong\n")
    terminal.sees("start\r\n")
    assert "wrong" not in terminal.presses_until("\x03", "chain> ")
    terminal.presses_until("\x03", "Interrupt")
    terminal.types("w0 echo $Y again\n")
    terminal.sees("kept again")
    terminal.sees("chain> ")
    terminal.types("\x04")
    assert terminal.leaves() == 0


def test_control_backslash_ends_even_what_control_c_does_not(terminal: Terminal) -> None:
    terminal.sees("chain> ")
    terminal.types("w0 endless() { while true; do sleep 0.01; done; }; echo start; endless; echo wrong\n")
    terminal.sees("start\r\n")
    assert "wrong" not in terminal.presses_until("\x1c", "chain> ")
    terminal.types("w0 echo $(hostname) again\n")
    terminal.sees("w0 again")
    terminal.types("exit\n")
    assert terminal.leaves() == 0


def test_what_ignores_control_c_goes_on(terminal: Terminal) -> None:
    terminal.sees("chain> ")
    terminal.types("w0 bash -c \"trap 'echo caught' INT; echo start; read x; echo got \\$x\"\n")
    terminal.sees("start\r\n")
    terminal.types("\x03")
    terminal.sees("caught")
    terminal.types("answer\n")
    terminal.sees("got answer")
    terminal.types("exit\n")
    assert terminal.leaves() == 0


def test_an_interactive_shell_in_a_worker_has_job_control(terminal: Terminal) -> None:
    terminal.sees("chain> ")
    terminal.types("w2 bash --norc\n")
    terminal.types("PS1='in \\h: '\n")
    terminal.sees("in w2: ")
    terminal.types("sleep 1000\n")
    terminal.sees("sleep 1000")
    wait_until(lambda: _foreground(terminal) == "sleep", "the foreground job")
    terminal.types("\x1a")
    terminal.sees("Stopped")
    terminal.types("exit\n")
    terminal.sees("There are stopped jobs")
    terminal.types("exit\n")
    terminal.sees("chain> ")
    terminal.types("w1 hostname\n")
    terminal.sees("w1\r\n")
    terminal.types("exit\n")
    assert terminal.leaves() == 0


def _foreground(terminal: Terminal) -> str:
    try:
        return Path(f"/proc/{os.tcgetpgrp(terminal.fd)}/comm").read_text().strip()
    except OSError:
        return ""
