"""Trains on this machine over loopback: N forked workers, real messages, no emulated network.

`testbed train --local` and the tests call it; it is also the shortest way to try a method from Python.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from testbed import methods
from testbed.errors import ScenarioError
from testbed.methods.base import Method
from testbed.tasks import spec as tasks
from testbed.tasks.base import Task
from testbed.topology.gossip import Gossip
from testbed.worker.forked import run_forked
from testbed.worker.job import Job, Training, graph_of
from testbed.worker.loop import run_job
from testbed.worker.lost import may_lose
from testbed.worker.progress import Board, orders
from testbed.worker.result import JobResult, write_tables

MakeTask = Callable[[int, int, int], Task]  # of rank, size and seed


def train_local(
    n: int,
    method: Method | Any,
    task: MakeTask | Any,
    gossip: Gossip,
    training: Training,
    *,
    seed: int = 1,
    directory: Path | None = None,
    message_timeout: float = 60.0,
    watch_every: int = 0,
    resume: bool = False,
    tolerant: bool = False,
    started: Callable[[list[int]], None] | None = None,
) -> list[JobResult]:
    """Train with n workers; return one result each. Method and task are specs as in a scenario, or a Method and a
    function that makes a Task. Without a directory nothing is kept. With `tolerant` the survivors go on, if the method
    can, and the results are theirs."""
    made = method if isinstance(method, Method) else methods.make(method)
    if not callable(task):
        tasks.resolve(task)  # what is wrong with it is said once, before workers are started
    with tempfile.TemporaryDirectory(prefix="testbed-") as temporary:
        job = Job(
            rank=0,
            size=n,
            method=None if isinstance(method, Method) else method,
            task=None if callable(task) else task,
            **graph_of(gossip),
            training=training,
            directory=str(directory or temporary),
            rendezvous=str(Path(temporary) / "rendezvous"),
            seed=seed,
            message_timeout=message_timeout,
            watch_every=watch_every,
            resume=resume,
            tolerant=tolerant and made.survives,
            progress=str(Path(temporary) / "progress"),
        )
        job.news.mkdir(parents=True, exist_ok=True)
        Board(Path(temporary) / "progress", orders(job.news), n)
        jobs = [job.for_rank(rank) for rank in range(n)]
        calls = [partial(_work, job, made, task) for job in jobs]
        names = [job.name_of(job.rank) for job in jobs]
        try:
            results = run_forked(calls, names, started=started, may_lose=may_lose(job))
        finally:
            orders(job.news).unlink()
        if directory:
            write_tables(results, directory)
        return results


def gossip_named(name: str, n: int, seed: int) -> Gossip:
    """Return a gossip graph by its name, with Metropolis weights."""
    from testbed.topology import mixing
    from testbed.topology.named import named

    if name == "one-peer-exponential":
        return mixing.one_peer_exponential(n)
    if name == "random-pairs":
        return mixing.random_pairs(n, seed)
    return mixing.metropolis(named(name, n, seed), name)


def method_spec(name: str, compressor: str | None, options: Sequence[str]) -> Any:
    """Return a method as a scenario writes it, from words of the command line."""
    chosen = {} if compressor is None else {"compressor": parsed("compressor", compressor)}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise ScenarioError(f"option {option!r} has no value", hint="write KEY=VALUE, e.g. -o gamma=0.4")
        chosen[key] = parsed(key, value)
    return {name: chosen} if chosen else name


def parsed(what: str, text: str) -> Any:
    """Parse a word or a YAML mapping from the command line."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{what}: {text!r} is not YAML: {error}", hint="quote it for the shell") from None


def _work(job: Job, method: Method, task: MakeTask | Any) -> JobResult:
    return run_job(job, method=method, task=task(job.rank, job.size, job.seed) if callable(task) else None)
