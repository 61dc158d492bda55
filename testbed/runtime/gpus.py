"""Finds the GPUs of this machine. The plan assigns them (plan/gpus.py), runtimes show each worker its own.

Found through NVML, the library of NVIDIA's driver, or through nvidia-smi; neither is a dependency.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.errors import MissingError
from testbed.plan.gpus import Gpu, Supply, count

if TYPE_CHECKING:
    from testbed.scenario.model import Scenario

LIBRARY = "libnvidia-ml.so.1"
SECONDS = 10  # for nvidia-smi, which may have to load the driver
_TEXT = 96  # bytes: longer than any name or UUID


def offered(scenario: Scenario, runtime: str | None = None) -> Supply:
    """Return this machine's GPUs that workers of a scenario could use, in its runtime or the one named."""
    kind, docker = runtime or scenario.runtime.kind, scenario.runtime.docker
    image = docker.image if docker else "host"
    gpus = visible(found(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not gpus:
        return Supply()
    if kind == "docker" and image != "host":
        where, build = f"torch in the image {image}", _torch_in(image)
        lacks_cuda = build is not None and build.endswith("+cpu")
    else:
        from testbed.runtime.checks import torch_backends

        where, lacks_cuda = "torch", "NCCL" not in torch_backends()
    if lacks_cuda:
        return Supply(missing=f"{where} was built without CUDA, and cannot use the {count(len(gpus))} of this machine")
    return Supply(gpus)


def found() -> tuple[Gpu, ...]:
    """Return all GPUs of this machine; none without a driver that answers."""
    try:
        return _from_nvml(ctypes.CDLL(LIBRARY))
    except OSError:  # no such library, or the driver behind it does not answer
        return _from_nvidia_smi()


def visible(gpus: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order: numbers or beginnings of UUIDs, up to the first
    that is neither, as CUDA reads it."""
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
    """Return the build of torch in an image of ours; None where it is not known."""
    from docker.errors import DockerException

    from testbed.runtime import engine
    from testbed.runtime.image.build import TORCH

    try:
        client = engine.connect()
    except MissingError:
        return None
    try:
        labels: Mapping[str, str] = client.images.get(image).labels
    except DockerException:
        return None  # starting the workers will report what is wrong
    finally:
        client.close()
    return labels.get(TORCH)
