"""Opens files that others may have put there: never blocks, never reads without bound, reports what is wrong.

All readers of run directories, workers' output and state files open them here. Below everything but `errors`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


class DamagedError(TestbedError):
    """A file is not what it should be: another kind of file, too large, unreadable, or with senseless content."""

    def __init__(self, path: str | Path, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path} is damaged ({why})", hint=hint)
        self.path = Path(path)
        self.why = why


def open_regular(path: str | Path, *, dir_fd: int | None = None, most: int, follow: bool = False) -> int:
    """Open a regular file of at most `most` bytes for reading; the caller closes the descriptor.

    Refuses links (unless `follow`), named pipes, directories, devices, and what the system does not open, with
    DamagedError. Never blocks. FileNotFoundError where there is nothing at all.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags, dir_fd=dir_fd)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: no name of a file, such as one with a null byte
        raise DamagedError(path, _refusal(error, follow=follow)) from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedError(path, f"it is {KINDS.get(stat.S_IFMT(found.st_mode), 'no file')}")
        if found.st_size > most:
            raise DamagedError(path, f"it has {found.st_size} bytes; {most} are the most that it may have")
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_bytes(path: str | Path, *, dir_fd: int | None = None, most: int, follow: bool = False) -> bytes:
    """Return the content of such a file: at most `most` bytes, even if it grows meanwhile."""
    with os.fdopen(open_regular(path, dir_fd=dir_fd, most=most, follow=follow), "rb") as file:
        try:
            return file.read(most)
        except OSError as error:
            raise DamagedError(path, _refusal(error, follow=follow)) from error


def read_json(path: str | Path, *, dir_fd: int | None = None, most: int, follow: bool = False) -> Any:
    """Return the value that such a file holds as JSON. NaN and Infinity are numbers here, as Python writes them."""
    content = read_bytes(path, dir_fd=dir_fd, most=most, follow=follow)
    try:
        return json.loads(content.decode())
    except UnicodeDecodeError as error:
        raise DamagedError(path, f"byte {error.start} is not UTF-8") from error
    except RecursionError as error:
        raise DamagedError(path, "it is nested too deeply") from error
    except ValueError as error:
        raise DamagedError(path, f"it is not JSON: {error}" if content else "it is empty") from error


def _refusal(error: OSError | ValueError, *, follow: bool) -> str:
    if not isinstance(error, OSError):
        return str(error)
    if error.errno == errno.ELOOP:
        return "its symbolic links go round in circles" if follow else "it is a symbolic link"
    if error.errno == errno.ENXIO:
        return "it is a socket or a device"
    return f"it cannot be read: {error.strerror}"


def remove_tree(path: str | Path) -> None:
    """Remove a directory with all its content, however deep and whoever wrote it; do nothing where there is none.

    Links are removed, never followed.
    """
    try:
        _walk(path, lambda name, directory: os.unlink(name, dir_fd=directory), _remove_directory)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(path)
        return
    os.rmdir(path)


def _remove_directory(name: str, above: int) -> None:
    os.rmdir(name, dir_fd=above)


def tame_tree(path: str | Path) -> None:
    """Take over a directory with all its content, written by someone else: regular files and directories stay, with
    ordinary modes; links, also hard ones to what may be elsewhere, pipes, sockets and devices go."""

    def tame(name: str, directory: int) -> None:
        found = os.lstat(name, dir_fd=directory)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.unlink(name, dir_fd=directory)
            return
        file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            _make_ours(file, found.st_mode)
        finally:
            os.close(file)

    def leave(name: str, above: int) -> None:
        inner = _open_directory(name, above)
        try:
            _make_ours(inner, 0o755)
        finally:
            os.close(inner)

    _walk(path, tame, leave)
    top = _open_directory(path)
    try:
        _make_ours(top, 0o755)
    finally:
        os.close(top)


def _make_ours(descriptor: int, mode: int) -> None:
    """Take over by the descriptor, whatever its name may lead to now."""
    itself = f"/proc/self/fd/{descriptor}"
    os.chown(itself, os.geteuid(), os.getegid())
    os.chmod(itself, mode & 0o777 & ~0o022 | 0o600)


def _walk(path: str | Path, file: Callable[[str, int], None], leave: Callable[[str, int], None]) -> None:
    """Call `file` for everything but directories and `leave` for every directory once all in it was seen, with its name
    and a descriptor of its parent. It goes down and up by descriptors, one at a time, so that neither the depth nor the
    length of a path matters."""
    here = _open_directory(path)
    way: list[tuple[tuple[int, int], list[str]]] = []  # down to here: which directory, and what is left to do in it
    try:
        left = _directories(here, file)
        while left or way:
            if left:
                way.append((_identity(here), left))
                here, above = _open_directory(left[-1], here), here
                os.close(above)
                left = _directories(here, file)
            else:
                which, left = way.pop()
                here, below = _open_directory("..", here), here
                os.close(below)
                if _identity(here) != which:
                    raise DamagedError(path, "somebody moves its directories meanwhile")
                leave(left.pop(), here)
    finally:
        os.close(here)


def _directories(directory: int, file: Callable[[str, int], None]) -> list[str]:
    """Return the names of the directories in a directory, after `file` has seen all else."""
    found = []
    with os.scandir(directory) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                found.append(entry.name)
            else:
                file(entry.name, directory)
    return found


def _open_directory(path: str | Path, dir_fd: int | None = None) -> int:
    """Open a directory, not a link to one, to list and change it; its owner, or root, may whatever its mode says."""
    there = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        again = f"/proc/self/fd/{there}"
        if os.fstat(there).st_mode & 0o700 != 0o700:
            os.chmod(again, 0o700)
        return os.open(again, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(there)


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino
