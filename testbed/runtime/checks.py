"""Checks what a run needs of this machine, one thing at a time. `testbed doctor` runs all of them.

Each check is a small function from the machine to a Finding, with the exact remedy for what is missing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import mmap
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.errors import MissingError

PYTHON = (3, 11)
TORCH = (2, 5)
OPEN_FILES = 1024  # the box needs two per router and some hundred more
RUN_BYTES = 256 << 20
GUEST_BYTES = 256 << 20  # the guest's memory is a file
MEMORY_BYTES = 2 << 30
LONGEST_NAME = 40  # characters, of a network
IDLE = 0.8  # of the processors, before a run
LOOK_SECONDS = 0.15


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    ok: bool | None  # None: nothing to say, for example an optional thing that is not there
    found: str
    remedy: str = ""
    needed_for: str = ""
    required: bool = False  # a default `up` cannot do without


# What a default `up` needs


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    wanted = ".".join(map(str, PYTHON))
    return Finding(
        "Python",
        version >= PYTHON,
        f"{'.'.join(map(str, version))} (needs {wanted})",
        f"make a virtual environment with Python {wanted} or newer and install testbed there",
        "everything",
        required=True,
    )


def operating_system(platform: str) -> Finding:
    remedy = "run it in a Linux machine: vagrant up && vagrant ssh, with the project's Vagrantfile"
    return Finding("Linux", platform.startswith("linux"), platform, remedy, "everything", required=True)


def network_namespaces() -> Finding:
    from testbed.network.probe import try_in_child

    problem = try_in_child(lambda: None)
    who = "root" if os.geteuid() == 0 else "an ordinary user, in user namespaces"
    return Finding(
        "network namespaces",
        problem is None,
        problem or f"as {who}",
        _namespace_remedy(os.geteuid() == 0, _sysctl),
        "isolating workers",
        required=True,
    )


def _namespace_remedy(root: bool, sysctl: Callable[[str], str | None]) -> str:
    if root:
        return "in a container, start it with --privileged (or --cap-add SYS_ADMIN --cap-add NET_ADMIN)"
    for key, forbidding, allowing in (
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("user.max_user_namespaces", "0", "65536"),
    ):
        if sysctl(key) == forbidding:
            return f"run it as root, or allow user namespaces: sudo sysctl -w {key}={allowing}"
    return "run it as root"


def veth() -> Finding:
    from testbed.network.probe import try_in_child

    problem = try_in_child(_try_veth)
    remedy = "sudo modprobe veth (where this is a container: on its host)"
    return Finding("veth", problem is None, problem or "works", remedy, "cables between workers", required=True)


def _try_veth() -> str | None:
    from testbed.network.netlink import Netlink

    kind = struct.pack("=HH5s3x", 9, 1, b"veth\0")  # the attribute "kind" inside the attribute "link info"
    body = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + struct.pack("=HH", 4 + len(kind), 18) + kind
    create, exclusive, new_link = 0x400, 0x200, 16
    try:
        Netlink().request(struct.pack("=IHHII", 16 + len(body), new_link, create | exclusive, 1, 0) + body)
    except OSError as error:
        return f"the kernel makes none: {error.strerror}"
    return None


def default_box() -> tuple[Finding, str]:
    """Return which box `up` would take and why, and its kind; empty: none."""
    from testbed.network.probe import choose

    needed_for = "emulating links"
    try:
        choice = choose()
    except MissingError as error:
        return Finding("box", False, str(error), error.hint or "", needed_for, required=True), ""
    return Finding("box", True, f"{choice.kind}: {choice.reason}", "", needed_for, required=True), choice.kind


def state_directory() -> Finding:
    from testbed.network.state import LONGEST_SOCKET_PATH, base

    path = base()
    problem = _not_writable(path)
    if path.is_dir() and path.stat().st_uid != os.geteuid():
        problem = f"belongs to user {path.stat().st_uid}"
    if len(os.fsencode(path / ("n" * LONGEST_NAME) / "u" / "mconsole")) > LONGEST_SOCKET_PATH:
        problem = "the path is too long for the sockets in it"
    found = f"{path}: {problem}" if problem else str(path)
    remedy = "name a directory of your own in the variable TESTBED_STATE, with a short path"
    return Finding("state directory", problem is None, found, remedy, "knowing which networks are up", required=True)


def run_directory(path: Path | None = None) -> Finding:
    path = path or Path.cwd()
    problem = _not_writable(path)
    free = shutil.disk_usage(path).free
    if not problem and free < RUN_BYTES:
        problem = f"needs {_size(RUN_BYTES)} at least"
    found = f"{_size(free)} free in {path}" + (f": {problem}" if problem else "")
    remedy = "change to a directory on a disk with space that you can write to"
    return Finding("run directory", problem is None, found, remedy, "traces and reports", required=True)


def _not_writable(path: Path) -> str | None:
    """Return why no file can be made in a directory, or in its nearest parent. Tried; leaves nothing behind."""
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return f"cannot be written to ({error.strerror})"


def guest_memory(*, needed: bool, environment: Mapping[str, str] = os.environ) -> Finding:
    """Check the guest's memory, a file that it also runs programs from."""
    from testbed.network.probe import guest_folder, guest_folder_problem

    name, needed_for = "guest memory", "the delay box"
    chosen, variable = guest_folder(environment)
    if problem := guest_folder_problem(chosen):
        return Finding(name, False, problem, f"unset {variable or 'TMPDIR'}", needed_for, required=needed)
    status = os.statvfs(chosen)
    free = status.f_bavail * status.f_frsize
    remedy = f"mount -o remount,exec,size=1g {chosen}; in a container: --tmpfs /dev/shm:exec,size=1g"
    found = f"{_size(free)} free in {chosen}"
    if free < GUEST_BYTES:
        return Finding(name, False, f"{found}, the guest needs {_size(GUEST_BYTES)}", remedy, needed_for, needed)
    if status.f_flag & os.ST_NOEXEC:
        return Finding(name, False, f"{found}, but it is mounted noexec", remedy, needed_for, needed)
    return Finding(name, True, found, remedy, needed_for, needed)


def open_files(limits: tuple[int, int] | None = None) -> Finding:
    soft, hard = limits or resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= OPEN_FILES
    shown = [str(limit) if limit != resource.RLIM_INFINITY else "no limit" for limit in (soft, hard)]
    remedy = f"ulimit -Hn {OPEN_FILES * 4} as root, or in /etc/security/limits.conf"
    found = f"{shown[0]}, may be raised to {shown[1]}" if shown[0] != shown[1] else shown[0]
    return Finding("open files", enough, found, remedy, "networks with many routers", required=True)


def torch() -> Finding:
    """Check torch by reading files: importing it takes longer than all other checks together."""
    remedy = "pip install torch (PyTorch's own index has a smaller build for CPUs)"
    needed_for = "training"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding("torch", False, "not installed", remedy, needed_for, required=True)
    backends = torch_backends()
    names = ", ".join(backends) or "no backend that sends messages"
    recent = tuple(int(part) for part in version.split("+")[0].split(".")[:2]) >= TORCH
    found = f"{version} with {names}" + ("" if recent else f" (needs {'.'.join(map(str, TORCH))})")
    return Finding("torch", recent and "Gloo" in backends, found, remedy, needed_for, required=True)


def torch_backends() -> list[str]:
    """Return which backends torch's Python bindings were built with: the library names them."""
    spec = importlib.util.find_spec("torch")
    library = Path(spec.origin).parent / "lib" / "libtorch_python.so" if spec and spec.origin else None
    if library is None or not library.is_file():
        return []
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return [name for name in ("Gloo", "NCCL") if content.find(f"ProcessGroup{name}\0".encode()) >= 0]


# What only some runs need


def netem() -> Finding:
    return _box_part("netem in this kernel", "host", "the host box")


def guest(*, needed: bool) -> Finding:
    finding = _box_part("guest (user-mode-linux)", "uml", "the delay box")
    return replace(_guest_modules(finding) if finding.ok else finding, required=needed)


def _box_part(name: str, kind: str, needed_for: str) -> Finding:
    """Report a part of a box. Either box will do, so a missing one is no problem."""
    from testbed.network.probe import choose

    try:
        choose(kind)
    except MissingError as error:
        return Finding(name, None, str(error).partition(", but ")[2] or str(error), error.hint or "", needed_for)
    return Finding(name, True, "works" if kind == "host" else "installed", "", needed_for)


def _guest_modules(finding: Finding) -> Finding:
    """Check that the guest's kernel and modules are of one version; else it cannot load them."""
    from testbed.network.agent import MODULES
    from testbed.network.box import GUEST_KERNEL, GUEST_MODULES

    version = _output([GUEST_KERNEL, "--version"])
    missing = [module for module in MODULES if not (GUEST_MODULES / version / module).is_file()]
    if not version or missing:
        found = f"kernel {version or 'does not start'}, without {', '.join(missing)}"
        remedy = "apt-get install --reinstall user-mode-linux"
        return Finding(finding.name, False, found, remedy, finding.needed_for)
    return Finding(finding.name, True, f"Linux {version} with its modules", "", finding.needed_for)


def processors() -> Finding:
    """Count processors and how busy they are now: workers that wait for a core look like a slow network."""
    cores = len(os.sched_getaffinity(0))
    limit = _processor_limit(_text("/sys/fs/cgroup/cpu.max"))
    idle = _idle_share()
    found = (
        f"{cores} cores{f', limited to {limit:g}' if limit else ''}, {idle:.0%} idle now, load {os.getloadavg()[0]:.1f}"
    )
    remedy = "end what else computes here, or the timing of a run will not be faithful"
    return Finding("processors", idle >= IDLE, found, remedy, "faithful timing")


def _processor_limit(text: str | None) -> float | None:
    """Return the limit in a control group's cpu.max: quota and period in microseconds."""
    quota, _, period = (text or "max").partition(" ")
    return None if quota == "max" else int(quota) / int(period)


def _idle_share() -> float:
    before = _ticks()
    time.sleep(LOOK_SECONDS)
    spent = [after - start for start, after in zip(before, _ticks(), strict=True)]
    return (spent[3] + spent[4]) / max(1, sum(spent))


def _ticks() -> list[int]:
    """Return user, nice, system, idle, disk wait, interrupts (2) and stolen time of all processors, in ticks."""
    return [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def memory() -> Finding:
    lines = (line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = next(int(value.split()[0]) << 10 for key, _, value in lines if key == "MemAvailable")
    limit, used = _text("/sys/fs/cgroup/memory.max"), _text("/sys/fs/cgroup/memory.current")
    if limit and used and limit != "max":
        available = min(available, int(limit) - int(used))
    remedy = "use fewer workers or a smaller model"
    return Finding("memory", available >= MEMORY_BYTES, f"{_size(available)} available", remedy, "workers")


def congestion_control() -> Finding:
    folder = "net.ipv4.tcp_"
    now, allowed = (
        _sysctl(f"{folder}congestion_control"),
        (_sysctl(f"{folder}allowed_congestion_control") or "").split(),
    )
    others = [name for name in (_sysctl(f"{folder}available_congestion_control") or "").split() if name not in allowed]
    found = f"{now} in force; workers may use {', '.join(allowed)}" + (f"; not {', '.join(others)}" if others else "")
    remedy = f"sudo sysctl -w {folder}allowed_congestion_control='{' '.join([*allowed, *others])}'"
    return Finding("TCP congestion control", None if others else True, found, remedy, "scenarios that name another one")


def data_sets() -> Finding:
    from testbed.tasks import datasets, store

    here = [name for name, dataset in datasets.ALL.items() if store.present(dataset)]
    missing = [name for name in datasets.ALL if name not in here]
    found = ", ".join(here) + (f"; not {', '.join(missing)}" if missing else "")
    remedy = f"testbed data fetch {' '.join(missing)}"
    return Finding("data sets", None if missing else True, found, remedy, "tasks that train on them")


def gpus() -> Finding:
    from testbed.runtime.gpus import found as all_gpus

    name, needed_for = "GPUs", "training on GPUs"
    found = [f"{gpu.name}, {_size(gpu.memory)}" for gpu in all_gpus()]
    if not found:
        return Finding(name, None, "none: workers train on the processors", "install NVIDIA's driver", needed_for)
    if "NCCL" not in torch_backends():
        remedy = "pip install torch built for CUDA"
        return Finding(name, False, f"{'; '.join(found)}, but torch was built without CUDA", remedy, needed_for)
    return Finding(name, True, "; ".join(found), "", needed_for)


def bash() -> Finding:
    path = shutil.which("bash")
    remedy = "apt-get install bash"
    return Finding("bash", path is not None, path or "not installed", remedy, "testbed shell")


def _sysctl(key: str) -> str | None:
    return _text("/proc/sys/" + key.replace(".", "/"))


def _text(path: str | Path) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _output(command: Sequence[str]) -> str:
    """Return what a program prints; nothing where it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.0f} MiB"
