"""Finds out by trying which box this machine can run, and what to install where it can run none."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testbed.errors import MissingError
from testbed.network import namespaces
from testbed.network.box import GUEST_KERNEL, GUEST_MODULES
from testbed.network.netlink import Netlink

GUEST_TOOLS = (GUEST_KERNEL, "setarch", "unshare")
INSTALL_GUEST = "apt-get install user-mode-linux (Debian, Ubuntu; no KVM and no image needed)"
ALLOW_NAMESPACES = (
    "run it as root, or allow user namespaces: sysctl user.max_user_namespaces (not 0), "
    "kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
)
LOAD_NETEM = "modprobe sch_netem (Debian: in the kernel package; Fedora: kernel-modules-extra)"


@dataclass(frozen=True)
class Choice:
    """A box and why it was chosen."""

    kind: str
    reason: str


def choose(wanted: str = "auto") -> Choice:
    """Return the box to use: the asked one, else the host's kernel, else the guest. Never anything less."""
    if forbidden := try_in_child(lambda: None):
        raise MissingError(f"no network can be emulated here: {forbidden}", hint=ALLOW_NAMESPACES)
    host = try_in_child(_try_netem)
    guest = _missing_for_guest()
    if wanted == "host":
        if host:
            raise MissingError(f"the host box was asked for, but {host}", hint=f"{LOAD_NETEM}, or --box uml")
        return Choice("host", "as asked")
    if wanted == "uml":
        if guest:
            raise MissingError(f"the delay box was asked for, but {guest}", hint=INSTALL_GUEST)
        _check_guest_folder()
        return Choice("uml", "as asked")
    if not host:
        return Choice("host", "this kernel has netem")
    if not guest:
        _check_guest_folder()
        return Choice("uml", f"{host}; the guest has netem")
    raise MissingError(
        f"no network can be emulated here: {host}, and {guest}", hint=f"{INSTALL_GUEST}, or {LOAD_NETEM}"
    )


def guest_folder(environment: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """Return the directory where the guest's kernel keeps its memory, in a file, and the variable that names it."""
    named = next((name for name in ("TMPDIR", "TMP", "TEMP") if environment.get(name)), None)
    return (environment[named], named) if named else ("/dev/shm", None)


def guest_folder_problem(folder: str) -> str | None:
    """Return why no file can be made there; tried, leaving nothing behind."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder}: {error.strerror}"


def _check_guest_folder() -> None:
    folder, variable = guest_folder()
    if problem := guest_folder_problem(folder):
        name = f"the directory that {variable} names" if variable else "a directory"
        remedy = f"unset {variable}, or let it name" if variable else "name in TMPDIR"
        raise MissingError(
            f"the guest keeps its memory in {name}, and cannot: {problem}",
            hint=f"{remedy} a directory that exists and that you can write to",
        )


def try_in_child(attempt: Callable[[], str | None]) -> str | None:
    """Run an attempt in a fresh network namespace of a child process; return None when it worked, else why not."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "it could not be tried"
        try:
            answer = _in_namespace(attempt) or ""
        finally:
            os.write(writer, answer.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return answer or None


def _in_namespace(attempt: Callable[[], str | None]) -> str | None:
    try:
        if os.geteuid() == 0:
            namespaces.unshare(namespaces.CLONE_NEWNET)
        else:
            namespaces.own_user_namespace()
    except OSError as error:
        who = "root" if os.geteuid() == 0 else "this user (no root, and user namespaces are not allowed)"
        return f"{who} may not make network namespaces: {error.strerror}"
    return attempt()


def _try_netem() -> str | None:
    """Try netem on a scratch loopback: built in, a loaded module or one that loads itself, only trying shows."""
    options = struct.pack("=6I", 0, 1000, 0, 0, 0, 0)
    attributes = struct.pack("=HH8s", 10, 1, b"netem\0\0\0") + struct.pack("=HH", 4 + len(options), 2) + options
    body = struct.pack("=BxxxiIII", 0, 1, 0x10000, 0xFFFFFFFF, 0) + attributes
    create, exclusive, new_qdisc = 0x400, 0x200, 36
    try:
        Netlink().request(struct.pack("=IHHII", 16 + len(body), new_qdisc, create | exclusive, 1, 0) + body)
    except OSError as error:
        if error.errno == 2:
            return "this kernel has no netem"
        return f"netem cannot be used here ({error.strerror})"
    return None


def _missing_for_guest() -> str | None:
    missing = [tool for tool in GUEST_TOOLS if shutil.which(tool) is None]
    if missing:
        return f"the guest cannot run (no {', '.join(missing)})"
    if not GUEST_MODULES.is_dir():
        return f"the guest's modules are not in {GUEST_MODULES}"
    return None
