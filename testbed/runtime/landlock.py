"""Restricts writing to some paths through the kernel's Landlock, beside read-only mounts: it holds wherever a
descriptor leads. Linux 5.13; newer kernels also keep signals and abstract sockets inside. Confinement calls
`restrict`."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_ASK_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38
_WRITE_FILE = 1 << 1
_CHANGES = _WRITE_FILE | 0b1_1111_1111 << 4  # remove and make entries of every kind
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_SINCE = {2: _REFER, 3: _TRUNCATE}
_SCOPES_SINCE, _SCOPES = 6, 0b11  # abstract Unix sockets, signals

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Return the Landlock version of this kernel; 0: none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def restrict(writable: Path, devices: Path | None = Path("/dev")) -> list[str]:
    """Allow this process and all that it starts, for good, only to change what is below `writable` and to write to
    `devices`. Return what could not be enforced, in words."""
    if not (known := version()):
        return ["Landlock does not watch over what the worker writes: this kernel has none"]
    handled = _CHANGES | sum(bit for since, bit in _SINCE.items() if known >= since)
    rules = {writable: handled} | ({devices: handled & (_WRITE_FILE | _TRUNCATE)} if devices else {})
    try:
        _apply(handled, _SCOPES if known >= _SCOPES_SINCE else 0, rules)
    except OSError as error:
        return [f"Landlock does not watch over what the worker writes: {error.strerror}"]
    return []


def _apply(handled: int, scopes: int, rules: Mapping[Path, int]) -> None:
    attributes = struct.pack("=QQQ", handled, 0, scopes) if scopes else struct.pack("=Q", handled)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path, allowed in rules.items():
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                whole = stat.S_ISDIR(os.fstat(beneath).st_mode)
                rule = struct.pack("=Qi", allowed if whole else allowed & (_WRITE_FILE | _TRUNCATE), beneath)
                _call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
            finally:
                os.close(beneath)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _call(*arguments: object) -> int:
    result = int(_libc.syscall(*arguments))
    if result < 0:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return result
