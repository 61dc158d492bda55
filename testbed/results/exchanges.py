"""Messages in traces: which span sent what another worker received, and how long exchanges took. Pure.

All workers of a run share one clock, so a message's time is exact: from when its sender handed it over to when it
arrived, whatever either worker computed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.plan.floors import EVERYBODY
from testbed.worker.result import JobResult
from testbed.worker.trace import CODES

if TYPE_CHECKING:
    import pandas as pd

EDGE = ["step", "source", "target"]
ARRIVING = ["step", "target"]


def messages(spans: pd.DataFrame, arrived: str) -> pd.DataFrame:
    """Return a row for each message that is known at both ends: step, source, target, nth (of its edge in that step),
    and the rows of `spans` that `sent` it and saw that it `came`. `spans`: worker, kind (its code), step, peer."""
    ends = []
    for kind, own, other, row in (("send", "source", "target", "sent"), (arrived, "target", "source", "came")):
        some = spans[(spans["kind"] == CODES[kind]) & (spans["peer"] >= 0)]
        end = some[["step", "worker", "peer"]].set_axis(["step", own, other], axis="columns")
        end[row], end["nth"] = some.index, end.groupby(EDGE).cumcount()
        ends.append(end)
    return ends[0].merge(ends[1], on=[*EDGE, "nth"])


@dataclass(frozen=True)
class Exchange:
    """What steps waited for, in seconds per step over all steps, including those that exchange nothing."""

    seconds: float  # median over the steps in which it was seen
    spread: float  # half the distance from the 10th to the 90th percentile of such steps


def exchange(
    results: Sequence[JobResult], rounds: float, among: pd.DataFrame | None = None, *, pipelined: bool = False
) -> Exchange | None:
    """Return how long exchanges took, hidden behind the gradient or not: in each step the slowest of all workers.

    Of gossip: in each of a step's rounds the slowest message `among` these edges (step, source, target), which the
    floor is made of, or all; rounds add up. `rounds`: per step, over all steps. Of a pipelined ring, whose rounds
    overlap: from the first message sent to a worker to the last that arrived there. Of an all-reduce: the wait for it.
    None where traces do not show it: what DDP sends.
    """
    import pandas as pd  # not before workers are forked: only readers of results need it

    frames = [pd.DataFrame(result.spans).assign(worker=result.rank) for result in results]
    spans = pd.concat(frames, ignore_index=True)
    waits = spans[(spans["kind"] == CODES["wait"]) & (spans["peer"] == EVERYBODY) & (spans["bytes_wire"] > 0)]
    reduced = (waits["end_ns"] - waits["start_ns"]).groupby([waits["step"], waits["worker"]]).sum()
    steps, found = results[0].steps, _timed(spans)
    if pipelined:
        around = found.groupby(ARRIVING).agg({"began": "min", "ended": "max"})
        slowest, share = (around["ended"] - around["began"]).groupby("step").max(), 1.0
    else:
        found = found[(found["looked"] <= found["began"]) & (found["nth"] < max(1, round(rounds)))]
        if among is not None:
            found = found.merge(among, on=EDGE)
        each = (found["ended"] - found["began"]).groupby([found["step"], found["nth"]]).max()
        slowest, share = each.groupby("step").sum(), min(1.0, rounds)
    often = reduced.index.get_level_values("step").nunique() / steps
    parts = [(often, reduced.groupby("step").max()), (share, slowest)]
    known = [(share, times) for share, times in parts if len(times)]
    if not known:
        return None
    return Exchange(
        sum(share * float(times.median()) for share, times in known) / 1e9,
        sum(share * float(times.quantile(0.9) - times.quantile(0.1)) / 2 for share, times in known) / 1e9,
    )


def _timed(spans: pd.DataFrame) -> pd.DataFrame:
    """Return messages with when each `began` and `ended`, and since when its receiver `looked` for those of that round:
    a receiver that looks late may find it there, and does not know when it came."""
    watched = bool((spans["kind"] == CODES["receive"]).any())  # else, as nothing travels during compute, waits show it
    found = messages(spans, "receive" if watched else "wait")
    came = spans.loc[found["came"], ["start_ns", "end_ns"]].to_numpy()
    began = spans["start_ns"].to_numpy()[found["sent"]]
    found = found.assign(looked=came[:, 0], began=began, ended=came[:, 1])
    return found.assign(looked=found.groupby([*ARRIVING, "nth"])["looked"].transform("min"))
