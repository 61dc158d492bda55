"""A network plan as JSON: how it reaches the keeper, and how later commands read what is up. Cheap to import."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from testbed.network.shape import Shape
from testbed.plan import LinkPlan, NetworkPlan, Route, TraceFile, WorkerPlan


def to_json(plan: NetworkPlan) -> str:
    return json.dumps(asdict(plan), indent=1)


def from_json(text: str) -> NetworkPlan:
    data = json.loads(text)
    return NetworkPlan(
        **{
            **data,
            "workers": tuple(WorkerPlan(**worker) for worker in data["workers"]),
            "routers": tuple(data["routers"]),
            "links": tuple(_link(link) for link in data["links"]),
            "routes": {router: tuple(Route(**one) for one in routes) for router, routes in data["routes"].items()},
        }
    )


def _link(data: dict[str, Any]) -> LinkPlan:
    shapes = {key: Shape(**data[key]) for key in ("ab", "ba")}
    traces = {key: TraceFile(**data[key]) for key in ("trace_ab", "trace_ba") if data[key]}
    return LinkPlan(**{**data, **shapes, **traces})
