"""A method that tries to get out of its container, named in a scenario as prisoner.py:Prisoner. test_docker.py reads
what it tells."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.methods.base import Peer
from testbed.methods.dpsgd import DPSGD, State
from testbed.network.netlink import Netlink

LINK_DOWN = bytes.fromhex("20000000 10000500 01000000 00000000 00000000 02000000 00000000 01000000".replace(" ", ""))


@dataclass(frozen=True)
class Prisoner(DPSGD):
    """Behaves, but for one look around."""

    name = "prisoner"

    def step(self, peer: Peer, state: State) -> None:
        super().step(peer, state)
        if (peer.rank, peer.step) == (1, 3):
            Path("prisoner.json").write_text(json.dumps(look_around()))


def look_around() -> dict[str, object]:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    lent = Path.cwd().parent
    finished = next((lent.parent / "cells").glob("*/result.json"))
    return {
        "user": os.getuid(),
        "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16) | int(status["CapBnd"], 16),
        "no_new_privileges": status["NoNewPrivs"].strip(),
        "processes": sorted(name for name in os.listdir("/proc") if name.isdecimal())[0],
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "in_sys": sorted(os.listdir("/sys/class/net")),
        "link_down": attempt(lambda: Netlink().request(LINK_DOWN)),
        "raw_socket": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()),
        "new_network": attempt(lambda: call("unshare", 0x40000000)),
        "new_user": attempt(lambda: call("unshare", 0x10000000)),
        "remount": attempt(lambda: call("mount", b"none", b"/tmp", None, 0x20, None)),
        "sysctl": attempt(lambda: Path("/proc/sys/net/ipv4/tcp_rmem").write_text("1 1 1")),
        "host_socket": attempt(lambda: Path("/run/testbed/other").touch()),
        "finished_cell": attempt(lambda: finished.write_text("x")),
        "beside_cells": attempt(lambda: (lent / "mine").touch()),
        "notices": attempt(lambda: (lent.parent / "notices" / Path.cwd().name / "mine").touch()),
        "system": attempt(lambda: Path("/usr/bin/mine").touch()),
        "root": attempt(lambda: Path("/mine").touch()),
        "engine": attempt(lambda: socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock")),
        "internet": why(lambda: connect("192.0.2.1", 80)),
        "host": why(lambda: connect("127.0.0.1", int(Path(__file__).with_name("port").read_text()))),
        "own_directory": attempt(lambda: Path("prisoner.txt").write_text("x")),
    }


def connect(address: str, port: int) -> None:
    with socket.socket() as peer:
        peer.settimeout(1)
        peer.connect((address, port))


def attempt(action: Callable[[], object]) -> bool:
    """Whether it was allowed."""
    return why(action) == ""


def why(action: Callable[[], object]) -> str:
    """What forbids it; nothing where it is allowed."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return ""


def call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)
