"""Addresses and route tables, from 198.18.0.0/15: the range reserved for benchmarking never meets a user's own network.

Worker i has the /30 number i of 198.18.0.0/16, its router's port first; link i has the /31 number i of 198.19.0.0/16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from ipaddress import IPv4Address
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from testbed.topology.graph import MOST_LINKS, TopologyError

WORKERS = int(IPv4Address("198.18.0.0"))
LINKS = int(IPv4Address("198.19.0.0"))
MOST_WORKERS = 1 << 14
DEFAULT = "0.0.0.0/0"
NOBODY, SEVERAL = -1, -2  # in the place of a block's link: no worker there but the router's own; not all by one link


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


@cache
def prefix(first: int, count: int) -> str:
    """The prefix of `count` workers' networks from number `first` on; count is a power of two that divides first."""
    return f"{IPv4Address(WORKERS + 4 * first)}/{30 - (count.bit_length() - 1)}"


@cache
def span(text: str) -> range:
    """The worker numbers that a prefix covers: the inverse of `prefix`."""
    if text == DEFAULT:
        return range(MOST_WORKERS)
    address, bits = text.split("/")
    first = (int(IPv4Address(address)) - WORKERS) // 4
    return range(first, first + (1 << (30 - int(bits))))


def route_table(next_link: Sequence[int]) -> list[tuple[str, int]]:
    """That of one router, as `route_tables` makes them."""
    return route_tables(np.array([next_link], dtype=np.int32))[0]


def route_tables(next_link: NDArray[np.int32]) -> list[list[tuple[str, int]]]:
    """By router, (prefix, link) pairs, as few as one default and whole blocks allow, that send each worker's packets to
    its link.

    next_link[router, i] is the link towards worker i, −1 for the router's own. A block covers workers of one link,
    numbers that no worker has, and the router's own worker, whose connected /30 is always more specific.
    """
    return [_table(blocks) for blocks in _blocks(next_link)]


def _table(blocks: Sequence[tuple[int, int, int]]) -> list[tuple[str, int]]:
    """The link that most blocks have is the default."""
    counts = Counter([link for _, _, link in blocks])
    default = max(counts, key=lambda link: (counts[link], -link), default=-1)
    rows = [(prefix(first, count), link) for first, count, link in blocks if link != default]
    return [*rows, (DEFAULT, default)] if blocks else []


def _blocks(next_link: NDArray[np.int32]) -> Iterator[list[tuple[int, int, int]]]:
    """By router, the largest aligned blocks of workers whose packets leave by one link: first number, count, link."""
    routers, workers = next_link.shape
    size = 1 << max(0, workers - 1).bit_length()
    level = np.full((routers, size), NOBODY, dtype=np.int32)
    level[:, :workers] = next_link
    found: list[NDArray[np.int32]] = []  # rows of router, first number, count, link
    count = 1
    while True:
        left, right = level[:, 0::2], level[:, 1::2]
        top = level.shape[1] == 1
        above = np.where((left == right) | (right == NOBODY), left, np.where(left == NOBODY, right, SEVERAL))
        whole = (level >= 0) & (True if top else np.repeat(above == SEVERAL, 2, axis=1))
        router, place = np.nonzero(whole)
        columns = (router, place * count, np.full_like(router, count), level[router, place])
        found.append(np.stack(columns, axis=1, dtype=np.int32, casting="same_kind"))
        if top:
            break
        level, count = above, 2 * count
    rows = np.concatenate(found)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    for start, end in pairwise(np.searchsorted(rows[:, 0], np.arange(routers + 1)).tolist()):
        yield [(first, many, link) for first, many, link in rows[start:end, 1:].tolist()]
