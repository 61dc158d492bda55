"""From scenario text to topology and gossip graph: switches, regions, overrides, and file:line in what goes wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.errors import ScenarioError
from testbed.plan.shapes import check_events, link_directions
from testbed.scenario.load import load, loads
from testbed.topology import mixing
from testbed.topology.build import gossip_graph, network_topology
from testbed.topology.graph import Edge, Topology, TopologyError

DATA = Path(__file__).parent / "data"


def scenario(text: str):
    return loads(f"{text}\nmethods: [dpsgd]\n", "test.yaml")


def shapes(text: str):
    parsed = scenario(text)
    directions = link_directions(parsed, network_topology(parsed))
    return {f"{source}>{target}": direction.shape for (source, target), direction in directions.items()}


def problem(text: str, part=lambda s, t: None) -> str:
    """What is wrong with a scenario, in loading, in its topology, or in `part`."""

    def everything() -> None:
        parsed = scenario(text)
        part(parsed, network_topology(parsed))

    with pytest.raises(ScenarioError) as caught:
        everything()
    return f"{caught.value} [{caught.value.hint}]"


def test_links_have_canonical_names():
    topology = network_topology(scenario("workers: 4"))
    assert [(edge.a, edge.b) for edge in topology.edges] == [("w0", "w1"), ("w0", "w3"), ("w1", "w2"), ("w2", "w3")]


def test_star_has_a_switch_in_its_centre():
    topology = network_topology(scenario("workers: 5\nnetwork: {topology: star}"))
    assert topology.switches == ("s0",)
    assert {(edge.a, edge.b) for edge in topology.edges} == {(f"w{i}", "s0") for i in range(5)}


def test_listed_links():
    topology = network_topology(scenario("network: {topology: {links: [[w1, s], [s, w0], [w0, w2]]}}"))
    assert topology.workers == ("w0", "w1", "w2")
    assert topology.switches == ("s",)
    assert [(edge.a, edge.b) for edge in topology.edges] == [("w1", "s"), ("s", "w0"), ("w0", "w2")]


def test_a_file_keeps_names_and_may_have_switches(tmp_path):
    shutil.copy(DATA.parents[2] / "scenarios" / "abilene.graphml", tmp_path)
    (tmp_path / "s.yaml").write_text(
        "network: {topology: {file: abilene.graphml}, switches: [Denver, KansasCity]}\nmethods: [dpsgd]\n"
    )
    topology = network_topology(load(tmp_path / "s.yaml"))
    assert len(topology.workers) == 9
    assert topology.switches == ("Denver", "KansasCity")
    assert nx.is_connected(topology.graph())


def test_random_topologies_follow_the_scenarios_seed_unless_they_have_their_own():
    def edges(seed, own=""):
        text = f"workers: 12\nseed: {seed}\nnetwork: {{topology: {{random-regular: {{degree: 3{own}}}}}}}"
        return network_topology(scenario(text)).edges

    assert edges(1) != edges(2)
    assert edges(1, ", seed: 5") == edges(2, ", seed: 5")


def test_overrides_of_both_directions_and_of_one():
    found = shapes(
        "workers: 4\n"
        "network:\n"
        "  link: {latency: 5ms, rate: 100mbit, buffer: 50ms}\n"
        "  links:\n"
        "    - {between: [w1, w0], latency: 80ms, rate: 10mbit, loss: 0.1%}\n"
        "    - {from: w2, to: w3, rate: 5mbit}\n"
        "    - {from: w0, to: w1, latency: 70ms}\n"
        "    - {between: [w0, w3], rate: unlimited}\n"
    )
    assert (found["w0>w1"].latency, found["w1>w0"].latency) == (0.07, 0.08)  # the later entry wins
    assert found["w0>w1"].loss == found["w1>w0"].loss == 0.001
    assert (found["w2>w3"].rate, found["w3>w2"].rate) == (5_000_000, 100_000_000)
    assert found["w2>w3"].latency == 0.005
    assert found["w0>w3"].rate is None
    assert all(shape.buffer == 0.05 for shape in found.values())


def test_a_files_numbers_win_over_the_default_and_overrides_over_the_file(tmp_path):
    shutil.copy(DATA / "dumbbell.py", tmp_path)
    (tmp_path / "s.yaml").write_text(
        "network:\n"
        "  topology: {mininet: 'dumbbell.py:Dumbbell'}\n"
        "  link: {latency: 7ms, jitter: 2ms}\n"
        "  links: [{from: s1, to: s2, rate: 20mbit, buffer: 10ms}]\n"
        "methods: [dpsgd]\n"
    )
    parsed = load(tmp_path / "s.yaml")
    found = link_directions(parsed, network_topology(parsed))
    assert found["h1", "s1"].shape.latency == 0.0005
    assert found["h1", "s1"].shape.jitter == 0.002  # the file is silent about it
    assert found["s1", "s2"].shape.rate == 20_000_000
    assert found["s1", "s2"].shape.latency == 0.02
    assert (found["s1", "s2"].shape.limit, found["s2", "s1"].shape.limit) == (None, 50)  # a buffer replaces packets


REGIONS = """workers: 5
network:
  regions: {eu: [w0, w1], us: [w2, w4], asia: [w3]}
  within: {latency: 1ms, rate: 1gbit}
  between:
    latency: {eu: {us: 40ms, asia: 120ms}, us: {eu: 45ms, asia: 80ms}}
    rate: 50mbit
"""


def test_regions_are_switches_with_a_mesh_between_them():
    topology = network_topology(scenario(REGIONS))
    assert topology.switches == ("eu", "us", "asia")
    assert {f"{edge.a}-{edge.b}" for edge in topology.edges} == {
        *("w0-eu", "w1-eu", "w2-us", "w4-us", "w3-asia"),
        *("eu-us", "eu-asia", "us-asia"),
    }
    found = shapes(REGIONS + "  links: [{between: [us, asia], loss: 1%}]")
    assert found["w0>eu"].latency == found["eu>w0"].latency == 0.001
    assert found["w3>asia"].rate == 1_000_000_000
    assert (found["eu>us"].latency, found["us>eu"].latency) == (0.04, 0.045)  # the matrix may differ by direction
    assert found["eu>asia"].latency == found["asia>eu"].latency == 0.12
    assert found["eu>us"].rate == found["us>asia"].rate == 50_000_000
    assert found["asia>us"].loss == 0.01


def test_only_the_pairs_given_are_linked():
    text = (
        "workers: 3\nnetwork:\n  regions: {eu: [w0], us: [w1], asia: [w2]}\n"
        "  between: [{regions: [eu, us], latency: 40ms}, {regions: [us, asia], latency: 80ms}]\n"
    )
    topology = network_topology(scenario(text))
    assert {f"{edge.a}-{edge.b}" for edge in topology.edges} == {"w0-eu", "w1-us", "w2-asia", "eu-us", "us-asia"}
    assert shapes(text)["asia>us"].latency == 0.08


def test_regions_over_an_explicit_topology_shape_its_links():
    found = shapes(
        "workers: 4\nnetwork:\n  topology: ring\n  regions: {eu: [w0, w1], us: [w2, w3]}\n"
        "  within: {latency: 1ms}\n  between: {latency: 40ms}\n"
    )
    assert found["w0>w1"].latency == 0.001
    assert found["w1>w2"].latency == 0.04
    assert len(found) == 8


def test_gossip_follows_the_networks_neighbours():
    parsed = scenario("workers: 6\nnetwork: {topology: chain}")
    gossip, notes = gossip_graph(parsed, network_topology(parsed))
    assert (gossip.name, notes) == ("chain", [])
    assert gossip.sources(0, 0) == (1,)


def test_gossip_is_a_ring_where_only_switches_connect():
    parsed = scenario("workers: 6\nnetwork: {topology: star}")
    gossip, notes = gossip_graph(parsed, network_topology(parsed))
    assert gossip.name == "ring"
    assert gossip.sources(0, 0) == (1, 5)
    assert "gossip in a ring" in notes[0]


@pytest.mark.parametrize(
    ("gossip", "sources"),
    [
        ("complete", (1, 2, 3)),
        ("star", (1, 2, 3)),
        ("{links: [[w0, w2], [w2, w1], [w1, w3]]}", (2,)),
        ("{graph: ring, weights: uniform}", (1, 3)),
        ("one-peer-exponential", (3,)),
        ("{random-pairs: {seed: 2}}", mixing.random_pairs(4, 2).sources(0, 0)),
        ("random-pairs", mixing.random_pairs(4, 1).sources(0, 0)),  # the scenario's seed
        ("{arcs: [[w0, w1], [w1, w2], [w2, w3], [w3, w0], [w2, w0]]}", (2, 3)),
        ("{graph: star, weights: push}", (1, 2, 3)),
        ("{weights: [[.5, .5, 0, 0], [.5, 0, .5, 0], [0, .5, 0, .5], [0, 0, .5, .5]]}", (1,)),
    ],
)
def test_gossip_as_asked(gossip, sources):
    parsed = scenario(f"workers: 4\ngossip: {gossip}")
    found, _ = gossip_graph(parsed, network_topology(parsed))
    assert found.sources(0, 0) == sources
    for W in found.matrices:
        np.testing.assert_allclose(W.sum(axis=0), 1)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("workers: 7\nnetwork:\n  topology: torus", "test.yaml:3", "7 workers make no torus"),
        ("workers: 8\nnetwork:\n  topology: davis", "test.yaml:3", "32 nodes, not 8"),
        ("workers: 5\nnetwork:\n  topology: {links: [[w0, w1], [w1, w2]]}", "test.yaml:3", "no link leads to w3, w4"),
        ("network:\n  topology: {links: [[w0, w1], [w1, w2], [w1, w0]]}", "test.yaml:2", "w1-w0 is listed twice"),
        ("network:\n  topology: {links: [[w0, w1], [w2, s]]}", "test.yaml:2", "nothing links"),
        (
            "workers: 300\nnetwork:\n  topology: complete",
            "test.yaml:3",
            "44850 links, and there are addresses for",
        ),
        ("network:\n  topology: {file: nowhere.gml}", "test.yaml:2", "no topology file"),
        ("workers: 4\nnetwork:\n\n  switches: [w1]", "test.yaml:4", "all nodes of a ring are workers"),
        ("workers: 4\nnetwork:\n  switches: [s9]", "test.yaml:3", "unknown node 's9'"),
        ("workers: 3\nnetwork:\n  regions: {eu: [w0], us: [w1]}", "test.yaml:3", "w2 in no region"),
        ("workers: 2\nnetwork:\n  regions: {eu: [w0], w1: [w1]}", "test.yaml:3", "called like a worker"),
        ("workers: 2\nnetwork:\n  regions: {eu: [w0], us: [node]}", "test.yaml:3", "unknown worker 'node'"),
        (
            "workers: 3\nnetwork:\n  regions: {eu: [w0], us: [w1], asia: [w2]}\n"
            "  between: [{regions: [eu, us], latency: 4ms}]",
            "test.yaml:3",
            "nothing links w2, asia to the rest",
        ),
    ],
)
def test_topologies_that_cannot_be(text, where, words):
    found = problem(text)
    assert found.startswith(f"{where}: ")
    assert words in found


LONG = "Gr" + "ö" * 298
GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="l" for="node" attr.name="label" attr.type="string"/><graph edgedefault="undirected">
<node id="0"><data key="l">{}</data></node><node id="1"/><edge source="0" target="1"/></graph></graphml>"""
MININET = """from mininet.topo import Topo
class Own(Topo):
    def build(self):
        self.addLink(self.addHost({!r}), self.addHost('h2'))
"""
CANNOT = ["../../etc/cron", "a/b", "a b", ".", "..", "-rf", "a\nb", "a\x1b[2J", "a>b", LONG]


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("own.graphml", GRAPHML.format(LONG), "has 598 bytes; at most 63 can be used"),
        ("own.graphml", GRAPHML.format("..."), "a worker cannot be called '...'"),
        *[("own.py", MININET.format(name), "598 bytes" if name == LONG else "cannot be called") for name in CANNOT],
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["plan", "up", "net up"])
def test_names_that_no_file_or_host_can_have(tmp_path, file, content, words, command):
    """All commands refuse them alike, before anything is made."""
    (tmp_path / file).write_text(content)
    kind = "file" if file.endswith("ml") else "mininet"
    (tmp_path / "s.yaml").write_text(f"network:\n  topology: {{{kind}: {file}}}\nmethods: [dpsgd]\n")
    with pytest.raises(ScenarioError, match=r"s\.yaml:2: ") as caught:
        CliRunner().invoke(cli, [*command.split(), str(tmp_path / "s.yaml")], catch_exceptions=False)
    assert words in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == sorted([file, "s.yaml"])


@pytest.mark.parametrize("name", ["Zürich", "h1", "São_Paulo.2", "0", "a-b", "é" * 31])
def test_names_that_files_and_hosts_can_have(name):
    assert Topology("t", (name, "x"), (), (Edge(name, "x"),)).check().workers == (name, "x")


@pytest.mark.parametrize("name", ["n" * 300, "a\x1bb", " ", "ü" * 32])
def test_switches_have_names_that_can_be_shown(name):
    with pytest.raises(TopologyError):
        Topology("t", ("w0",), (name,), (Edge("w0", name),)).check()
    assert Topology("t", ("w0",), ("EU West",), (Edge("w0", "EU West"),)).check()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{between: [w0, w2], rate: 1mbit}", "no link between w0 and w2 in topology ring"),
        ("{between: [w0, w2], rate: 1mbit}", "w0 has links to w1, w3"),
        ("{from: w0, to: s0, rate: 1mbit}", "unknown node 's0'"),
        ("{between: [w0, W1], rate: 1mbit}", "did you mean 'w1'"),
    ],
)
def test_overrides_of_links_that_are_not_there(entry, words):
    text = f"workers: 4\nnetwork:\n  links:\n    - {{between: [w0, w1], rate: 1mbit}}\n    - {entry}"
    found = problem(text, link_directions)
    assert found.startswith("test.yaml:5: ")
    assert words in found


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("{at: 1s, link: [w0, s0], rate: 1mbit}", ""),
        ("{at: 1s, kill: w2}", ""),
        ("{at: 1s, down: [w0, w1]}", "no link between w0 and w1"),
        ("{at: 1s, from: w0, to: s1, rate: 1mbit}", "unknown node 's1'"),
    ],
)
def test_events_name_what_is_there(event, words):
    text = f"workers: 4\nnetwork:\n  topology: star\n  events:\n    - {event}"
    if not words:
        parsed = scenario(text)
        check_events(parsed, network_topology(parsed))
        return
    found = problem(text, check_events)
    assert found.startswith("test.yaml:5: ")
    assert words in found


def test_events_kill_workers_not_switches():
    text = "network:\n  topology: {links: [[w0, s0], [w1, s0]]}\n  events: [{at: 1s, kill: s0}]"
    assert "test.yaml:3: s0 is a switch" in problem(text, check_events)


@pytest.mark.parametrize(
    ("gossip", "words"),
    [
        ("{graph: chain, weights: uniform}", "uniform weights need equally many neighbours"),
        ("{graph: hypercube}", "power of two"),
        ("{links: [[w0, w1]]}", "nothing links"),
        ("{links: [[w0, w1], [w1, x]]}", "unknown node 'x'"),
        ("{graph: ring, weights: [[.5, .5, 0], [.5, .5, 0], [0, 0, 1]]}", "leave gossip.graph out"),
        ("{weights: [[.5, .5, 0], [.5, .5, 0], [0, 0, 1]]}", "nothing links w2 to the rest"),
        ("{graph: one-peer-exponential, weights: uniform}", "its own weights"),
        ("{graph: random-pairs, weights: push}", "random-pairs brings its own weights"),
        ("{graph: {arcs: [[w0, w1], [w1, w2], [w2, w0]]}, weights: uniform}", "leave weights out"),
        ("{arcs: [[w0, w1], [w1, w2], [w1, w0]]}", "nothing that w2 sends ever reaches w0"),
        ("{arcs: [[w0, w1], [w1, w2], [w2, w0], [w0, w1]]}", "w0 → w1 is listed twice"),
        ("{arcs: [[w0, w0], [w1, w2], [w2, w0]]}", "two different nodes, not w0 with itself"),
    ],
)
def test_gossip_graphs_that_cannot_be(gossip, words):
    found = problem(f"workers: 3\ngossip: {gossip}", gossip_graph)
    assert found.startswith("test.yaml:2: ")
    assert words in found


def test_workers_and_a_files_hosts_must_agree(tmp_path):
    shutil.copy(DATA / "dumbbell.py", tmp_path)
    (tmp_path / "s.yaml").write_text(
        "workers: 3\nnetwork:\n  topology: {mininet: 'dumbbell.py:Dumbbell'}\nmethods: [dpsgd]\n"
    )
    with pytest.raises(ScenarioError, match=r"s\.yaml:3: Dumbbell has 4 workers, but the scenario asks for 3"):
        network_topology(load(tmp_path / "s.yaml"))
