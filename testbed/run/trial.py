"""Measures what a step of each method costs a processor: some steps of one worker whose neighbours echo what it sends.

It takes some ten milliseconds per method and runs in a process of its own, since methods may be user code. The factor
of `auto` slow motion is chosen from it.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from time import thread_time
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError
from testbed.plan.model import Plan
from testbed.plan.slow_motion import Load, Room, enough, with_factors

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.methods.base import Channel, Method
    from testbed.scenario.model import Scenario
    from testbed.tasks.base import Task
    from testbed.topology.gossip import Gossip

LONG_ENOUGH = 0.03  # seconds of a processor, for one method
STEPS = (2, 20)  # at least and at most, after a first one that does not count
SECONDS = 60.0  # for all methods of a scenario together
LR = 0.01


def paced(plan: Plan, room: Room, known: Mapping[int, float] | None = None) -> tuple[Plan, list[str]]:
    """Return the plan with a factor for every point whose scenario leaves it to us, and what to report about it.
    `known`: factors that were chosen before, by point."""
    known = known or {}
    factors, trials = dict(known), dict[Any, tuple[list[Load], str]]()
    for index, scenario in enumerate(plan.variants):
        point = plan.points[next(cell.point for cell in plan.cells if cell.variant == index)]
        if not scenario.chooses_slow_motion or point.index in known:
            continue
        graph = [matrix.tobytes() for matrix in point.gossip.matrices]
        key = repr((scenario.task, scenario.compute, scenario.methods, scenario.seed)), *graph  # and no links
        if key not in trials:
            trials[key] = _tried(scenario, point.gossip)
        chosen = enough(point.network, point.gossip, trials[key][0], room)
        factors[point.index] = max(chosen, factors.get(point.index, 1.0))
    problems = dict.fromkeys(problem for _, problem in trials.values() if problem)
    notes = [f"slow motion was chosen without a trial of the methods: {problem}" for problem in problems]
    return with_factors(plan, factors), notes


def _tried(scenario: Scenario, gossip: Gossip) -> tuple[list[Load], str]:
    """Measure in a child process, so that nothing it loads, starts or breaks affects this one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer_and_exit(writer, lambda: [asdict(one) for one in loads(scenario, gossip)])
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = b""
        if select.select([stream], [], [], SECONDS)[0]:
            data = stream.read()
        else:
            os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    answer: dict[str, Any] = json.loads(data) if data else {"problem": "it did not end"}
    return [_load(one) for one in answer.get("loads", ())], answer.get("problem", "")


def _load(data: dict[str, Any]) -> Load:
    return Load(**{**data, "by_offset": {int(offset): count for offset, count in data["by_offset"].items()}})


def _answer_and_exit(writer: int, ask: Callable[[], Any]) -> None:
    status = 1
    try:
        try:
            answer = {"loads": ask()}
        except Exception as error:  # noqa: BLE001  # a method of somebody's own may raise anything
            answer = {"problem": f"{type(error).__name__}: {error}"}
        with os.fdopen(writer, "wb") as stream:
            stream.write(json.dumps(answer).encode())
        status = 0
    finally:
        os._exit(status)


def loads(scenario: Scenario, gossip: Gossip) -> list[Load]:
    """Return the load of each method."""
    import torch

    from testbed.methods import make

    torch.set_num_threads(1)
    task = _task(scenario, gossip)
    given = float(scenario.compute.step_time or scenario.compute.emulated or 0.0)
    gradient = _gradient(task) if scenario.compute.emulated is None else 0.0
    found = []
    for choice in scenario.methods:
        method = make({choice.name: dict(choice.options)}, scenario.resolve("."))
        found.append(load(choice.label, method, task, gossip, gradient=gradient, given=given))
    return found


def load(label: str, method: Method, task: Task, gossip: Gossip, *, gradient: float, given: float) -> Load:
    """Return a method's load. One that needs more than an echo, such as a process group, counts as an all-reduce."""
    peer = EchoPeer(task, gossip)
    try:
        state = method.init(peer)
        peer.forget()
        seconds, steps = list[float](), 0
        while steps < STEPS[0] or (sum(seconds) < LONG_ENOUGH and steps < STEPS[1]):
            begun, aside = thread_time(), peer.aside
            method.step(peer, state)
            seconds.append(thread_time() - begun - (peer.aside - aside))
            peer.step = steps = steps + 1
    except TestbedError:
        whole = float(peer.x.nbytes)
        return Load(label, gradient=gradient, given=given, messages=2 * gossip.size - 2, reduced=whole, overlaps=True)
    return Load(
        label,
        codec=min(seconds[1:]),
        gradient=gradient,
        given=given,
        messages=peer.messages / steps,
        rounds=2 * (peer.size - 1) if method.pipelined else peer.rounds / steps,
        per_edge=peer.to_neighbours / steps,
        by_offset={offset: count / steps for offset, count in peer.offsets.items()},
        reduced=peer.reduced / steps,
        overlaps=method.overlaps,
        pipelined=method.pipelined,
    )


def _task(scenario: Scenario, gossip: Gossip) -> Task:
    """Return worker 1's task, with its data where gradients are computed."""
    from testbed.tasks import base, spec
    from testbed.tasks.no_data import BareTask

    rank = 1 % gossip.size
    resolved = spec.resolve(scenario.task.spec)
    if scenario.compute.emulated is not None and resolved.data is not None:
        return BareTask(resolved, rank=rank, seed=scenario.seed)
    return base.make(scenario.task.spec, rank=rank, size=gossip.size, seed=scenario.seed)


def _gradient(task: Task) -> float:
    """Return the processor seconds of a gradient; the first one also sets things up."""
    import torch

    x = task.initial()
    task.bind(x)
    out, seconds = torch.zeros_like(x), []
    for step in range(3):
        begun = thread_time()
        task.gradient(step, out)
        seconds.append(thread_time() - begun)
    return min(seconds)


class EchoPeer:
    """A worker whose neighbours echo its own messages."""

    tolerant = False
    absent: Collection[int] = ()
    lr = LR

    def __init__(self, task: Task, gossip: Gossip) -> None:
        import torch

        self.size, self.gossip, self.seed, self.step = gossip.size, gossip, 1, 0
        # Not the first, which may have to set things up for all; the busiest of the others.
        self.rank = max(range(gossip.size), key=lambda rank: (len(gossip.neighbours(rank)), rank))
        self.layout, self.x = task.layout, task.initial()
        self._direction = torch.randn(self.x.shape, generator=torch.Generator().manual_seed(1)) * 1e-3
        self.aside = 0.0  # seconds spent in what stands for others
        self.forget()

    def forget(self) -> None:
        """Restart the count."""
        self.messages = self.rounds = 0
        self.to_neighbours = self.reduced = 0.0
        self.offsets: defaultdict[int, float] = defaultdict(float)

    def direction(self) -> Tensor:
        return self._direction

    def channel(
        self, nbytes: int, *, targets: Sequence[int] | None = None, sources: Sequence[int] | None = None
    ) -> Channel:
        return _Echo(self, nbytes, targets, sources)

    def all_reduce(self, tensor: Tensor) -> None:
        self.reduced += tensor.nbytes
        self.messages += 2 * (self.size - 1)

    def span(self, kind: str) -> AbstractContextManager[None]:
        return nullcontext()


class _Echo:
    """A channel that answers at once."""

    lost: Collection[int] = ()

    def __init__(
        self, peer: EchoPeer, nbytes: int, targets: Sequence[int] | None, sources: Sequence[int] | None
    ) -> None:
        self._peer, self._nbytes, self._targets, self._sources = peer, nbytes, targets, sources
        self._buffers: dict[int, Tensor] = {}
        self._sent: Tensor | Mapping[int, Tensor] | None = None

    def send(self, message: Tensor | Mapping[int, Tensor]) -> None:
        peer, begun = self._peer, thread_time()
        gossip = peer.gossip.targets(peer.step, peer.rank)
        targets = gossip if self._targets is None else self._targets
        each = message if isinstance(message, Mapping) else dict.fromkeys(targets, message)
        self._sent = message
        peer.rounds += 1
        peer.messages += len(each)
        for target, one in each.items():
            if set(targets) == set(gossip):
                peer.to_neighbours += one.numel() / len(each)
            else:
                peer.offsets[(target - peer.rank) % peer.size] += one.numel()
        peer.aside += thread_time() - begun

    def receive(self) -> dict[int, Tensor]:
        import torch

        peer, begun, sent = self._peer, thread_time(), self._sent
        assert sent is not None
        sources = self._sources if self._sources is not None else peer.gossip.sources(peer.step, peer.rank)
        for source in sources:
            one = sent if not isinstance(sent, Mapping) else sent.get(source, next(iter(sent.values())))
            buffer = self._buffers.setdefault(source, torch.zeros(self._nbytes, dtype=torch.uint8))
            buffer[: one.numel()].copy_(one)
        peer.aside += thread_time() - begun
        return {source: self._buffers[source] for source in sorted(sources)}
