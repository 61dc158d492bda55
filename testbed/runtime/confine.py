"""What a worker process may not do: change its network, write anywhere but into its directory, gain privileges, talk
to the machine's services, use its devices.

Called by a forked worker once it is in its network namespace and before it trains. It stays the same user and sees all
processes: against code that means harm, run it in a container.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from pathlib import Path

from testbed.network.namespaces import CLONE_NEWNS, MS_BIND, MS_PRIVATE, MS_REC, mount, unshare

_MOUNT_SETATTR = 442  # the same number on every architecture
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_READ_ONLY = 1
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_CAPABILITIES = 64  # more than any kernel has
_CAPSET_VERSION_3 = 0x20080522
_SERVICES = Path("/run")  # where their sockets are: a read-only mount keeps nobody from talking to them
_DEVICES = Path("/dev")
_HARMLESS = ("null", "zero", "full", "random", "urandom", "nvidia*")

_libc = ctypes.CDLL(None, use_errno=True)


def confine(writable: Path, hidden: Path) -> list[str]:
    """Confine this process for good; what could not be done here, for the record. `hidden`: where the networks'
    control sockets are."""
    return [*_own_mounts(writable, hidden), *_drop_capabilities()]


def _own_mounts(writable: Path, hidden: Path) -> list[str]:
    """In a mount namespace of our own: all read-only except one directory, and nothing to be seen of other networks."""
    shortcomings = []
    try:
        unshare(CLONE_NEWNS)
        mount("none", "/", flags=MS_REC | MS_PRIVATE)
        mount(str(writable), str(writable), flags=MS_BIND)
        for place in (hidden, _SERVICES):
            if not writable.is_relative_to(place):
                mount("none", str(place), "tmpfs")
        if not writable.is_relative_to(_DEVICES):
            _few_devices()
        try:
            mount("none", "/sys", "sysfs")  # the one of this network: /sys/class/net shows its interfaces
        except OSError as error:
            shortcomings.append(f"/sys shows the host's interfaces: {error}")
        _set_read_only("/", recursive=True, value=True)
        _set_read_only(str(writable), recursive=False, value=False)
    except OSError as error:
        return [*shortcomings, f"the worker could write outside its directory: {error}"]
    os.chdir(writable)  # a directory opened before is on the mount from before
    return shortcomings


def _few_devices() -> None:
    """Only those that harm nobody, and GPUs."""
    kept = {path: os.open(path, os.O_PATH) for name in _HARMLESS for path in _DEVICES.glob(name)}
    mount("none", str(_DEVICES), "tmpfs")
    for path, fd in kept.items():
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            path.mkdir()
        else:
            path.touch()
        mount(f"/proc/self/fd/{fd}", str(path), flags=MS_BIND | MS_REC)
        os.close(fd)


def _set_read_only(path: str, *, recursive: bool, value: bool) -> None:
    """mount_setattr(2), Linux 5.12."""
    attributes = struct.pack("=QQQQ", _READ_ONLY if value else 0, 0 if value else _READ_ONLY, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    if _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, len(attributes)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount_setattr {path}: {os.strerror(number)}")


def _drop_capabilities() -> list[str]:
    """No capability now, none to be gained: the network is out of reach even for root."""
    for capability in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL beyond the last one
    header = struct.pack("=Ii", _CAPSET_VERSION_3, 0)
    nothing = bytes(24)
    if _libc.capset(header, nothing) != 0:
        return [f"the worker kept its capabilities: {os.strerror(ctypes.get_errno())}"]
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return []
