"""The events that can happen while training runs: one row per verb of events in scenarios.

The scenario's models, the timeline, the schedule of links, the fault injector and the commands read it. How a worker is
killed, frozen or slowed is in run/faults.py; how links and partitions change, in plan/schedule.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Target = Literal["link", "direction", "workers", "groups", "partitions", "drawn"]
DRAWN_FOR = 5.0  # seconds


@dataclass(frozen=True)
class Verb:
    """One row."""

    target: Target  # to what: "drawn" is whatever a random event's kind says
    lasting: bool = False  # can be undone after a while: `for`
    endless: bool = True  # may stay for ever; else `for` must be given
    usually_for: float | None = None  # seconds, where the event does not say
    usually_every: float | None = None
    drawn: bool = False  # may happen at random
    drawn_for: float | None = None  # seconds, then
    does: str = ""  # another verb, which is what is done; "": itself
    numbers: Mapping[str, Any] | None = None  # what it makes of a link; None: what the event says
    field: str = ""  # of the model, where it is called differently


VERBS: Mapping[str, Verb] = {
    "link": Verb("link", lasting=True),
    "from": Verb("direction", lasting=True, does="link", field="source"),
    "down": Verb("link", lasting=True, drawn=True, drawn_for=DRAWN_FOR, numbers={"up": False}),
    "up": Verb("link", numbers={"up": True}),
    "flap": Verb("link", lasting=True, usually_for=1.0, usually_every=10.0, does="down"),
    "partition": Verb("groups", lasting=True),
    "heal": Verb("partitions"),
    "kill": Verb("workers", lasting=True, drawn=True),
    "restart": Verb("workers"),
    "freeze": Verb("workers", lasting=True, endless=False, drawn=True, drawn_for=DRAWN_FOR),
    "slow": Verb("workers", lasting=True, drawn=True, drawn_for=DRAWN_FOR),
    "random": Verb("drawn"),
}


def field_of(verb: str) -> str:
    """Return the attribute of an event that holds its target."""
    return VERBS[verb].field or verb


def done_by(verb: str) -> str:
    """Return the verb that is carried out: a link that flaps goes down."""
    return VERBS[verb].does or verb


def aimed_at(*targets: Target) -> tuple[str, ...]:
    """Return the verbs with such a target."""
    return tuple(name for name, verb in VERBS.items() if verb.target in targets)


ON_WORKERS = aimed_at("workers")
ON_LINKS = aimed_at("link")
ON_NETWORK = aimed_at("link", "direction", "groups", "partitions")  # without training, too
