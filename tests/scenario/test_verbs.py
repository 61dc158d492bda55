"""The table of events: the models, the schedule and the injector of faults know exactly its verbs."""

from __future__ import annotations

from typing import get_args

import pytest

from testbed.run.faults import FaultInjector
from testbed.scenario.events import Event, RandomEvents
from testbed.scenario.verbs import ON_NETWORK, ON_WORKERS, VERBS, done_by, field_of


@pytest.mark.parametrize("verb", VERBS)
def test_an_event_has_a_key_for_each_verb(verb: str) -> None:
    assert field_of(verb) in Event.model_fields
    assert done_by(done_by(verb)) == done_by(verb)
    row = VERBS[verb]
    assert row.lasting or (row.endless and row.usually_for is None)


def test_what_may_be_drawn_is_what_random_events_allow() -> None:
    kinds = get_args(RandomEvents.model_fields["kind"].annotation)
    assert set(kinds) == {name for name, row in VERBS.items() if row.drawn}


def test_every_verb_is_about_the_network_or_about_workers() -> None:
    assert {*ON_NETWORK, *ON_WORKERS, "random"} == {*VERBS}
    assert not {*ON_NETWORK} & {*ON_WORKERS}


@pytest.mark.parametrize("verb", ON_WORKERS)
def test_the_injector_can_do_what_is_about_workers(verb: str) -> None:
    assert callable(getattr(FaultInjector, f"_{verb}"))
