import pytest

from testbed.errors import ScenarioError
from testbed.link.shape import Shape
from testbed.scenario.load import dump, loads
from testbed.scenario.units import Duration

from .examples import SHORT


def network(yaml):
    indented = "\n".join("  " + line for line in yaml.splitlines())
    return loads(SHORT + "network:\n" + indented, "s.yaml").network


def wrong(yaml):
    with pytest.raises(ScenarioError) as raised:
        network(yaml)
    return str(raised.value)


@pytest.mark.parametrize(
    ("written", "kind", "settings"),
    [
        ("ring", "ring", {}),
        ("{ring: }", "ring", {}),
        ("chain", "chain", {}),
        ("star", "star", {}),
        ("complete", "complete", {}),
        ("torus", "torus", {"rows": None, "columns": None}),
        ("{torus: 2x4}", "torus", {"rows": 2, "columns": 4}),
        ("{torus: {rows: 2, columns: 4}}", "torus", {"rows": 2, "columns": 4}),
        ("hypercube", "hypercube", {}),
        ("exponential", "exponential", {}),
        ("tree", "tree", {"branching": 2}),
        ("{tree: {branching: 3}}", "tree", {"branching": 3}),
        ("barbell", "barbell", {}),
        ("davis", "davis", {}),
        ("random-regular", "random-regular", {"degree": None, "seed": None}),
        ("{random-regular: {degree: 3, seed: 1}}", "random-regular", {"degree": 3, "seed": 1}),
        ("erdos-renyi", "erdos-renyi", {"probability": None, "seed": None}),
        ("{erdos-renyi: {p: 0.3, seed: 1}}", "erdos-renyi", {"probability": 0.3, "seed": 1}),
    ],
)
def test_built_in_topologies(written, kind, settings):
    graph = network(f"topology: {written}").graph
    assert graph.kind == kind
    assert graph.builtin
    assert graph.settings == settings


def test_other_topologies():
    assert network("topology: {file: abilene.graphml}").graph.file == "abilene.graphml"
    assert network("topology: {mininet: my_topo.py:MyTopo}").graph.mininet == "my_topo.py:MyTopo"
    graph = network("topology: {links: [[w0, s0], [s0, w1]]}").graph
    assert graph.links == (("w0", "s0"), ("s0", "w1"))
    assert not graph.builtin


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("network: {topology: {torus: 4x4}}", 16),
        ("network: {topology: davis}", 32),
        ("network: {topology: {links: [[w0, s0], [s0, w1], [w2, s0]]}}", 3),
        ("network: {topology: {links: [[w0, w1], [w1, w2]]}, switches: [w2]}", 2),
        ("network: {topology: {file: a.graphml}}", None),
        ("network: {topology: {mininet: a.py:A}}", None),
        ("network: {regions: {eu: [w0, w1], us: w2}}", 3),
    ],
)
def test_the_network_may_tell_the_number_of_workers(text, count):
    assert loads("methods: [dpsgd]\n" + text).worker_count == count


@pytest.mark.parametrize("text", ["network: {topology: torus}", "network: {topology: tree}", "network: {}"])
def test_else_the_number_must_be_given(text):
    with pytest.raises(ScenarioError, match="workers is missing"):
        loads("methods: [dpsgd]\n" + text)


def test_links_say_only_what_they_change():
    link = network("link: {latency: 10ms, jitter: 1ms}\nlinks: [{between: [w0, w1], rate: unlimited, buffer: 5ms}]")
    assert link.links[0].on(link.link.shape()) == Shape(latency=0.01, rate=None, jitter=0.001, buffer=0.005)


def test_traces(tmp_path):
    (tmp_path / "lte.csv").write_text("time,rate\n")
    (tmp_path / "s.yaml").write_text(
        SHORT + "network:\n  link: {trace: lte.csv}\n  links: [{between: [w0, w1], trace: {mahimahi: lte.csv}}]\n"
    )
    from testbed.scenario.load import load

    found = load(tmp_path / "s.yaml").network
    assert (found.link.trace.kind, found.link.trace.file) == ("csv", "lte.csv")
    assert (found.links[0].trace.kind, found.links[0].trace.file) == ("mahimahi", "lte.csv")
    (tmp_path / "lte.csv").unlink()
    with pytest.raises(ScenarioError, match=r"s.yaml:4: network.link.trace: no such file: .*lte.csv"):
        load(tmp_path / "s.yaml")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("links: [{between: [w0, w1]}]", "network.links.0: says nothing about the link; give any of: latency"),
        ("link: {jitter: 1240ms}", "network.link.jitter: 1.24s is too much: netem spreads delays with a standard"),
        ("links: [{between: [w0, w1], jitter: 2s}]", "network.links.0.jitter: 2s is too much"),
        ("links: [{rate: 1mbit}]", "which link? Give either between: [w0, w1] for both directions or from"),
        ("links: [{from: w0, rate: 1mbit}]", "from and to belong together"),
        ("links: [{between: [w0, w1], from: w0, to: w1, rate: 1mbit}]", "which link?"),
        ("links: [{from: w0, to: w0, rate: 1mbit}]", "not w0 with itself"),
        (
            "links:\n- {between: [w0, w1], rate: 1mbit}\n- {between: [w0, w99], rate: 1mbit}",
            "s.yaml:6: network.links.1",
        ),
        ("links: [{between: [w0, w99], rate: 1mbit}]", "there is no w99; the workers are w0 to w7"),
        ("links: [{from: w8, to: w0, rate: 1mbit}]", "network.links.0.from: there is no w8"),
        ("links: [{between: [w0], rate: 1mbit}]", "network.links.0.between: has too few entries"),
        ("links: [{between: w0, rate: 1mbit}]", "network.links.0.between: should be a list, not 'w0'"),
        ("regions: {eu: [w0, w9]}", "network.regions.eu.1: there is no w9"),
        ("regions: {eu: [w0], us: [w0]}", "network.regions.us.0: w0 is in eu too"),
        ("regions: {eu: [w0, w0]}", "w0 is twice"),
        ("within: {latency: 1ms}", "network.within: needs regions"),
        ("between: {latency: 1ms}", "network.between: needs regions"),
        ("regions: {eu: [w0]}\nbetween: {latency: {eu: {su: 1ms}}}", "latency.eu.su: unknown region 'su'"),
        ("regions: {eu: [w0]}\nbetween: {latency: {ue: {eu: 1ms}}}", "unknown region 'ue'; the regions are eu"),
        (
            "regions: {eu: [w0]}\nbetween: [{regions: [eu, us], rate: 1mbit}]",
            "between.0.regions.1: unknown region 'us'",
        ),
        ("regions: {eu: [w0]}\nbetween: {latency: {eu: 5ms}}", "network.between.latency.eu: should be a mapping"),
        ("regions: {eu: [w0]}\nbetween: {latency: {eu: {eu: 5}}}", "latency.eu.eu: 5 has no unit"),
        ("regions: {eu: [w0]}\nbetween: {latency: fast}", "network.between.latency: 'fast' is not a duration"),
        ("regions: {eu: [w0]}\nbetween: [{latency: 5ms}]", "network.between.0: regions is missing: The two regions"),
        (
            "regions: {eu: [w0]}\nbetween: {lateny: 5ms, rate: 1mbit}",
            "allowed: latency, rate, jitter, loss, buffer, reorder, duplicate, corrupt; did",
        ),
        ("regions: {eu: [w0]}\nbetween: [{regions: [eu, eu], lateny: 5ms}]", "corrupt, trace, regions; did you mean"),
        ("regions: {eu: []}", "network.regions.eu: needs at least 1 entry"),
        ("congestion: Cubic!", "network.congestion: 'Cubic!' is not allowed. TCP congestion control"),
        ("topology: {erdos-renyi: {p: 0}}", "erdos-renyi.p: must be more than 0"),
        ("topology: {torus: 1x4}", "network.topology.torus: must be at least 2"),
        ("topology: {mininet: 'a:b:c'}", "network.topology.mininet: 'a:b:c' is not allowed. Python file"),
    ],
)
def test_what_is_wrong_is_said(written, words):
    assert words in wrong(written)


def test_names_of_files_are_left_to_the_plan():
    found = network("topology: {file: a.graphml}\nlinks: [{between: [w99, New York], rate: 1mbit}]")
    assert found.links[0].between == ("w99", "New York")


REGIONS = "regions: {eu: [w0, w1], us: [w2, w3], asia: [w4]}\n"


def test_regions_as_a_matrix():
    found = network(
        REGIONS + "within: {latency: 1ms, rate: 10gbit}\n"
        "between:\n"
        "  latency: {eu: {us: 80ms, asia: 240ms}, us: {asia: 160ms, eu: 90ms}}\n"
        "  rate: 100mbit\n"
    )
    assert found.regional("w0", "w2").latency == 0.08
    assert found.regional("w2", "w0").latency == 0.09  # given both ways round
    assert found.regional("w4", "w1").latency == 0.24  # given once: the same both ways
    assert found.regional("w4", "w1").rate == 10**8
    assert found.regional("w0", "w1").on(Shape()) == Shape(latency=0.001, rate=10**10)
    assert found.regional("w0", "w7") is None  # w7 is in no region
    assert found.region_of("w4") == "asia"


def test_a_matrix_may_tell_about_the_inside():
    found = network(REGIONS + "within: {latency: 1ms, rate: 1gbit}\nbetween: {latency: {eu: {eu: 3ms, us: 80ms}}}")
    assert found.regional("w0", "w1").on(Shape()) == Shape(latency=0.003, rate=10**9)
    assert found.regional("w2", "w3").latency == 0.001


def test_regions_as_pairs():
    found = network(
        REGIONS + "within: {latency: 1ms}\n"
        "between:\n"
        "  - {regions: [eu, us], latency: 80ms, rate: 100mbit}\n"
        "  - {regions: [us, eu], rate: 50mbit}\n"
        "  - {regions: [asia, asia], latency: 2ms}\n"
    )
    assert found.regional("w3", "w0").on(Shape()) == Shape(latency=0.08, rate=50 * 10**6)
    assert found.regional("w0", "w4") is None
    assert found.regional("w4", "w4").latency == 0.002


def test_regions_survive_a_dump():
    for between in ("{latency: {eu: {us: 80ms}}, rate: 1gbit}", "[{regions: [eu, us], loss: 1%}]"):
        scenario = loads(SHORT + f"network:\n  {REGIONS}  between: {between}\n")
        assert loads(dump(scenario)) == scenario


@pytest.mark.parametrize(
    ("written", "graph", "weights"),
    [
        ("ring", "ring", "metropolis"),
        ("{torus: 2x4}", "torus", "metropolis"),
        ("one-peer-exponential", "one-peer-exponential", "metropolis"),
        ("{graph: {torus: 2x4}, weights: uniform}", "torus", "uniform"),
        ("{weights: uniform}", None, "uniform"),
        ("{file: g.gml}", "file", "metropolis"),
    ],
)
def test_gossip(written, graph, weights):
    gossip = loads(SHORT + f"gossip: {written}").gossip
    assert (gossip.graph.kind if gossip.graph else None) == graph
    assert gossip.weights == weights


def test_gossip_with_its_own_matrix():
    gossip = loads("workers: 2\nmethods: [dpsgd]\ngossip: {weights: [[0.5, 0.5], [0.5, 0.5]]}").gossip
    assert gossip.weights == ((0.5, 0.5), (0.5, 0.5))


def test_limits_of_workers():
    workers = loads("workers: {count: 2, gpus: {w0: 0, w1: [1, 2]}, cpus: 0.5, memory: 2gb}\nmethods: [a]").workers
    assert workers.gpus == {"w0": (0,), "w1": (1, 2)}
    assert workers.cpus == 0.5
    assert workers.memory == 2 * 10**9
    with pytest.raises(ScenarioError, match=r"workers.gpus.w2: there is no w2; the workers are w0 to w1"):
        loads("workers: {count: 2, gpus: {w2: 0}}\nmethods: [a]")
    with pytest.raises(ScenarioError, match=r"workers.cpus.x: unknown worker 'x'"):
        loads("workers: {count: 2, cpus: {x: 1}}\nmethods: [a]")


def test_models_cannot_be_changed():
    scenario = loads(SHORT)
    with pytest.raises(ValueError, match="frozen"):
        scenario.network.link.latency = Duration(1)


def test_jitter_may_have_a_shape_and_two_ways_to_write_it() -> None:
    found = network("link: {jitter: {spread: 5ms, shape: normal}}\nlinks: [{between: [w0, w1], jitter: 2ms:pareto}]")
    assert found.link.shape() == Shape(0.005, 10**8, jitter=0.005, jitter_shape="normal")
    assert found.links[0].on(found.link.shape()).jitter_shape == "pareto"
    assert str(found.link.jitter) == "5ms:normal"
    assert found.link.model_dump(mode="json")["jitter"] == "5ms:normal"
    plain = network("link: {jitter: {spread: 5ms, shape: normal}}\nlinks: [{between: [w0, w1], jitter: 2ms}]")
    assert plain.links[0].on(plain.link.shape()).jitter_shape == "uniform"  # jitter is replaced as a whole


def test_regions_take_jitter_with_a_shape_for_all_pairs_or_for_some() -> None:
    text = "regions: {eu: [w0, w1], us: [w2]}\nbetween: {jitter: %s}"
    for written in ("{spread: 5ms, shape: pareto}", "{eu: {us: {spread: 5ms, shape: pareto}}}", "5ms:pareto"):
        told = network(text % written).regional("w0", "w2")
        assert (told.jitter, told.jitter.shape) == (0.005, "pareto")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("jitter: {spread: 5ms, shape: gauss}", "network.link.jitter: 'gauss' is no shape of jitter; one of: uniform"),
        ("jitter: {shape: normal}", "network.link.jitter: no spread; write for example {spread: 5ms, shape: normal}"),
        ("jitter: {spread: 5ms, form: normal}", "network.link.jitter: unknown key 'form'"),
        ("jitter: {spread: 5}", "network.link.jitter: 5 has no unit"),
        ("reorder: 100%", "network.link.reorder: must be less than 100%"),
        ("corrupt: 2", "network.link.corrupt: 2 is not clear"),
    ],
)
def test_what_is_wrong_with_disturbed_links_is_said(written, words) -> None:
    assert words in wrong(f"link: {{{written}}}")
