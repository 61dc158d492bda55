"""What became of workers that died, and of those that came back: words for a cell's result. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from testbed.faults import Done
from testbed.rejoins import Rejoin
from testbed.topology.gossip import Gossip
from testbed.worker.lost import Loss
from testbed.worker.progress import Where

_DEAD = re.compile(r"(\S+) was killed by SIGKILL")


def describe(
    losses: Sequence[Loss],
    names: Sequence[str],
    start: float,
    killed: Mapping[tuple[int, int], Done],
    rejoins: Sequence[Rejoin] = (),
    *,
    steps: float = inf,
) -> list[dict[str, Any]]:
    """For the result of a cell that went on: who was lost in which step, when (seconds since training began at `start`)
    and how. `killed`: whom an event of the scenario killed, by rank and life."""
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
        found.append({"worker": name, "step": loss.step, "at": round(loss.at - start, 6), "why": why, "text": text})
    return found


def returns(
    rejoins: Sequence[Rejoin], losses: Sequence[Loss], names: Sequence[str], start: float
) -> list[dict[str, Any]]:
    """For the same result: who came back, when and in which step, after how long, and with whose model."""
    found = []
    for rejoin in rejoins:
        name, source = names[rejoin.rank], names[rejoin.source]
        left = max((loss for loss in losses if loss.rank == rejoin.rank and loss.at < rejoin.at), key=_at)
        away = rejoin.at - left.at
        text = (
            f"{name} rejoined in step {rejoin.step}, {away:.1f} s after it was lost, with the model of {source} "
            f"({rejoin.nbytes / 1e6:.2f} MB on the network); its momentum began at 0"
        )
        found.append(
            {"worker": name, "left_step": left.step, "left_at": round(left.at - start, 6), "step": rejoin.step}
            | {"at": round(rejoin.at - start, 6), "from": source, "bytes": rejoin.nbytes, "text": text}
        )
    return found


def _at(loss: Loss) -> float:
    return loss.at


def warnings(lost: Collection[int], names: Sequence[str], gossip: Gossip) -> list[str]:
    """What the loss of those that did not come back does to the mixing among those that live."""
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
    error: str,
    hint: str | None,
    *,
    done: Sequence[Done],
    names: Sequence[str],
    workers: Sequence[Where],
    needs_all: str | None = None,
    tolerant: bool = False,
    steps: float = inf,
) -> tuple[str, str | None]:
    """Why a cell failed, with the step in which a worker died, and whether the scenario itself did it. `needs_all`: the
    method, if it was to go on without the dead and cannot. `tolerant`: it could have."""
    culprits = _culprits(error)
    if (dead := _DEAD.fullmatch(error)) and dead[1] in names:
        error = f"{error} {_when(workers[names.index(dead[1])].step, steps)}"
    for one in done:
        if one.subject in culprits and not one.problem and one.what.startswith(("killed", "frozen")):
            when = one.due if isinstance(one.due, str) else f"{one.due:g} s"
            remedy = _remedy(one, needs_all, tolerant=tolerant)
            return error, f"an event of the scenario did it: at {when}, {one.text}{remedy}"
    return error, hint


def _when(done: int, steps: float) -> str:
    """In words, with so many steps done of all; they are counted from 0, as everywhere."""
    return f"in step {max(0, done)}" if done < steps else "after its last step"


def _culprits(error: str) -> set[str]:
    """Whom a cell's error blames: the dead, the silent, or the one who was waited for."""
    if dead := _DEAD.fullmatch(error):
        return {dead[1]}
    if silent := re.search(r"not a word from (.+)$", error):
        return set(silent[1].split(", "))
    missed = re.search(r"nothing from (\S+) in step", error)
    return {missed[1]} if missed else set()


def _remedy(done: Done, needs_all: str | None, *, tolerant: bool) -> str:
    if done.what.startswith("frozen"):
        return ", longer than a worker waits for a message (see patience)"
    if needs_all:
        return f"; {needs_all} cannot go on without a worker"
    return "; too few were left to go on" if tolerant else "; on_failure: continue lets methods go on that can"


def _parts(gossip: Gossip, living: Sequence[int]) -> list[list[int]]:
    """Groups of workers that still hear of each other, over all rounds."""
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
