"""A worker's container as arguments of the Docker SDK. Pure: docker.py makes containers from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount

from testbed.runtime.base import PROCESSES, USER, Allowance
from testbed.runtime.cgroups import PERIOD_US

MODULE = "testbed.runtime.container_main"  # what every container runs
CONTROL = "/run/testbed"  # in the container, the directory with the socket to the controller
SOCKET = "control"  # in it
TEMPORARY = "size=256m,mode=1777"

# Labels, by which `testbed down --all` and the next run find what a killed one left
RUN, NETWORK, WORKER, CONTROLLER = ("testbed.run", "testbed.network", "testbed.worker", "testbed.controller")


@dataclass(frozen=True)
class Directory:
    """A directory (or file) of this machine that a container sees, at the same path by default."""

    source: str
    writable: bool = False
    target: str | None = None


@dataclass(frozen=True)
class Start:
    """What is the same for all containers of a run."""

    image: str  # its name or id, as the engine knows it
    python: str  # in the container
    directories: tuple[Directory, ...]  # that all of them see
    environment: Mapping[str, str]
    hosts: Mapping[str, str]  # addresses in the emulated network, by worker
    run: str  # the run's id
    network: str
    controller: str  # the process that ends them, named so that a reused id is not mistaken for it


def specification(start: Start, worker: str, control: str, gpus: Sequence[str] = ()) -> dict[str, Any]:
    """Return arguments for `containers.create`. `control`: the directory on this machine that holds the worker's
    socket; `gpus`: the ids of those it may use."""
    mounts = [*start.directories, Directory(control, target=CONTROL)]
    return {
        "image": start.image,
        "name": f"{start.network}-{worker}",
        "hostname": worker,
        "entrypoint": [start.python, "-m", MODULE],
        "command": [f"{CONTROL}/{SOCKET}"],
        "working_dir": "/",
        "environment": {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", **start.environment},
        "labels": {RUN: start.run, NETWORK: start.network, WORKER: worker, CONTROLLER: start.controller},
        "network_mode": "none",  # its only interface comes from the emulated network
        "extra_hosts": dict(start.hosts),
        "user": f"{USER}:{USER}",
        "userns_mode": "host",  # or the user would be another one here, and could not write its results
        "read_only": True,
        "tmpfs": {"/tmp": TEMPORARY},
        "mounts": [_mount(one) for one in _in_order(mounts)],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", "label=disable"],  # SELinux would hide this machine's directories
        "init": True,  # reaps what workers leave, and passes signals on
        "pids_limit": PROCESSES,
        "log_config": LogConfig(type="json-file", config={"max-size": "10m"}),  # whatever the engine's default is
        **({"device_requests": [DeviceRequest(device_ids=list(gpus), capabilities=[["gpu"]])]} if gpus else {}),
    }


def limits(allowance: Allowance, cores: Sequence[int], memory: int, own: int = 0) -> dict[str, Any]:
    """Return arguments for a running container's `update`: what it may use from now on. To the engine, no limit means
    no change, so everything is named: all of this machine's `cores` and `memory` where the allowance has no limit.

    `own`: bytes that the container uses before there is a worker. They do not count: worker processes share that part,
    and a scenario's limit must mean the same in both runtimes.
    """
    cpus = allowance.cpus if allowance.cpus is not None else float(len(cores))
    most = memory if allowance.memory is None else min(memory, allowance.memory + own)
    return {
        "cpuset_cpus": ",".join(map(str, allowance.cores or cores)),
        "cpu_period": PERIOD_US,
        "cpu_quota": max(1000, round(cpus * PERIOD_US)),
        "mem_limit": most,
        "memswap_limit": most,
    }


def _mount(directory: Directory) -> Mount:
    return Mount(
        directory.target or directory.source,
        directory.source,
        type="bind",
        read_only=not directory.writable,
        propagation="rprivate",
    )


def _in_order(directories: Iterable[Directory]) -> list[Directory]:
    """Return each place once, outer before inner: what is inside a visible directory need not be mounted again, unless
    to be writable."""
    found: list[Directory] = []
    for one in sorted(set(directories), key=lambda one: (one.target or one.source, not one.writable)):
        path = one.target or one.source
        around = [other for other in found if _contains(other.target or other.source, path)]
        if around and (around[-1].writable or not one.writable) and _same_tree(around[-1], one):
            continue
        found.append(one)
    return found


def _contains(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _same_tree(outer: Directory, inner: Directory) -> bool:
    """Whether the inner one is visible there anyway."""
    return (outer.target or outer.source) == outer.source and (inner.target or inner.source) == inner.source
