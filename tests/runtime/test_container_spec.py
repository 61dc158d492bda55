"""The specification of a worker's container, argument by argument; no engine is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testbed.runtime.base import Allowance
from testbed.runtime.container_spec import CONTROL, MODULE, Directory, Start, limits, specification

START = Start(
    image="testbed/host:1",
    python="/opt/venv/bin/python",
    directories=(Directory("/usr"), Directory("/opt/venv"), Directory("/home/me/runs/a/cells", writable=True)),
    environment={"OMP_NUM_THREADS": "1"},
    hosts={"w0": "198.18.0.2", "w1": "198.18.1.2"},
    run="a",
    network="ring-7",
    controller="7-1234",
)


def mounts(spec: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """By where it is seen: what, and whether it can be written to."""
    return {one["Target"]: (one["Source"], not one["ReadOnly"]) for one in spec["mounts"]}


def test_it_runs_the_one_entry_point_with_the_path_of_its_socket() -> None:
    spec = specification(START, "w1", "/run/testbed/7.workers/w1")
    assert [*spec["entrypoint"], *spec["command"]] == ["/opt/venv/bin/python", "-m", MODULE, f"{CONTROL}/control"]
    assert spec["image"] == "testbed/host:1"
    assert spec["environment"]["OMP_NUM_THREADS"] == "1"


def test_it_may_do_nothing_but_train() -> None:
    spec = specification(START, "w1", "/s")
    assert spec["network_mode"] == "none"
    assert spec["cap_drop"] == ["ALL"]
    assert "no-new-privileges" in spec["security_opt"]
    assert (spec["read_only"], spec["init"]) == (True, True)
    assert spec["user"] == "65534:65534"
    assert spec["pids_limit"] > 0
    for word in ("privileged", "cap_add", "devices", "device_requests", "ports", "restart_policy"):
        assert word not in spec


def test_it_sees_what_it_needs_and_writes_to_the_cells_only() -> None:
    spec = specification(START, "w1", "/run/testbed/7.workers/w1")
    assert mounts(spec) == {
        "/usr": ("/usr", False),
        "/opt/venv": ("/opt/venv", False),
        "/home/me/runs/a/cells": ("/home/me/runs/a/cells", True),
        CONTROL: ("/run/testbed/7.workers/w1", False),
    }


def test_what_is_seen_already_is_not_mounted_again_unless_to_be_writable() -> None:
    more = (
        Directory("/usr/lib/python3/dist-packages"),
        Directory("/usr"),
        Directory("/usr/local/runs/cells", writable=True),
        Directory("/usr-not"),
    )
    spec = specification(replace(START, directories=(*START.directories, *more)), "w1", "/s")
    assert sorted(mounts(spec)) == [
        "/home/me/runs/a/cells",
        "/opt/venv",
        "/run/testbed",
        "/usr",
        "/usr-not",
        "/usr/local/runs/cells",
    ]
    assert mounts(spec)["/usr/local/runs/cells"] == ("/usr/local/runs/cells", True)


def test_it_can_be_found_again_by_its_labels() -> None:
    spec = specification(START, "w1", "/s")
    assert spec["labels"] == {
        "testbed.run": "a",
        "testbed.network": "ring-7",
        "testbed.worker": "w1",
        "testbed.controller": "7-1234",
    }
    assert spec["name"] == "ring-7-w1"
    assert spec["extra_hosts"] == {"w0": "198.18.0.2", "w1": "198.18.1.2"}


def test_gpus_are_asked_for_by_id() -> None:
    (request,) = specification(START, "w1", "/s", gpus=["GPU-1", "GPU-2"])["device_requests"]
    assert request["DeviceIDs"] == ["GPU-1", "GPU-2"]
    assert request["Capabilities"] == [["gpu"]]


@pytest.mark.parametrize(
    ("allowance", "expected"),
    [
        (Allowance(), ("0,1,2,3", 4.0, 16_000)),
        (Allowance(cores=(2, 3)), ("2,3", 4.0, 16_000)),
        (Allowance(cores=(1,), cpus=0.5, memory=2_000), ("1", 0.5, 2_300)),
        (Allowance(memory=50_000), ("0,1,2,3", 4.0, 16_000)),  # more than there is
    ],
)
def test_limits_are_always_all_named(allowance: Allowance, expected: tuple[str, float, int]) -> None:
    """So that a cell without limits can follow one with some."""
    found = limits(allowance, [0, 1, 2, 3], 16_000, own=300)
    assert (found["cpuset_cpus"], found["cpu_quota"] / found["cpu_period"], found["mem_limit"]) == expected
    assert found["memswap_limit"] == found["mem_limit"]
