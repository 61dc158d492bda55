"""The keeper's loop: requests of clients on the control socket, the lifeline, changes whose time has come."""

from __future__ import annotations

import os
import selectors
import socket
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from testbed.errors import NetworkError, TestbedError
from testbed.network.wire import read_line, send_line

if TYPE_CHECKING:
    from testbed.network.keeper import Keeper

CALLS = (
    "status",
    "namespace",
    "adopt",
    "set_link",
    "set_partition",
    "counters",
    "start_events",
    "update_events",
    "stop_events",
)


class Server:
    """The keeper's loop: clients on the control socket, the lifeline, due changes."""

    def __init__(self, keeper: Keeper, lifeline: socket.socket, starter: int) -> None:
        self.keeper = keeper
        self.running = True
        self._detached = False
        self._selector = selectors.DefaultSelector()
        self._lifeline, self._starter = lifeline, starter
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(keeper.directory / "control"))
        self._listener.listen()
        self._selector.register(lifeline, selectors.EVENT_READ, self._lifeline_event)
        # The lifeline alone would not tell: what the starter forked has it, too, and may live longer.
        self._selector.register(starter, selectors.EVENT_READ, self._lifeline_event)
        self._selector.register(os.pidfd_open(keeper.box.process.pid), selectors.EVENT_READ, self._box_ended)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def run(self) -> None:
        while self.running:
            for key, _ in self._selector.select(self.keeper.do_due_changes()):
                handler: Callable[[Any], None] = key.data
                handler(key.fileobj)

    def _lifeline_event(self, _: Any) -> None:
        """Whoever started us says `detach`, or is gone, or wants us gone."""
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
        raise NetworkError(f"the {self.keeper.box.kind} box ended by itself{self.keeper.box.last_words()}")

    def _accept(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        self._selector.register(client, selectors.EVENT_READ, self._request)

    def _request(self, client: socket.socket) -> None:
        try:
            request = read_line(client)
        except (OSError, ValueError):  # it died in the middle, or is none of ours
            request = None
        if request is None:
            self._drop(client)
            return
        descriptors: list[int] = []
        try:
            operation = request.pop("op")
            if operation not in CALLS:
                raise NetworkError(f"unknown request {operation!r}")
            result = getattr(self.keeper, operation)(**request)
            if isinstance(result, tuple):
                result, descriptors = result
            answer: dict[str, Any] = {"result": result}
        except TestbedError as error:
            answer = {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - a bad request must not end the network; the client raises it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        try:
            send_line(client, answer, descriptors)
        except OSError:  # the client left
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        client.close()
