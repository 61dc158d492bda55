"""Methods that misbehave, named in scenarios as toys.py:Class. The tests of runs put this file beside the scenario."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import stat
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from testbed.methods.base import Peer
from testbed.methods.dpsgd import DPSGD, State

CULPRIT, WHEN = 1, 3  # the rank that misbehaves, and the step


@dataclass(frozen=True)
class Poison(DPSGD):
    """One number of the model is lost."""

    name = "poison"

    def step(self, peer: Peer, state: State) -> None:
        super().step(peer, state)
        if (peer.rank, peer.step) == (CULPRIT, WHEN):
            next(iter(peer.layout.views(peer.x))).view(-1)[0] = float("nan")


@dataclass(frozen=True)
class Crash(DPSGD):
    """An error in the method itself."""

    name = "crash"

    def step(self, peer: Peer, state: State) -> None:
        super().step(peer, state)
        if (peer.rank, peer.step) == (CULPRIT, WHEN):
            print("about to divide")
            print(1 / 0)


@dataclass(frozen=True)
class Hog(DPSGD):
    """Takes 400 MB of memory."""

    name = "hog"

    def step(self, peer: Peer, state: State) -> None:
        super().step(peer, state)
        if (peer.rank, peer.step) == (CULPRIT, WHEN):
            torch.ones(100_000_000)


@dataclass(frozen=True)
class Nosy(DPSGD):
    """Tries what a worker must not be able to do, and tells."""

    name = "nosy"

    def step(self, peer: Peer, state: State) -> None:
        super().step(peer, state)
        if (peer.rank, peer.step) == (CULPRIT, WHEN):
            Path("nosy.json").write_text(json.dumps(look_around()))
            subprocess.Popen(["sleep", "600"], start_new_session=True)  # and leaves somebody behind


def look_around() -> dict[str, object]:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    networks = Path(os.environ["TESTBED_STATE"])
    places = ["/tmp", "/dev/shm", str(Path.cwd().parent), str(networks.parent), "/proc/1/root/tmp"]
    return {
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "in_sys": sorted(os.listdir("/sys/class/net")),
        "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16) | int(status["CapBnd"], 16),
        "writable": [place for place in places if attempt(lambda place=place: (Path(place) / "nosy").write_text("x"))],
        "own_directory": attempt(lambda: Path("nosy.txt").write_text("x")),
        "networks": [path.name for path in networks.iterdir()],
        "unix_sockets": sum(map(is_unix_socket, os.listdir("/proc/self/fd"))),
        "interface_down": attempt(interface_down),
        "new_network": attempt(lambda: call("unshare", 0x40000000)),
        "hosts_network": attempt(lambda: os.close(os.open("/proc/1/ns/net", os.O_RDONLY))),
        "remount": attempt(lambda: call("mount", b"none", b"/tmp", None, 0x20, None)),
    }


def attempt(action) -> bool:
    """Whether it was allowed."""
    try:
        action()
    except OSError:
        return False
    return True


def interface_down() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"eth0", 0))  # SIOCSIFFLAGS


def call(name: str, *arguments) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def is_unix_socket(descriptor: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(int(descriptor)).st_mode):
            return False
    except OSError:
        return False
    with socket.socket(fileno=os.dup(int(descriptor))) as copy:
        return copy.family == socket.AF_UNIX
