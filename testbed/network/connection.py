"""A client's connection as the server sees it: it may be slow or hostile, and must not hold up others."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from testbed.network.wire import LineReader, encode

LONGEST_REQUEST = 64 << 20  # bytes; as many timed changes as a schedule may have


class Connection:
    """A client's requests, one after another, and its unread answer: the next request waits until it is read."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self.peer = peer
        self.requests: deque[dict[str, Any]] = deque()
        self.asked = False  # ever anything
        self.since = time.monotonic()  # when it last did something
        self._reader = LineReader(peer, longest=LONGEST_REQUEST)
        self._answer = b""  # what is left to send of it
        self._descriptors: list[int] = []  # that go with it, ours

    @property
    def waits(self) -> bool:
        """Whether the client has an answer to read."""
        return bool(self._answer)

    @property
    def idle(self) -> bool:
        """Whether it can be dropped: it never asked anything, or does not read its answer."""
        return self.waits or not self.asked

    @property
    def unfinished(self) -> int:
        """Return the bytes received of an incomplete request."""
        return self._reader.unfinished

    def read(self) -> None:
        """Read what has arrived. Raises what LineReader does."""
        self.since = time.monotonic()
        self.requests += [request for request, _ in self._reader.read()]
        self.asked = self.asked or bool(self.requests)

    def answer(self, data: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send an answer as far as possible now; `go_on` sends the rest. Raises OSError where the client has left."""
        self._answer = encode(data)
        try:
            if descriptors:
                self._sent(socket.send_fds(self.peer, [self._answer], list(descriptors)))
        except BlockingIOError:
            self._descriptors = [os.dup(descriptor) for descriptor in descriptors]  # theirs may be closed by then
            return
        self.go_on()

    def go_on(self) -> None:
        try:
            if self._descriptors:
                self._sent(socket.send_fds(self.peer, [self._answer], self._descriptors))
                self._close_descriptors()
            while self._answer:
                self._sent(self.peer.send(self._answer))
        except BlockingIOError:
            return

    def close(self) -> None:
        self._reader.close()
        self._close_descriptors()
        self.peer.close()

    def _sent(self, count: int) -> None:
        self.since = time.monotonic()
        self._answer = self._answer[count:]

    def _close_descriptors(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())
