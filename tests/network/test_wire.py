"""Lines and descriptors over a socket."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from testbed.network.wire import ClosedError, LineReader, read_line, send_line


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


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def send_with(peer: socket.socket, data: bytes, descriptors: Sequence[int]) -> None:
    assert socket.send_fds(peer, [data], list(descriptors)) == len(data)


def test_a_reader_hands_out_whole_lines_and_keeps_the_rest(pair: tuple[socket.socket, socket.socket]) -> None:
    reader = LineReader(pair[1])
    assert reader.read() == []  # and does not wait, though the socket would
    pair[0].sendall(b'{"a": 1}\n{"b": 2}\n{"c"')
    assert reader.read() == [({"a": 1}, []), ({"b": 2}, [])]
    assert reader.read() == []
    pair[0].sendall(b": 3}")
    assert reader.read() == []
    pair[0].sendall(b"\n")
    assert reader.read() == [({"c": 3}, [])]


@pytest.mark.parametrize("timeout", [None, 0.0, 60.0])
def test_a_reader_never_waits_whatever_the_socket_does(
    pair: tuple[socket.socket, socket.socket], timeout: float | None
) -> None:
    pair[1].settimeout(timeout)
    reader = LineReader(pair[1])
    pair[0].sendall(b"{}\n{")
    assert reader.read() == [({}, [])]
    assert reader.read() == []
    assert pair[1].gettimeout() == timeout


def test_a_reader_says_that_the_other_side_has_closed_after_what_it_said(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    reader = LineReader(pair[1])
    pair[0].sendall(b'{"last": "words"}\n{"half')
    pair[0].close()
    assert reader.read() == [({"last": "words"}, [])]
    with pytest.raises(ClosedError):
        reader.read()


def test_a_peer_that_left_without_reading_has_closed(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].sendall(b"unread")
    pair[0].close()
    with pytest.raises(ClosedError):
        LineReader(pair[1]).read()


@pytest.mark.parametrize(
    "said",
    [b"hello\n", b"[]\n", b"7\n", b"\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"9" * 10_000 + b"\n", b"x" * 150_000],
    ids=["text", "list", "number", "nothing", "binary", "nested", "digits", "long"],
)
def test_what_is_no_line_is_refused(pair: tuple[socket.socket, socket.socket], said: bytes) -> None:
    reader = LineReader(pair[1], longest=120_000)
    pair[0].sendall(said)
    with pytest.raises(ValueError, match=r"line|JSON|decode|digits|char"):
        [reader.read() for _ in range(5)]  # it comes in bursts


def test_a_line_without_an_end_takes_no_more_memory_than_the_longest(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    reader = LineReader(pair[1], longest=100_000)
    for _ in range(10):
        pair[0].sendall(b" " * 10_000)
        assert reader.read() == []
    pair[0].sendall(b" ")
    with pytest.raises(ValueError, match="longer than 100000 bytes"):
        reader.read()


def test_a_peer_that_never_stops_does_not_keep_the_reader(pair: tuple[socket.socket, socket.socket]) -> None:
    stop = threading.Event()

    def talk() -> None:
        while not stop.is_set():
            try:
                pair[0].sendall(b"{}\n" * 10_000)
            except OSError:
                return

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        reader = LineReader(pair[1])
        counts = [len(reader.read()) for _ in range(3)]
    finally:
        stop.set()
        pair[1].close()
        talker.join()
    assert max(counts) < 100_000


def test_descriptors_come_with_the_line_that_they_were_sent_with(pair: tuple[socket.socket, socket.socket]) -> None:
    own = [os.open(os.devnull, os.O_RDONLY), *os.pipe()]
    reader = LineReader(pair[1], descriptors=2)
    pair[0].sendall(b'{"a": 1}\n')
    send_with(pair[0], b'{"b": 2}\n', own[:1])
    pair[0].sendall(b'{"c": 3}\n')
    send_with(pair[0], b'{"d"', own[1:])
    pair[0].sendall(b': 4}\n{"e": 5}\n')
    lines = reader.read()
    assert [data for data, _ in lines] == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}, {"e": 5}]
    assert [len(received) for _, received in lines] == [0, 1, 0, 2, 0]
    assert os.path.sameopenfile(lines[1][1][0], own[0])
    assert [os.path.sameopenfile(*some) for some in zip(lines[3][1], own[1:], strict=True)] == [True, True]
    received = [fd for _, some in lines for fd in some]
    assert not any(map(os.get_inheritable, received))
    for fd in (*own, *received):
        os.close(fd)


@pytest.mark.parametrize("wanted", [0, 1, 3])
def test_descriptors_that_nobody_asked_for_are_closed(pair: tuple[socket.socket, socket.socket], wanted: int) -> None:
    reader = LineReader(pair[1], descriptors=wanted)
    before = open_files()
    for _ in range(50):
        send_with(pair[0], b" ", [0] * 200)
        assert reader.read() == []
    assert open_files() == before + wanted
    pair[0].sendall(b"{}\n")
    ((_, received),) = reader.read()
    assert len(received) == wanted
    for fd in received:
        os.close(fd)


@pytest.mark.parametrize("said", [b'{"a": 1}\nhello\n', b'{"half', b"hello\n{", b"[]\n", b"x" * 2000])
def test_no_descriptor_of_a_peer_that_was_refused_or_has_left_stays_open(
    pair: tuple[socket.socket, socket.socket], said: bytes
) -> None:
    reader = LineReader(pair[1], longest=1000, descriptors=8)
    before = open_files()
    send_with(pair[0], b'{"fine": 1}\n', [0, 1])
    send_with(pair[0], said, [0, 1])
    pair[0].shutdown(socket.SHUT_WR)
    with suppress(ClosedError, ValueError):
        for _, received in reader.read():
            for fd in received:
                os.close(fd)
    with suppress(ClosedError, ValueError):
        reader.read()
    assert open_files() == before
