"""Directories of networks: what is up, what is left, and whose it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from testbed.commands.down import end
from testbed.errors import NetworkError
from testbed.network import state
from testbed.network.state import State


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "networks"
    monkeypatch.setenv("TESTBED_STATE", str(folder))
    return folder


@pytest.fixture
def open_base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One that other users can get to."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("TESTBED_STATE", folder)
        yield Path(folder)


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """A process that could be a daemon: it lives until it is told to stop."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def network(name: str, pid: int, *, started: int | None = None, ready: bool = True) -> State:
    """Write down a network held by this process."""
    directory = state.base() / name
    directory.mkdir(parents=True, exist_ok=True)
    own = state.start_time(pid) or 0 if started is None else started
    made = State(name, pid, own, "uml", "6.1", False, str(directory), ready)
    made.save()
    (directory / "plan.json").write_text("{}")
    return made


def ended_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_what_is_written_is_found(daemon: subprocess.Popen[bytes]) -> None:
    made = network("net", daemon.pid)
    assert state.find("net") == made
    assert made.alive()
    assert state.running() == [made]
    assert state.pick(None) == state.pick("net") == made


def test_a_process_that_is_gone_or_a_zombie_is_not_alive(daemon: subprocess.Popen[bytes]) -> None:
    made = network("net", daemon.pid)
    daemon.kill()
    os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)  # now a zombie
    assert not made.alive()
    daemon.wait()
    assert not made.alive()
    assert state.running() == []


def test_another_process_with_the_same_number_is_not_the_keeper(daemon: subprocess.Popen[bytes]) -> None:
    mine = state.start_time(daemon.pid)
    assert mine
    made = network("net", daemon.pid, started=mine - 1)
    assert not made.alive()
    state.end(made.directory, made)
    assert daemon.poll() is None  # never touched
    assert not made.directory.exists()


def test_a_process_whose_name_has_spaces_and_brackets_has_a_start_time(tmp_path: Path) -> None:
    odd = tmp_path / "a) (b R 1"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(odd), "600"])
    try:
        assert state.start_time(process.pid) == pytest.approx(state.start_time(os.getpid()), abs=10**6)
    finally:
        process.kill()
        process.wait()


def test_ending_a_network_ends_its_keeper_and_removes_its_directory(daemon: subprocess.Popen[bytes]) -> None:
    made = network("net", daemon.pid)
    state.end(made.directory, made)
    assert daemon.wait() == -signal.SIGTERM
    assert not made.directory.exists()


def test_a_keeper_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "STOP_SECONDS", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    made = network("net", process.pid)
    state.end(made.directory, made)
    assert process.wait() == -signal.SIGKILL
    assert not made.directory.exists()
    process.stdout.close()


def test_ending_what_has_ended_is_no_error() -> None:
    made = network("net", ended_process())
    state.end(made.directory, made)
    state.end(made.directory, made)
    assert not made.directory.exists()


def test_a_name_is_free_once_its_network_is_gone() -> None:
    made = network("net", ended_process())
    (made.directory / "daemon.log").write_text("old")
    directory = state.claim("net")
    assert directory == made.directory
    assert [path.name for path in directory.iterdir()] == ["state.json"]


def test_others_may_not_look(base: Path) -> None:
    assert state.claim("net").stat().st_mode & 0o777 == 0o700
    assert base.stat().st_mode & 0o777 == 0o700


def test_the_name_of_a_network_that_is_up_is_refused(daemon: subprocess.Popen[bytes]) -> None:
    made = network("net", daemon.pid)
    with pytest.raises(NetworkError, match="net is already up") as caught:
        state.claim("net")
    assert "testbed down net" in str(caught.value.hint)
    assert state.find("net") == made
    assert (made.directory / "plan.json").exists()


def test_a_name_that_is_claimed_is_refused_before_there_is_a_keeper() -> None:
    state.claim("net")  # by this process, which lives
    with pytest.raises(NetworkError, match="already being built"):
        state.claim("net")
    assert state.running() == []
    with pytest.raises(NetworkError, match="no network named net is up") as caught:
        state.pick("net")
    assert "being built" in str(caught.value.hint)


def test_of_several_claims_at_once_one_wins() -> None:
    """Each in its own process, which waits until all have tried."""
    reader, writer = os.pipe()
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            try:
                state.claim("net")
                os.write(writer, b"1")
            except NetworkError:
                os.write(writer, b"0")
            signal.pause()
        children.append(child)
    answers = b"".join(os.read(reader, 1) for _ in children)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    assert sorted(answers) == sorted(b"100000")


def test_taking_down_what_is_being_built_waits_for_its_keeper(daemon: subprocess.Popen[bytes]) -> None:
    """And does not end whoever is building."""
    directory = state.claim("net")
    claimed = state.find("net")
    assert claimed
    assert claimed.daemon == os.getpid()
    child = os.fork()
    if child == 0:
        replace(claimed, daemon=daemon.pid, started=state.start_time(daemon.pid) or 0, box="uml").save()
        os._exit(0)
    state.end(directory, claimed)
    os.waitpid(child, 0)
    assert daemon.wait() == -signal.SIGTERM
    assert not directory.exists()


def test_a_directory_that_somebody_claimed_meanwhile_stays(daemon: subprocess.Popen[bytes]) -> None:
    old = network("net", ended_process())
    new = network("net", daemon.pid)
    state.release(old.directory)
    assert state.find("net") == new


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc", "a/b", "Net", "-net", "a b", "x" * 41, "net\n", "ü"])
def test_a_name_is_never_a_path(name: str, base: Path) -> None:
    base.mkdir()
    outside = base.parent / "x"
    outside.mkdir()
    with pytest.raises(NetworkError, match="cannot be the name of a network"):
        state.claim(name)
    with pytest.raises(NetworkError, match="cannot be the name of a network"):
        end(name, everything=False)
    assert outside.is_dir()
    assert base.is_dir()


def test_only_directories_of_networks_are_ours(base: Path, daemon: subprocess.Popen[bytes]) -> None:
    """TESTBED_STATE may be a directory with other things in it."""
    other = base / "photos"
    other.mkdir(parents=True)
    (other / "cat.jpg").write_text("meow")
    (base / "empty").mkdir()
    (base / "file").write_text("")
    network("gone", ended_process())
    network("net", daemon.pid)
    assert [path.name for path, _ in state.everything()] == ["gone", "net"]
    end(None, everything=True)
    assert sorted(path.name for path in base.iterdir()) == ["empty", "file", "photos"]
    with pytest.raises(NetworkError, match="there is no network named photos"):
        end("photos", everything=False)
    with pytest.raises(NetworkError, match="File exists"):
        state.claim("photos")
    assert (other / "cat.jpg").exists()


def test_what_cannot_be_read_can_be_removed(base: Path) -> None:
    for name, text in {"broken": "{", "other": json.dumps({"name": "x"}), "list": "[]"}.items():
        (base / name).mkdir(parents=True)
        (base / name / "state.json").write_text(text)
        assert state.find(name) is None
    assert state.running() == []
    end(None, everything=True)
    assert list(base.iterdir()) == []


def test_a_network_that_ended_badly_says_where_to_look() -> None:
    made = network("net", ended_process())
    with pytest.raises(NetworkError, match="no network named net is up") as caught:
        state.pick("net")
    assert f"{made.directory}/daemon.log" in str(caught.value.hint)


def test_several_networks_need_a_name(daemon: subprocess.Popen[bytes]) -> None:
    network("one", daemon.pid)
    network("two", daemon.pid)
    with pytest.raises(NetworkError, match=r"several networks are up \(one, two\)"):
        state.pick(None)
    assert state.pick("two").name == "two"
    with pytest.raises(NetworkError, match=r"no network named three is up \(up: one, two\)"):
        state.pick("three")


def test_no_network_says_how_to_get_one() -> None:
    with pytest.raises(NetworkError, match="no network is up") as caught:
        state.pick(None)
    assert "net up" in str(caught.value.hint)
    assert state.everything() == []


def test_a_file_in_the_way_is_explained(base: Path) -> None:
    base.write_text("in the way")
    with pytest.raises(NetworkError, match="cannot keep the network's state") as caught:
        state.claim("net")
    assert "TESTBED_STATE" in str(caught.value.hint)


def test_a_path_too_long_for_sockets_is_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_STATE", str(tmp_path / ("x" * 90)))
    with pytest.raises(NetworkError, match="too long"):
        state.claim("net")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_directory_of_somebody_else_is_refused(base: Path) -> None:
    base.mkdir()
    os.chown(base, 65534, 65534)
    with pytest.raises(NetworkError, match="belongs to user 65534"):
        state.claim("net")
    assert list(base.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_directory_that_cannot_be_written_is_explained(open_base: Path) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setresuid(65534, 65534, 65534)
            state.claim("net")
        except NetworkError as error:
            code = 0 if "belongs to user 0" in str(error) and error.hint else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_network_of_another_user_is_not_taken_down(open_base: Path, daemon: subprocess.Popen[bytes]) -> None:
    """One that cannot be ended does not keep the others from ending."""
    network("aaa", daemon.pid)  # root's
    network("zzz", ended_process())
    for path in [open_base, *open_base.rglob("*")]:
        os.chown(path, 65534, 65534)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setresuid(65534, 65534, 65534)
            end(None, everything=True)
        except NetworkError as error:
            code = 0 if "aaa belongs to another user" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert daemon.poll() is None
    assert [path.name for path in open_base.iterdir()] == ["aaa"]


def test_where_directories_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert state.base() == Path(os.environ["TESTBED_STATE"])
    monkeypatch.delenv("TESTBED_STATE")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert state.base() == Path("/run/testbed")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert state.base() == tmp_path / "testbed"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert state.base() == Path("/tmp/testbed-1000")


def test_a_state_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state.write_atomically(path, "old")
    with path.open() as reader:
        state.write_atomically(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]


def test_a_state_survives_json() -> None:
    made = State("net", 1, 2, "host", "6.1", True, "/x", ready=False)
    assert State(**json.loads(json.dumps(asdict(made)))) == made


def test_a_process_is_not_taken_for_one_that_had_its_number_before() -> None:
    own = state.own_name()
    assert state.alive(own)
    assert not state.alive(f"{os.getpid()}-1")
    assert not state.alive("4194304999-1")
