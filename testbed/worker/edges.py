"""Connections between workers over Gloo, one for each pair that exchanges messages. Channels send through them.

An edge is a two-rank process group of its own, so that a dead peer or an expired wait breaks that edge alone.
All edges of a worker share one Gloo device, i.e. one thread and one listening socket on the emulated interface.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Thread
from time import monotonic_ns
from typing import Any

from torch import Tensor
from torch import distributed as dist
from torch.distributed import ProcessGroupGloo, Work, distributed_c10d

from testbed.errors import NetworkError
from testbed.worker.control import open_store
from testbed.worker.job import Job
from testbed.worker.lost import POLL, Lost
from testbed.worker.pacing import Pacing
from testbed.worker.sockets import address_of, connections
from testbed.worker.trace import CODES, Trace
from testbed.worker.transport import ALL, PeerLostError
from testbed.worker.waiter import Waiter

HEADER = 96  # bytes Gloo adds to each message: a notice and a header of 48; the receiver's notice is 48 more
NEWS_SECONDS = 5.0  # after a connection broke: time for the process that runs the workers to mark the peer lost
LAZY_FROM = 32  # workers; below, a full mesh of connections for the stock all-reduce is affordable
_FAULT = CODES["fault"]


@dataclass(frozen=True)
class Edge:
    """This worker's end of one connection."""

    peer: int
    group: Any  # a ProcessGroupGloo; torch does not describe its send and recv
    there: int  # the peer's rank in the group: 0 or 1
    waiter: Waiter | None
    address: str = ""  # of the peer, where the connection may be paced

    def send(self, message: Tensor, tag: int) -> Work:
        work: Work = self.group.send([message], self.there, tag)
        return work

    def receive(self, buffer: Tensor, tag: int) -> Work:
        work: Work = self.group.recv([buffer], self.there, tag)
        return work


class Edges:
    """All edges of one worker, and the stock group of all workers where a method asks for it."""

    def __init__(self, job: Job, trace: Trace) -> None:
        self.job = job
        self.trace = trace
        self.sent: defaultdict[int, int] = defaultdict(int)  # payload bytes by peer
        self.message_timeout = job.message_timeout
        self.gone: set[int] = set()  # peers that are lost for good; training goes on without them
        self._edges: dict[int, Edge] = {}
        self._broken: list[Edge] = []  # to lost peers that have come back; torch must not end them in the middle
        self._all: dist.ProcessGroup | None = None
        self._device: ProcessGroupGloo.Device | None = None
        self.pacing = Pacing(job.rank)
        self._address = _own_address(job) if job.pacing == "auto" else ""

    def __getitem__(self, peer: int) -> Edge:
        return self._edges[peer]

    def open(self, peers: Iterable[int]) -> None:
        """Connect to the peers that are not yet connected; they must do the same. Every edge waits for its peer in a
        thread of its own, so the order does not matter and round trips do not add up."""
        new = sorted(set(peers) - set(self._edges))
        if not new:
            return
        if self._device is None:
            self._device = self._make_device()
        with self._paced(new), ThreadPoolExecutor(len(new)) as pool:
            self._edges.update(zip(new, pool.map(self._connect, new), strict=True))

    @contextmanager
    def _paced(self, peers: Sequence[int]) -> Iterator[None]:
        """Pace the edges to these peers that are opened in here. Gloo does not say which sockets they are: those that
        were not there before. The stock group's, to the same addresses, is opened at other times and left alone."""
        before = connections() if self._address else set()
        yield
        if self._address:
            addresses = {peer: edge.address for peer in peers if (edge := self._edges.get(peer)) and edge.address}
            self.pacing.adopt(addresses, connections() - before)

    def reopen(self, peers: Sequence[int], rendezvous: str) -> None:
        """Connect anew to peers that have rejoined (or that this worker rejoins). One that dies meanwhile is gone."""
        for peer in peers:
            if broken := self._edges.pop(peer, None):
                self._broken.append(broken)
                if broken.waiter:
                    broken.waiter.stop()
        if self._device is None:
            self._device = self._make_device()
        self.gone.difference_update(peers)
        with self._paced(peers), ThreadPoolExecutor(len(peers)) as pool:
            for peer, edge in zip(peers, pool.map(partial(self._reconnect, rendezvous), peers), strict=True):
                if edge is None:
                    self.gone.add(peer)
                else:
                    self._edges[peer] = edge

    def _reconnect(self, rendezvous: str, peer: int) -> Edge | None:
        """Connect to one peer; None: it was lost before the connection was made."""
        low, high = sorted((self.job.rank, peer))
        store, lost = open_store(rendezvous, f"here/{low}-{high}"), Lost(self.job.news)
        store.set(str(self.job.rank), "")
        begun = monotonic_ns()
        while not store.check([str(peer)]):  # Gloo itself would wait for a dead one until its patience ends
            if lost.has(peer, within=POLL):
                return None
            if (monotonic_ns() - begun) / 1e9 > self.job.message_timeout:
                break
        connecting: Future[Edge] = Future()
        Thread(target=self._fulfil, args=(connecting, peer, rendezvous), daemon=True).start()
        while True:  # in a thread that is left alone where the peer dies just now: it would wait as long
            try:
                return connecting.result(POLL)
            except PeerLostError as error:
                self.give_up(peer, begun, error)
                return None
            except TimeoutError:
                if lost.has(peer):
                    return None

    def _fulfil(self, promise: Future[Edge], peer: int, rendezvous: str) -> None:
        try:
            promise.set_result(self._connect(peer, rendezvous))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is raised where this is waited for
            promise.set_exception(error)

    def all(self) -> dist.ProcessGroup:
        """Return what a user of torch.distributed gets: the default process group with the gloo backend."""
        if self._all is None:
            os.environ["GLOO_SOCKET_IFNAME"] = self.job.interface
            if self.job.size >= LAZY_FROM:
                os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
            store = open_store(self.job.rendezvous, "all")
            timeout = timedelta(seconds=self.message_timeout)
            dist.init_process_group("gloo", store=store, rank=self.job.rank, world_size=self.job.size, timeout=timeout)
            self._all = dist.group.WORLD
            assert self._all is not None
        return self._all

    @property
    def watching(self) -> bool:
        """Whether waiters note this step's arrivals. Not in every step: it costs a fifth of a millisecond a round. The
        first steps are skipped, too, as TCP is not up to speed yet."""
        every = self.job.watch_every
        return bool(every) and self.trace.step % every == every - 1

    def send(self, peer: int, message: Tensor, tag: int) -> Work | None:
        """Start a send; None: this peer is gone."""
        self.pacing.sending(peer, message.numel(), self.trace.step)
        return self._post(peer, lambda: self._edges[peer].send(message, tag))

    def receive(self, peer: int, buffer: Tensor, tag: int) -> Work | None:
        """Post a receive; None: this peer is gone."""
        return self._post(peer, lambda: self._edges[peer].receive(buffer, tag))

    def _post(self, peer: int, post: Callable[[], Work]) -> Work | None:
        now = monotonic_ns()
        try:
            return post()
        except RuntimeError as error:  # the connection broke before
            self.give_up(peer, now, error)
            return None

    def wait(self, work: Work, peer: int, since_ns: int) -> bool:
        """Wait for the work, but not beyond the message timeout after `since_ns`. False: this peer is gone."""
        left = self.message_timeout - (monotonic_ns() - since_ns) / 1e9
        try:
            work.wait(timedelta(seconds=max(left, 0.001)))
        except RuntimeError as error:
            self.give_up(peer, since_ns, error)
            return False
        return True

    def give_up(self, peer: int, since_ns: int, cause: BaseException | None) -> None:
        """Give up the exchange with this peer. If it is lost for good, the job may go on without it; else raise what
        happened to it."""
        error = self.lost(peer, since_ns)
        if self.job.tolerant and peer != ALL and Lost(self.job.news).has(peer, within=NEWS_SECONDS):
            self.gone.add(peer)
            return
        raise error from cause

    def lost(self, peer: int, since_ns: int) -> PeerLostError:
        """Return the error for a wait in vain, which is recorded."""
        now = monotonic_ns()
        self.trace.add(_FAULT, peer, since_ns, now)
        return lost(self.job, peer, self.trace.step, (now - since_ns) / 1e9, self.message_timeout)

    def set_deadline(self, seconds: float) -> None:
        self.message_timeout = seconds
        if self._all is not None:  # where others wait for its collectives, as DDP does
            distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), self._all)

    def close(self) -> None:
        for edge in self._edges.values():
            if edge.waiter:
                edge.waiter.stop()
        self._edges.clear()
        self._broken.clear()
        if self._all is not None:
            dist.destroy_process_group()
            self._all = None
        self._device = None

    def _make_device(self) -> ProcessGroupGloo.Device:
        interface = self.job.interface.split(",")[0]
        try:
            return ProcessGroupGloo.create_device(interface=interface, lazy_init=False)
        except RuntimeError as error:
            raise NetworkError(
                f"cannot listen on interface {interface!r}: {error}",
                hint="`ip address` inside the worker must show it up and with an address",
            ).said_by(self.job.name_of(self.job.rank)) from error

    def _connect(self, peer: int, rendezvous: str | None = None) -> Edge:
        here = self.job.rank
        low, high = min(here, peer), max(here, peer)
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [self._device]
        options._threads = 0  # they serve collectives; the device's thread moves the messages
        options._timeout = timedelta(seconds=self.message_timeout if rendezvous is None else self.job.message_timeout)
        store = open_store(rendezvous or self.job.rendezvous, f"edge/{low}-{high}")
        store.set(f"address/{here}", self._address)
        begun = monotonic_ns()
        try:
            group = ProcessGroupGloo(store, 0 if here == low else 1, 2, options)
        except RuntimeError as error:
            raise PeerLostError(
                f"no connection to {self.job.name_of(peer)} after {(monotonic_ns() - begun) / 1e9:.1f} s",
                hint=f"is {self.job.name_of(peer)} running, and is there a route to it? ({_first_line(error)})",
                peer=peer,
                step=self.trace.step,
            ).said_by(self.job.name_of(here)) from error
        address = store.get(f"address/{peer}").decode()  # it is there: the peer set it before it connected
        return Edge(peer, group, 1 if here == low else 0, Waiter(peer) if self.job.watch_every else None, address)


def _own_address(job: Job) -> str:
    """Return the address by which peers know this worker's connections; empty where there is none."""
    try:
        return address_of(job.interface.split(",")[0])
    except OSError:
        return ""


def lost(job: Job, peer: int, step: int, waited: float, message_timeout: float | None = None) -> PeerLostError:
    """Return the error of an exchange that will not happen: too late, or the connection is gone. Where all wait for
    one, the first whose message_timeout passes breaks the others' connections just before theirs: that is late, too."""
    here, there = job.name_of(job.rank), "the other workers" if peer == ALL else job.name_of(peer)
    message_timeout = job.message_timeout if message_timeout is None else message_timeout
    late, waited, limit = (
        waited >= 0.95 * message_timeout,
        waited / job.slow_motion,
        message_timeout / job.slow_motion,
    )
    if late:
        text = f"nothing from {there} in step {step} after {waited:.1f} s (message timeout {limit:g} s)"
        hint = (
            f"{there}: frozen, overloaded or cut off? See the log and the links; if messages may take that long, "
            "raise the scenario's patience"
        )
    else:
        text = f"the connection to {there} broke in step {step} after {waited:.1f} s of waiting"
        hint = f"{there} died or failed first: the log there says why"
    return PeerLostError(text, hint=hint, peer=peer, step=step).said_by(here)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
