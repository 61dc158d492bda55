"""Caveats of an answer, or limits of what it says: one sentence each, the most important first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from testbed.answer import words
from testbed.results.comparison import Line

if TYPE_CHECKING:
    from testbed.answer.sentence import Race, Setup

MOST_NAMED = 3
QUEUED_TOLD = 0.05  # share of its time that a worker was ready and had no processor


def every(lines: Sequence[Line], races: Sequence[Race], setup: Setup) -> Iterator[str]:
    """Yield all caveats of an answer for which some result counts."""
    yield from _doubts(lines)
    yield from _queued(lines)
    yield from diverged(lines)
    if lost := lost_cells(lines):
        yield f"Left out: {lost}."
    for line in lines:
        if line.target and line.runs and 0 < line.reached < line.runs:
            got = f"{line.reached} of {words.count(line.runs, 'repeat')}"
            yield f"{words.method(line.method)} reached the target in {got}: it counts as not reached."
    yield from _missed(races)
    yield from _what_it_means(races, setup)
    if any(len(race.leaders) > 1 for race in races if race.entries and race.target) and setup.eval_every:
        yield f"The target is looked at every {setup.eval_every} steps: times closer than that are not told apart."
    if max(line.runs for line in lines) == 1:
        yield "Everything ran once, so no spread is known; repeat: 3 shows one."
    yield from unfinished(setup)


def _doubts(lines: Sequence[Line]) -> Iterator[str]:
    suspects = [line for line in lines if line.suspect]
    if suspects:
        reasons: dict[str, list[str]] = {}
        for line in suspects:
            reasons.setdefault(line.reasons[0] if line.reasons else "", []).append(words.method(line.method))
        if len(suspects) <= MOST_NAMED and len({line.setting for line in lines}) == 1:
            told = [words.listed(names) + (f" ({why})" if why else "") for why, names in reasons.items()]
            yield f"Suspect emulation: {'; '.join(told)}."
        else:
            why, names = max(reasons.items(), key=lambda one: len(one[1]))
            first = f"{words.owner(names[0])}" + (f" ({why})" if why else "")
            yield f"Suspect emulation: {len(suspects)} of {len(lines)} results, such as {first}."
    for line in [line for line in lines if line.runs and line.verdict == "faithful" and line.reasons][:MOST_NAMED]:
        yield f"{words.method(line.method)}: {line.reasons[0]}."


def _queued(lines: Sequence[Line]) -> Iterator[str]:
    """Name the methods that would be faster on machines of their own."""
    most: dict[str, float] = {}
    for line in lines:
        if (line.queued or 0.0) > QUEUED_TOLD:
            most[line.method] = max(line.queued or 0.0, most.get(line.method, 0.0))
    told = [f"{words.method(name)} ({share:.0%})" for name, share in sorted(most.items(), key=lambda one: -one[1])]
    if told:
        others = f" and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
        named = words.listed(told) if not others else ", ".join(told[:MOST_NAMED])
        yield (
            f"Workers shared this machine's cores and were ready without one for a part of the time: {named}{others}. "
            "On machines of their own they might be so much faster."
        )


def lost_cells(lines: Sequence[Line]) -> str:
    failed, invalid = sum(line.failed for line in lines), sum(line.invalid for line in lines)
    told = [f"{words.count(failed, 'cell')} failed"] if failed else []
    if invalid:
        told.append(f"{words.count(invalid, 'cell')} whose emulation was invalid")
    return " and ".join(told) if len(told) < 2 else f"{told[0]}, {told[1]}"


def diverged(lines: Sequence[Line]) -> Iterator[str]:
    """Name the methods that diverged, with the step; of several settings, at how many."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        if line.diverged:
            found.setdefault(line.method, []).append(line)
    told = []
    for method, some in found.items():
        where = [f"at step {min(line.diverged_step or 0 for line in some)}"]
        if repeats := in_repeats(some[0]):
            where.append(repeats.strip())
        if (settings := sum(line.method == method for line in lines)) > 1:
            where = [f"at {len(some)} of {settings}"]
        told.append(f"{words.method(method)} ({', '.join(where)})")
    if told:
        yield f"Diverged: {words.listed(told)}."


def in_repeats(line: Line) -> str:
    """Return " in 1 of 3 repeats"; nothing where it was all of them."""
    total = line.runs + line.failed + line.invalid + line.diverged
    return f" in {line.diverged} of {total} repeats" if line.diverged < total else ""


def _missed(races: Sequence[Race]) -> Iterator[str]:
    """Name the methods that never reached a target that others reached."""
    contested = [race for race in races if race.target and race.entries]
    missed = Counter(line.method for race in contested for line in race.lines if line.runs and not line.reached)
    if missed and len(races) == 1:
        yield f"Not reached: by {words.listed([words.method(name) for name in missed])}."
    elif missed:
        told = [f"{words.method(name)} (at {number} of {len(contested)})" for name, number in missed.items()]
        yield f"Not reached: by {words.listed(told)}."


def _what_it_means(races: Sequence[Race], setup: Setup) -> Iterator[str]:
    """Say what a comparison per step does and does not mean."""
    if setup.emulated:
        yield "Gradients were emulated: losses mean nothing here, only time is compared, not the steps a method needs."
    elif not any(race.target for race in races):
        yield (
            "No target was set: this compares the time of a step, and a method that sends less per step can need more "
            "steps. training.target compares the time to a result."
        )


def unfinished(setup: Setup) -> Iterator[str]:
    if setup.done < setup.planned:
        yield f"{setup.planned - setup.done} of {words.count(setup.planned, 'cell')} have not been run."
