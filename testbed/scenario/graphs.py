"""Graphs as the scenario names them: the network's topology and the gossip graph. testbed.topology builds them."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Strict,
    Tag,
    field_validator,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.scenario.base import WHOLE, Choice, Model, Natural, Nothing, Number, Positive
from testbed.scenario.links import Pair
from testbed.scenario.units import shown

WORKER = re.compile(r"w(0|[1-9]\d{0,5})", re.ASCII)  # how workers are called: w0, w1, …
Side = Annotated[int, Strict(), Field(ge=2, le=1024), WHOLE]


class Torus(Model):
    """A grid whose rows and columns close to rings: 4x4, or {rows: 4, columns: 4}."""

    rows: Side | None = Field(
        default=None, description="Rows, 2 or more. Default: as square as the number of workers allows."
    )
    columns: Side | None = Field(
        default=None, description="Columns, 2 or more. Default: as square as the number of workers allows."
    )

    @classmethod
    def written_out(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return super().written_out(value)
        if not re.fullmatch(r"\d{1,4}x\d{1,4}", value, re.ASCII):
            raise ValueError(f"{shown(value)} is not a size; write rows and columns, for example 4x4")
        rows, columns = value.split("x")
        return {"rows": int(rows), "columns": int(columns)}

    @model_serializer(mode="wrap")
    def _as_text(self, handler: Any) -> Any:
        return f"{self.rows}x{self.columns}" if self.rows and self.columns else handler(self)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        text = {"type": "string", "pattern": r"^\d{1,4}x\d{1,4}$", "examples": ["4x4"]}
        mapping = handler.resolve_ref_schema(handler(schema))
        return {"description": mapping.pop("description", ""), "anyOf": [text, mapping]}


class RandomRegular(Model):
    """A random graph in which every worker has the same number of neighbours."""

    degree: Positive | None = Field(
        default=None,
        description="Neighbours of every worker: more mix faster, cost more traffic. Default: 3, or 4 where the "
        "number of workers is odd.",
    )
    seed: Natural | None = Field(default=None, description="Which of the graphs. Default: from the scenario's seed.")


class ErdosRenyi(Model):
    """A random graph in which each pair of workers is linked with probability p; drawn until it is connected."""

    probability: Number | None = Field(
        default=None,
        alias="p",
        gt=0,
        le=1,
        description="Probability of a link between two workers: more links mix faster, cost more traffic. Default: 2 "
        "ln(n)/n, which mostly connects n workers.",
    )
    seed: Natural | None = Field(default=None, description="Which of the graphs. Default: from the scenario's seed.")


class Tree(Model):
    """A balanced tree with w0 at its root."""

    branching: Positive = Field(default=2, description="Children of every node; more make a flatter tree.")


class RandomPairs(Model):
    """In every round the workers are paired at random."""

    seed: Natural | None = Field(
        default=None, description="Which sequence of pairings. Default: from the scenario's seed."
    )


class Topology(Choice):
    """A graph of workers (and switches): a name, or a mapping of a name to its options."""

    what: ClassVar[str] = "topology"

    ring: Nothing | None = Field(
        default=None, description="Every worker has two neighbours: least traffic per worker, mixes slowest."
    )
    chain: Nothing | None = Field(default=None, description="A ring with one link missing: the worst case for mixing.")
    star: Nothing | None = Field(
        default=None,
        description="A switch in the middle of all workers: sites with one line each. (As gossip graph: w0 in the "
        "middle.)",
    )
    complete: Nothing | None = Field(
        default=None, description="Every worker is a neighbour of every other: exact averages, most traffic."
    )
    torus: Torus | None = Field(
        default=None, description="A grid whose rows and columns close to rings, e.g. {torus: 4x4}."
    )
    hypercube: Nothing | None = Field(
        default=None, description="2, 4, 8, 16, … workers; neighbours differ in one bit of their number."
    )
    exponential: Nothing | None = Field(
        default=None,
        description="Worker i is linked with i+1, i+2, i+4, … (modulo the number of workers): mixes fast with few "
        "neighbours.",
    )
    tree: Tree | None = Field(default=None, description="A balanced tree, e.g. {tree: {branching: 3}}.")
    barbell: Nothing | None = Field(default=None, description="Two complete halves joined by one link: a bottleneck.")
    davis: Nothing | None = Field(
        default=None, description="Davis' social network, always 32 workers: the graph of CHOCO-SGD's experiments."
    )
    random_regular: RandomRegular | None = Field(
        default=None,
        alias="random-regular",
        description="Random, all workers with the same number of neighbours: {degree: 3, seed: 1}.",
    )
    erdos_renyi: ErdosRenyi | None = Field(
        default=None, alias="erdos-renyi", description="Random, each pair linked with probability p: {p: 0.3, seed: 1}."
    )
    file: str | None = Field(
        default=None,
        min_length=1,
        description="GraphML or GML file (for example from the Topology Zoo), relative to the scenario.",
    )
    mininet: str | None = Field(
        default=None,
        pattern=r"^[^:]+(:[A-Za-z_][A-Za-z0-9_]*)?$",
        description="Python file with a Mininet Topo, and its class: my_topo.py:MyTopo.",
        examples=["my_topo.py:MyTopo"],
    )
    links: tuple[Pair, ...] | None = Field(
        default=None,
        min_length=1,
        description="Every link by its two ends, e.g. [[w0, s0], [w1, s0]]. Names other than w0, w1, … are switches.",
    )

    @property
    def builtin(self) -> bool:
        """Whether the graph is made from the number of workers alone: its workers are then w0, w1, …"""
        return self.kind not in ("file", "mininet", "links", "arcs")

    @property
    def settings(self) -> dict[str, Any]:
        """Return options of a built-in graph by the names testbed.topology gives them; None: its default."""
        return dict(self.options) if isinstance(self.options, Model) else {}

    @property
    def size(self) -> int | None:
        """Return the number of workers, where a built-in graph alone determines it."""
        if self.torus and self.torus.rows and self.torus.columns:
            return self.torus.rows * self.torus.columns
        return 32 if self.davis else None


class GossipGraph(Topology):
    """A graph of workers, as for the network; or one that changes from round to round."""

    what: ClassVar[str] = "gossip graph"

    one_peer_exponential: Nothing | None = Field(
        default=None,
        alias="one-peer-exponential",
        description="In round t worker i sends to i + 2^t only: one message, exact averages after log2(n) rounds.",
    )
    random_pairs: RandomPairs | None = Field(
        default=None,
        alias="random-pairs",
        description="In every round the workers are paired at random, and pairs average: one message, no fixed "
        "neighbours. Every worker is connected with every other.",
    )
    arcs: tuple[Pair, ...] | None = Field(
        default=None,
        min_length=1,
        description="One-way edges, each as [from, to], e.g. [[w0, w1], [w1, w2], [w2, w0]]: for push-sum (sgp), where "
        "lines carry more one way than the other.",
    )


Weights = Annotated[
    Annotated[Literal["metropolis", "uniform", "push"], Tag("name")]
    | Annotated[tuple[tuple[Number, ...], ...], Tag("matrix")],
    Discriminator(lambda value: "matrix" if isinstance(value, list | tuple) else "name"),
]


class Gossip(Model):
    """Who averages with whom: any graph's name or mapping, or `{graph: …, weights: …}`."""

    graph: GossipGraph | None = Field(
        default=None,
        description="The gossip graph. Name another than the network's to see what mixing faster is worth where "
        "messages then cross several links. Default: the network's own neighbours, so that messages cross one link.",
    )
    weights: Weights = Field(
        default="metropolis",
        description="Mixing weights W. `metropolis` suits every graph; `uniform`, 1/(neighbours + 1), needs equally "
        "many for all workers; `push`, 1/(neighbours it sends to + 1), is for push-sum (sgp) and what `arcs` get; or "
        "the matrix itself, a list of rows (row i: what worker i takes from each).",
    )

    @classmethod
    def written_out(cls, value: Any) -> Any:
        if isinstance(value, str) or (isinstance(value, dict) and value and not value.keys() & {"graph", "weights"}):
            return {"graph": value}
        return super().written_out(value)

    @field_validator("weights")
    @classmethod
    def _square(cls, value: Any) -> Any:
        if not isinstance(value, str) and any(len(row) != len(value) for row in value):
            raise ValueError("the matrix of weights must be square: as many numbers in each row as there are rows")
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = handler.resolve_ref_schema(handler(schema))
        graph = dict(mapping["properties"]["graph"])
        return {"description": mapping.pop("description", ""), "anyOf": [graph, mapping]}
