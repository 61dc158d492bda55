"""One JSON line each way over a Unix socket, with file descriptors attached: the protocol of client and network daemon.

`send_line` and `read_line` are for peers that are trusted to finish what they begin, `LineReader` is for all others.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
from collections.abc import Sequence
from typing import Any

CHUNK_BYTES = 1 << 15  # read at once
BURST_BYTES = 1 << 16  # read from one peer in a row, however much there is: others want to be heard, too
PIECE = re.compile(rb"[^\n]*\n|[^\n]+")  # of what was read: a line's end, or its beginning

Line = tuple[dict[str, Any], list[int]]  # and the descriptors that came with it


class ClosedError(ConnectionError):
    """The other side has closed the connection, or is gone."""


def encode(data: dict[str, Any]) -> bytes:
    """Encode a message as a line."""
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def send_line(peer: socket.socket, data: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    line = encode(data)
    if descriptors:
        sent = socket.send_fds(peer, [line], list(descriptors))
        line = line[sent:]
    peer.sendall(line)


def read_line(peer: socket.socket, descriptors: list[int] | None = None) -> dict[str, Any] | None:
    """Return the next line, or None when the other side has closed. Received descriptors are appended to the list."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data, received, _, _ = socket.recv_fds(peer, 1 << 16, 8)
        for descriptor in received:
            os.set_inheritable(descriptor, False)
        if descriptors is not None:
            descriptors += received
        if not data:
            return None
        line += data
    decoded: dict[str, Any] = json.loads(line)
    return decoded


class LineReader:
    """Reads lines from a peer that may be hostile: never blocks, bounded, keeps incomplete input."""

    def __init__(self, peer: socket.socket, *, longest: int = 1 << 20, descriptors: int = 0) -> None:
        """`longest`: bytes of a line. `descriptors`: how many may come with one; more are closed."""
        self._peer, self._longest, self._descriptors = peer, longest, descriptors
        self._line = bytearray()  # what has come of the next one
        self._held: list[int] = []  # and the descriptors that came with it
        self._poll = select.poll()
        self._poll.register(peer, select.POLLIN)

    @property
    def unfinished(self) -> int:
        """Return the bytes received of the next line."""
        return len(self._line)

    def read(self) -> list[tuple[dict[str, Any], list[int]]]:
        """Return all complete lines, each with the descriptors that came with it (at most `descriptors`; the rest are
        closed). Call when readable. Raises ClosedError (EOF) or ValueError (too long, not JSON, not an object); then
        this peer has nothing more to offer, and none of its descriptors stays open."""
        lines: list[Line] = []
        burst = 0
        try:
            while burst < BURST_BYTES and self._poll.poll(0):  # asked first: the socket may be one that blocks
                data, received = self._receive()
                burst += len(data)
                if not data and lines:  # what it said before it left counts; ClosedError is raised next time
                    break
                if not data:
                    raise ClosedError("the other side has closed")
                self._take(data, received, lines)
        except BaseException:
            self.close()
            for _, held in lines:
                _close(held)
            raise
        return lines

    def close(self) -> None:
        """Close the descriptors of an incomplete line; the socket is the caller's."""
        _close(self._held)
        self._held = []

    def _receive(self) -> tuple[bytes, list[int]]:
        try:
            if not self._descriptors:  # the kernel closes those that are not received
                return self._peer.recv(CHUNK_BYTES), []
            data, received, _, _ = socket.recv_fds(self._peer, CHUNK_BYTES, self._descriptors)
        except OSError as error:  # reset: it left without reading what it was sent
            raise ClosedError(f"the other side is gone: {error.strerror}") from error
        for descriptor in received:
            os.set_inheritable(descriptor, False)
        return data, received

    def _take(self, data: bytes, received: list[int], lines: list[Line]) -> None:
        """Receive once. The kernel ends such a read after descriptors: they belong to the line of its last byte."""
        *others, last = PIECE.findall(data)
        try:
            for piece in others:
                self._add(piece, lines)
        except ValueError:
            _close(received)
            raise
        free = self._descriptors - len(self._held)
        self._held += received[:free]
        _close(received[free:])
        self._add(last, lines)

    def _add(self, piece: bytes, lines: list[Line]) -> None:
        self._line += piece
        if len(self._line) > self._longest:
            raise ValueError(f"a line is longer than {self._longest} bytes")
        if piece.endswith(b"\n"):
            lines.append((_decode(self._line), self._held))
            self._line, self._held = bytearray(), []


def _decode(line: bytearray) -> dict[str, Any]:
    try:
        decoded = json.loads(line)
    except RecursionError as error:
        raise ValueError("a line is nested too deeply") from error
    if not isinstance(decoded, dict):
        raise ValueError(f"a line is no object: {line[:40]!r}")
    return decoded


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
