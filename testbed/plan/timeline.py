"""A scenario's events as actions in time: repeated and random ones spelt out. Pure; the event runner calls it.

They are the same for every method and repeat, so that all of them meet the same network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import count, takewhile
from random import Random

from testbed.scenario.events import Event, Step
from testbed.scenario.links import LinkOptions
from testbed.scenario.verbs import VERBS, done_by
from testbed.seeds import derive

SLOW_FACTOR = 2.0


@dataclass(frozen=True)
class Action:
    """One action. `lasting`: undo it after so many seconds; None: it stays."""

    at: float | Step  # seconds since training began, or the step that the first worker begins
    verb: str  # of scenario/verbs.py, one that is carried out itself
    workers: tuple[str, ...] = ()  # for those on workers
    directions: tuple[tuple[str, str], ...] = ()  # (from, to), for those on links
    groups: tuple[tuple[str, ...], ...] = ()  # for partition
    change: LinkOptions = field(default_factory=LinkOptions)  # for link
    factor: float = SLOW_FACTOR  # for slow
    lasting: float | None = None


def at_steps(events: Sequence[Event]) -> tuple[Action, ...]:
    """Return what happens at training steps, in order."""
    actions = [_action(event, event.at) for event in events if isinstance(event.at, Step)]
    return tuple(sorted(actions, key=lambda action: action.at))


def at_times(
    events: Sequence[Event], workers: Sequence[str], links: Sequence[tuple[str, str]] = ()
) -> Iterator[Action]:
    """Return what happens at times, in order; endless where something repeats for ever. Random events draw from the
    workers and links given."""
    streams = [
        _random(event, number, workers, links) if event.random else _repeated(event)
        for number, event in enumerate(events)
        if not isinstance(event.at, Step)
    ]
    return merge(*streams, key=lambda action: action.at)


def _action(event: Event, at: float | Step) -> Action:
    return Action(
        at=at,
        verb=done_by(event.verb),
        workers=event.workers,
        directions=event.directions,
        groups=event.partition or (),
        change=LinkOptions(**{name: getattr(event, name) for name in LinkOptions.model_fields}),
        factor=event.factor or SLOW_FACTOR,
        lasting=event.lasting or VERBS[event.verb].usually_for,
    )


def _repeated(event: Event) -> Iterator[Action]:
    start = float(event.at)
    every = event.every or VERBS[event.verb].usually_every
    if every is None:
        return iter([_action(event, start)])
    times = (start + number * every for number in count())
    return (_action(event, at) for at in _until(times, event))


def _until(times: Iterator[float], event: Event) -> Iterator[float]:
    end = event.until
    return times if end is None else takewhile(lambda at: at <= end, times)


def _random(event: Event, number: int, workers: Sequence[str], links: Sequence[tuple[str, str]]) -> Iterator[Action]:
    """A Poisson process: exponential gaps with the mean `every`, each time one worker or link."""
    chosen = event.random
    assert chosen is not None
    among = set(chosen.among or workers)
    names = [name for name in workers if name in among]
    pairs = [pair for pair in links if chosen.among is None or set(pair) <= among]
    draw = Random(derive(chosen.seed, "events", number))
    on_link = VERBS[chosen.kind].target == "link"
    lasting = chosen.lasting or VERBS[chosen.kind].drawn_for

    def times() -> Iterator[float]:
        now = float(event.at)
        while True:
            now += draw.expovariate(1.0 / chosen.every)
            yield now

    for at in _until(times(), event):
        if on_link and pairs:
            a, b = draw.choice(pairs)
            yield Action(at, chosen.kind, directions=((a, b), (b, a)), lasting=lasting)
        elif not on_link and names:
            factor = chosen.factor or SLOW_FACTOR
            yield Action(at, chosen.kind, workers=(draw.choice(names),), factor=factor, lasting=lasting)
        else:
            return
