"""Workers in one process for the methods' tests: threads that pass a baton, so that one runs at a time, always in the
same order, and a deadlock is seen at once. Stricter than a network: a message changed too early or read too late fails.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from testbed.compressors.base import Codec, Compressor
from testbed.flat import Layout
from testbed.methods.base import Method
from testbed.topology.gossip import Gossip

Gradient = Callable[[int, int, Tensor], Tensor]  # rank, step, x


def ring(n: int) -> Gossip:
    W = np.zeros((n, n))
    for i in range(n):
        for j in {i, (i + 1) % n, (i - 1) % n}:
            W[i, j] = 1 / 3 if n > 2 else 1 / 2
    return Gossip(f"ring {n}", (W,))


def complete(n: int) -> Gossip:
    return Gossip(f"complete {n}", (np.full((n, n), 1 / n),))


def metropolis(name: str, n: int, edges: Sequence[tuple[int, int]]) -> Gossip:
    W = np.zeros((n, n))
    degree = np.bincount(np.array(edges).ravel(), minlength=n)
    for i, j in edges:
        W[i, j] = W[j, i] = 1 / (1 + max(degree[i], degree[j]))
    return Gossip(name, (W + np.diag(1 - W.sum(1)),))


def one_peer(n: int) -> Gossip:
    """Time-varying and directed: in round t everybody averages with the worker 2^t before it."""
    hops = [1 << k for k in range((n - 1).bit_length())]
    return Gossip("one-peer", tuple((np.eye(n) + np.roll(np.eye(n), hop, axis=1)) / 2 for hop in hops))


def flat_layout(d: int) -> Layout:
    return Layout.of([("x", (d,))])


@dataclass(frozen=True)
class Toy(Compressor):
    """Any function as a compressor: fp32 on the wire."""

    name = "toy"
    function: Callable[[Tensor, int], Tensor] = lambda x, step: x / 2

    def bind(self, layout: Layout, seed: int) -> Codec:
        return _ToyCodec(layout, self.function)


class _ToyCodec(Codec):
    def __init__(self, layout: Layout, function: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__(layout, 4 * layout.numel)
        self.function = function

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, out = self.outgoing(x, out)
        out.view(torch.float32).copy_(self.function(x, step))
        return out

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        dest.add_(message.clone().view(torch.float32), alpha=weight)


class DeadlockError(Exception):
    """All workers wait."""


class World:
    """What the workers share: messages under way and the baton."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.wires: dict[tuple[int, int, int], deque[Tensor]] = defaultdict(deque)  # by number, source, target
        self.sums: dict[int, dict[int, Tensor]] = defaultdict(dict)  # by all-reduce, rank
        self.sent = [0] * size  # bytes
        self.dead: set[int] = set()  # nothing is sent to them or heard of them any more
        self._batons = [threading.Lock() for _ in range(size)]
        self._running: set[int] = set()
        self._idle = 0  # hand-overs since something last happened
        self._errors: list[BaseException] = []

    def run(self, work: Callable[[int], None]) -> None:
        """work(rank) on every worker until all are done; the first error ends it."""
        self._running, self._idle, self._errors = set(range(self.size)), 0, []
        threads = [threading.Thread(target=self._worker, args=(work, rank), daemon=True) for rank in range(self.size)]
        for baton, thread in zip(self._batons, threads, strict=True):
            baton.acquire()
            thread.start()
        self._batons[0].release()
        for thread in threads:
            thread.join()
        for baton in self._batons:
            if baton.locked():
                baton.release()
        if self._errors:
            raise self._errors[0]

    def _worker(self, work: Callable[[int], None], rank: int) -> None:
        self._batons[rank].acquire()
        try:
            if not self._errors:
                work(rank)
        except BaseException as error:  # noqa: BLE001  # handed to the test's thread
            self._errors.append(error)
        self._running.discard(rank)
        self.happened()
        self._pass_on(rank)

    def _pass_on(self, rank: int) -> None:
        for step in range(1, self.size + 1):
            if (rank + step) % self.size in self._running:
                self._batons[(rank + step) % self.size].release()
                return

    def happened(self) -> None:
        self._idle = 0

    def wait(self, rank: int, ready: Callable[[], bool]) -> None:
        while not ready():
            self._idle += 1
            if self._idle > 2 * self.size:
                raise DeadlockError(f"worker {rank} waits and nobody else can go on")
            self._pass_on(rank)
            self._batons[rank].acquire()
            if self._errors:
                raise self._errors[0]


class MemoryChannel:
    """A channel that fails where memory is used against the contract."""

    def __init__(self, world: World, rank: int, nbytes: int, to: dict[int, int], of: dict[int, int]) -> None:
        self.world, self.rank, self.nbytes = world, rank, nbytes
        self.to, self.of = to, of  # the channel's number by target and by source: both ends count alike
        self.targets, self.sources = tuple(to), tuple(of)
        self.under_way: list[tuple[Tensor, Tensor]] | None = None
        self.lent: dict[int, Tensor] = {}

    def send(self, message: Tensor | Mapping[int, Tensor]) -> None:
        assert self.under_way is None, "send before the last round was received"
        messages = dict.fromkeys(self.targets, message) if isinstance(message, Tensor) else dict(message)
        living = [target for target in self.targets if target not in self.world.dead]
        assert set(living) <= set(messages) <= set(self.targets), "one message per target"
        self.under_way = []
        for target in living:
            one = messages[target]
            assert one.dtype == torch.uint8
            assert one.dim() == 1
            assert one.is_contiguous()
            assert 0 < one.numel() <= self.nbytes
            self.world.sent[self.rank] += one.numel()
            copy = one.clone()
            self.under_way.append((one, copy))
            self.world.wires[self.to[target], self.rank, target].append(copy)
        self.world.happened()

    def receive(self) -> Mapping[int, Tensor]:
        assert self.under_way is not None, "receive before send"
        living = [source for source in self.sources if source not in self.world.dead]
        wires = {source: self.world.wires[self.of[source], source, self.rank] for source in living}
        self.world.wait(self.rank, lambda: all(wires.values()))
        for one, copy in self.under_way:
            assert torch.equal(one, copy), "a message was changed while it was under way"
        self.under_way = None
        for old in self.lent.values():
            old.fill_(0xFF)  # valid until the next receive
        self.lent = {}
        for source, wire in sorted(wires.items()):
            buffer = torch.full((self.nbytes,), 0xAB, dtype=torch.uint8)  # longer than a short message
            one = wire.popleft()
            buffer[: one.numel()] = one
            self.lent[source] = buffer
        return self.lent

    @property
    def lost(self) -> Collection[int]:
        return self.world.dead


@dataclass
class MemoryPeer:
    """A peer of the contract in methods/base.py, without a model: the gradient is a function."""

    world: World
    rank: int
    x: Tensor
    layout: Layout
    gossip: Gossip
    gradient: Gradient
    lr: float
    seed: int
    momentum: float = 0.0
    tolerant: bool = False
    step: int = 0
    absent: Collection[int] = ()
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size = self.world.size
        self._numbers: Counter[tuple[str, int]] = Counter()
        self._reductions = 0
        self._velocity = torch.zeros_like(self.x)

    def direction(self) -> Tensor:
        self.events.append("gradient")
        self._velocity.mul_(self.momentum).add_(self.gradient(self.rank, self.step, self.x))
        return self._velocity

    def channel(self, nbytes: int, *, targets: Any = None, sources: Any = None) -> MemoryChannel:
        targets = self.gossip.targets(0, self.rank) if targets is None else targets
        sources = self.gossip.sources(0, self.rank) if sources is None else sources
        to, of = (
            {peer: self._numbered(way, peer) for peer in ends} for way, ends in (("to", targets), ("of", sources))
        )
        return _Recorded(self, MemoryChannel(self.world, self.rank, nbytes, to, of))

    def _numbered(self, way: str, peer: int) -> int:
        self._numbers[way, peer] += 1
        return self._numbers[way, peer]

    def all_reduce(self, tensor: Tensor) -> None:
        self._reductions += 1
        parts = self.world.sums[self._reductions]
        parts[self.rank] = tensor.clone()
        self.world.happened()
        self.world.wait(self.rank, lambda: len(parts) == self.size)
        total = parts[0].clone()
        for rank in range(1, self.size):
            total += parts[rank]
        tensor.copy_(total)

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        self.events.append(kind)
        yield


class _Recorded:
    """A channel whose sends and receives show in the peer's events."""

    def __init__(self, peer: MemoryPeer, channel: MemoryChannel) -> None:
        self.peer, self.channel = peer, channel

    def send(self, message: Tensor | Mapping[int, Tensor]) -> None:
        self.peer.events.append("send")
        self.channel.send(message)

    def receive(self) -> Mapping[int, Tensor]:
        self.peer.events.append("receive")
        return self.channel.receive()

    @property
    def lost(self) -> Collection[int]:
        return self.channel.lost


class Cluster:
    """All workers of one method, from one model (or one each) at the start."""

    def __init__(
        self,
        method: Method,
        gossip: Gossip,
        x0: Tensor,
        gradient: Gradient | None = None,
        *,
        lr: float = 0.1,
        layout: Layout | None = None,
        seed: int = 1,
        momentum: float = 0.0,
        tolerant: bool = False,
    ) -> None:
        n = gossip.size
        start = x0.float() if x0.dim() == 2 else x0.float().expand(n, -1)
        self.method, self.gossip, self.world = method, gossip, World(n)
        self.peers = [
            MemoryPeer(
                self.world,
                rank,
                start[rank].clone(),
                layout or flat_layout(start.shape[1]),
                gossip,
                gradient or (lambda rank, step, x: torch.zeros_like(x)),
                lr,
                seed,
                momentum,
                tolerant,
            )
            for rank in range(n)
        ]
        self.states: list[Any] = [None] * n
        self.history: list[Tensor] = []  # X after every step
        self.world.run(self._init)

    def _init(self, rank: int) -> None:
        self.states[rank] = self.method.init(self.peers[rank])

    def run(self, steps: int, *, finish: bool = True) -> Tensor:
        """That many steps on every worker; gives X, a worker in each row."""
        record: list[list[Tensor]] = [[] for _ in self.peers]

        def work(rank: int) -> None:
            peer = self.peers[rank]
            if rank in self.world.dead:
                record[rank] += [peer.x.clone()] * steps
                return
            for _ in range(steps):
                self.method.step(peer, self.states[rank])
                peer.step += 1
                record[rank].append(peer.x.clone())
            if finish:
                self.method.finish(peer, self.states[rank])

        self.world.run(work)
        self.history += [torch.stack(rows) for rows in zip(*record, strict=True)]
        return self.X

    def lose(self, rank: int) -> None:
        """This worker dies between two steps; what it sent last does not arrive."""
        self.world.dead.add(rank)

    def come_back(self, rank: int) -> int:
        """It does so between two steps, no exchange under way, as a copy of the first neighbour that lives; whose."""
        world, method, old = self.world, self.method, self.peers[rank]
        world.dead.discard(rank)
        for channel, source, target in list(world.wires):
            if rank in (source, target):
                del world.wires[channel, source, target]
        others = sorted(self.gossip.neighbours(rank) - world.dead)
        donor = others[0]
        self.peers[rank] = peer = replace(
            old,
            x=self.peers[donor].x.clone(),
            step=self.peers[donor].step,
            absent=self.gossip.neighbours(rank) & world.dead,
        )
        self.states[rank] = state = method.init(peer)
        publics = {other: method.public(self.peers[other], self.states[other]) for other in others}
        if (own := method.public(peer, state)) is not None:
            own.copy_(publics[donor])
        for other in others:
            known = {} if own is None else {rank: own}
            method.join(self.peers[other], self.states[other], [rank], known)
        method.join(peer, state, others, {} if own is None else publics)
        return donor

    @property
    def X(self) -> Tensor:  # noqa: N802  # the papers' name
        return torch.stack([peer.x for peer in self.peers])


def spread(X: Tensor) -> float:
    """‖X − x̄‖²/n."""
    X = X.double()
    return float((X - X.mean(0)).square().sum() / len(X))
