"""A Docker engine for the tests marked `docker`: the one that runs here, else one started for this session alone.

conftest makes the fixture `engine` known to all tests. The engine that is started has a directory and a socket of its
own (DOCKER_HOST names it to whatever the tests start) and no bridge, so that it changes nothing on this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.errors import MissingError
from testbed.runtime.engine import connect

if TYPE_CHECKING:
    from docker import DockerClient

START_SECONDS = 60


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerClient]:
    try:
        client = connect()
    except MissingError:
        yield from own_engine()
        return
    yield client
    client.close()


def own_engine() -> Iterator[DockerClient]:
    folder = Path(tempfile.mkdtemp(prefix="tbe"))  # short: sockets are in there
    address = f"unix://{folder}/docker.sock"
    # Its mounts are nobody else's: other tests look for what was left
    words = [
        "unshare",
        "--mount",
        "dockerd",
        "-H",
        address,
        "--data-root",
        f"{folder}/data",
        "--exec-root",
        f"{folder}/exec",
    ]
    words += ["--pidfile", f"{folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false"]
    before = os.environ.get("DOCKER_HOST")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        os.environ["DOCKER_HOST"] = address
        client = _answering(process, folder)
        yield client
        client.close()
    finally:
        os.environ.pop("DOCKER_HOST")
        if before is not None:
            os.environ["DOCKER_HOST"] = before
        process.terminate()
        process.wait(START_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def _answering(process: subprocess.Popen[bytes], folder: Path) -> DockerClient:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            return connect()
        except MissingError:
            if process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"no Docker engine could be started:\n{(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
