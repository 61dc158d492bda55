"""Neighbours that exchange messages over plain TCP sockets: the floor for every transport on this machine."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Mapping

from torch import Tensor
from torch._C._distributed_c10d import Store

from testbed.worker.job import Job
from testbed.worker.sockets import address_of


class SocketRing:
    """One connection to each peer."""

    def __init__(self, job: Job, peers: tuple[int, ...], store: Store) -> None:
        self._sockets: dict[int, socket.socket] = {}
        address = address_of(job.interface.split(",")[0])
        with socket.create_server((address, 0), backlog=len(peers)) as server:
            store.set(f"{job.rank}", f"{address} {server.getsockname()[1]}")
            for peer in (p for p in peers if p > job.rank):
                host, port = store.get(f"{peer}").decode().split()
                self._sockets[peer] = socket.create_connection((host, int(port)))
                self._sockets[peer].sendall(bytes([job.rank]))
            for _ in (p for p in peers if p < job.rank):
                connection, _ = server.accept()
                self._sockets[connection.recv(1)[0]] = connection
        for connection in self._sockets.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)

    def exchange(self, message: Tensor, buffers: Mapping[int, Tensor]) -> None:
        """The message to every peer, theirs into the buffers."""
        left_out = {peer: memoryview(message.numpy().data) for peer in buffers}
        left_in = {peer: memoryview(buffer.numpy().data) for peer, buffer in buffers.items()}
        with selectors.DefaultSelector() as selector:
            for peer in buffers:
                selector.register(self._sockets[peer], selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
            while selector.get_map():
                for key, events in selector.select():
                    peer, connection = key.data, self._sockets[key.data]
                    if events & selectors.EVENT_READ and left_in[peer]:
                        left_in[peer] = left_in[peer][connection.recv_into(left_in[peer]) :]
                    if events & selectors.EVENT_WRITE and left_out[peer]:
                        left_out[peer] = left_out[peer][connection.send(left_out[peer]) :]
                    wanted = (selectors.EVENT_READ if left_in[peer] else 0) | (
                        selectors.EVENT_WRITE if left_out[peer] else 0
                    )
                    if not wanted:
                        selector.unregister(connection)
                    elif wanted != key.events:
                        selector.modify(connection, wanted, peer)

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()
