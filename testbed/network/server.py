"""The network daemon's loop: requests of clients on the control socket, the lifeline, due changes."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.errors import NetworkError, TestbedError
from testbed.network import requests
from testbed.network.connection import Connection
from testbed.network.wire import ClosedError, encode

if TYPE_CHECKING:
    from testbed.network.daemon import Daemon

MOST_CLIENTS = 1000
BACKLOG = 4096  # clients that may connect at once
LONGEST_WAIT = 3600.0  # seconds; longer ones are more than the kernel takes
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # for one more client
ROOM = 8  # descriptors; then make some, for what clients ask for needs some, too
TOO_MANY = {"error": "the network's daemon has too many clients: end some of what talks to it"}
LONG, MOST_UNFINISHED = 1 << 20, 256 << 20  # bytes of requests that have not come to their end, of one and of all
MOST_TRACEBACKS = 100  # in the log, which must not grow for ever


class Server:
    """The network daemon's loop: clients on the control socket, lifeline, due changes. No client keeps it waiting."""

    def __init__(self, daemon: Daemon, lifeline: socket.socket, starter: int, most_clients: int = MOST_CLIENTS) -> None:
        self.daemon = daemon
        self.running = True
        self._detached = False
        self._most_clients = most_clients
        self._clients: set[Connection] = set()
        self._asking: deque[Connection] = deque()  # whose next request can be answered
        self._tracebacks = 0
        self._selector = selectors.DefaultSelector()
        self._lifeline, self._starter = lifeline, starter
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(daemon.directory / "control"))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._selector.register(lifeline, selectors.EVENT_READ, self._lifeline_event)
        # The lifeline alone is not enough: what the starter forked has it, too, and may live longer.
        self._selector.register(starter, selectors.EVENT_READ, self._lifeline_event)
        self._selector.register(os.pidfd_open(daemon.box.process.pid), selectors.EVENT_READ, self._box_ended)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._spare = _spare()  # so that a client can be refused when there is no room

    def run(self) -> None:
        while self.running:
            for key, _ in self._selector.select(self._patience()):
                handler: Callable[[Any], None] = key.data
                handler(key.fileobj)
            if self._asking:  # one in each round: changes are due and others are there meanwhile
                self._serve(self._asking.popleft())

    def _patience(self) -> float:
        """Make due changes; return how long to wait for events after that."""
        next_change = self.daemon.do_due_changes()
        if self._asking:
            return 0.0
        return LONGEST_WAIT if next_change is None else min(next_change, LONGEST_WAIT)

    def _lifeline_event(self, _: Any) -> None:
        """Handle the lifeline: the process that started us says `detach`, is gone, or wants us to end."""
        if self._detached:  # and both were ready at once
            return
        try:
            said = self._lifeline.recv(64, socket.MSG_DONTWAIT)
        except OSError:
            said = b""
        if said == b"detach\n":
            self._detached = True
            self._selector.unregister(self._lifeline)
            self._selector.unregister(self._starter)
        else:
            self.running = False

    def _box_ended(self, _: int) -> None:
        raise NetworkError(f"the {self.daemon.box.kind} box ended by itself{self.daemon.box.last_words()}")

    def _accept(self, listener: socket.socket) -> None:
        try:
            peer, _ = listener.accept()
        except BlockingIOError:  # it has left again
            return
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if not sum(self._drop_idle() for _ in range(ROOM)):
                self._refuse_with_spare(listener)
            return
        if len(self._clients) >= self._most_clients and not self._drop_idle():
            _refuse(peer)
            return
        client = Connection(peer)
        self._clients.add(client)
        self._watch(client)

    def _refuse_with_spare(self, listener: socket.socket) -> None:
        """Refuse a client where no descriptor is left for it."""
        if self._spare is not None:
            os.close(self._spare)
        with suppress(OSError):
            _refuse(listener.accept()[0])
        self._spare = _spare()
        if self._spare is None:  # others took the last one: not in a tight loop, please
            time.sleep(0.05)

    def _drop_idle(self) -> bool:
        """Make room: drop the client that has been idle for the longest."""
        idle = min((client for client in self._clients if client.idle), key=lambda client: client.since, default=None)
        if idle:
            with suppress(OSError):
                idle.peer.send(encode(TOO_MANY))
            self._drop(idle)
        return idle is not None

    def _hear(self, client: Connection, _: Any) -> None:
        """Handle a client that sends something, reads its answer, or leaves."""
        if client not in self._clients:  # dropped for another one in this very round
            return
        try:
            if client.waits:
                client.go_on()
            else:
                client.read()
        except (ClosedError, ValueError, OSError):  # it died in the middle, or is none of ours
            self._drop(client)
            return
        if client.unfinished > LONG and sum(one.unfinished for one in self._clients) > MOST_UNFINISHED:
            self._drop(client)
            return
        self._watch(client)

    def _watch(self, client: Connection) -> None:
        """Wait for what the client does next; read nothing more from it while it has requests pending."""
        if client.peer.fileno() in self._selector.get_map():
            self._selector.unregister(client.peer)
        if client.waits:
            self._selector.register(client.peer, selectors.EVENT_WRITE, partial(self._hear, client))
        elif client.requests:
            self._asking.append(client)
        else:
            self._selector.register(client.peer, selectors.EVENT_READ, partial(self._hear, client))

    def _serve(self, client: Connection) -> None:
        """Answer the client's next request."""
        answer, descriptors = self._answer(client.requests.popleft())
        try:
            client.answer(answer, descriptors)
        except OSError:  # the client left
            self._drop(client)
            return
        self._watch(client)

    def _answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        descriptors: list[int] = []
        try:
            operation, arguments = requests.check(request)
            result = getattr(self.daemon, operation)(**arguments)
            if isinstance(result, tuple):
                result, descriptors = result
            return {"result": result}, descriptors
        except TestbedError as error:
            return {"error": str(error)}, []
        except Exception as error:  # noqa: BLE001 - a bad request must not end the network; the client raises it
            self._tracebacks += 1
            if self._tracebacks <= MOST_TRACEBACKS:
                traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"}, []

    def _drop(self, client: Connection) -> None:
        self._clients.discard(client)
        if client in self._asking:
            self._asking.remove(client)
        if client.peer.fileno() in self._selector.get_map():
            self._selector.unregister(client.peer)
        client.close()


def _spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _refuse(peer: socket.socket) -> None:
    with peer, suppress(OSError):
        peer.setblocking(False)
        peer.send(encode(TOO_MANY))
