"""The network as the scenario describes it: topology, links, regions, and what changes while training runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import Discriminator, Field, Strict, Tag, create_model

from testbed.link.shape import PROPERTIES, WRITTEN
from testbed.scenario.base import WHOLE, Model
from testbed.scenario.events import Event, Nodes
from testbed.scenario.graphs import WORKER, Topology
from testbed.scenario.links import Link, LinkOptions, LinkOverride, Node

RegionName = Annotated[str, Field(min_length=1, max_length=40)]
T = TypeVar("T")


def _matrix_or_one(value: object) -> str:
    """Distinguish a matrix, which has rows, from one value, such as {spread: 5ms, shape: normal}."""
    plain = isinstance(value, Mapping) and "spread" in value and not isinstance(value["spread"], Mapping)
    return "matrix" if isinstance(value, Mapping) and not plain else "one"


PerPair = Annotated[
    Annotated[T, Tag("one")] | Annotated[dict[RegionName, dict[RegionName, T]], Tag("matrix")],
    Discriminator(_matrix_or_one),
]


class RegionPair(LinkOptions):
    """Links between two regions (or, naming one region twice, inside that region)."""

    regions: tuple[RegionName, RegionName] = Field(examples=[["eu", "us"]], description="The two regions.")


class _Regional(Model):
    """Links between regions, setting by setting: one value for all pairs, or a matrix `{eu: {us: 80ms, asia: 240ms}}`.

    A pair given once holds for both directions; given both ways round, for one direction each.
    """

    settings: ClassVar[tuple[str, ...]] = WRITTEN

    def options(self, source: str, target: str) -> LinkOptions:
        """Return what holds for packets from one region to another."""
        given: dict[str, Any] = {}
        for name in self.settings:
            value = getattr(self, name)
            if isinstance(value, dict):
                value = value.get(source, {}).get(target, value.get(target, {}).get(source))
            elif source == target:  # one value for all pairs is about links between regions
                value = None
            if value is not None:
                given[name] = value
        return LinkOptions(**given)


def _per_pair(name: str) -> Any:
    """Return a link's setting, for all pairs or for each."""
    alone, example = LinkOptions.model_fields[name], PROPERTIES[name].example
    per_pair: Any = PerPair  # of a type that is only known here
    kind = per_pair[get_args(alone.annotation)[0]]
    about = (alone.description or "").replace("as before", "as `link`")
    return kind | None, Field(default=None, examples=[example, {"eu": {"us": example}}], description=about)


if TYPE_CHECKING:
    RegionMatrix = _Regional
else:
    RegionMatrix = create_model(
        "RegionMatrix", __base__=_Regional, __doc__=_Regional.__doc__, **{name: _per_pair(name) for name in WRITTEN}
    )


def _list_or_mapping(value: object) -> str:
    return "matrix" if isinstance(value, Mapping | RegionMatrix) else "pairs"


Between = Annotated[
    Annotated[tuple[RegionPair, ...], Tag("pairs")] | Annotated[RegionMatrix, Tag("matrix")],
    Discriminator(_list_or_mapping),
]


class Network(Model):
    """The emulated network."""

    topology: Topology | None = Field(
        default=None,
        description="Which nodes are linked: a name such as ring, or a mapping such as {torus: 4x4} or {file: "
        "abilene.graphml}. Workers that are not neighbours reach each other over the links between. Default: ring; "
        "with regions, a switch in each region, its workers around it, and links between the regions.",
    )
    switches: tuple[Node, ...] = Field(
        default=(),
        examples=[["r1", "r2"]],
        description="Nodes of a topology's file or list that only forward packets and train nothing, e.g. the routers "
        "of a backbone. Default: Mininet's switches; in a list, nodes not called w0, w1, …; in a GraphML file, none.",
    )
    link: Link = Field(
        default=Link(),
        description="What every link does to packets unless `links`, regions or the topology's file say otherwise. "
        "Default: 5ms and 100mbit.",
    )
    links: tuple[LinkOverride, ...] = Field(
        default=(),
        description="Links that differ from `link`. Later entries win over earlier ones, and all over regions. "
        "Default: none.",
    )
    regions: dict[RegionName, Nodes] = Field(
        default={},
        examples=[{"eu": ["w0", "w1"], "us": ["w2"]}],
        description="Sites, clouds or continents: which workers are in each, e.g. {eu: [w0, w1], us: [w2, w3]}. "
        "Default: none.",
    )
    within: LinkOptions | None = Field(
        default=None,
        description="Links inside a region. Without a topology: between a worker and its region's switch, so two "
        "workers of a region are twice this latency apart. Default: as `link`.",
    )
    between: Between | None = Field(
        default=None,
        examples=[{"latency": "40ms"}, [{"regions": ["eu", "us"], "latency": "40ms"}]],
        description="Links whose ends are in different regions: a list of {regions: [eu, us], latency: 80ms}, or "
        "setting by setting {latency: {eu: {us: 80ms}}, rate: 100mbit}. Default: as `link`.",
    )
    routing: Literal["latency", "hops"] = Field(
        default="latency",
        description="Packets between nodes that are not neighbours take the path of least latency or of fewest links. "
        "Matters only where there are several paths.",
    )
    mtu: Annotated[int, Strict(), Field(ge=576, le=65521), WHOLE] = Field(
        default=1500,
        description="Largest packet in bytes. 9000 is usual inside data centres, 1500 everywhere else.",
    )
    congestion: str | None = Field(
        default=None,
        pattern=r"^[a-z][a-z0-9_]{0,14}$",
        examples=["cubic", "bbr", "reno"],
        description="TCP congestion control of the workers, as this kernel has it. Set it when you compare machines: "
        "bbr and cubic differ much on lossy links, and bbr spreads short messages over a third of a round trip. "
        "reno is on every machine. Default: this machine's.",
    )
    events: tuple[Event, ...] = Field(default=(), description="What changes while training runs. Default: nothing.")

    @property
    def graph(self) -> Topology:
        """Return the topology, or a ring where it is left out. (Left out with regions, they make the network.)"""
        return self.topology or Topology.model_validate("ring")

    @property
    def worker_count(self) -> int | None:
        """Return the number of workers, where the network determines it."""
        if self.topology is None and self.regions:
            return len({name for members in self.regions.values() for name in members})
        if self.graph.links:
            names = {name for pair in self.graph.links for name in pair if name not in self.switches}
            return sum(WORKER.fullmatch(name) is not None for name in names)
        return self.graph.size

    def region_of(self, node: str) -> str | None:
        return next((name for name, members in self.regions.items() if node in members), None)

    def regional(self, source: str, target: str) -> LinkOptions | None:
        """Return what regions say about packets from one node to a neighbour; None where they say nothing."""
        a, b = self.region_of(source), self.region_of(target)
        if a is None or b is None:
            return None
        found = self.within if a == b else None
        if isinstance(self.between, RegionMatrix):
            told = self.between.options(a, b)
            return told if found is None else _over(found, told)
        for pair in self.between or ():
            if set(pair.regions) == {a, b}:
                found = pair if found is None else _over(found, pair)
        return found


def _over(base: LinkOptions, top: LinkOptions) -> LinkOptions:
    """Return the settings of top, and where it has none those of base."""
    names = LinkOptions.model_fields
    merged = {name: value for options in (base, top) for name in names if (value := getattr(options, name)) is not None}
    return LinkOptions(**merged)
