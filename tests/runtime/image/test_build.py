"""The worker image, built for real on a Debian made here, and a scenario that runs in it; and what goes wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from click.testing import CliRunner
from running import Place, assert_ran, losses, write

from testbed import __version__
from testbed.cli import cli
from testbed.errors import MissingError, StorageError, TestbedError
from testbed.runtime.image import wheels
from testbed.runtime.image.build import BASE, TORCH, VERSION, arguments, default_tag, follow

STEPS = [{"stream": f"Step {number}/4 : {text}"} for number, text in enumerate(["ARG BASE", "FROM ${BASE} AS a"], 1)]
LATER = [*STEPS, {"stream": " ---> 1234"}, {"stream": "Step 3/4 : RUN   python3 -m venv \t /opt"}]


def fails(messages: list[dict[str, str]]) -> TestbedError:
    with pytest.raises(TestbedError) as caught:
        follow(messages, "mine:1", lambda text: None)
    return caught.value


def test_a_base_that_cannot_be_had():
    error = fails([*STEPS, {"error": "pull access denied for mine"}])
    assert isinstance(error, MissingError)
    assert "the base image mine:1 cannot be had: pull access denied for mine" in str(error)
    assert "--base IMAGE" in (error.hint or "")


def test_a_step_that_fails_says_why():
    noise = {"stream": "Removing intermediate container 1234\n"}
    error = fails(
        [*LATER, {"stream": "\x1b[91mthe base has Python 3.13\n\x1b[0m"}, noise, {"error": "… non-zero code: 1"}]
    )
    assert str(error) == "the image could not be built: the base has Python 3.13\n  in RUN python3 -m venv /opt"


def test_a_full_disk():
    full = {"stream": "OSError: [Errno 28] No space left on device"}
    assert isinstance(fails([*LATER, full, {"error": "code 1"}]), StorageError)
    assert isinstance(fails([*STEPS, {"error": "write /x: no space left on device"}]), StorageError)


def test_steps_are_told():
    said: list[str] = []
    follow([*LATER, {"status": "Pulling from library/python", "id": "3.11-slim"}], "mine:1", said.append)
    assert said == ["2/4 FROM mine:1 AS a", "3/4 RUN python3 -m venv /opt", "pulling mine:1"]


def test_names_tell_version_and_kind():
    assert default_tag(cuda=False) == f"testbed/worker:{__version__}"
    assert default_tag(cuda=True) == f"testbed/worker:{__version__}-cuda"
    assert arguments("b", cuda=True)["TORCH"].count("+cpu") == 0
    assert arguments("b", cuda=False)["TORCH"].endswith("+cpu")
    assert f":{sys.version_info.major}.{sys.version_info.minor}-" in BASE


# For real


IN_THE_BASE = ("python3-venv", "dash", "coreutils", "libstdc++6")


@pytest.fixture(scope="module")
def base(engine, tmp_path_factory) -> Iterator[str]:
    """A small Debian with Python, unpacked from the packages that apt knows here: no registry of images is needed."""
    folder, name = tmp_path_factory.mktemp("debian"), "testbed-tests/debian:1"
    packages = with_dependencies(IN_THE_BASE)
    if not packages:  # a fresh machine has no lists
        subprocess.run(["apt-get", "update"], check=True, capture_output=True)
        packages = with_dependencies(IN_THE_BASE)
    subprocess.run(["apt-get", "download", *packages], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(folder / "root")], check=True)
    with subprocess.Popen(["tar", "-C", str(folder / "root"), "-c", "."], stdout=subprocess.PIPE) as tar:
        engine.api.import_image_from_stream(tar.stdout, *name.split(":"))
    shutil.rmtree(folder)
    yield name
    engine.images.remove(name, force=True)


def with_dependencies(packages: Sequence[str]) -> list[str]:
    """All that these need, by name; nothing where apt has no lists."""
    without = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    words = ["apt-cache", "depends", "--recurse", *without, *packages]
    listed = subprocess.run(words, capture_output=True, text=True).stdout
    return sorted({line for line in listed.splitlines() if line[:1].isalnum() and ":" not in line})


@pytest.fixture(scope="module")
def image(engine, base) -> Iterator[str]:
    tag = "testbed-tests/worker:1"
    result = CliRunner().invoke(cli, ["image", "build", "--base", base, "--tag", tag], catch_exceptions=False)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert re.fullmatch(rf"{tag}, \d\.\d\d GB; in a scenario:", lines[-2])
    assert lines[-1] == f"runtime: {{docker: {{image: '{tag}'}}}}"
    yield tag
    engine.images.remove(tag, force=True)


def in_earnest(test):
    """Marks of the tests that share the image."""
    return pytest.mark.docker(pytest.mark.netem(pytest.mark.beside(pytest.mark.slow(test))))


@in_earnest
def test_the_image_has_all_that_workers_need_and_nothing_of_root(engine, image):
    found = engine.images.get(image)
    assert found.labels[VERSION] == __version__
    assert found.labels[TORCH] == arguments("", cuda=False)["TORCH"]
    imports = "import os, torch, numpy, testbed.runtime.container_main"
    code = f"{imports}; print(os.getuid(), torch.__version__, torch.zeros(1).item())"
    said = engine.containers.run(image, ["-c", code], network_mode="none", remove=True, read_only=True)
    assert said.decode().split() == ["65534", found.labels[TORCH], "0.0"]


@in_earnest
def test_a_scenario_in_it_trains_as_in_processes(image, tmp_path):
    place = Place(tmp_path)
    text = "workers: 2\nnetwork: {link: {latency: 2ms, rate: 100mbit}}\ntraining: {steps: 6}\nmethods: [ddp]\n"
    file = write(tmp_path, text)
    assert_ran(place.run("up", file, "--no-calibrate", "--out", "plain"))
    done = place.run(
        "up", file, "--no-calibrate", "--out", "boxed", "--set", f"runtime={{docker: {{image: '{image}'}}}}"
    )
    assert_ran(done)
    plain, boxed = (losses(tmp_path / run / "cells" / "v0-ddp-r0") for run in ("plain", "boxed"))
    assert len(boxed[1]) == 6
    assert boxed == plain  # to the bit: the same torch
    assert place.left_behind() == []


@in_earnest
def test_bases_that_will_not_do(base, monkeypatch, tmp_path):
    def build(base: str) -> None:
        words = ["image", "build", "--base", base, "--tag", "testbed-tests/none"]
        CliRunner().invoke(cli, words, catch_exceptions=False)

    (tmp_path / "none.whl").touch()
    monkeypatch.setattr(wheels, "wheelhouse", lambda cuda, say: tmp_path)
    with pytest.raises(MissingError, match="the base image testbed-tests/absent:1 cannot be had"):
        build("testbed-tests/absent:1")
    monkeypatch.setattr(wheels, "PYTHON", "3.99")
    with pytest.raises(TestbedError, match=r"the base has Python 3\.\d+, the wheels are for 3\.99"):
        build(base)


def test_without_an_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(MissingError, match="there is no Docker engine"):
        CliRunner().invoke(cli, ["image", "build"], catch_exceptions=False)
