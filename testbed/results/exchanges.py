"""Messages in traces: which span sent what another worker received, and how long exchanges took. Pure.

All workers of a run share one clock, so a message's time is exact: from where its sender handed it over to where it had
arrived, whatever either worker computed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.results.floors import EVERYBODY
from testbed.worker.result import JobResult
from testbed.worker.trace import CODES

if TYPE_CHECKING:
    import pandas as pd

EDGE = ["step", "source", "target"]
ARRIVING = ["step", "target"]


def messages(spans: pd.DataFrame, arrived: str) -> pd.DataFrame:
    """A row for each message that is known at both ends: step, source, target, nth (of its edge in that step), and the
    rows of `spans` that `sent` it and saw that it `came`. `spans`: worker, kind (its code), step, peer."""
    ends = []
    for kind, own, other, row in (("send", "source", "target", "sent"), (arrived, "target", "source", "came")):
        some = spans[(spans["kind"] == CODES[kind]) & (spans["peer"] >= 0)]
        end = some[["step", "worker", "peer"]].set_axis(["step", own, other], axis="columns")
        end[row], end["nth"] = some.index, end.groupby(EDGE).cumcount()
        ends.append(end)
    return ends[0].merge(ends[1], on=[*EDGE, "nth"])


def exchange_seconds(
    results: Sequence[JobResult], rounds: float, among: pd.DataFrame | None = None, *, pipelined: bool = False
) -> float | None:
    """What exchanges take, hidden behind the gradient or not: means over workers and steps where it was seen, in
    seconds per step of all steps, also of those that exchange nothing.

    Of gossip: in each of a step's rounds the slowest message to a worker `among` these edges (step, source, target),
    which the floor is made of, or all; rounds add up. `rounds`: per step, of all steps. Of a pipelined ring, whose
    rounds overlap: from the first message sent to a worker to the last that arrived there. Of an all-reduce: the wait
    for it. None where traces do not show it: what DDP sends.
    """
    import pandas as pd  # not before workers are forked: only who looks at results needs it

    frames = [pd.DataFrame(result.spans).assign(worker=result.rank) for result in results]
    spans = pd.concat(frames, ignore_index=True)
    waits = spans[(spans["kind"] == CODES["wait"]) & (spans["peer"] == EVERYBODY) & (spans["bytes_wire"] > 0)]
    reduced = (waits["end_ns"] - waits["start_ns"]).groupby([waits["step"], waits["worker"]]).sum()
    steps, found = results[0].steps, _timed(spans)
    if pipelined:
        around = found.groupby(ARRIVING).agg({"began": "min", "ended": "max"})
        typical = (around["ended"] - around["began"]).mean()
    else:
        found = found[(found["looked"] <= found["began"]) & (found["nth"] < max(1, round(rounds)))]
        if among is not None:
            found = found.merge(among, on=EDGE)
        slowest = (found["ended"] - found["began"]).groupby([found[key] for key in (*ARRIVING, "nth")]).max()
        typical = min(1.0, rounds) * slowest.groupby("nth").mean().sum()
    often = reduced.index.get_level_values("step").nunique() / steps
    parts = [often * reduced.mean() if len(reduced) else 0.0, typical if len(found) else 0.0]
    return float(sum(parts)) / 1e9 if len(reduced) or len(found) else None


def _timed(spans: pd.DataFrame) -> pd.DataFrame:
    """Messages with when each `began` and `ended`, and since when its receiver `looked` for those of that round: who
    looks later than it was sent may find it there, and cannot tell when it came."""
    watched = bool((spans["kind"] == CODES["receive"]).any())  # else, as nothing travels during compute, waits tell
    found = messages(spans, "receive" if watched else "wait")
    came = spans.loc[found["came"], ["start_ns", "end_ns"]].to_numpy()
    began = spans["start_ns"].to_numpy()[found["sent"]]
    found = found.assign(looked=came[:, 0], began=began, ended=came[:, 1])
    return found.assign(looked=found.groupby([*ARRIVING, "nth"])["looked"].transform("min"))
