"""Plans through JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from network.examples import network

from testbed.link.shape import Shape
from testbed.plan.file import from_json, to_json
from testbed.plan.model import NetworkPlan, TraceFile

NETWORKS = {
    "ring": network("{topology: ring}", workers=8),
    "two": network("{topology: chain}", workers=2),
    "one": network("{topology: chain}", workers=1),
    "star": network("{topology: star, mtu: 9000, congestion: cubic}", workers=5),
    "torus": network("{topology: {torus: 3x3}}"),
    "regions": network(
        "{regions: {eu: [w0, w1], us: [w2, w3]}, between: [{regions: [eu, us], latency: 80ms, loss: 1%}]}"
    ),
    "unlimited": network("{topology: ring, link: {rate: unlimited, jitter: 1ms, buffer: 3ms}}", workers=3),
}
(_link,) = NETWORKS["two"].links
_traces = {"trace_ab": TraceFile("csv", "/a.csv"), "trace_ba": TraceFile("mahimahi", "/b.up")}
NETWORKS["traces"] = replace(NETWORKS["two"], links=(replace(_link, **_traces),))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_plan_comes_back_as_it_was(name: str) -> None:
    plan = NETWORKS[name]
    again = from_json(to_json(plan))
    assert again == plan
    assert again.paths == plan.paths


def test_traces_come_back_as_traces() -> None:
    (link,) = from_json(to_json(NETWORKS["traces"])).links
    assert isinstance(link.trace_ab, TraceFile)
    assert (link.trace_ab.kind, link.trace_ba and link.trace_ba.kind) == ("csv", "mahimahi")


@given(
    some.builds(
        Shape,
        latency=some.floats(0, 274),
        rate=some.none() | some.integers(1000, 34 * 10**9),
        loss=some.floats(0, 1),
        buffer=some.none() | some.floats(0, 274),
        up=some.booleans(),
        limit=some.none() | some.integers(1, 2**32 - 1),
    )
)
def test_no_number_changes_on_the_way(shape: Shape) -> None:
    plan: NetworkPlan = NETWORKS["two"]
    changed = replace(plan, links=(replace(plan.links[0], ba=shape),))
    assert from_json(to_json(changed)) == changed


def test_a_plan_is_plain_json() -> None:
    assert json.loads(to_json(NETWORKS["ring"]))["workers"][7]["name"] == "w7"
