"""One worker's training, from a Job to a JobResult. Controllers and `train_local` call `run_job` in each worker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from math import isfinite
from pathlib import Path
from time import monotonic_ns, thread_time_ns
from typing import Any

import torch

from testbed.compressors.base import all_finite
from testbed.errors import DivergedError, StorageError, TestbedError, TrainingError
from testbed.methods.base import Method
from testbed.tasks import base as tasks
from testbed.tasks import spec
from testbed.tasks.no_data import BareTask
from testbed.worker.checkpoint import Checkpoints
from testbed.worker.clock import Clock
from testbed.worker.control import FileControl
from testbed.worker.job import Job
from testbed.worker.lost import Lost
from testbed.worker.padding import Padding
from testbed.worker.peer import WorkerPeer
from testbed.worker.progress import Progress, Where, orders
from testbed.worker.rejoin import DECIDED, Neighbourhood, Parts, come_back
from testbed.worker.result import JobResult, write_unfinished
from testbed.worker.snapshots import Metric, Snapshots
from testbed.worker.sockets import tcp_bytes_again, tcp_bytes_sent
from testbed.worker.trace import Trace
from testbed.worker.transport import Control, LeftBehindError, Transport

SETTING_UP = 60.0  # seconds to wait for one message before training begins: γ is being tuned, connections made
HEAD_START_NS = 50_000_000  # between the last worker's arrival and the common start: time for all to read of it

RESUMED = (
    "interrupted, and resumed after step {step}: times, losses and the bytes of metrics are of the whole training; the "
    "trace, the parts of a step, exchange, floor and the bytes on ports are of the steps since"
)
ANEW = "interrupted, and begun anew: there was no checkpoint that all workers could read"


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
    directory, trace and metrics so far even where training fails. `shortcomings`: of this worker's isolation, which the
    result warns of."""
    torch.set_num_threads(1)  # workers share cores
    trace = Trace(job.rank)
    patience = max(
        600.0, job.message_timeout * job.size
    )  # the slowest worker may be a graph's diameter of steps behind
    lost = Lost(job.news) if job.tolerant else None
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
    """Whether the disk that holds the results is the cause; a method may well open files of its own."""
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
    """Make model, data and method, without any exchange yet."""
    task = task or _make_task(job)
    method = method or _make_method(job)
    clock = Clock(trace, job.slow_motion)
    trace.slow_motion = job.slow_motion
    if job.slow_motion > 1:
        work = thread_time_ns if job.device == "cpu" else monotonic_ns  # a worker with a GPU waits for it
        trace.padding = Padding(job.slow_motion / job.cpu_share, clock, work=work)
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


@dataclass(frozen=True)
class Before:
    """What the loop itself needs from before an interruption."""

    elapsed_ns: int = 0  # on the training clock
    queued_ns: int = 0
    overruns: int = 0
    bytes_sent: int = 0
    metrics: Sequence[tuple[Any, ...]] = ()


class _Run:
    """A training under way."""

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
        self.before = Before()
        self.metrics = worker.metrics
        self.sent = worker.transport.sent
        self.sent_before = 0  # in an earlier life, or before an interruption
        self.tcp_before = 0
        self.progress = Progress(Path(job.progress), orders(job.news), job.size) if job.progress else None
        self.neighbourhood: Neighbourhood | None = None  # where others may come back

    def connect(self) -> None:
        """Meet all workers, connect, and start the clocks together."""
        worker = self.worker
        worker.transport.message_timeout = max(self.job.message_timeout, SETTING_UP * self.job.slow_motion)
        self._init()
        worker.control.meet("connect")
        worker.transport.connect()
        worker.trace.clear()  # what `init` did and exchanged is no part of training
        self.sent.clear()
        self.tcp_before = tcp_bytes_sent()
        if self.job.tolerant and self.job.rank == 0:
            worker.control.note(DECIDED, json.dumps(worker.method.decided(self.state)))
        self.began_ns = worker.control.meet("start") + HEAD_START_NS
        worker.transport.message_timeout = self.job.message_timeout
        if self.job.tolerant and self.progress:
            self.neighbourhood = Neighbourhood(self._parts(self.progress), self.state)
        self._show(self.first, self.before.elapsed_ns, self.sent_before)
        worker.clock.start(self.began_ns, self.before.elapsed_ns)
        if not self.first and self.job.training.eval_every:
            with worker.clock.paused():
                self.snapshots.keep(0, worker.peer.x, 0, 0)

    def _init(self) -> None:
        """Set the method's state, initial or from where an interrupted run was."""
        worker = self.worker
        content = self._agreed() if self.job.resume else None
        self.first = content["step"] if content else 0
        worker.peer.begin(self.first)
        self.state = worker.method.init(worker.peer)
        if content:
            self.before = Before(**self.checkpoints.load(content, worker.peer, worker.task, self.state))
            self.snapshots.resume(self.first)
        self.metrics += [Metric(*row) for row in self.before.metrics]
        self.sent_before, worker.peer.overruns = self.before.bytes_sent, self.before.overruns

    def _agreed(self) -> dict[str, Any] | None:
        """Return this worker's checkpoint of the newest step that all can read; None where there is none. Its later
        checkpoints are removed: those steps are taken again."""
        own = self.checkpoints.usable(self.worker.peer.x.device)
        have = [step for step in own if step < self.job.training.steps and self.snapshots.whole(step)]
        said = self.worker.control.share("checkpoints", self.job.rank, json.dumps(have))
        step = max(set[int].intersection(*(set(json.loads(steps or "[]")) for steps in said)), default=0)
        self.checkpoints.forget(step)
        self.warnings.append(RESUMED.format(step=step) if step else ANEW)
        return own.get(step)

    def come_back(self) -> None:
        """Rejoin the training workers, instead of `connect`, where this worker was started again."""
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
        seconds, queueing = worker.clock.now_ns() / 1e9, worker.clock.cpu_wait
        queued = (queueing.ns / self.job.slow_motion + self.before.queued_ns) / 1e9 if queueing.known else None
        if not all_finite(worker.peer.x):
            self._diverged(self.job.training.steps - 1)
        tcp_bytes, again = tcp_bytes_sent() - self.tcp_before, tcp_bytes_again()
        paced = worker.transport.paced
        worker.control.meet("trained")  # leaving earlier could reset connections with data still under way
        worker.transport.leave()
        here = worker.control.present("trained")
        self.metrics += self.snapshots.evaluate(here)
        worker.control.meet("evaluated")
        lost = [rank for rank in range(self.job.size) if rank not in here]
        leavings = [self.job.rank, *(lost if self.job.rank == here[0] else ())]
        self.snapshots.remove(leavings)
        with suppress(OSError):  # another worker may have closed the directory; results do not depend on it
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
            overlaps=worker.method.overlaps,
            paced=paced,
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
        """Show progress to the controller, where there is one, and read its notices."""
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
        """Report where the loss first became NaN or infinite."""
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
            queued_ns = round(worker.clock.cpu_wait.ns / self.job.slow_motion) + self.before.queued_ns
            rows = [astuple(row) for row in self.metrics]
            now = Before(elapsed_ns, queued_ns, worker.peer.overruns, self._bytes_sent(), rows)
            self.checkpoints.save(done, worker.peer, worker.task, self.state, vars(now))


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
