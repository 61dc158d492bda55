"""Describes workers that died or rejoined, for a cell's result. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf

from testbed.errors import TestbedError, WorkerDiedError
from testbed.results.cell import Departure, Return
from testbed.run.faults import Done
from testbed.run.rejoin_coordinator import Rejoin
from testbed.topology.gossip import Gossip
from testbed.worker.lost import WorkerFailure
from testbed.worker.progress import Where
from testbed.worker.transport import ALL, PeerLostError


def describe(
    losses: Sequence[WorkerFailure],
    names: Sequence[str],
    start: float,
    killed: Mapping[tuple[int, int], Done],
    rejoins: Sequence[Rejoin] = (),
    *,
    steps: float = inf,
    slow_motion: float = 1.0,
) -> tuple[Departure, ...]:
    """Describe, for the result of a cell that went on, which workers were lost, in which step, when (seconds since
    training began at `start`) and how. `killed`: those that an event of the scenario killed, by rank and life."""
    back = {(rejoin.rank, rejoin.life) for rejoin in rejoins}
    found = []
    for loss in sorted(losses, key=lambda loss: loss.at):
        name, key = names[loss.rank], (loss.rank, loss.life)
        why = f"was {killed[key].what}" if key in killed else loss.why
        if loss.life and key not in back:
            what = "on its way back" if key in killed else ""
            text = f"{name} {why} {what}".rstrip()
        else:
            text = f"{name} was lost {_when(loss.step, steps)} (it {why}); its neighbours went on without it"
        found.append(Departure(text, name, loss.step, _since(start, loss.at, slow_motion), why))
    return tuple(found)


def returns(
    rejoins: Sequence[Rejoin],
    losses: Sequence[WorkerFailure],
    names: Sequence[str],
    start: float,
    slow_motion: float = 1.0,
) -> tuple[Return, ...]:
    """Describe the workers that rejoined: when and in which step, after how long, and with whose model."""
    found = []
    for rejoin in rejoins:
        name, source = names[rejoin.rank], names[rejoin.source]
        left = max((loss for loss in losses if loss.rank == rejoin.rank and loss.at < rejoin.at), key=_at)
        away = _since(left.at, rejoin.at, slow_motion)
        text = (
            f"{name} rejoined in step {rejoin.step}, {away:.1f} s after it was lost, with the model of {source} "
            f"({rejoin.nbytes / 1e6:.2f} MB on the network); its momentum began at 0"
        )
        at, left_at = (_since(start, moment, slow_motion) for moment in (rejoin.at, left.at))
        found.append(Return(text, name, rejoin.step, at, left.step, left_at, source, rejoin.nbytes))
    return tuple(found)


def _since(start: float, moment: float, slow_motion: float) -> float:
    """Return the scenario seconds between two moments on the monotonic clock."""
    return round((moment - start) / slow_motion, 6)


def _at(loss: WorkerFailure) -> float:
    return loss.at


def warnings(lost: Collection[int], names: Sequence[str], gossip: Gossip) -> list[str]:
    """Warn of what the loss of workers that did not rejoin does to the mixing among the others."""
    if not lost:
        return []
    found = []
    parts = _parts(gossip, [rank for rank in range(gossip.size) if rank not in lost])
    if len(parts) > 1:
        shown = ", ".join("+".join(names[rank] for rank in part) for part in parts)
        found.append(
            f"without those that were lost the gossip graph falls into {len(parts)} parts ({shown}): they cannot agree"
        )
    if not gossip.symmetric:
        found.append(f"{gossip.name} is a directed graph: without those that were lost the models' mean is not kept")
    return found


def explain(
    cause: TestbedError,
    *,
    done: Sequence[Done],
    names: Sequence[str],
    workers: Sequence[Where],
    needs_all: str | None = None,
    tolerant: bool = False,
    steps: float = inf,
) -> tuple[str, str | None]:
    """Explain why a cell failed, with the step in which a worker died, and whether the scenario itself caused it.
    `needs_all`: the method, if it was to go on without the dead and cannot. `tolerant`: it could have."""
    culprits, error = _culprits(cause, names), str(cause)
    if isinstance(cause, WorkerDiedError) and cause.worker in names:
        error = f"{error} {_when(workers[names.index(cause.worker)].step, steps)}"
    for one in done:
        if one.subject in culprits and one.kind and not one.problem:
            when = one.due if isinstance(one.due, str) else f"{one.due:g} s"
            remedy = _remedy(one, needs_all, tolerant=tolerant)
            return error, f"an event of the scenario did it: at {when}, {one.text}{remedy}"
    return error, cause.hint


def _when(done: int, steps: float) -> str:
    """Return the step of a death in words, after so many steps done; steps are counted from 0, as everywhere."""
    return f"in step {max(0, done)}" if done < steps else "after its last step"


def _culprits(cause: TestbedError, names: Sequence[str]) -> set[str]:
    """Return the workers that a cell's error blames: the dead, the silent, or the one that was waited for."""
    if isinstance(cause, WorkerDiedError):
        return {cause.worker}
    if isinstance(cause, PeerLostError):
        return {names[rank] for rank in cause.silent or (cause.peer,) if rank != ALL}
    return set()


def _remedy(done: Done, needs_all: str | None, *, tolerant: bool) -> str:
    if done.kind == "freeze":
        return ", longer than a worker waits for a message (see patience)"
    if needs_all:
        return f"; {needs_all} cannot go on without a worker"
    return "; too few were left to go on" if tolerant else "; on_failure: continue lets methods go on that can"


def _parts(gossip: Gossip, living: Sequence[int]) -> list[list[int]]:
    """Return the groups of workers that are still connected, over all rounds."""
    left, parts = set(living), []
    while left:
        part, border = set[int](), {min(left)}
        while border:
            part |= border
            border = {
                other for rank in border for other in gossip.neighbours(rank) if other in left and other not in part
            }
        left -= part
        parts.append(sorted(part))
    return parts
