"""Network namespaces without names: made with unshare(2), held by file descriptors, gone with the process that holds
them.

Standard library only: the agent runs this inside the delay box, too.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
OWN = "/proc/self/ns/net"  # the network namespace of this process
_PR_SET_PDEATHSIG = 1
_SIOCETHTOOL = 0x8946
_PIDFD_GETFD = 438  # the system call's number, the same everywhere
_FINIT_MODULE = {"x86_64": 313, "aarch64": 273, "i686": 350}  # system call numbers

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give the calling thread its own namespaces."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int = CLONE_NEWNET) -> None:
    """Move the calling thread into the namespace behind fd."""
    _check(_libc.setns(fd, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Call mount(2) itself: the program of that name is setuid and refuses inside a user namespace."""
    arguments = (text.encode() or None for text in (source, target, kind))
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def current() -> int:
    """Return a descriptor of the calling thread's network namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def same(one: int | str, other: int | str) -> bool:
    """Whether two descriptors (or paths, such as OWN) belong to one namespace."""
    return os.stat(one).st_ino == os.stat(other).st_ino


@contextmanager
def inside(fd: int) -> Iterator[None]:
    """Run a block in the network namespace behind fd. Sockets and children made there stay there."""
    back = current()
    setns(fd)
    try:
        yield
    finally:
        setns(back)
        os.close(back)


def create() -> int:
    """Make a new network namespace, held by the returned descriptor alone."""
    back = current()
    unshare(CLONE_NEWNET)
    try:
        return current()
    finally:
        setns(back)
        os.close(back)


def own_user_namespace() -> None:
    """Become root of our own user, mount and network namespace; this lets an ordinary user build networks."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the thread that started it ends, however it ends. `parent`: its process,
    which may have ended by now."""
    parent = parent or os.getppid()
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def write_sysctl(key: str, value: str) -> None:
    """Set a sysctl in the calling thread's namespace."""
    with open("/proc/sys/" + key.replace(".", "/"), "w") as file:
        file.write(value + "\n")  # without an end of the line an empty value would not be written at all


def load_module(path: str) -> None:
    """Load a module with finit_module(2); modprobe needs more of a system than the guest has."""
    fd = os.open(path, os.O_RDONLY)
    try:
        _check(_libc.syscall(_FINIT_MODULE[os.uname().machine], fd, b"", 0), f"load {path}")
    finally:
        os.close(fd)


def ethtool(interface: str, command: int, value: int) -> None:
    """Set one of an interface's offload flags with the old ioctl, which needs nothing but a socket."""
    number = ctypes.create_string_buffer(struct.pack("=II", command, value), 8)
    request = struct.pack("16sP", interface.encode(), ctypes.addressof(number)).ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


def borrow(pid: int, fd: int) -> int:
    """Return our own descriptor for what another process has open: pidfd_getfd(2)."""
    process = os.pidfd_open(pid)
    try:
        found = _libc.syscall(_PIDFD_GETFD, process, fd, 0)
        _check(0 if found >= 0 else -1, "pidfd_getfd")
        return int(found)
    finally:
        os.close(process)
