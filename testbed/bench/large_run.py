"""A large run that never ran: made-up workers on a ring, in a directory like that of a real run, for `bench report` and
tests. Whatever writes real runs writes this one: plan, spans, metrics, digest, counters, links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.link.netem import ideal_goodput
from testbed.network.calibrate import Calibration, choose_probes
from testbed.plan.make import plan
from testbed.plan.model import Cell, NetworkPlan, Plan
from testbed.results.cell import Pacing, Payload, Target
from testbed.results.digest import digest
from testbed.results.directory import RunDirectory, environment
from testbed.results.surroundings import MeasuredNetwork
from testbed.run.jobs import WATCH_EVERY
from testbed.run.resume import remember
from testbed.run.sampler import LINK_COUNTERS, PORT_COUNTERS, Sampler
from testbed.scenario.load import loads
from testbed.verdict import Verdict
from testbed.worker.edges import HEADER
from testbed.worker.result import JobResult, write_tables
from testbed.worker.snapshots import AVERAGE, Metric
from testbed.worker.trace import CODES, SPAN
from testbed.worker.transport import ALL, ring_share

METHODS = ("allreduce", "dpsgd", "dcd: {compressor: {quantize: 8bit}}", "choco: {compressor: sign}", "powergossip")
SHARE = {"allreduce": 1.0, "dpsgd": 1.0, "dcd": 0.25, "choco": 0.032, "powergossip": 0.02}  # of a model, per message
MODEL = 400_000  # bytes
COMPUTE, CODEC, MIX, EVAL = 30_000_000, 2_000_000, 500_000, 3_000_000  # ns
EVALUATIONS = 20
SAMPLE = 0.2  # seconds
BEGAN = 1_000_000_000_000  # on the monotonic clock
SCENARIO = """
name: large
workers: {workers}
network: {{topology: ring, link: {{latency: 1ms, rate: 100mbit}}}}
task: {{data: digits, model: mlp}}
training: {{steps: {steps}, eval_every: {every}, target: {{accuracy: 90%}}}}
compute: {{step_time: 30ms}}
methods: [{methods}]
sweep:
  network.link.latency: [0.2ms, 1ms]
  network.link.rate: [1gbit, 100mbit]
repeat: {repeat}
"""

Times = NDArray[np.int64]  # ns, by worker and step


def make(
    directory: Path, workers: int = 64, steps: int = 1000, methods: int = len(METHODS), repeat: int = 1
) -> RunDirectory:
    """Four networks × so many methods × repeats."""
    chosen = ", ".join(f"{{{method}}}" if ":" in method else method for method in METHODS[:methods])
    every = max(1, steps // EVALUATIONS)
    scenario = loads(SCENARIO.format(workers=workers, steps=steps, every=every, methods=chosen, repeat=repeat))
    made = plan(scenario)
    run = RunDirectory.create("large", directory)
    remember(run, scenario, made)
    run.write_json("environment.json", environment(_box()))
    run.write_json("links.json", list(_links(made)))
    for cell in made.cells:
        _Cell(run, made, cell).write()
    return run


def _box() -> dict[str, object]:
    settings = {"box": "host", "box_reason": "nothing was built", "box_kernel": "6.1", "runtime": "process"}
    return {**settings, "network_settings": {}, "gso_segments": {}, "resumes": None, "gpus": {}, "slow_motion": 1.0}


def _links(made: Plan) -> Iterator[dict[str, object]]:
    for point in made.points:
        network = point.network
        probes = []
        for probe in choose_probes(network):
            ways = {name: getattr(probe, name) for name in ("there", "back")}
            carried = {
                name: replace(way, goodput=None if way.rate is None else 0.997 * ideal_goodput(way.rate, network.mtu))
                for name, way in ways.items()
            }
            probes.append(replace(probe, rtt=probe.latency + 1e-4, spread=5e-5, **carried))
        found = Calibration(tuple(probes), Verdict("faithful"), unmeasured=0)
        yield MeasuredNetwork.of(point.index, point.label, network.mtu, found).stored()


@dataclass(frozen=True)
class _Schedule:
    """When each worker did what."""

    start: Times  # of the step
    sent: Times
    waited: tuple[Times, ...]  # until the message of each neighbour was here
    end: Times


class _Cell:
    """One cell that is made up."""

    def __init__(self, run: RunDirectory, made: Plan, cell: Cell) -> None:
        self.directory, self.run, self.cell = run.cell(cell.id), run, cell
        self.network: NetworkPlan = made.points[cell.point].network
        training = made.variants[cell.variant].training
        self.steps, self.every, self.target = training.steps, training.eval_every, training.target
        self.n = len(self.network.workers)
        self.random = np.random.default_rng([cell.seed, cell.point, made.cells.index(cell)])
        self.reduces = cell.method == "allreduce"
        self.coded = SHARE[cell.method] < 1
        self.message = round(MODEL * SHARE[cell.method])
        link = self.network.links[0].ab
        self.latency, self.rate = link.latency, link.rate or 1e12

    def _travel(self, size: float) -> int:
        """How long a message of so many bytes is under way, in ns."""
        return round(1e9 * (self.latency + 8 * size / self.rate))

    def write(self) -> None:
        schedule = self._schedule()
        results = [self._result(rank, schedule) for rank in range(self.n)]
        (self.directory / "logs").mkdir(parents=True)
        for worker in self.network.workers:
            (self.directory / "logs" / f"{worker.name}.log").touch()
        write_tables(results, self.directory)
        sampler = self._sampler(results[0].seconds)
        sampler.write(self.directory / "counters.parquet")
        target = Target(self.target.kind, float(self.target.options)) if self.target else None  # type: ignore[arg-type]
        sent = {f"w{result.rank}": sum(result.bytes_sent.values()) for result in results}
        result = replace(
            digest(results, self.network, target),
            payload={name: Payload(count, count) for name, count in sent.items()},
            wire_bytes=round(1.05 * sum(sent.values())),
            idle=0.5,
            box_share=0.2,
            memory_per_worker=2e7,
            congestion="cubic",
            pacing=None if self.reduces else Pacing(2 * self.n, 0.0),
            patience_s=60.0,
            first_step_s=0.5,
            cell_s=results[0].seconds + 2,
        )
        self.run.write_json(f"cells/{self.cell.id}/verdict.json", asdict(result.verdict))
        self.run.write_json(f"cells/{self.cell.id}/result.json", result.stored())

    def _schedule(self) -> _Schedule:
        """Steps begin together; messages are waited for, the slowest worker ends the step for all."""
        shape = (self.n, self.steps)
        jitter = self.random.gamma(2.0, 1e5, shape).astype(np.int64)
        sent = COMPUTE + jitter + (CODEC if self.coded else 0)  # from the beginning of the step
        if self.reduces:
            ring = 2 * (self.n - 1) * self._travel(self.message / self.n)
            waited: tuple[Times, ...] = (np.broadcast_to(sent.max(axis=0) + ring, shape),)
        else:
            came = sent + self._travel(self.message + HEADER)
            first = np.maximum(sent, np.roll(came, 1, axis=0))
            waited = (first, np.maximum(first, np.roll(came, -1, axis=0)))
        end = waited[-1] + MIX + (CODEC if self.coded else 0)
        lengths = end.max(axis=0) + 20_000
        pauses = np.where(np.arange(self.steps) % self.every == self.every - 1, EVAL, 0)
        start = BEGAN + np.concatenate([[0], np.cumsum(lengths + pauses)[:-1]])
        return _Schedule(np.broadcast_to(start, shape), start + sent, tuple(start + one for one in waited), start + end)

    def _result(self, rank: int, schedule: _Schedule) -> JobResult:
        spans = self._spans(rank, schedule)
        sends = spans[spans["kind"] == CODES["send"]]
        sent = {
            int(peer): int(sends["bytes_logical"][sends["peer"] == peer].sum()) for peer in np.unique(sends["peer"])
        }
        if self.reduces:
            sent = {ALL: self.steps * ring_share(self.message, self.n)}
        times = (schedule.end[rank] - BEGAN) / 1e9 - np.arange(self.steps) // self.every * EVAL / 1e9
        per_step = sum(sent.values()) / self.steps
        return JobResult(
            rank=rank,
            steps=self.steps,
            seconds=float(times[-1]),
            bytes_sent=sent,
            tcp_bytes_sent=round(1.01 * sum(sent.values())),
            overruns=0,
            queued=0.02 * float(times[-1]),
            decided={},
            warnings=[],
            metrics=list(self._metrics(rank, times, per_step)),
            spans=spans,
            x=np.zeros(1, dtype=np.float32),
        )

    def _spans(self, rank: int, schedule: _Schedule) -> NDArray[np.void]:
        """As a worker records them: in the order in which they end."""
        start, sent, end = schedule.start[rank], schedule.sent[rank], schedule.end[rank]
        waited = [one[rank] for one in schedule.waited]
        size, wire = self.message, self.message + HEADER
        coded = CODEC if self.coded else 0
        parts = [self._part("compute", start, sent - coded)]
        if self.coded:
            parts.append(self._part("compress", sent - coded, sent))
            parts.append(self._part("decompress", waited[-1], waited[-1] + coded))
        if self.reduces:
            parts.append(self._part("wait", sent, waited[0], ALL, size, ring_share(size, self.n)))
        else:
            peers = sorted({(rank - 1) % self.n, (rank + 1) % self.n})
            before = sent
            for peer, here in zip(peers, waited, strict=True):
                parts.append(self._part("wait", before, here, peer, size, wire))
                parts.append(self._part("send", sent, waited[-1], peer, size, wire))
                seen = self._part("receive", sent, here, peer, size, wire)
                parts.append(seen[seen["step"] % WATCH_EVERY == 0])
                before = here
        parts.append(self._part("mix", waited[-1] + coded, end - 100_000))
        parts.append(self._part("update", end - 100_000, end))
        judged = self._part("eval", end, end + EVAL)
        parts.append(judged[judged["step"] % self.every == self.every - 1])
        spans = np.concatenate(parts)
        return spans[np.argsort(spans["end_ns"], kind="stable")]

    def _part(
        self, kind: str, start: Times, end: Times, peer: int = -1, size: int = 0, wire: int = 0
    ) -> NDArray[np.void]:
        """One span of a kind in every step."""
        spans = np.zeros(self.steps, dtype=SPAN)
        values = {"kind": CODES[kind], "peer": peer, "bytes_logical": size, "bytes_wire": wire}
        for name, value in {**values, "step": np.arange(self.steps), "start_ns": start, "end_ns": end}.items():
            spans[name] = value
        return spans

    def _metrics(self, rank: int, times: NDArray[np.float64], per_step: float) -> Iterator[Metric]:
        """A loss of every step; at evaluations the rest, the average's by the first worker."""
        slowness = self.steps / (8 * (0.6 if self.coded else 1))
        noise = self.random.normal(0, 0.05, self.steps)
        losses = 2.3 * np.exp(-np.arange(1, self.steps + 1) / slowness) * (1 + noise) + 0.05
        for step in range(self.steps):
            time, count, loss = float(times[step]), round(per_step * (step + 1)), float(losses[step])
            yield Metric(rank, step + 1, time, count, "train_loss", loss)
            if step % self.every != self.every - 1:
                continue
            tested = {"test_loss": loss + 0.05, "test_accuracy": 1 / (1 + loss / 2)}
            for name, value in tested.items():
                yield Metric(rank, step + 1, time, count, name, value)
                if rank == 0:
                    yield Metric(AVERAGE, step + 1, time, self.n * count, name, value)
            if rank == 0:
                yield Metric(AVERAGE, step + 1, time, self.n * count, "consensus", loss / 10)

    def _sampler(self, seconds: float) -> Sampler:
        """Counters that grow evenly."""
        sampler = Sampler()
        names = [worker.name for worker in self.network.workers]
        links = [f"{a}>{b}" for link in self.network.links for a, b in ((link.a, link.b), (link.b, link.a))]
        rate = self.message / 0.05  # bytes per second, about
        for number in range(max(2, round(seconds / SAMPLE))):
            now, count = BEGAN / 1e9 + number * SAMPLE, float(round(number * SAMPLE * rate))
            of_link = (count, count // 1448, 0.0, count % 7919, 3.0)
            of_port = (count // 1448, count // 1448, count, count)
            of_worker = {"cpu_seconds": 0.1 * number, "memory": 2e8, "retransmits": 0.0}
            for name in links:
                sampler.rows += [(now, "link", name, key, v) for key, v in zip(LINK_COUNTERS, of_link, strict=True)]
            for name in names:
                sampler.rows += [(now, "port", name, key, v) for key, v in zip(PORT_COUNTERS, of_port, strict=True)]
                sampler.rows += [(now, "worker", name, key, v) for key, v in of_worker.items()]
            sampler.rows.append((now, "worker", names[number % self.n], "memory_own", 2e7))
            sampler.rows += [(now, "host", "processors", "idle", 0.5), (now, "host", "processors", "stolen", 0.0)]
            sampler.rows.append((now, "host", "box", "share", 0.2))
        return sampler
