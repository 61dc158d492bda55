"""The plan as a whole: addresses, routes, paths, cells of a sweep, warnings. All without root."""

from __future__ import annotations

import subprocess
import sys
from ipaddress import IPv4Interface, IPv4Network

import pytest

from testbed.errors import ScenarioError
from testbed.plan.make import plan, with_methods_checked
from testbed.scenario.load import load, loads

METHODS = "methods: [allreduce, dpsgd, choco: {compressor: sign}]"


def planned(text: str, cores: int = 64, methods: str = "methods: [dpsgd]"):
    return plan(loads(f"{text}\n{methods}\n", "test.yaml"), cores=cores)


def test_addresses_are_distinct_and_where_they_belong():
    network = planned("workers: 70\nnetwork: {topology: exponential}").network
    assert (network.workers[0].gateway, network.workers[0].address) == ("198.18.0.1", "198.18.0.2")
    for worker in network.workers:
        assert IPv4Interface(f"{worker.address}/30").network == IPv4Interface(f"{worker.gateway}/30").network
        assert worker.router == worker.name == f"w{worker.rank}"
    for link in network.links:
        assert IPv4Interface(f"{link.address_a}/31").network == IPv4Interface(f"{link.address_b}/31").network
    every = [a for w in network.workers for a in (w.address, w.gateway)]
    every += [a for link in network.links for a in (link.address_a, link.address_b)]
    assert len(set(every)) == len(every)
    assert all(IPv4Interface(address).ip in IPv4Network("198.18.0.0/15") for address in every)


def test_links_carry_what_the_scenario_says():
    network = planned(
        "workers: 4\n"
        "network:\n"
        "  mtu: 9000\n"
        "  congestion: cubic\n"
        "  links: [{from: w3, to: w0, latency: 80ms, rate: 10mbit}]"
    ).network
    link = next(link for link in network.links if link.name == "w0-w3")
    assert (link.a, link.b) == ("w0", "w3")
    assert (link.ba.latency, link.ba.rate) == (0.08, 10_000_000)
    assert (link.ab.latency, link.ab.rate) == (0.005, 100_000_000)
    assert [link.index for link in network.links] == [0, 1, 2, 3]
    assert (network.mtu, network.congestion) == (9000, "cubic")


def test_paths_follow_the_route_tables():
    made = planned("workers: 8\nnetwork: {links: [{between: [w2, w3], latency: 1ms, rate: 5mbit}]}")
    paths = {(path.source, path.target): path for path in made.paths}
    assert len(paths) == 28
    assert paths["w0", "w1"].hops == ("w0", "w1")
    assert paths["w0", "w1"].rtt == pytest.approx(0.010)
    opposite = paths["w0", "w4"]
    assert opposite.hops == ("w0", "w1", "w2", "w3", "w4")
    assert opposite.back == ("w4", "w3", "w2", "w1", "w0")
    assert opposite.rtt == pytest.approx(2 * 0.016)
    assert opposite.rate == 5_000_000
    assert paths["w5", "w7"].rate == 100_000_000


def test_paths_know_both_directions():
    made = planned("workers: 3\nnetwork:\n  topology: chain\n  links: [{from: w1, to: w2, rate: 2mbit, latency: 50ms}]")
    path = next(path for path in made.paths if (path.source, path.target) == ("w0", "w2"))
    assert path.rtt == pytest.approx(0.005 + 0.050 + 0.005 + 0.005)
    assert (path.rate, path.rate_back) == (2_000_000, 100_000_000)


def test_unlimited_paths_have_no_rate():
    (path,) = planned("workers: 2\nnetwork: {link: {rate: unlimited}}").paths
    assert path.rate is None


def test_routing_by_hops():
    text = "workers: 5\nnetwork:\n  routing: {}\n  links: [{{between: [w0, w1], latency: 90ms}}]"
    ways = {}
    for routing in ("latency", "hops"):
        paths = planned(text.format(routing)).paths
        ways[routing] = next(path.hops for path in paths if (path.source, path.target) == ("w0", "w2"))
    assert ways == {"latency": ("w0", "w4", "w3", "w2"), "hops": ("w0", "w1", "w2")}


def test_one_worker_alone():
    made = planned("workers: 1")
    assert made.network.links == ()
    assert made.network.routes == {"w0": ()}
    assert made.paths == ()
    assert made.gossip.size == 1


SWEEP = """workers: 4
sweep:
  network.link.latency: [1ms, 25ms]
  training.lr: [0.1, 0.01]
repeat: 3
seed: 10
"""


def test_cells_are_points_times_methods_times_repeats():
    made = planned(SWEEP, methods=METHODS)
    assert len(made.variants) == 4
    assert [point.label for point in made.points] == ["latency=1ms lr=0.1", "latency=25ms lr=0.1"]  # lr is no network
    assert len(made.cells) == 4 * 3 * 3
    assert len({cell.id for cell in made.cells}) == len(made.cells)
    assert [cell.method for cell in made.cells[:4]] == ["allreduce", "dpsgd", "choco", "allreduce"]
    assert [cell.seed for cell in made.cells[:9]] == [10] * 3 + [11] * 3 + [12] * 3
    for cell in made.cells:
        scenario = made.variants[cell.variant]
        link = made.points[cell.point].network.links[0]
        assert link.ab.latency == float(scenario.network.link.latency)
        assert f"lr={scenario.training.lr}" in cell.label
    assert made.cells[2].options == {"compressor": "sign"}
    assert made.cells[2].id == "v0-choco-compressor-sign-r0"


def test_points_of_a_link_sweep_have_the_same_structure():
    first, second = planned(SWEEP).points
    assert first.network.same_structure(second.network)
    assert first.network != second.network
    rings, chains = planned("workers: 4\nsweep: {network.topology: [ring, chain]}").points
    assert not rings.network.same_structure(chains.network)


def test_a_sweep_over_gossip_gives_points():
    made = planned("workers: 4\nnetwork: {topology: complete}\nsweep: {gossip: [ring, complete]}")
    assert [point.gossip.name for point in made.points] == ["ring", "complete"]
    assert made.points[0].network == made.points[1].network


def test_long_methods_keep_distinct_ids():
    option = "x" * 60
    made = planned(
        "workers: 2", methods=f"methods: [choco: {{compressor: {option}a}}, choco: {{compressor: {option}b}}]"
    )
    assert len({cell.id for cell in made.cells}) == 2


def test_plans_are_reproducible():
    text = "workers: 12\nnetwork: {topology: erdos-renyi}"
    assert planned(text).network == planned(text).network


@pytest.mark.parametrize(
    ("text", "cores", "words"),
    [
        ("workers: 2\nnetwork: {link: {rate: 2gbit}}", 64, "more than 1gbit is hard to emulate: link w0-w1"),
        ("workers: 30", 64, "all links together carry 3gbit"),
        ("workers: 2\nnetwork: {link: {buffer: 2s}}", 64, "a full queue adds more than 1s"),
        ("workers: 2\nnetwork: {link: {latency: 700ms}}", 64, "a full queue adds more than 1s"),
        ("workers: 2\nnetwork: {link: {latency: 50us}}", 64, "latency below 100us"),
        ("workers: 2\nnetwork: {link: {loss: 1%, rate: 1gbit}}", 64, "packets at once"),
        ("workers: 2\nnetwork: {link: {jitter: 1ms, rate: unlimited}}", 64, "reorders packets"),
        ("workers: 2\nnetwork: {link: {latency: 5ms, jitter: 3ms}}", 64, "makes ways longer"),
        ("workers: 4\nnetwork: {links: [{between: [w0, w1], latency: 80ms}]}", 64, "slower than a detour"),
        ("workers: 4", 2, "4 workers compute on 2 cores"),
        ("workers: 4\nnetwork: {topology: star}", 64, "gossip in a ring"),
    ],
)
def test_warnings(text, cores, words):
    assert any(words in warning for warning in planned(text, cores).warnings)


@pytest.mark.parametrize(
    "text",
    [
        "workers: 4",
        "workers: 4\nnetwork: {link: {loss: 1%, rate: 10mbit, jitter: 1ms}}",
        "workers: 8\ncompute: {step_time: 10ms}\nnetwork: {topology: torus, link: {latency: 80ms}}",
    ],
)
def test_ordinary_networks_raise_no_warning(text):
    assert planned(text, cores=4).warnings == ()


def test_a_warning_says_for_which_points_it_holds():
    made = planned("workers: 2\nsweep: {network.link.rate: [1mbit, 3gbit]}")
    assert any(warning.endswith("(at rate=3gbit)") for warning in made.warnings)


def test_an_event_after_the_last_step_is_pointed_out():
    events = "[{at: step 9, kill: w1}, {at: step 10, down: [w0, w1]}, {at: 900s, freeze: w0, for: 1s}]"
    text = f"workers: 3\nnetwork:\n  events: {events}\ntraining: {{steps: 10}}\n"
    (warning,) = planned(text, cores=4).warnings
    assert warning == "test.yaml:3: down at step 10 never happens: training has the steps 0 to 9"
    swept = planned(f"{text}sweep: {{training.steps: [20, 5]}}\n", cores=4).warnings  # on the same network
    assert [warning.partition(": ")[2] for warning in swept] == [
        f"{what} never happens: training has the steps 0 to 4" for what in ("kill at step 9", "down at step 10")
    ]


def test_a_default_that_the_topology_overrules_is_pointed_out(tmp_path):
    (tmp_path / "pair.gml").write_text(
        "graph [ node [ id 0 label a Latitude 1 Longitude 1 ] node [ id 1 label b Latitude 2 Longitude 2 ]"
        " edge [ source 0 target 1 ] ]".replace("label a", 'label "a"').replace("label b", 'label "b"')
    )
    (tmp_path / "s.yaml").write_text(
        "network:\n  topology: {file: pair.gml}\n  link: {rate: 5mbit}\n"
        "sweep:\n  network.link.latency: [1ms, 2ms]\nmethods: [dpsgd]\n"
    )
    from testbed.scenario.load import load

    made = plan(load(tmp_path / "s.yaml"), cores=8)
    assert any("s.yaml:5: network.link.latency has no effect" in warning for warning in made.warnings)
    assert not any("network.link.rate" in warning for warning in made.warnings)
    assert len(made.points) == 1  # the sweep changes nothing


def test_mistakes_in_a_variant_name_the_sweeps_line():
    with pytest.raises(ScenarioError, match=r"test\.yaml:2: "):
        planned("workers: 8\nsweep: {network.topology: [ring, davis]}")


def test_traces_are_resolved_per_direction(tmp_path):
    (tmp_path / "wifi.csv").write_text("time,rate\n0s,10mbit\n")
    (tmp_path / "s.yaml").write_text(
        "workers: 3\nnetwork:\n  links: [{from: w0, to: w1, trace: wifi.csv}]\nmethods: [dpsgd]\n"
    )
    from testbed.scenario.load import load

    link = plan(load(tmp_path / "s.yaml")).network.links[0]
    assert link.trace_ab is not None
    assert (link.trace_ab.kind, link.trace_ab.path) == ("csv", str(tmp_path / "wifi.csv"))
    assert link.trace_ba is None


def test_reading_plans_is_cheap():
    """The network's builder imports this module where starting is slow: no numpy, no networkx, no torch."""
    heavy = "{'numpy', 'networkx', 'torch', 'pydantic'}"
    code = f"import sys, testbed.plan; sys.exit(' '.join({heavy} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_large_networks_are_planned_with_small_tables():
    """64 workers on a torus: routes stay a fraction of the 64 × 63 that one per destination would take."""
    network = planned("workers: 64\nnetwork: {topology: torus}").network
    assert sum(map(len, network.routes.values())) < 64 * 63 / 3
    assert len(network.paths) == 64 * 63 // 2
    assert max(len(path.hops) - 1 for path in network.paths) == 8


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ("[dpsgd, chocco]", "choco"),
        ("[dpsgd, choco: {compressor: sign, gama: 1}]", "gama"),
        ("[dpsgd, choco: {compressor: sine}]", "sine"),
    ],
)
def test_methods_that_do_not_exist(methods, words):
    made = planned("workers: 4", methods=f"methods:\n  {methods}")
    with pytest.raises(ScenarioError, match=rf"test\.yaml:3: .*{words}"):
        with_methods_checked(made)


def test_methods_that_cannot_run_on_the_graph():
    made = planned("workers: 4\ngossip: one-peer-exponential", methods="methods: [dpsgd, powergossip]")
    with pytest.raises(ScenarioError, match=r"test\.yaml:3: powergossip cannot run"):
        with_methods_checked(made)


def test_what_methods_say_about_their_graph_is_a_warning():
    made = planned(
        "workers: 8\nsweep: {network.link.latency: [1ms, 2ms]}", methods="methods: [dpsgd, ecd: {compressor: sign}]"
    )
    checked = with_methods_checked(made)
    said = [warning for warning in checked.warnings if warning.startswith("ecd compressor=sign: ")]
    assert said
    assert len(set(said)) == len(said)
    assert checked.cells == made.cells


@pytest.mark.parametrize(
    "events",
    [
        "{at: 30s, kill: w1, for: 10s}",
        "{at: 30s, kill: w1}, {at: 40s, restart: w1}",
        "{at: step 30, kill: w1}, {at: 40s, restart: w1}",
        "{random: {kind: kill, every: 60s, for: 5s}}",
        "{random: {kind: kill, every: 60s}}, {at: 90s, restart: [w0, w2]}",
    ],
)
def test_workers_may_come_back_where_others_go_on(events):
    text = f"workers: 3\nmethods: [dpsgd]\nnetwork: {{events: [{events}]}}\n"
    going_on = with_methods_checked(plan(loads(f"{text}on_failure: continue\n", "ring.yaml")))
    assert not [warning for warning in going_on.warnings if "again" in warning or "back" in warning]
    (warning,) = [warning for warning in plan(loads(text, "ring.yaml")).warnings if "start again" in warning]
    assert "on_failure is stop: a cell ends when a worker dies" in warning


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ("{at: 30s, restart: w1}", "w1 cannot restart: nothing kills it"),
        ("{at: 10s, kill: w2}, {at: 30s, restart: [w2, w1]}", "w1 cannot restart: nothing kills it"),
        ("{random: {kind: kill, every: 9s, among: [w0]}}, {at: 30s, restart: w1}", "w1 cannot restart: nothing kills"),
        ("{at: 40s, kill: w1}, {at: 30s, restart: w1}", "w1 cannot restart at 30s: nothing kills it before"),
    ],
)
def test_only_the_dead_can_start_again(events, wrong):
    with pytest.raises(ScenarioError, match=rf"ring.yaml:4: {wrong}"):
        plan(loads(f"workers: 3\nmethods: [dpsgd]\nnetwork:\n  events: [{events}]\n", "ring.yaml"))


def test_a_trace_that_cannot_be_followed_is_refused(tmp_path):
    (tmp_path / "bad.csv").write_text("time,rate\n0s,fast\n")
    (tmp_path / "s.yaml").write_text("workers: 3\nmethods: [dpsgd]\nnetwork: {link: {trace: bad.csv}}\n")
    with pytest.raises(ScenarioError, match=r"bad.csv:2: rate: "):
        plan(load(tmp_path / "s.yaml"))


def test_methods_that_need_everybody_are_warned_about():
    made = plan(loads("workers: 3\nmethods: [allreduce, dpsgd]\non_failure: continue\n", "s.yaml"))
    assert [w for w in with_methods_checked(made).warnings if "without a worker" in w] == [
        "allreduce: it cannot go on without a worker: its cells end when one dies"
    ]
    stops = plan(loads("workers: 3\nmethods: [allreduce]\n", "s.yaml"))
    assert not [w for w in with_methods_checked(stops).warnings if "without a worker" in w]


BROKEN = """
from dataclasses import dataclass
from testbed.compressors import Codec, Compressor

@dataclass(frozen=True)
class Half(Compressor):
    name = "half"

    def bind(self, layout, seed):
        return HalfCodec(layout, nbytes=2 * layout.numel)

class HalfCodec(Codec):
    def compress(self, x, step, out=None):
        raise IndexError("one too few")

    def decompress_into(self, message, dest, weight=1.0):
        pass
"""


def test_a_mistake_in_a_compressor_of_ones_own_is_told_with_its_place(tmp_path):
    (tmp_path / "half.py").write_text(BROKEN)
    (tmp_path / "own.yaml").write_text("workers: 4\nmethods: [{choco: {compressor: half.py:Half}}]\n")
    made = plan(load(tmp_path / "own.yaml"))
    with pytest.raises(ScenarioError, match=r"own.yaml:2: choco .*does not work: IndexError: one too few") as error:
        with_methods_checked(made)
    assert error.value.hint == f"it happened in {tmp_path}/half.py:14"
