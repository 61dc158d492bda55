"""Which worker gets which GPU: on machines with any number of them, found through a driver's library or its program."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.errors import ScenarioError
from testbed.plan.gpus import Gpu, Supply, assign, backend, exclusive
from testbed.plan.make import plan
from testbed.run.jobs import jobs
from testbed.runtime import checks, forkserver, gpus
from testbed.runtime.container_spec import Start, specification
from testbed.runtime.gpus import visible
from testbed.scenario.load import loads
from testbed.worker import loop

NAMES = ["w0", "w1", "w2"]
GIB = 1 << 30


def some(count: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(index, f"GPU-{index}a", "NVIDIA L4", 24 * GIB) for index in range(count))


def numbers(assigned: gpus.Assigned) -> list[list[int]]:
    return [[gpu.index for gpu in assigned[name]] for name in NAMES]


@pytest.mark.parametrize(
    ("setting", "count", "expected"),
    [
        ("auto", 0, [[], [], []]),
        ("auto", 2, [[0], [1], [0]]),
        ("auto", 3, [[0], [1], [2]]),
        ("none", 3, [[], [], []]),
        ("one-each", 4, [[0], [1], [2]]),
        ("share", 1, [[0], [0], [0]]),
        ("share", 2, [[0], [1], [0]]),
        ({"w0": (1,), "w2": (0, 1)}, 2, [[1], [], [0, 1]]),
    ],
)
def test_assignment(setting, count, expected):
    assert numbers(assign(setting, NAMES, Supply(some(count)))) == expected


@pytest.mark.parametrize(
    ("setting", "count", "message"),
    [
        ("one-each", 2, "one GPU each for 3 workers: this machine has 2 GPUs"),
        ("one-each", 0, "this machine has no GPU"),
        ("share", 0, "this machine has no GPU"),
        ({"w0": (0,), "w1": (2,)}, 1, "there is no GPU 2: this machine has 1 GPU, counted from 0"),
    ],
)
def test_what_cannot_be_had_is_refused_with_numbers(setting, count, message):
    with pytest.raises(ScenarioError, match=message):
        assign(setting, NAMES, Supply(some(count)))


def test_nccl_only_where_everybody_has_a_gpu_of_its_own():
    own = assign("auto", NAMES, Supply(some(3)))
    assert exclusive(own)
    assert backend(own, tolerant=False) == "nccl"
    assert backend(own, tolerant=True) == "gloo"  # NCCL does not survive a lost worker
    for setting in ("share", {"w0": (0,), "w1": (0,), "w2": (1,)}, {"w0": (0,), "w1": (1,)}, "none"):
        assert backend(assign(setting, NAMES, Supply(some(2))), tolerant=False) == "gloo"
    assert backend({}, tolerant=False) == "gloo"  # nobody has looked


# In a plan

TEXT = """workers:
  count: 3
  gpus: one-each
methods: [allreduce, dpsgd]
"""


def test_a_plan_refuses_with_file_and_line():
    with pytest.raises(ScenarioError, match=r"s\.yaml:3: workers\.gpus: one GPU each for 3 workers: .* has 2 GPUs"):
        plan(loads(TEXT, "s.yaml"), gpus=Supply(some(2)))


def test_jobs_know_their_gpus_device_and_backend(tmp_path):
    made = plan(loads(TEXT, "s.yaml"), gpus=Supply(some(4)))
    todo = jobs(made, made.cells[1], tmp_path, tmp_path / "notices", None)
    assert [(job.gpus, job.device, job.backend) for job in todo] == [
        ((f"GPU-{rank}a",), "cuda", "nccl") for rank in range(3)
    ]
    mixed = plan(loads(TEXT, "s.yaml", ["workers.gpus={w1: 1}"]), gpus=Supply(some(2)))
    todo = jobs(mixed, mixed.cells[0], tmp_path, tmp_path / "notices", None)
    assert [(job.gpus, job.device, job.backend) for job in todo] == [
        ((), "cpu", "gloo"),
        (("GPU-1a",), "cuda", "gloo"),
        ((), "cpu", "gloo"),
    ]


@pytest.mark.parametrize("change", ["on_failure=continue", "network.events=[{at: 1s, kill: w0}]"])
def test_workers_that_may_be_lost_talk_gloo_whatever_the_method(tmp_path, change):
    made = plan(loads(TEXT, "s.yaml", [change]), gpus=Supply(some(3)))
    for cell in made.cells:
        assert {job.backend for job in jobs(made, cell, tmp_path, tmp_path / "notices", None)} == {"gloo"}


def test_networks_that_differ_in_gpus_alone_are_points_of_their_own():
    text = TEXT + "sweep: {workers.gpus: [none, share]}\n"
    points = plan(loads(text, "s.yaml"), gpus=Supply(some(1))).points
    assert [numbers(point.gpus) for point in points] == [[[], [], []], [[0], [0], [0]]]


def test_sharing_and_a_torch_without_cuda_are_told():
    warnings = plan(loads(TEXT, "s.yaml", ["workers.gpus=auto"]), gpus=Supply(some(2))).warnings
    assert any("3 workers share 2 GPUs" in warning for warning in warnings)
    supply = Supply(missing="torch was built without CUDA, and cannot use the 2 GPUs of this machine")
    warnings = plan(loads(TEXT, "s.yaml", ["workers.gpus=auto"]), gpus=supply).warnings
    assert f"workers train on processors: {supply.missing}" in warnings
    with pytest.raises(ScenarioError, match="torch was built without CUDA"):
        plan(loads(TEXT, "s.yaml"), gpus=supply)
    assert not plan(loads(TEXT, "s.yaml", ["workers.gpus=auto"]), cores=3, gpus=Supply()).warnings


def test_the_command_shows_who_gets_which(tmp_path, monkeypatch):
    (tmp_path / "s.yaml").write_text(TEXT)
    fake_nvidia_smi(tmp_path, monkeypatch, 3)
    monkeypatch.setattr(checks, "torch_backends", lambda: ["Gloo", "NCCL"])
    shown = CliRunner().invoke(cli, ["plan", str(tmp_path / "s.yaml")], catch_exceptions=False).output
    assert "2 NVIDIA L4" in shown
    told = CliRunner().invoke(cli, ["plan", "--json", str(tmp_path / "s.yaml")], catch_exceptions=False).output
    assert json.loads(told)["points"][0]["gpus"]["w1"][0]["uuid"] == "GPU-1a"
    monkeypatch.setattr(checks, "torch_backends", lambda: ["Gloo"])
    with pytest.raises(ScenarioError, match=r"s\.yaml:3: .*built without CUDA, and cannot use the 3 GPUs"):
        CliRunner().invoke(cli, ["plan", str(tmp_path / "s.yaml")], catch_exceptions=False)


def test_a_worker_sees_its_own_only(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    seen = []
    monkeypatch.setattr(loop, "run_job", lambda job, **_: seen.append(os.environ["CUDA_VISIBLE_DEVICES"]))
    made = plan(loads(TEXT, "s.yaml", ["workers.gpus={w0: [1, 0], w2: 1}"]), gpus=Supply(some(2)))
    for job in jobs(made, made.cells[0], tmp_path, tmp_path / "notices", None):
        forkserver.train(job)
    assert seen == ["GPU-1a,GPU-0a", "", "GPU-1a"]


# Finding them


def fake_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, code: int = 0) -> None:
    """The program on the path, and no library."""
    rows = "".join(f"{gpu.index}, {gpu.uuid}, {gpu.name}, {gpu.memory >> 20}\\n" for gpu in some(count))
    program = folder / "nvidia-smi"
    program.write_text(
        f"""#!/bin/sh
[ "$1" = --query-gpu=index,uuid,name,memory.total ] && [ "$2" = --format=csv,noheader,nounits ] || exit 2
printf '{rows}'
exit {code}
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "LIBRARY", "libthere-is-none.so")


def test_found_by_the_program(tmp_path, monkeypatch):
    fake_nvidia_smi(tmp_path, monkeypatch, 2)
    assert gpus.found() == some(2)


def test_a_program_that_fails_and_none_at_all_mean_no_gpus(tmp_path, monkeypatch):
    fake_nvidia_smi(tmp_path, monkeypatch, 2, code=9)
    assert gpus.found() == ()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert gpus.found() == ()


LIBRARY = r"""
#include <stdio.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
static int devices[2], users;
int nvmlInit_v2(void) { users++; return STATE; }
int nvmlShutdown(void) { users--; return 0; }
int users_left(void) { return users; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &devices[index]; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory *found) { found->total = 24ULL << 30; return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    snprintf(text, size, "GPU-%da", (int)((int *)device - devices)); return 0;
}
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strncpy(text, "NVIDIA L4", size); return 0; }
"""


def library(folder: Path, state: int) -> str:
    """NVML as its documentation has it; `state` is what it answers when asked to begin."""
    (folder / "nvml.c").write_text(LIBRARY)
    made = folder / f"libnvidia-ml-{state}.so"
    words = ["cc", "-shared", "-fPIC", f"-DSTATE={state}", "-o", str(made), str(folder / "nvml.c")]
    subprocess.run(words, check=True)
    return str(made)


def test_found_by_the_drivers_library(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path / 'nothing'}:{os.environ['PATH']}")
    path = library(tmp_path, 0)
    monkeypatch.setattr(gpus, "LIBRARY", path)
    assert gpus.found() == some(2)
    assert gpus.ctypes.CDLL(path).users_left() == 0


def test_a_library_without_its_driver_leaves_it_to_the_program(tmp_path, monkeypatch):
    fake_nvidia_smi(tmp_path, monkeypatch, 1)
    monkeypatch.setattr(gpus, "LIBRARY", library(tmp_path, 9))  # NVML_ERROR_DRIVER_NOT_LOADED
    assert gpus.found() == some(1)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        ("GPU-1", [1]),
        ("1,7,2", [1]),  # CUDA stops at what it does not know
        ("-1", []),
    ],
)
def test_who_started_us_may_have_hidden_some(setting, expected):
    assert [gpu.index for gpu in visible(some(3), setting)] == expected


# In a container


@pytest.mark.docker
def test_the_engine_is_asked_for_exactly_these(engine, tmp_path):
    """As far as it goes without a GPU: the engine takes the request, and would look for the driver at the start."""
    image = engine.api.import_image_from_data(bytes(1024))
    start = Start(json.loads(image)["status"], "python", (), {}, {}, "run", "net", "nobody")
    wanted = specification(start, "w1", str(tmp_path), gpus=["GPU-1a", "GPU-2a"])
    container = engine.containers.create(**wanted)
    try:
        (request,) = container.attrs["HostConfig"]["DeviceRequests"]
        assert request["DeviceIDs"] == ["GPU-1a", "GPU-2a"]
        assert request["Capabilities"] == [["gpu"]]
        assert not request["Count"]  # not "all of them"
        without = engine.containers.create(**specification(start, "w2", str(tmp_path)))
        assert not without.attrs["HostConfig"]["DeviceRequests"]
        without.remove()
    finally:
        container.remove()
        engine.images.remove(start.image)
