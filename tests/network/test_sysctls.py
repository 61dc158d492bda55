"""The kernel's settings in routers and workers are ours, whatever a new namespace or a container comes with."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.network import box as boxes
from testbed.network import measure, namespaces, sysctls
from testbed.network.box import HostBox
from testbed.network.daemon import Daemon
from testbed.network.measure import End
from testbed.network.messages import attach_pfifo

from .examples import network
from .isolated import isolated

# What new namespaces could have of a hardened, or of a strange host.
HOSTILE = {
    "net.ipv4.conf.all.rp_filter": "1",
    "net.ipv4.conf.default.rp_filter": "1",
    "net.ipv4.conf.all.accept_redirects": "1",
    "net.ipv4.conf.all.accept_source_route": "1",
    "net.ipv4.conf.default.arp_ignore": "2",
    "net.ipv4.conf.all.arp_ignore": "8",
    "net.ipv4.conf.all.log_martians": "1",
    "net.ipv4.conf.default.proxy_arp": "1",
    "net.ipv4.ip_default_ttl": "2",
    "net.ipv4.ip_local_port_range": "40000 40003",
    "net.ipv4.ip_local_reserved_ports": "40000-40002",
    "net.ipv4.tcp_sack": "0",
    "net.ipv4.tcp_timestamps": "0",
    "net.ipv4.tcp_window_scaling": "0",
    "net.ipv4.tcp_syn_retries": "1",
    "net.ipv4.tcp_rmem": "4096 4096 4096",
    "net.ipv6.conf.default.disable_ipv6": "0",
}
RING = network("{topology: ring}", workers=4)

real = namespaces.create


def hostile() -> int:
    """A namespace as the kernel would make one on such a host: there it copies the host's, which are not ours to
    change."""
    made = real()
    with namespaces.inside(made):
        for key, value in HOSTILE.items():
            namespaces.write_sysctl(key, value)
    return made


class Hardened(HostBox):
    """The host's box on such a host: its agent makes the routers' namespaces."""

    def command(self) -> list[str]:
        *python, code = super().command()
        root = str(Path(__file__).parents[2])
        before = f"import sys; sys.path.insert(0, {root!r}); from testbed.network import namespaces; "
        before += f"hostile = {HOSTILE!r}; real = namespaces.create\n"
        before += "def create():\n  made = real()\n  with namespaces.inside(made):\n"
        before += "    for key, value in hostile.items(): namespaces.write_sysctl(key, value)\n  return made\n"
        return [*python, f"{before}namespaces.create = create\n{code}"]


@contextmanager
def ring_on_a_hostile_host() -> Iterator[Daemon]:
    directory = Path(tempfile.mkdtemp(prefix="tb"))
    daemon = Daemon(RING, directory, "host")
    try:
        daemon.build(attach_pfifo)
        yield daemon
    finally:
        daemon.close()
        shutil.rmtree(directory)


@pytest.fixture
def _hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "create", hostile)
    monkeypatch.setitem(boxes.BOXES, "host", Hardened)


def in_force(namespace: int, keys: list[str]) -> dict[str, str]:
    with namespaces.inside(namespace):
        return {key: read(key) for key in keys}


def read(key: str) -> str:
    return " ".join(Path("/proc/sys", key.replace(".", "/")).read_text().split())


def test_a_hostile_namespace_is_one() -> None:
    """Else the others would show nothing."""
    assert isolated(lambda: in_force(hostile(), list(HOSTILE))) == HOSTILE


@pytest.mark.usefixtures("_hostile")
def test_opposite_workers_of_a_ring_reach_each_other_on_a_hardened_host() -> None:
    """Ties are routed by different ways there and back, which a filter of return paths takes for forged."""

    def run() -> list[int]:
        with ring_on_a_hostile_host() as daemon:
            ends = {w.name: End(w.name, daemon.workers[w.name], w.address) for w in RING.workers}
            pairs = [(ends[path.source], ends[path.target]) for path in RING.paths]
            for _ in range(3):  # the kernel may take a moment to let packets through
                times = measure.round_trips(pairs, 1, patience=0.5, spin=False)
            return [len(some) for some in times]

    assert isolated(run) == [1] * 6


@pytest.mark.usefixtures("_hostile")
def test_what_is_in_force_in_routers_and_workers_is_what_the_table_says_and_is_on_record() -> None:
    def run() -> None:
        with ring_on_a_hostile_host() as daemon:
            routers = [daemon.box.router_namespace(number) for number in range(4)]
            for found in (in_force(one, list(sysctls.ROUTER)) for one in routers if one is not None):
                assert found == sysctls.ROUTER
                assert found.items() <= {key.removeprefix("routers: "): v for key, v in daemon.settings.items()}.items()
            for found in (in_force(one, list(sysctls.WORKER)) for one in daemon.workers.values()):
                assert found == sysctls.WORKER
                assert found.items() <= daemon.settings.items()
            assert in_force(routers[0] or 0, ["net.ipv4.conf.p0.rp_filter", "net.ipv4.conf.p0.forwarding"]) == {
                "net.ipv4.conf.p0.rp_filter": "0",
                "net.ipv4.conf.p0.forwarding": "1",
            }
            worker = in_force(
                daemon.workers["w0"], [f"net.ipv4.conf.eth0.{key}" for key in ("rp_filter", "arp_ignore")]
            )
            assert set(worker.values()) == {"0"}

    isolated(run)


@pytest.mark.usefixtures("_hostile")
def test_a_container_s_namespace_gets_them_too() -> None:
    def run() -> None:
        with ring_on_a_hostile_host() as daemon:
            container = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: namespaces.setns(hostile()))
            try:
                daemon.adopt("w2", container.pid)
            finally:
                container.kill()
                container.wait()
            namespace = daemon.workers["w2"]
            assert in_force(namespace, list(sysctls.WORKER)) == sysctls.WORKER
            assert in_force(namespace, ["net.ipv4.conf.eth0.rp_filter"]) == {"net.ipv4.conf.eth0.rp_filter": "0"}

    isolated(run)


def test_what_a_kernel_does_not_have_is_left_out() -> None:
    wanted = {"net.ipv4.no_such_setting": "1", "net.ipv4.tcp_sack": "x", "net.ipv4.tcp_timestamps": "0"}
    assert isolated(lambda: sysctls.apply(wanted)) == {"net.ipv4.tcp_timestamps": "0"}


def test_every_setting_has_a_reason_and_is_there_once() -> None:
    keys = [key for key, *_ in sysctls.TABLE]
    assert len(keys) == len(set(keys))
    assert all(why for *_, why in sysctls.TABLE)
