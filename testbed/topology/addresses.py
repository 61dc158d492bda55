"""Addresses and route tables, from 198.18.0.0/15: the range reserved for benchmarking never meets a user's own network.

Worker i has the /30 number i of 198.18.0.0/16, its router's port first; link i has the /31 number i of 198.19.0.0/16.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

from testbed.topology.graph import TopologyError

WORKERS = int(IPv4Address("198.18.0.0"))
LINKS = int(IPv4Address("198.19.0.0"))
MOST_WORKERS = 1 << 14
MOST_LINKS = 1 << 15
DEFAULT = "0.0.0.0/0"


def worker_addresses(number: int) -> tuple[str, str]:
    """(gateway, address) of a worker."""
    if number >= MOST_WORKERS:
        raise TopologyError(f"the address range ends at {MOST_WORKERS} workers")
    start = WORKERS + 4 * number
    return str(IPv4Address(start + 1)), str(IPv4Address(start + 2))


def link_addresses(number: int) -> tuple[str, str]:
    """The two ends of a link."""
    if number >= MOST_LINKS:
        raise TopologyError(f"the address range ends at {MOST_LINKS} links")
    start = LINKS + 2 * number
    return str(IPv4Address(start)), str(IPv4Address(start + 1))


def prefix(first: int, count: int) -> str:
    """The prefix of `count` workers' networks from number `first` on; count is a power of two that divides first."""
    return f"{IPv4Address(WORKERS + 4 * first)}/{30 - (count.bit_length() - 1)}"


def span(text: str) -> range:
    """The worker numbers that a prefix covers: the inverse of `prefix`."""
    if text == DEFAULT:
        return range(MOST_WORKERS)
    address, bits = text.split("/")
    first = (int(IPv4Address(address)) - WORKERS) // 4
    return range(first, first + (1 << (30 - int(bits))))


def route_table(next_link: Sequence[int]) -> list[tuple[str, int]]:
    """(prefix, link) pairs, as few as one default and whole blocks allow, that send each worker's packets to its link.

    next_link[i] is the link towards worker i, −1 for the router's own. A block covers workers of one link, numbers that
    no worker has, and the router's own worker, whose connected /30 is always more specific.
    """
    blocks: dict[int, list[tuple[int, int]]] = {}  # by link: first number, count

    def gather(first: int, count: int) -> None:
        links = set(next_link[first : first + count]) - {-1}
        if len(links) == 1:
            blocks.setdefault(links.pop(), []).append((first, count))
        elif links:
            gather(first, count // 2)
            gather(first + count // 2, count // 2)

    gather(0, 1 << max(0, (len(next_link) - 1).bit_length()))
    if not blocks:
        return []
    default = max(blocks, key=lambda link: (len(blocks[link]), -link))
    rows = sorted((block, link) for link in blocks if link != default for block in blocks[link])
    return [*((prefix(*block), link) for block, link in rows), (DEFAULT, default)]
