"""Which messages the steps of a cell had, from its traces. Steps with messages between the same workers form one
pattern: a static graph has one, a changing graph some, and one that exchanges now and then has steps without. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.plan.floors import gossip_times
from testbed.plan.model import NetworkPlan
from testbed.worker.result import JobResult
from testbed.worker.trace import CODES

if TYPE_CHECKING:
    import pandas as pd

Edge = tuple[int, int]  # ranks of sender and receiver
EDGE = ["step", "source", "target"]
NEARLY = 0.99  # of the longest time: edges that take as long


@dataclass(frozen=True)
class Pattern:
    """Steps with the same messages."""

    steps: tuple[int, ...]
    rounds: float  # messages one after another over an edge, in such a step
    messages: Mapping[Edge, float]  # bytes over each edge in such a step


def patterns(results: Sequence[JobResult]) -> list[Pattern]:
    """Return the patterns of everything that was sent to one worker at a time; steps without messages are in none."""
    sent = _sent(results)
    if not len(sent):
        return []
    edges = sent.groupby(EDGE)["bytes"].agg(["sum", "count"]).reset_index()
    edges["edge"] = list(zip(edges["source"], edges["target"], strict=True))
    alike = edges.groupby("step")["edge"].agg(frozenset)
    found = []
    for which, steps in alike.groupby(alike):
        own = edges[edges["step"].isin(steps.index)]
        amounts = own.groupby("edge")["sum"].sum() / len(steps)
        rounds = own.groupby("step")["count"].max().mean()
        messages = {(int(edge[0]), int(edge[1])): float(amounts[edge]) for edge in which}
        found.append(Pattern(tuple(int(step) for step in steps.index), float(rounds), messages))
    return found


def floor(network: NetworkPlan, some: Sequence[Pattern], steps: int) -> float:
    """Return the least time that these messages need, in seconds per step over all steps."""
    times = [len(one.steps) * max(gossip_times(network, one.messages, one.rounds).values()) for one in some]
    return sum(times) / steps


def rounds_per_step(some: Sequence[Pattern], steps: int) -> float:
    """Return rounds per step over all steps, including those without any."""
    return sum(len(one.steps) * one.rounds for one in some) / steps


def setting_the_pace(network: NetworkPlan, some: Sequence[Pattern]) -> pd.DataFrame:
    """Return the edges (step, source, target) with the slowest messages: those that make up the floor."""
    import pandas as pd

    rows = []
    for one in some:
        times = gossip_times(network, one.messages, one.rounds)
        longest = NEARLY * max(times.values())
        slow = [edge for edge, time in times.items() if time >= longest]
        rows += [(step, *edge) for step in one.steps for edge in slow]
    return pd.DataFrame(rows, columns=EDGE)


def _sent(results: Sequence[JobResult]) -> pd.DataFrame:
    """Return every message (step, source, target, bytes), except those of rejoins."""
    import pandas as pd  # not before workers are forked: only readers of results need it

    frames = []
    for result in results:
        spans = result.spans
        sends = spans[(spans["kind"] == CODES["send"]) & (spans["peer"] >= 0)]
        for one in spans[spans["kind"] == CODES["rejoin"]]:
            sends = sends[(sends["start_ns"] < one["start_ns"]) | (sends["start_ns"] > one["end_ns"])]
        columns = {"step": sends["step"], "target": sends["peer"], "bytes": sends["bytes_logical"]}
        frames.append(pd.DataFrame(columns).assign(source=result.rank))
    return pd.concat(frames, ignore_index=True)
