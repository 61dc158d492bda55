"""A network plan as JSON: how it reaches the network daemon, and how commands read what is up. Cheap to import."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from testbed.link.shape import Shape
from testbed.link.shape import as_data as shape_data
from testbed.plan.model import LinkPlan, NetworkPlan, Route, TraceFile, WorkerPlan


def to_json(plan: NetworkPlan) -> str:
    return json.dumps(as_data(plan), indent=1)


def as_data(plan: NetworkPlan) -> dict[str, Any]:
    """Return what asdict gives, without a deep copy of each of many routes."""
    routes = {
        router: [{"prefix": route.prefix, "link": route.link} for route in routes]
        for router, routes in plan.routes.items()
    }
    links = [link_data(link) for link in plan.links]
    return {**asdict(replace(plan, routes={}, links=())), "links": links, "routes": routes}


def link_data(link: LinkPlan) -> dict[str, Any]:
    return {**asdict(link), "ab": shape_data(link.ab), "ba": shape_data(link.ba)}


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
