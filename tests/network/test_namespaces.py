"""Namespaces without names."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from testbed.network import namespaces

from .isolated import isolated


def interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def inode(path: str = "/proc/thread-self/ns/net") -> int:
    return os.stat(path).st_ino


def test_a_namespace_is_new_and_leaves_the_thread_where_it_was() -> None:
    def build() -> None:
        before = inode()
        one, other = namespaces.create(), namespaces.create()
        assert inode() == before
        assert len({before, os.fstat(one).st_ino, os.fstat(other).st_ino}) == 3

    isolated(build)


def test_inside_comes_back_also_after_an_error() -> None:
    def build() -> None:
        before, fd = inode(), namespaces.create()
        with namespaces.inside(fd):
            assert inode() == os.fstat(fd).st_ino
            assert interfaces() == ["lo"]
        assert inode() == before
        with pytest.raises(KeyError), namespaces.inside(fd):
            raise KeyError
        assert inode() == before

    isolated(build)


def test_entering_leaves_no_descriptor_open() -> None:
    def build() -> None:
        fd = namespaces.create()
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with namespaces.inside(fd):
                pass
        assert sorted(os.listdir("/proc/self/fd")) == before

    isolated(build)


def test_a_namespace_lives_as_long_as_its_descriptor() -> None:
    """Nothing else on the machine knows it."""

    def build() -> bool:
        fd = namespaces.create()
        number = os.fstat(fd).st_ino
        assert not any(entry.samefile(f"/proc/self/fd/{fd}") for entry in netns_names())
        os.close(fd)
        return not any(open_inode == number for open_inode in held_by(os.getpid()))

    assert isolated(build)


def netns_names() -> list[Path]:
    folder = Path("/run/netns")
    return list(folder.iterdir()) if folder.is_dir() else []


def held_by(pid: int) -> list[int]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(entry.stat().st_ino)
        except OSError:  # the descriptor of the listing itself
            continue
    return found


def test_sysctls_are_the_namespaces_own() -> None:
    def build() -> list[bool]:
        path = Path("/proc/sys/net/ipv4/ip_forward")
        here = path.read_text().strip()
        other = "1" if here == "0" else "0"
        fd = namespaces.create()
        with namespaces.inside(fd):
            namespaces.write_sysctl("net.ipv4.ip_forward", other)
            there = path.read_text().strip()
        return [there == other, path.read_text().strip() == here]

    assert isolated(build) == [True, True]


def test_what_fails_says_what_and_why() -> None:
    def build() -> None:
        with pytest.raises(OSError, match="setns: "), open("/dev/null") as null:
            namespaces.setns(null.fileno())
        with pytest.raises(OSError, match="mount /nowhere: No such file or directory"):
            namespaces.mount("proc", "/nowhere", "proc")
        with pytest.raises(FileNotFoundError):
            namespaces.write_sysctl("net.ipv4.no_such_thing", "1")

    isolated(build)


def test_an_ordinary_user_is_root_at_home() -> None:
    def build() -> tuple[int, list[str]]:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            _readable_again()
            namespaces.own_user_namespace()
        os.close(namespaces.create())  # which only root may
        return os.geteuid(), interfaces()

    assert isolated(build) == (0, ["lo"])


def _readable_again() -> None:
    """A process that has changed its user may not write its own files in /proc until it is dumpable again."""
    import ctypes

    pr_set_dumpable = 4
    ctypes.CDLL(None).prctl(pr_set_dumpable, 1, 0, 0, 0)


def test_a_child_dies_with_its_parent() -> None:
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        child = os.fork()
        if child == 0:
            namespaces.die_with_parent()
            os.write(writer, f"{os.getpid()}\n".encode())
            time.sleep(60)
        time.sleep(60)
    os.close(writer)
    grandchild = int(os.read(reader, 20))
    watch = os.pidfd_open(grandchild)
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    assert os.read(reader, 1) == b""  # its end of the pipe is closed: it is gone
    os.close(watch)
    os.close(reader)
