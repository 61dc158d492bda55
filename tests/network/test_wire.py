"""Lines and descriptors over a socket."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from testbed.network.wire import read_line, send_line


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_what_is_sent_is_read(pair: tuple[socket.socket, socket.socket]) -> None:
    data = {"op": "set_link", "text": "line\nbreak ü", "numbers": [1, 2.5, None, True]}
    send_line(pair[0], data)
    assert read_line(pair[1]) == data


def test_descriptors_ride_along(pair: tuple[socket.socket, socket.socket]) -> None:
    reader, writer = os.pipe()
    received: list[int] = []
    send_line(pair[0], {"result": None}, [reader, writer])
    assert read_line(pair[1], received) == {"result": None}
    os.write(writer, b"through")
    assert os.read(received[0], 20) == b"through"
    for fd in (reader, writer, *received):
        os.close(fd)


def test_a_line_longer_than_any_buffer_arrives_whole_with_its_descriptors(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    data = {"changes": list(range(300_000))}
    fd = os.open(os.devnull, os.O_RDONLY)
    sender = threading.Thread(target=send_line, args=(pair[0], data, [fd]))
    received: list[int] = []
    sender.start()
    assert read_line(pair[1], received) == data
    sender.join()
    assert len(received) == 1
    for one in (fd, *received):
        os.close(one)


def test_the_end_of_the_other_side_is_no_line(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(b'{"half":')
    pair[0].close()
    assert read_line(pair[1]) is None


def test_what_is_no_json_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(b"hello\n")
    with pytest.raises(json.JSONDecodeError):
        read_line(pair[1])
