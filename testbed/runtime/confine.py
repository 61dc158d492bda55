"""Confines a worker process: it may not change its network, write outside its directory, read private files of others,
gain privileges, talk to the machine's services, use its devices, or see processes of others.

Called by a forked worker once it is in its network and process-id namespaces and before it trains. A worker started by
root becomes a user who owns nothing. What it needs to read below directories closed to that user (a Python in root's
home, say) is mounted into empty ones that take their place; nothing else in them is visible.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.network.namespaces import CLONE_NEWNS, MS_BIND, MS_PRIVATE, MS_REC, mount, unshare
from testbed.runtime import landlock, seccomp

USER = 65534  # nobody: owns nothing on any machine, so that only what is lent to workers is theirs to change
_CLONE_NEWIPC = 0x08000000
_MOUNT_SETATTR = 442  # the same number on every architecture
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_READ_ONLY, _NOSUID, _NODEV = 1, 2, 4
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITIES = 64  # more than any kernel has
_CAPSET_VERSION_3 = 0x20080522
_SERVICES = Path("/run")  # where their sockets are: a read-only mount keeps nobody from talking to them
_DEVICES = Path("/dev")
_HOMES = (Path("/root"), Path("/home"))
_HARMLESS = ("null", "zero", "full", "random", "urandom", "nvidia*")
_TOO_MANY = 2000  # entries of a closed directory to be mounted one by one
_LARGEST_FILE = 8 << 30  # bytes: some times what a result may have

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Needs:
    """What a worker must be able to read, wherever it is."""

    readable: tuple[Path, ...] = ()  # directories
    files: tuple[Path, ...] = ()  # some in them, by which to see whether another user can
    unix_sockets: bool = False
    own_processes: bool = False  # it is in a process-id namespace of its own


NOTHING = Needs()


def confine(writable: Path, hidden: Path, needs: Needs = NOTHING) -> list[str]:
    """Confine this process for good; return what could not be enforced, for the record. `hidden`: where the networks'
    control sockets are."""
    return [
        *_own_mounts(writable, hidden, needs),
        *_become_nobody(writable, needs.files),
        *_drop_capabilities(),
        *filter_calls(writable, unix_sockets=needs.unix_sockets),
    ]


def filter_calls(writable: Path, *, unix_sockets: bool = False) -> list[str]:
    """Apply what needs no privilege, in containers, too. Return what could not be enforced, for the record."""
    limit("FSIZE", _LARGEST_FILE)  # also of the log, which it could make longer than any disk
    limit("CORE", 0)
    return [*landlock.restrict(writable), *seccomp.install(unix_sockets=unix_sockets)]


def limit(what: str, most: int) -> None:
    """Set RLIMIT_… for good, for this process and all that it starts."""
    kind = getattr(resource, f"RLIMIT_{what}")
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _own_mounts(writable: Path, hidden: Path, needs: Needs) -> list[str]:
    """Enter a mount namespace of our own: everything read-only except one directory, other networks hidden."""
    shortcomings = []
    try:
        unshare(CLONE_NEWNS | _CLONE_NEWIPC)
        mount("none", "/", flags=MS_REC | MS_PRIVATE)
        _cover([hidden, _SERVICES, *_HOMES, Path.home()], [writable, *needs.readable])
        mount(str(writable), str(writable), flags=MS_BIND)
        if not writable.is_relative_to(_DEVICES):
            _few_devices()
        try:
            mount("none", "/sys", "sysfs")  # the one of this network: /sys/class/net shows its interfaces
        except OSError as error:
            shortcomings.append(f"/sys shows the host's interfaces: {error}")
        if needs.own_processes:
            try:
                mount("none", "/proc", "proc", _NOSUID | _NODEV)
            except OSError as error:
                shortcomings.append(f"/proc shows the host's processes: {error}")
        _set_attributes("/", _READ_ONLY, 0, recursive=True)
        _set_attributes(str(writable), _NOSUID | _NODEV, _READ_ONLY)
    except OSError as error:
        return [*shortcomings, f"the worker could write outside its directory: {error}"]
    os.chdir(writable)  # a directory opened before is on the mount from before
    return shortcomings


def _cover(places: Iterable[Path], needed: Sequence[Path]) -> None:
    """Mount empty directories over these, and over all closed ones on the way to what is needed, which stays where it
    is."""
    kept = [path for path in dict.fromkeys(path.resolve() for path in needed) if path.is_dir()]
    hidden = {place.resolve() for place in places if place.is_dir()}
    for place in sorted({*hidden, *kept, *(above for path in kept for above in path.parents)}):  # outer ones first
        closed = place.exists() and not _open_to_all(place)
        if closed or (place in hidden and place not in kept and place.is_dir()):
            _replace(place, [path for path in kept if path.is_relative_to(place)])


def _open_to_all(directory: Path) -> bool:
    return directory.stat().st_mode & 0o005 == 0o005


def _replace(place: Path, inside: Sequence[Path]) -> None:
    """Replace this directory with an empty one that holds only what is needed of it: directories; of closed ones all
    entries, so that each entry's own mode counts."""
    entries: dict[Path, int] = {}
    for path in inside:
        if _open_to_all(path):
            entries[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
            continue
        for name in os.listdir(path)[:_TOO_MANY]:
            with suppress(OSError):
                entries[path / name] = os.open(path / name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    mount("none", str(place), "tmpfs", _NOSUID | _NODEV, "mode=755")
    for path, fd in sorted(entries.items(), key=lambda entry: len(entry[0].parts)):
        try:
            _show(path, fd, beneath=place)
        finally:
            os.close(fd)


def _show(path: Path, fd: int, beneath: Path) -> None:
    """Mount what a descriptor leads to at its former path."""
    for above in reversed([above for above in path.parents if above.is_relative_to(beneath)]):
        if not above.exists():
            above.mkdir(mode=0o755)
    kind = os.fstat(fd).st_mode
    if stat.S_ISLNK(kind):
        if not os.path.lexists(path):
            path.symlink_to(os.readlink("", dir_fd=fd))
    elif stat.S_ISDIR(kind) or stat.S_ISREG(kind):
        if not path.exists():
            path.mkdir() if stat.S_ISDIR(kind) else path.touch()
        mount(f"/proc/self/fd/{fd}", str(path), flags=MS_BIND | MS_REC)


def _become_nobody(writable: Path, files: Iterable[Path]) -> list[str]:
    """Become nobody where we are root of this machine; in an ordinary user's namespace there is no other user."""
    if os.geteuid() != 0:
        return []
    try:
        os.setgroups([])
        os.setegid(USER)
        os.seteuid(USER)
    except OSError:  # no such user in this namespace: root in it is the ordinary user that has made it
        with suppress(OSError):
            os.setegid(0)
        return ["the worker may read what the user may who started it"]
    closed = next((path for path in files if not _can_read(path)), None)
    unwritable = not os.access(writable, os.W_OK | os.X_OK, effective_ids=True)
    os.seteuid(0)
    os.setegid(0)
    if closed or unwritable:
        for path in (writable, *writable.iterdir()):  # lent to nobody
            os.chown(path, 0, 0, follow_symlinks=False)
        words = f"may not read {closed} (chmod -R o+rX would change that)" if closed else f"may not write to {writable}"
        return [f"the worker is still root, without capabilities: other users {words}"]
    for capability in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL beyond the last one
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # or /proc/self would still be root's
    return []


def _can_read(path: Path) -> bool:
    return os.access(path, os.R_OK, effective_ids=True)


def _few_devices() -> None:
    """Leave only harmless devices, and GPUs."""
    kept = {path: os.open(path, os.O_PATH) for name in _HARMLESS for path in _DEVICES.glob(name)}
    mount("none", str(_DEVICES), "tmpfs")
    for path, fd in kept.items():
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            path.mkdir()
        else:
            path.touch()
        mount(f"/proc/self/fd/{fd}", str(path), flags=MS_BIND | MS_REC)
        os.close(fd)


def _set_attributes(path: str, add: int, remove: int, *, recursive: bool = False) -> None:
    """mount_setattr(2), Linux 5.12."""
    attributes = struct.pack("=QQQQ", add, remove, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    if _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, len(attributes)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount_setattr {path}: {os.strerror(number)}")


def _drop_capabilities() -> list[str]:
    """Drop all capabilities for good: the network is out of reach even for root."""
    for capability in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL beyond the last one
    header = struct.pack("=Ii", _CAPSET_VERSION_3, 0)
    nothing = bytes(24)
    if _libc.capset(header, nothing) != 0:
        return [f"the worker kept its capabilities: {os.strerror(ctypes.get_errno())}"]
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return []
