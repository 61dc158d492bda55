"""Which box runs here: found out by trying, and explained where none does."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.errors import MissingError
from testbed.network import namespaces, probe
from testbed.network.probe import Choice, choose

from .isolated import isolated

HAS_NETEM = probe.try_in_child(probe._try_netem) is None
HAS_GUEST = probe._missing_for_guest() is None


@pytest.fixture
def netem_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_try_netem", lambda: None)


@pytest.fixture
def no_netem_here(monkeypatch: pytest.MonkeyPatch) -> None:
    if HAS_NETEM:  # elsewhere the trial itself finds it out
        monkeypatch.setattr(probe, "_try_netem", lambda: "this kernel has no netem")


@pytest.fixture
def guest_here(monkeypatch: pytest.MonkeyPatch) -> None:
    if not HAS_GUEST:
        monkeypatch.setattr(probe, "_missing_for_guest", lambda: None)


@pytest.fixture
def no_guest_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is in the path, so the guest's kernel is not."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("netem_here", "guest_here")
def test_a_kernel_with_netem_is_used_before_a_guest() -> None:
    assert choose() == Choice("host", "this kernel has netem")
    assert choose("host").kind == "host"
    assert choose("uml").kind == "uml"


@pytest.mark.usefixtures("no_netem_here", "guest_here")
def test_without_netem_the_guest_is_used_and_why_is_said() -> None:
    choice = choose()
    assert choice.kind == "uml"
    assert "no netem" in choice.reason


@pytest.mark.usefixtures("no_netem_here", "guest_here")
def test_a_host_box_without_netem_is_refused_with_the_remedy() -> None:
    with pytest.raises(MissingError, match="the host box was asked for, but this kernel has no netem") as caught:
        choose("host")
    assert "modprobe sch_netem" in str(caught.value.hint)
    assert "--box uml" in str(caught.value.hint)


@pytest.mark.usefixtures("netem_here", "no_guest_here")
def test_a_delay_box_without_a_guest_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        MissingError, match=r"the delay box was asked for, but the guest cannot run \(no linux"
    ) as caught:
        choose("uml")
    assert "apt-get install user-mode-linux" in str(caught.value.hint)
    assert choose().kind == "host"


@pytest.mark.usefixtures("no_netem_here", "no_guest_here")
def test_without_either_both_remedies_are_said() -> None:
    with pytest.raises(MissingError, match="no network can be emulated here") as caught:
        choose()
    assert "no netem" in str(caught.value)
    assert "linux" in str(caught.value)
    assert "user-mode-linux" in str(caught.value.hint)
    assert "sch_netem" in str(caught.value.hint)


def test_a_guest_without_its_modules_is_no_guest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for tool in probe.GUEST_TOOLS:
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(probe, "GUEST_MODULES", tmp_path / "modules")
    with pytest.raises(MissingError, match="the guest's modules are not in"):
        choose("uml")


def become_ordinary_where_user_namespaces_are_forbidden() -> None:
    """A user namespace in which we are somebody, and below which no other can be made."""
    if os.geteuid() == 0:
        namespaces.unshare(namespaces.CLONE_NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", "1000 0 1"), ("gid_map", "1000 0 1")):
            Path(f"/proc/self/{name}").write_text(text)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    assert os.geteuid() != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to forbid something")
@pytest.mark.parametrize("wanted", ["auto", "host", "uml"])
def test_where_user_namespaces_are_forbidden_that_is_what_is_said(wanted: str) -> None:
    def attempt() -> tuple[str, str | None]:
        become_ordinary_where_user_namespaces_are_forbidden()
        try:
            choose(wanted)
        except MissingError as error:
            return str(error), error.hint
        raise AssertionError("nothing was said")

    message, hint = isolated(attempt)
    assert "user namespaces are not allowed" in message
    assert hint
    assert "run it as root" in hint
    assert "max_user_namespaces" in hint


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give rights up")
def test_root_without_its_rights_is_told_so() -> None:
    """As in a container that was started without them."""

    def attempt() -> str:
        version, this_process = 0x20080522, 0
        no_rights = (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(version, this_process), no_rights) == 0
        try:
            choose()
        except MissingError as error:
            return str(error)
        raise AssertionError("nothing was said")

    assert "root may not make network namespaces: unshare: Operation not permitted" in isolated(attempt)


def test_trying_leaves_nothing_behind() -> None:
    def own() -> tuple[int, list[str], str]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return os.stat("/proc/self/ns/net").st_ino, sorted(os.listdir("/proc/self/fd")), children

    before = own()
    probe.try_in_child(probe._try_netem)
    assert own() == before


@pytest.mark.netem
@pytest.mark.beside
@pytest.mark.parametrize("command", ["up", "net up"])
@pytest.mark.parametrize("kind", ["missing", "a file", "read-only"])
def test_a_guest_without_a_place_for_its_memory(tmp_path: Path, command: str, kind: str) -> None:
    """Its kernel ends with a word or none; this says what to do, and nothing is left."""
    place = tmp_path / "place"
    if kind == "a file":
        place.touch()
    if kind == "read-only":
        place = Path("/proc/self")  # where not even root can make a file
    (tmp_path / "s.yaml").write_text("workers: 2\nmethods: [dpsgd]\n")
    before = sorted(tmp_path.iterdir())
    environment = {**os.environ, "TMPDIR": str(place), "TESTBED_STATE": str(tmp_path / "state")}
    words = [sys.executable, "-m", "testbed.cli", *command.split(), "s.yaml", "--box", "uml"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert f"the guest keeps its memory in the directory that TMPDIR names, and cannot: {place}: " in done.stderr
    assert "→ unset TMPDIR, or let it name a directory" in done.stderr
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "state"] == before
