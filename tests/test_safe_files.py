"""What is opened is a regular file of bounded size, and opening never waits."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.safe_files import DamagedError, open_regular, read_bytes, read_json

MOST = 1000


def directory(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def link(path: Path) -> None:
    path.with_name("target").write_text("{}")
    path.symlink_to("target")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MOST + 1)


@pytest.mark.parametrize(
    ("make", "follow", "why"),
    [
        (directory, False, "a directory"),
        (pipe, False, "a named pipe"),
        (bound_socket, False, "a socket"),
        (link, False, "a symbolic link"),
        (loop, False, "a symbolic link"),
        (loop, True, "in circles"),
        (device, False, "a symbolic link"),
        (device, True, "a device"),
        (large, False, "1001 bytes"),
    ],
)
def test_anything_else_is_refused_and_named(
    tmp_path: Path, make: Callable[[Path], None], follow: bool, why: str
) -> None:
    make(path := tmp_path / "thing")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(DamagedError) as caught:
        open_regular(path, most=MOST, follow=follow)
    assert caught.value.path == path
    assert why in caught.value.why
    assert str(path) in str(caught.value)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_what_is_not_json_is_damaged(tmp_path: Path, content: bytes) -> None:
    (path := tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DamagedError, match=r"x\.json"):
        read_json(path, most=1 << 20)


def test_a_null_byte_in_a_name_is_damaged_not_a_crash() -> None:
    with pytest.raises(DamagedError):
        read_bytes("a\0b", most=MOST)


def test_a_missing_file_is_just_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none", most=MOST)


def test_a_sound_file_is_read_by_path_by_link_and_below_a_directory(tmp_path: Path) -> None:
    link(tmp_path / "x.json")
    (tmp_path / "target").write_text('{"a": [NaN, 1]}')
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for found in (
            read_json(tmp_path / "target", most=MOST),
            read_json(tmp_path / "x.json", most=MOST, follow=True),
            read_json("target", dir_fd=fd, most=MOST),
        ):
            assert math.isnan(found["a"][0])
            assert found["a"][1] == 1
    finally:
        os.close(fd)
