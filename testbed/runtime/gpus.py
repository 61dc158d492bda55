"""Which GPUs this machine has, and which worker gets which. The plan assigns them, runtimes show each worker its own.

Found through NVML, the library of NVIDIA's driver, or through nvidia-smi; neither is a dependency.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from testbed.errors import MissingError, ScenarioError

if TYPE_CHECKING:
    from testbed.scenario.model import Scenario

LIBRARY = "libnvidia-ml.so.1"
SECONDS = 10  # for nvidia-smi, which may have to load the driver
_TEXT = 96  # bytes: longer than any name or UUID


@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine."""

    index: int  # in the order of nvidia-smi
    uuid: str
    name: str
    memory: int  # bytes

    def __str__(self) -> str:
        return f"{self.index} {self.name}"


Assigned = Mapping[str, tuple[Gpu, ...]]  # by worker, the GPUs it sees; none: it trains on processors


@dataclass(frozen=True)
class Supply:
    """What workers can be given here."""

    gpus: tuple[Gpu, ...] = ()
    missing: str = "this machine has no GPU"  # why there are none


def offered(scenario: Scenario, runtime: str | None = None) -> Supply:
    """Look at this machine: the GPUs that the workers of a scenario could train on, in its runtime or the one named."""
    kind, docker = runtime or scenario.runtime.kind, scenario.runtime.docker
    image = docker.image if docker else "host"
    gpus = visible(found(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not gpus:
        return Supply()
    if kind == "docker" and image != "host":
        where, build = f"torch in the image {image}", _torch_in(image)
        lacks_cuda = build is not None and build.endswith("+cpu")
    else:
        from testbed.checks import torch_backends

        where, lacks_cuda = "torch", "NCCL" not in torch_backends()
    if lacks_cuda:
        return Supply(missing=f"{where} was built without CUDA, and cannot use the {_count(len(gpus))} of this machine")
    return Supply(gpus)


def assign(setting: str | Mapping[str, Sequence[int]], names: Sequence[str], supply: Supply) -> Assigned:
    """Who gets what by the scenario's `workers.gpus`; ScenarioError where that cannot be had. Pure."""
    gpus = supply.gpus
    if setting == "none" or (setting == "auto" and not gpus):
        return dict.fromkeys(names, ())
    if not gpus:
        raise ScenarioError(supply.missing, hint="gpus: auto takes processors where there are no GPUs")
    if isinstance(setting, Mapping):
        if absent := sorted({number for some in setting.values() for number in some if number >= len(gpus)}):
            raise ScenarioError(f"there is no GPU {absent[0]}: this machine has {_count(len(gpus))}, counted from 0")
        return {name: tuple(gpus[number] for number in dict.fromkeys(setting.get(name, ()))) for name in names}
    if setting == "one-each" and len(names) > len(gpus):
        raise ScenarioError(
            f"one GPU each for {len(names)} workers: this machine has {_count(len(gpus))}",
            hint=f"take {len(gpus)} workers, or gpus: share",
        )
    return {name: (gpus[rank % len(gpus)],) for rank, name in enumerate(names)}


def exclusive(assigned: Assigned) -> bool:
    """Whether every worker has GPUs, and none of them is another's as well: what NCCL needs."""
    uuids = [gpu.uuid for some in assigned.values() for gpu in some]
    return all(assigned.values()) and len(set(uuids)) == len(uuids)


def backend(assigned: Assigned, *, tolerant: bool) -> Literal["gloo", "nccl"]:
    """What messages travel with, the same for all methods of a scenario. `tolerant`: workers may be lost or come back,
    which NCCL does not survive."""
    return "nccl" if exclusive(assigned) and len(assigned) > 1 and not tolerant else "gloo"


def advice(scenario: Scenario, assigned: Assigned, supply: Supply) -> list[str]:
    """What people may not expect."""
    if scenario.workers.gpus == "auto" and not supply.gpus and supply != Supply():
        return [f"workers train on processors: {supply.missing}"]
    used = {gpu.uuid for some in assigned.values() for gpu in some}
    if used and all(assigned.values()) and not exclusive(assigned):
        text = f"{len(assigned)} workers share {_count(len(used))}: messages travel with Gloo, as NCCL wants a GPU each"
        if scenario.compute.kind == "real":
            text += "; compute: {step_time: 60ms} keeps their waiting for each other out of the comparison"
        return [text]
    return []


def found() -> tuple[Gpu, ...]:
    """All GPUs of this machine; none where there is no driver, or none that answers."""
    try:
        return _from_nvml(ctypes.CDLL(LIBRARY))
    except OSError:  # no such library, or the driver behind it does not answer
        return _from_nvidia_smi()


def visible(gpus: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order: numbers or beginnings of UUIDs, up to the first that is
    neither, as CUDA has it."""
    if setting is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for word in map(str.strip, setting.split(",")):
        if word.isdecimal():
            fitting = [gpu for gpu in gpus if gpu.index == int(word)]
        else:
            fitting = [gpu for gpu in gpus if word and gpu.uuid.startswith(word)]
        if len(fitting) != 1:
            break
        chosen += fitting
    return tuple(chosen)


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def _from_nvml(library: ctypes.CDLL) -> tuple[Gpu, ...]:
    _ask(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _ask(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return tuple(_gpu(library, index) for index in range(count.value))
    finally:
        library.nvmlShutdown()


def _gpu(library: ctypes.CDLL, index: int) -> Gpu:
    device, memory = ctypes.c_void_p(), _Memory()
    _ask(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
    _ask(library, "nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
    uuid, name = (ctypes.create_string_buffer(_TEXT) for _ in range(2))
    _ask(library, "nvmlDeviceGetUUID", device, uuid, ctypes.c_uint(_TEXT))
    _ask(library, "nvmlDeviceGetName", device, name, ctypes.c_uint(_TEXT))
    return Gpu(index, uuid.value.decode(), name.value.decode(), memory.total)


def _ask(library: ctypes.CDLL, function: str, *arguments: Any) -> None:
    try:
        code = getattr(library, function)(*arguments)
    except AttributeError as error:
        raise OSError(f"{LIBRARY} has no {function}") from error
    if code != 0:
        raise OSError(f"{function} answered {code}")


def _from_nvidia_smi() -> tuple[Gpu, ...]:
    query = ["nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if done.returncode != 0:
        return ()
    gpus = []
    for line in filter(None, map(str.strip, done.stdout.splitlines())):
        index, uuid, name, mebibytes = (field.strip() for field in line.split(","))
        gpus.append(Gpu(int(index), uuid, name, int(mebibytes) << 20 if mebibytes.isdecimal() else 0))
    return tuple(gpus)


def _torch_in(image: str) -> str | None:
    """The build of torch in an image of ours; None where that is not known."""
    from docker.errors import DockerException

    from testbed.image.build import TORCH
    from testbed.runtime import engine

    try:
        client = engine.connect()
    except MissingError:
        return None
    try:
        labels: Mapping[str, str] = client.images.get(image).labels
    except DockerException:
        return None  # whoever starts the workers says what is wrong
    finally:
        client.close()
    return labels.get(TORCH)


def _count(number: int) -> str:
    return f"{number} GPU" if number == 1 else f"{number} GPUs"
