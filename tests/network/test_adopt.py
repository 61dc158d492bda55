"""A worker's place in the network given to a process of somebody else's, as the docker runtime does with containers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.errors import NetworkError
from testbed.network.client import Client, start

from .examples import command, fastest, network

pytestmark = [pytest.mark.netem, pytest.mark.usefixtures("own_state")]

PAIR = network("{topology: chain, link: {latency: 4ms, rate: 50mbit}}", workers=2, name="pair")


@pytest.fixture(scope="module")
def pair(own_state: Path) -> Iterator[Client]:
    handle, _ = start(PAIR)
    try:
        yield handle
    finally:
        handle.close()


@contextmanager
def guest() -> Iterator[int]:
    """A process with a network namespace of its own, as that of a container without a network."""
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.kill()


def interface(handle: Client, worker: str) -> str:
    """What `ip` says of a worker's eth0, but for its state, which may lag, and its number of users."""
    words = ["exec", "--name", "pair", worker, "--", "ip", "-d", "address", "show", "dev", "eth0"]
    told = command(*words)
    assert told.returncode == 0, told.stderr
    return " ".join(word for word in told.stdout.split() if not word.startswith("link-netns"))


def sysctl(handle: Client, key: str) -> str:
    return command("exec", "--name", "pair", "w1", "--", "cat", f"/proc/sys/net/ipv4/{key}").stdout


def test_the_network_is_the_same_from_there(pair: Client) -> None:
    before, counted, buffers = interface(pair, "w1"), pair.counters()["ports"]["w1"], sysctl(pair, "tcp_rmem")
    with guest() as process:
        pair.call("adopt", worker="w1", pid=process)
        with pair.namespace("w1") as namespace:
            assert os.stat(namespace).st_ino == os.stat(f"/proc/{process}/ns/net").st_ino
        assert interface(pair, "w1") == before  # address, MTU, hardware address, GSO limits, queue
        assert sysctl(pair, "tcp_rmem") == buffers
        assert all(after >= earlier for earlier, after in zip(counted, pair.counters()["ports"]["w1"], strict=True))
        assert fastest(pair, ("w0", "w1"))[0] == pytest.approx(0.010, abs=0.004)
        assert "box_priority" in pair.call("status")["settings"], "what was on record still is"
    # The process is gone, its place in the network is not: the next one takes it over.
    assert fastest(pair, ("w0", "w1"))[0] == pytest.approx(0.010, abs=0.004)
    with guest() as process:
        pair.call("adopt", worker="w1", pid=process)
        assert fastest(pair, ("w1", "w0"))[0] == pytest.approx(0.010, abs=0.004)


def test_a_process_without_a_network_of_its_own_is_refused(pair: Client) -> None:
    with pytest.raises(NetworkError, match="has no network namespace of its own"):
        pair.call("adopt", worker="w0", pid=os.getpid())
    with guest() as process:
        pair.call("adopt", worker="w0", pid=process)
        with pytest.raises(NetworkError, match="w1 cannot be there"):
            pair.call("adopt", worker="w1", pid=process)
    assert fastest(pair, ("w0", "w1"))[0] is not None
