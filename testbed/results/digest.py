"""The workers' reports of a cell → the numbers of the comparison table, stored in the cell's result.json. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from testbed.plan.floors import EVERYBODY, pipelined_floor, ring_floor
from testbed.plan.model import NetworkPlan
from testbed.results import traffic
from testbed.results.cell import CellResult, Pacing, Target
from testbed.results.exchanges import exchange
from testbed.results.traffic import Pattern
from testbed.verdict import Verdict
from testbed.worker.edges import HEADER
from testbed.worker.result import JobResult
from testbed.worker.trace import CODES

NOTICE = 48  # bytes that tell Gloo's sender that the receiver is ready

# The parts of a step that the table shows; what a worker's spans do not cover is "other".
PARTS = {
    "compute": ("data", "compute"),
    "codec": ("compress", "decompress"),
    "wait": ("wait",),
    "mix": ("mix", "update"),
}


def digest(results: Sequence[JobResult], network: NetworkPlan, target: Target | None) -> CellResult:
    """Return means over workers; times on the training clock. `target`: what is to be reached. The verdict and what
    only the controller knows are added later."""
    steps = results[0].steps
    seconds = max(result.seconds for result in results)
    parts = _parts(results)
    all_steps, told = sum(map(_own_steps, results)), max(map(_own_steps, results))
    some = [] if results[0].pipelined else traffic.patterns(results)
    rounds = traffic.rounds_per_step(some, told)
    among = traffic.setting_the_pace(network, some)
    took = exchange(results, rounds, among, pipelined=results[0].pipelined)
    floor = _floor(results, network, some)
    return CellResult(
        error=None,
        verdict=Verdict("faithful"),
        steps=steps,
        seconds=seconds,
        step_s=seconds / steps,
        parts_s={**parts, "other": max(0.0, seconds / steps - sum(parts.values()))},
        bytes_per_step=sum(sum(result.bytes_sent.values()) for result in results) / all_steps,
        exchange_s=took.seconds if took else None,
        exchange_spread_s=took.spread if took else None,
        floor_s=floor,
        least_s=least(parts, floor, overlaps=results[0].overlaps),
        pacing=_pacing(results),
        final=_final(results),
        target=target and _reached(results, target),
        decided=results[0].decided,
        warnings=tuple(sorted({warning for result in results for warning in result.warnings})),
        queued=_queued(results),
        overruns=sum(result.overruns for result in results),
    )


def least(parts: Mapping[str, float], floor: float, *, overlaps: bool) -> float:
    """Return the seconds that a step must take with these gradients and this codec, if messages took no longer than
    their floor: behind the gradient, or after it where the method sends what the gradient changed."""
    compute = parts["compute"]
    return (max(compute, floor) if overlaps else compute + floor) + parts["codec"]


def _pacing(results: Sequence[JobResult]) -> Pacing | None:
    """Return the rates that the transport found for its connections, both ends of each; None where it did not look."""
    edges = [rate for result in results for rate in result.paced.values()]
    if not edges:
        return None
    rates = sorted(rate for rate in edges if rate is not None)
    found = (rates[0], statistics.median(rates), rates[-1]) if rates else ()
    return Pacing(len(edges), len(rates) / len(edges), *found)


def bytes_handed_over(result: JobResult, workers: int) -> int:
    """Return what a worker's port must have carried: payload, and what Gloo adds to it before TCP sees it."""
    spans = result.spans
    sends = spans[spans["kind"] == CODES["send"]]
    waits = spans[spans["kind"] == CODES["wait"]]
    received = int((waits["peer"] != EVERYBODY).sum())
    reductions = waits[waits["peer"] == EVERYBODY]
    # What others than us send for all (DDP) the kernel has counted, as it has what was sent before training.
    counted = result.bytes_sent.get(EVERYBODY, 0) - int(reductions["bytes_wire"].sum()) + result.tcp_bytes_before
    per_reduction = 4 * (workers - 1) * (HEADER + NOTICE)  # two segments in each of the ring's 2(n−1) rounds
    return int(
        sends["bytes_wire"].sum()
        + NOTICE * received
        + reductions["bytes_wire"].sum()
        + per_reduction * int((reductions["bytes_wire"] > 0).sum())
        + counted
    )


def _queued(results: Sequence[JobResult]) -> float | None:
    """Return the largest share of its time that a worker was ready to run and had no processor."""
    shares = [one.queued / one.seconds for one in results if one.queued is not None and one.seconds]
    return max(shares, default=None)


def _own_steps(result: JobResult) -> int:
    """Return the steps that this worker took part in: one that rejoined reports only its last life."""
    computed = result.spans[result.spans["kind"] == CODES["compute"]]
    return result.steps - (int(computed["step"].min()) if len(computed) else 0)


def _parts(results: Sequence[JobResult]) -> dict[str, float]:
    steps = sum(map(_own_steps, results))
    found: dict[str, float] = defaultdict(float)
    for result in results:
        spans = result.spans
        lengths = spans["end_ns"] - spans["start_ns"]
        for part, kinds in PARTS.items():
            for kind in kinds:
                found[part] += float(lengths[spans["kind"] == CODES[kind]].sum()) / 1e9 / steps
    return dict(found)


def _floor(results: Sequence[JobResult], network: NetworkPlan, some: Sequence[Pattern]) -> float:
    """Return the floor of communication alone; all-reduce as a ring, everything else as the messages actually sent."""
    n, steps = len(results), max(map(_own_steps, results))
    reduced = max(result.bytes_sent.get(EVERYBODY, 0) for result in results)
    floor = traffic.floor(network, some, steps)
    if reduced and n > 1:
        # Not every method reduces in every step; DDP's reductions are not seen one by one.
        reductions = max(_reductions(result) for result in results) or steps
        floor += reductions / steps * ring_floor(network, reduced / reductions * n / (2 * (n - 1)))
    if results[0].pipelined:
        sent = {(one.rank, peer): count / steps for one in results for peer, count in one.bytes_sent.items()}
        floor += pipelined_floor(network, sent, rounds=2 * (n - 1))
    return floor


def _reductions(result: JobResult) -> int:
    waits = result.spans[result.spans["kind"] == CODES["wait"]]
    return int(((waits["peer"] == EVERYBODY) & (waits["bytes_wire"] > 0)).sum())


def _final(results: Sequence[JobResult]) -> dict[str, float]:
    """Return each metric at its last step: of the workers' own models the mean, of the averaged model as average_…."""
    last = {}
    for name, values in _by_step(results).items():
        step = max(values)
        last[name] = statistics.fmean(value for value, _ in values[step])
    return last


def _by_step(results: Sequence[JobResult]) -> dict[str, dict[int, list[tuple[float, float]]]]:
    """Return metric → step → (value, time) of each worker."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for row in result.metrics:
            name = row.metric if row.worker >= 0 or row.metric == "consensus" else f"average_{row.metric}"
            found[name][row.step].append((row.value, row.time_s))
    return found


def _reached(results: Sequence[JobResult], target: Target) -> Target:
    """Return when the mean over the workers' own models first reached the target, at evaluation points."""
    for step, values in sorted(_by_step(results).get(f"test_{target.metric}", {}).items()):
        mean = statistics.fmean(value for value, _ in values)
        if mean >= target.value if target.metric == "accuracy" else mean <= target.value:
            return replace(target, step=step, seconds=max(time for _, time in values))
    return target
