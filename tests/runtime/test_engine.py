"""Which engine is taken, and what is said of those that cannot be."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.errors import MissingError
from testbed.runtime import engine as engines
from testbed.runtime.docker import check_same

if TYPE_CHECKING:
    from docker import DockerClient

HERE = {"KernelVersion": "6.6.1", "ServerVersion": "27.1", "SecurityOptions": ["name=seccomp,profile=default"]}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's settings with one context."""
    name = hashlib.sha256(b"lab").hexdigest()
    meta = tmp_path / "contexts" / "meta" / name
    meta.mkdir(parents=True)
    endpoints = {"docker": {"Host": "unix:///srv/lab.sock", "SkipTLSVerify": False}}
    (meta / "meta.json").write_text(json.dumps({"Name": "lab", "Metadata": {}, "Endpoints": endpoints}))
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_engine_is_the_one_that_the_docker_command_would_take(config: Path) -> None:
    def found(**environment: str) -> str:
        return engines.address({**os.environ, **environment})

    assert found() == "unix:///var/run/docker.sock"
    assert found(DOCKER_CONTEXT="lab") == "unix:///srv/lab.sock"
    assert found(DOCKER_HOST="unix:///own.sock", DOCKER_CONTEXT="lab") == "unix:///own.sock"
    (config / "config.json").write_text('{"currentContext": "lab"}')
    assert found() == "unix:///srv/lab.sock"
    with pytest.raises(MissingError, match="no Docker context named nowhere"):
        found(DOCKER_CONTEXT="nowhere")


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:2375", "ssh://me@lab", "npipe:////./pipe/docker_engine"])
def test_an_engine_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(MissingError, match="another machine"):
        engines.connect()


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tb") as folder:
        yield Path(folder)


def test_no_engine_and_one_that_does_not_run(monkeypatch: pytest.MonkeyPatch, short: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{short}/docker.sock")
    monkeypatch.setenv("TESTBED_STATE", str(short / "state"))
    with pytest.raises(MissingError, match="there is no Docker engine") as none:
        engines.connect()
    assert "install Docker" in (none.value.hint or "")
    assert engines.finding().ok is None, "nothing bad: it is not needed by default"
    with socket.socket(socket.AF_UNIX) as left:  # what a crash leaves
        left.bind(str(short / "docker.sock"))
    with pytest.raises(MissingError, match="does not run: Connection refused") as stopped:
        engines.connect()
    assert "systemctl start docker" in (stopped.value.hint or "")
    assert engines.finding().ok is False
    assert engines.remove_leftovers() == [], "down --all needs no engine"
    killed = short / "state" / f"4194304999-1{engines.FOLDER}"
    killed.mkdir(parents=True)
    with pytest.raises(MissingError, match=r"containers may be left, but the Docker engine at .* does not run"):
        engines.remove_leftovers()
    assert killed.is_dir(), "the next down --all must know of it"
    assert "containers of a run that was killed may be left" in CliRunner().invoke(cli, ["status"]).output


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({**HERE, "KernelVersion": "6.6.1-linuxkit"}, r"another kernel \(6.6.1-linuxkit\)"),
        ({**HERE, "SecurityOptions": ["name=rootless"]}, "without root"),
    ],
)
def test_an_engine_whose_containers_cannot_be_plugged_in(info: Mapping[str, object], words: str) -> None:
    engines._judge(HERE, "6.6.1")
    with pytest.raises(MissingError, match=words):
        engines._judge(info, "6.6.1")


def test_an_image_with_another_testbed_is_refused() -> None:
    ours = {"version": "1.2", "source": "abc"}
    check_same("mine", ours, dict(ours))
    with pytest.raises(MissingError, match=r"this is testbed 1.2, but the image mine has 1.1"):
        check_same("mine", ours, {"version": "1.1", "source": "abc"})
    with pytest.raises(MissingError, match="the same version from other sources"):
        check_same("mine", ours, {"version": "1.2", "source": "abd"})


@pytest.mark.docker
def test_a_running_engine_is_found_and_shown(engine: DockerClient) -> None:
    found = engines.finding()
    assert found.ok
    assert found.found.startswith(engine.version()["Version"])
