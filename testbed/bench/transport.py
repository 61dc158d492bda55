"""How fast messages travel between workers, beside the usual ways of sending them and beside plain sockets.

`testbed bench transport` runs it on loopback or, with --latency and --rate, on an emulated ring, beside its floors.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic_ns
from typing import Literal

import torch
from torch import Tensor
from torch import distributed as dist

from testbed.bench.sockets import SocketRing
from testbed.bench.table import Row
from testbed.flat import Layout
from testbed.methods.base import Channel
from testbed.tasks.base import Task
from testbed.worker.clock import Clock
from testbed.worker.control import FileControl, open_store
from testbed.worker.forked import run_forked
from testbed.worker.gloo import GlooTransport
from testbed.worker.job import Compute, Job, Training, matrices
from testbed.worker.peer import WorkerPeer
from testbed.worker.trace import Trace
from testbed.worker.transport import Neighbours

SIZES = {"10 kB": 10_000, "100 kB": 100_000, "1 MB": 1_000_000}
LONGEST = "1 MB"
REDUCED = {"40 kB": 10_000, "4 MB": 1_000_000}  # floats
WORKERS = 4
SPANS_PER_STEP, STEP_MS = 20, 5.0
SETTLING = 12  # rounds in which pacing finds the rate of a link
WITHIN = 1.15  # times its floor: a message that is long enough to be paced

Times = dict[str, list[float]]  # milliseconds per round, by what was measured; of the slowest worker


@dataclass(frozen=True)
class Where:
    """On which network, and how long."""

    interface: str = "lo"
    enter: Callable[[int], None] | None = None  # called first in each worker, e.g. to join its namespace
    rounds: int = 40
    repeats: int = 5  # ways take turns, so that a busy moment does not hit one of them alone
    latency: float | None = None  # seconds, one way, and
    rate: float | None = None  # bit/s of each link of the ring, where known


def measure(where: Where | None = None) -> list[Row]:
    """All rows; on loopback unless told otherwise."""
    where = where or Where()
    torch.set_num_threads(1)
    times = _merged(_in_workers(_measure_exchange, where))
    times |= _merged(_in_workers(_measure_threads, where))
    reduced = _merged(_in_workers(_measure_reduce, where))
    reduced |= _merged(_in_workers(_measure_chunks, replace(where, interface=",".join([where.interface] * 4))))
    rows = [row for size in SIZES for row in _exchange_rows(size, times, where)]
    rows += [row for size in REDUCED for row in _reduce_rows(size, reduced, where)]
    return [*rows, recorder_row()]


def measure_emulated(latency: str, rate: str, box: str = "auto") -> list[Row]:
    """The same on an emulated ring."""
    with emulated(latency, rate, box) as where:
        return measure(where)


@contextmanager
def emulated(latency: str, rate: str, box: str = "auto", congestion: str | None = None) -> Iterator[Where]:
    """A ring of links, for as long as it is needed."""
    from testbed.network.client import Client, start
    from testbed.network.namespaces import setns
    from testbed.plan.make import plan
    from testbed.scenario.load import loads

    link = f"{{latency: {latency}, rate: {rate}}}"
    control = f", congestion: {congestion}" if congestion else ""
    text = f"workers: {WORKERS}\nnetwork: {{link: {link}{control}}}\nmethods: [allreduce]\nname: bench-{os.getpid()}\n"
    network = plan(loads(text, "bench")).network
    handle, _ = start(network, box)

    def enter(rank: int) -> None:
        handle.join()
        with Client(handle.state).namespace(network.workers[rank].name) as fd:
            setns(fd)

    shape = network.links[0].ab
    try:
        yield Where("eth0", enter, rounds=8, repeats=2, latency=shape.latency, rate=shape.rate)
    finally:
        handle.close()


def recorder_row() -> Row:
    """What the trace costs of a short step."""
    trace = Trace(0)
    best = float("inf")
    for _ in range(5):
        start = monotonic_ns()
        for _ in range(1000):
            with trace.span("mix"):
                pass
        best = min(best, (monotonic_ns() - start) / 1000)
    share = SPANS_PER_STEP * best / (STEP_MS * 1e6) * 100
    return Row(
        f"trace, {SPANS_PER_STEP} spans in a {STEP_MS:g} ms step ({best:.0f} ns each)",
        share,
        "%",
        goal="≤ 1 %",
        met=share <= 1,
    )


def _exchange_rows(size: str, times: Times, where: Where) -> list[Row]:
    ours = median(times[f"{size} pre-posted"])
    title = f"exchange with 2 neighbours, {size}"
    rows = []
    if where.latency is not None and where.rate is not None:
        floor = 1e3 * (where.latency + 8 * SIZES[size] / where.rate)
        for name, way in (("", "pre-posted"), (", not paced", "not paced"), (", plain sockets", "plain sockets")):
            took, long = median(times[f"{size} {way}"]), not name and size == LONGEST
            goal, met = (f"≤ {WITHIN:g} ×", took <= WITHIN * floor) if long else ("", None)
            rows.append(Row(f"{title}{name}", took, "ms", "latency + bytes / rate", floor, goal, met))
    for name in ("irecv, isend", "isend, recv"):
        usual = median(times[f"{size} {name}"])
        rows.append(Row(title, ours, "ms", name, usual, "≤ 1.1 ×", ours <= 1.1 * usual))
    return [
        *rows,
        Row(title, ours, "ms", "plain sockets (floor)", median(times[f"{size} plain sockets"])),
        Row(f"{title}, waiting threads", median(times[f"{size} waiting threads"]), "ms", "without threads", ours),
    ]


def _reduce_rows(size: str, times: Times, where: Where) -> list[Row]:
    stock = median(times[f"{size} stock"])
    title = f"all-reduce of {size}"
    rows = []
    if where.latency is not None and where.rate is not None:
        n = WORKERS
        floor = 1e3 * (2 * (n - 1) * where.latency + 2 * (n - 1) / n * 32 * REDUCED[size] / where.rate)
        formula = "2(n−1)·latency + 2(n−1)/n·bytes/rate"
        rows.append(Row(f"{title}, our ring", median(times[f"{size} ring"]), "ms", formula, floor))
    return [
        *rows,
        Row(f"{title}, stock", stock, "ms"),
        Row(f"{title}, 4 chunks in 4 contexts", median(times[f"{size} chunks"]), "ms", "stock", stock),
        Row(f"{title}, our ring", median(times[f"{size} ring"]), "ms", "stock", stock),
    ]


def _in_workers(call: Callable[[Job, Where], Times], where: Where) -> list[Times]:
    with tempfile.TemporaryDirectory(prefix="testbed-bench-") as directory:
        job = Job(
            rank=0,
            size=WORKERS,
            method=None,
            task=None,
            gossip=matrices([_ring(WORKERS)]),
            training=Training(compute=Compute("emulated", 0.0, pseudo_gradient=False)),
            directory=directory,
            rendezvous=str(Path(directory) / "rendezvous"),
            interface=where.interface,
        )
        return run_forked([partial(_worker, call, job.for_rank(rank), where) for rank in range(WORKERS)])


def _worker(call: Callable[[Job, Where], Times], job: Job, where: Where) -> Times:
    if where.enter:
        where.enter(job.rank)
    torch.set_num_threads(1)
    times = call(job, where)
    FileControl(job.rendezvous, job.size, 60).meet("measured")
    return times


def _measure_exchange(job: Job, where: Where) -> Times:
    """The same messages in five ways."""
    peers = _neighbours(job)
    group = GlooTransport(job, Trace(job.rank)).process_group()
    ours = {(size, pacing): _Ours(job, size, pacing) for size in SIZES for pacing in ("auto", "off")}
    sockets = SocketRing(job, peers, open_store(job.rendezvous, "sockets"))
    times: Times = {}
    for _ in range(where.repeats):
        for size, nbytes in SIZES.items():
            message = torch.full((nbytes,), job.rank, dtype=torch.uint8)
            buffers = {peer: torch.empty(nbytes, dtype=torch.uint8) for peer in peers}
            ways: dict[str, Callable[[], None]] = {
                "pre-posted": partial(ours[size, "auto"].exchange, message),
                "not paced": partial(ours[size, "off"].exchange, message),
                "irecv, isend": partial(_receive_first, group, message, buffers),
                "isend, recv": partial(_send_first, group, message, buffers),
                "plain sockets": partial(sockets.exchange, message, buffers),
            }
            for _ in range(SETTLING if where.latency is not None else 0):
                ours[size, "auto"].exchange(message)
            for name, way in ways.items():
                times.setdefault(f"{size} {name}", []).extend(_timed(way, where.rounds))
    sockets.close()
    return times


class _Ours:
    """Our exchange of messages of one size, over connections of its own: each size has another best pace."""

    def __init__(self, job: Job, size: str, pacing: Literal["auto", "off"]) -> None:
        peers = _neighbours(job)
        own = replace(job, rendezvous=f"{job.rendezvous}-{SIZES[size]}-{pacing}", pacing=pacing)
        self._trace = Trace(job.rank)
        self._transport = GlooTransport(own, self._trace)
        self._channel = self._transport.channel(SIZES[size], [Neighbours(peers, peers)])
        self._transport.connect()

    def exchange(self, message: Tensor) -> None:
        self._trace.step += 1
        _pre_posted(self._channel, message)


def _measure_threads(job: Job, where: Where) -> Times:
    """Pre-posted, with one waiting thread per edge."""
    peers = _neighbours(job)
    transport = GlooTransport(replace(job, watch_every=1), Trace(job.rank))
    channels = {size: transport.channel(nbytes, [Neighbours(peers, peers)]) for size, nbytes in SIZES.items()}
    transport.connect()
    times: Times = {}
    for _ in range(where.repeats):
        for size, nbytes in SIZES.items():
            way = partial(_pre_posted, channels[size], torch.zeros(nbytes, dtype=torch.uint8))
            times.setdefault(f"{size} waiting threads", []).extend(_timed(way, where.rounds))
    return times


def _measure_reduce(job: Job, where: Where) -> Times:
    from testbed.methods.ring import Ring

    trace = Trace(job.rank)
    transport = GlooTransport(job, trace)
    times: Times = {}
    rings = {}
    for size, numel in REDUCED.items():
        peer = WorkerPeer(job, _Nothing(numel), transport, trace, Clock(trace))
        rings[size] = (peer, Ring().init(peer))
    transport.connect()
    transport.connect_all()
    for _ in range(where.repeats):
        for size, numel in REDUCED.items():
            peer, state = rings[size]
            stock = partial(transport.all_reduce, torch.zeros(numel))
            times.setdefault(f"{size} stock", []).extend(_timed(stock, where.rounds // 4))
            times.setdefault(f"{size} ring", []).extend(_timed(partial(Ring().step, peer, state), where.rounds // 4))
    return times


def _measure_chunks(job: Job, where: Where) -> Times:
    """Four asynchronous all-reduces at once, each on a device of its own: the interface is named four times."""
    transport = GlooTransport(job, Trace(job.rank))
    group = transport.process_group()
    times: Times = {}
    for _ in range(where.repeats):
        for size, numel in REDUCED.items():
            way = partial(_reduce_chunks, group, torch.zeros(numel).chunk(4))
            times.setdefault(f"{size} chunks", []).extend(_timed(way, where.rounds // 4))
    return times


class _Nothing(Task):
    """A model of some size without data."""

    module = None

    def __init__(self, numel: int) -> None:
        self.layout = Layout.of([("x", (numel,))])

    def initial(self) -> Tensor:
        return self.layout.zeros()

    def bind(self, x: Tensor) -> None:
        self.grad = torch.zeros_like(x)

    def gradient(self, step: int, out: Tensor) -> float:
        return 0.0

    def loss_of_step(self, step: int) -> Tensor:
        return torch.zeros(())

    def evaluate(self, x: Tensor) -> dict[str, float]:
        return {}


def _timed(way: Callable[[], object], rounds: int) -> list[float]:
    """Milliseconds of each round; the first ones warm up."""
    times = []
    for _ in range(rounds + 2):
        start = monotonic_ns()
        way()
        times.append((monotonic_ns() - start) / 1e6)
    return times[2:]


def _pre_posted(channel: Channel, message: Tensor) -> None:
    channel.send(message)
    channel.receive()


def _receive_first(group: dist.ProcessGroup, message: Tensor, buffers: Mapping[int, Tensor]) -> None:
    works = [dist.irecv(buffer, peer, group=group) for peer, buffer in buffers.items()]
    works += [dist.isend(message, peer, group=group) for peer in buffers]
    for work in works:
        assert work is not None
        work.wait()


def _send_first(group: dist.ProcessGroup, message: Tensor, buffers: Mapping[int, Tensor]) -> None:
    works = [dist.isend(message, peer, group=group) for peer in buffers]
    for peer, buffer in buffers.items():
        dist.recv(buffer, peer, group=group)
    for work in works:
        assert work is not None
        work.wait()


def _reduce_chunks(group: dist.ProcessGroup, chunks: Sequence[Tensor]) -> None:
    works = [dist.all_reduce(chunk, group=group, async_op=True) for chunk in chunks]
    for work in works:
        assert work is not None
        work.wait()


def _neighbours(job: Job) -> tuple[int, ...]:
    return tuple(sorted({(job.rank - 1) % job.size, (job.rank + 1) % job.size}))


def _ring(n: int) -> list[list[float]]:
    return [[1 / 3 if (i - j) % n in (0, 1, n - 1) else 0.0 for j in range(n)] for i in range(n)]


def _merged(parts: list[Times]) -> Times:
    """What a synchronous step would wait for: in each round the slowest worker."""
    return {name: [max(values) for values in zip(*(part[name] for part in parts), strict=True)] for name in parts[0]}
