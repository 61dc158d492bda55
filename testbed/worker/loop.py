"""One worker's training, from a Job to a JobResult. Controllers and `train_local` call `run_job` in each worker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from testbed.compressors.base import all_finite
from testbed.errors import DivergedError, StorageError, TestbedError, TrainingError
from testbed.methods.base import Method
from testbed.tasks import base as tasks
from testbed.tasks import spec
from testbed.tasks.bare import BareTask
from testbed.worker.checkpoint import Checkpoints
from testbed.worker.clock import Clock
from testbed.worker.control import FileControl
from testbed.worker.job import Job
from testbed.worker.lost import Lost
from testbed.worker.peer import WorkerPeer
from testbed.worker.progress import Progress, Where
from testbed.worker.rejoin import DECIDED, Neighbourhood, Parts, come_back
from testbed.worker.result import JobResult, write_unfinished
from testbed.worker.snapshots import Metric, Snapshots
from testbed.worker.sockets import tcp_bytes_again, tcp_bytes_sent
from testbed.worker.trace import Trace
from testbed.worker.transport import Control, LeftBehindError, Transport

SETTING_UP = 60.0  # seconds to wait for one message before training begins: γ is being tuned, connections made
HEAD_START_NS = 50_000_000  # between the last worker's arrival and the common start: time for all to read of it


@dataclass
class Worker:
    """Everything one worker trains with."""

    job: Job
    method: Method
    task: tasks.Task
    control: Control
    transport: Transport
    trace: Trace
    clock: Clock
    peer: WorkerPeer
    metrics: list[Metric] = field(default_factory=list)


def run_job(
    job: Job, *, method: Method | None = None, task: tasks.Task | None = None, shortcomings: Sequence[str] = ()
) -> JobResult:
    """Train; the method and the task are made from the job's specs unless given. Results are also written to the job's
    directory, trace and metrics so far even where training fails. `shortcomings`: of how this worker is isolated, which
    the result warns of."""
    torch.set_num_threads(1)  # workers share cores
    trace = Trace(job.rank)
    patience = max(600.0, job.deadline * job.size)  # the slowest worker may be a graph's diameter of steps behind
    lost = Lost(Path(job.directory)) if job.tolerant else None
    control = FileControl(job.rendezvous, job.size, patience, rank=job.rank, lost=lost)
    worker = prepare(job, control, open_transport(job, trace), trace, method=method, task=task)
    try:
        result = train(worker)
        result.warnings.extend(shortcomings)
        result.write(Path(job.directory))
    except LeftBehindError:
        raise  # it has done nothing that a trace could show
    except TestbedError as error:
        if isinstance(error, DivergedError):
            error.worker = job.name_of(job.rank)
        with suppress(OSError):  # why it failed matters more
            write_unfinished(Path(job.directory), job.rank, trace.spans(), worker.metrics)
        raise
    except OSError as error:
        if _refused(job, error):
            raise StorageError.of(job.directory, error) from error
        raise
    return result


def _refused(job: Job, error: OSError) -> bool:
    """Whether it was the disk that holds the results; a method may well open files of its own."""
    ours = str(error.filename or "").startswith(job.directory)
    return error.errno in StorageError.full or (ours and error.errno in StorageError.closed)


def open_transport(job: Job, trace: Trace) -> Transport:
    if job.backend == "nccl":
        from testbed.worker.nccl import NcclTransport

        return NcclTransport(job, trace)
    from testbed.worker.gloo import GlooTransport

    return GlooTransport(job, trace)


def prepare(
    job: Job,
    control: Control,
    transport: Transport,
    trace: Trace,
    *,
    method: Method | None = None,
    task: tasks.Task | None = None,
) -> Worker:
    """Model, data and method, but no exchange with anybody yet."""
    task = task or _make_task(job)
    method = method or _make_method(job)
    clock = Clock(trace)
    return Worker(job, method, task, control, transport, trace, clock, WorkerPeer(job, task, transport, trace, clock))


def train(worker: Worker) -> JobResult:
    """Connect, run all steps, leave, and only then evaluate."""
    run = _Run(worker)
    if worker.job.life:
        run.come_back()
    else:
        run.connect()
    run.all_steps()
    return run.end()


class _Run:
    """One training under way."""

    def __init__(self, worker: Worker) -> None:
        job, peer = worker.job, worker.peer
        directory = Path(job.directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.worker = worker
        self.job = job
        self.snapshots = Snapshots(job, worker.task)
        self.checkpoints = Checkpoints(directory, job.rank, job.size)
        self.warnings = worker.method.check(peer.gossip)
        self.first = 0
        self.before: dict[str, Any] = {"elapsed_ns": 0, "metrics": [], "sent": {}}  # an interruption
        self.metrics = worker.metrics
        self.sent = worker.transport.sent
        self.sent_before = 0  # in an earlier life
        self.tcp_before = 0
        self.progress = Progress(Path(job.progress), job.size) if job.progress else None
        self.neighbourhood: Neighbourhood | None = None  # where others may come back

    def connect(self) -> None:
        """All workers meet, connect and start their clocks together."""
        worker = self.worker
        worker.transport.deadline = max(self.job.deadline, SETTING_UP)
        self._init()
        worker.control.meet("connect")
        worker.transport.connect()
        worker.trace.clear()  # what `init` did and exchanged is no part of training
        self.sent.clear()
        self.sent.update(self.before["sent"])
        self.tcp_before = tcp_bytes_sent()
        if self.job.tolerant and self.job.rank == 0:
            worker.control.note(DECIDED, json.dumps(worker.method.decided(self.state)))
        self.began_ns = worker.control.meet("start") + HEAD_START_NS
        worker.transport.deadline = self.job.deadline
        if self.job.tolerant and self.progress:
            self.neighbourhood = Neighbourhood(self._parts(self.progress), self.state)
        self._show(self.first, 0, 0)
        worker.clock.start(self.began_ns, self.before["elapsed_ns"])
        if not self.first and self.job.training.eval_every:
            with worker.clock.paused():
                self.snapshots.keep(0, worker.peer.x, 0, 0)

    def _init(self) -> None:
        """The method's state, from the start or from where an interrupted run was."""
        worker = self.worker
        self.first = (self.checkpoints.newest() or 0) if self.job.resume else 0
        worker.peer.begin(self.first)
        self.state = worker.method.init(worker.peer)
        if self.first:
            self.before = self.checkpoints.load(self.first, worker.peer, worker.task, self.state)
            self.snapshots.resume(self.first)
        self.metrics += [Metric(*row) for row in self.before["metrics"]]

    def come_back(self) -> None:
        """Instead of `connect`, where this worker was started again: the others are training."""
        worker = self.worker
        if self.progress is None or not isinstance(worker.control, FileControl):
            raise TrainingError("a worker can come back only where a controller watches")
        parts, earlier = self._parts(self.progress), self.progress.get(self.job.rank)
        back = come_back(parts, worker.control)
        worker.method, self.state, self.first = back.method, back.state, back.step
        self.neighbourhood = Neighbourhood(self._parts(self.progress), self.state, back.notice)
        self.snapshots.resume(back.step)
        self.sent_before, self.began_ns = earlier.bytes_sent, earlier.start_ns
        worker.clock.start(self.began_ns, -back.standing_ns)
        self._show(back.step, worker.clock.now_ns(), self._bytes_sent())

    def _parts(self, progress: Progress) -> Parts:
        worker = self.worker
        return Parts(worker.job, worker.method, worker.task, worker.transport, worker.peer, worker.clock, progress)

    def all_steps(self) -> None:
        training, worker = self.job.training, self.worker
        for step in range(self.first, training.steps):
            worker.peer.begin(step)
            if self.neighbourhood:
                self.neighbourhood.before(step)
            worker.method.step(worker.peer, self.state)
            done, last = step + 1, step + 1 == training.steps
            if last:
                worker.method.finish(worker.peer, self.state)
            self._note(done, snapshot=last or _due(done, training.eval_every))
            if not last and _due(done, training.checkpoint_every):
                worker.method.finish(worker.peer, self.state)
                self._save(done)

    def end(self) -> JobResult:
        worker = self.worker
        seconds, queueing = worker.clock.now_ns() / 1e9, worker.clock.queueing
        queued = queueing.ns / 1e9 if queueing.known else None
        if not all_finite(worker.peer.x):
            self._diverged(self.job.training.steps - 1)
        tcp_bytes, again = tcp_bytes_sent() - self.tcp_before, tcp_bytes_again()
        worker.control.meet("trained")  # whoever left earlier could reset connections with data still under way
        worker.transport.leave()
        here = worker.control.present("trained")
        self.metrics += self.snapshots.evaluate(here)
        worker.control.meet("evaluated")
        lost = [rank for rank in range(self.job.size) if rank not in here]
        leavings = [self.job.rank, *(lost if self.job.rank == here[0] else ())]
        self.snapshots.remove(leavings)
        self.checkpoints.remove(leavings)
        return JobResult(
            rank=self.job.rank,
            steps=self.job.training.steps,
            seconds=seconds,
            bytes_sent=dict(self.sent),
            tcp_bytes_sent=tcp_bytes,
            tcp_bytes_before=self.tcp_before,
            tcp_bytes_again=again,
            pipelined=worker.method.pipelined,
            queued=queued,
            overruns=worker.peer.overruns,
            decided=worker.method.decided(self.state),
            warnings=self.warnings,
            metrics=self.metrics,
            spans=worker.trace.spans(),
            x=worker.peer.x.detach().cpu().numpy().copy(),
        )

    def _bytes_sent(self) -> int:
        return self.sent_before + sum(self.sent.values())

    def _show(self, done: int, time_ns: int, bytes_sent: int) -> None:
        """Tell the controller, where there is one, and hear what it has to say."""
        if self.progress:
            peer = self.worker.peer
            self.progress.put(self.job.rank, Where(done, self.began_ns, bytes_sent, time_ns / 1e9, peer.loss))
            peer.slow_factor = self.progress.slow(self.job.rank)

    def _note(self, done: int, *, snapshot: bool) -> None:
        peer, clock = self.worker.peer, self.worker.clock
        time_ns, bytes_sent = clock.now_ns(), self._bytes_sent()
        if not isfinite(peer.loss) and self.job.training.compute.mode != "emulated":
            self._diverged(done - 1)
        self._show(done, time_ns, bytes_sent)
        self.metrics.append(Metric(self.job.rank, done, time_ns / 1e9, bytes_sent, "train_loss", peer.loss))
        if snapshot:
            with clock.paused():
                self.snapshots.keep(done, peer.x, time_ns, bytes_sent)

    def _diverged(self, step: int) -> None:
        """The loss is no number any more: say where that can be seen."""
        peer, task = self.worker.peer, self.worker.task
        for what, flat in (("", peer.x), ("the gradient of ", task.grad)):
            for slot in peer.layout.slots:
                if not all_finite(flat[slot.start : slot.stop]):
                    raise DivergedError(
                        f"{what}{slot.name} holds NaN or Inf at step {step} (loss {peer.loss}): "
                        "the training has diverged",
                        hint="lower the learning rate (or the method's gamma), or warm up",
                        step=step,
                    )

    def _save(self, done: int) -> None:
        worker = self.worker
        elapsed_ns = worker.clock.now_ns()
        with worker.clock.paused():
            loop = {
                "elapsed_ns": elapsed_ns,
                "metrics": [astuple(row) for row in self.metrics],
                "sent": dict(self.sent),
            }
            self.checkpoints.save(done, worker.peer, worker.task, self.state, loop)


def _due(steps: int, every: int) -> bool:
    return every > 0 and steps % every == 0


def _make_task(job: Job) -> tasks.Task:
    resolved = spec.resolve(job.task)
    if job.training.compute.mode == "emulated" and resolved.data is not None:
        return BareTask(resolved, rank=job.rank, seed=job.seed)
    data_dir = Path(job.data_dir) if job.data_dir else None
    return tasks.make(job.task, rank=job.rank, size=job.size, seed=job.seed, data_dir=data_dir)


def _make_method(job: Job) -> Method:
    from testbed import methods

    return methods.make(job.method, Path(job.beside) if job.beside else None)
