"""The kernel's count of what was sent."""

import socket

from testbed.worker.sockets import tcp_bytes_sent


def test_counts_payload_of_open_connections():
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
        with here, there:
            before = tcp_bytes_sent()
            here.sendall(b"x" * 12_345)
            there.sendall(b"y" * 55)
            received = 0
            while received < 12_345:
                received += len(there.recv(65536))
            assert tcp_bytes_sent() - before == 12_400
