"""One JSON line each way over a Unix socket, with file descriptors riding along: how handle and keeper talk."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any


def send_line(peer: socket.socket, data: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    line = json.dumps(data, separators=(",", ":")).encode() + b"\n"
    if descriptors:
        sent = socket.send_fds(peer, [line], list(descriptors))
        line = line[sent:]
    peer.sendall(line)


def read_line(peer: socket.socket, descriptors: list[int] | None = None) -> dict[str, Any] | None:
    """The next line, or None when the other side has closed. Received descriptors are appended to the list."""
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
