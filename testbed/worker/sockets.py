"""What the kernel says this process has sent over TCP. For bytes that not we, but DDP hands over."""

from __future__ import annotations

import os
import socket
import stat
from struct import unpack_from

_BYTES_SENT = 200  # offset of tcpi_bytes_sent in struct tcp_info; tcpi_bytes_retrans follows
_TCP_INFO_SIZE = 216


def tcp_bytes_sent() -> int:
    """Bytes this process's open TCP connections have sent, without retransmissions and headers of TCP and below."""
    return sum(_counted(fd)[0] for fd in _sockets())


def tcp_bytes_again() -> int:
    """Bytes that they had to send once more, because the network had lost them or was late."""
    return sum(_counted(fd)[1] for fd in _sockets())


def _sockets() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(int(name))
        except OSError:
            continue  # the directory's own descriptor, already closed
    return found


def _counted(fd: int) -> tuple[int, int]:
    """Bytes that one socket sent, and sent again; none where another thread has closed it meanwhile, or the number is
    something else by now."""
    try:
        duplicate = os.dup(fd)
    except OSError:
        return 0, 0
    try:
        copy = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        return 0, 0
    with copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
            return 0, 0
        info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    if len(info) < _TCP_INFO_SIZE:
        return 0, 0  # a kernel before 4.19 does not count them
    sent, again = unpack_from("=QQ", info, _BYTES_SENT)
    return int(sent - again), int(again)
