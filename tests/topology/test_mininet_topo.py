"""Mininet topologies: hosts keep their names, TCLink's options become shapes, mistakes name the user's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.topology.graph import TopologyError
from testbed.topology.mininet_topo import read_mininet

DATA = Path(__file__).parent / "data"


def test_dumbbell():
    topology = read_mininet("dumbbell.py:Dumbbell", DATA).check()
    assert topology.workers == ("h1", "h2", "h3", "h4")
    assert topology.switches == ("s1", "s2")
    links = {f"{edge.a}-{edge.b}": edge for edge in topology.edges}
    assert set(links) == {"s1-s2", "h1-s1", "h2-s1", "h3-s2", "h4-s2"}
    bottleneck = {"rate": 10_000_000, "latency": 0.02, "jitter": 0.001, "loss": 0.01, "limit": 50}
    assert links["s1-s2"].ab == pytest.approx(bottleneck)
    assert links["s1-s2"].ba == links["s1-s2"].ab
    assert links["h1-s1"].ab == pytest.approx({"rate": 100_000_000, "latency": 0.0005})
    assert topology.warnings == ()


def test_a_name_of_topos():
    assert read_mininet("dumbbell.py:pair", DATA).workers == ("h1", "h2")


def test_options_per_end_and_what_has_no_equal():
    topology = read_mininet("dumbbell.py:Uneven", DATA)
    first, second = topology.edges
    assert first.ab == pytest.approx({"rate": 2_000_000, "latency": 0.03})
    assert first.ba == pytest.approx({"rate": 20_000_000, "latency": 0.00001})  # a bare number is microseconds
    assert second.ab == {}
    assert any("use_tbf" in warning and "b-c" in warning for warning in topology.warnings)
    assert any("no delay on b-c" in warning for warning in topology.warnings)
    assert any("no bw on b-c" in warning for warning in topology.warnings)


def test_the_only_topology_needs_no_name(tmp_path):
    (tmp_path / "one.py").write_text(
        "from mininet.topo import Topo\n"
        "class One(Topo):\n"
        "    def build(self):\n"
        "        self.addLink(self.addHost('h1'), self.addHost('h2'))\n"
    )
    assert read_mininet("one.py", tmp_path).name == "One"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("dumbbell.py:Dumbell", "no topology 'Dumbell'; did you mean 'Dumbbell'"),
        ("dumbbell.py", "several topologies; choose one"),
        ("dumbbell.py:TCLink", "no topology 'TCLink'"),
        ("dumbbell.py:Wrong", "link h1-h2: delay='5 parsecs' is not a time"),
        ("dumbbell.py:Raises", r"dumbbell.py:\d+: RuntimeError: no such building"),
        ("missing.py:Dumbbell", "no Mininet file"),
    ],
)
def test_mistakes(reference, words):
    with pytest.raises(TopologyError, match=words):
        read_mininet(reference, DATA)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:\n", "bad.py:1: SyntaxError"),
        ("x = 1\nimport nothing_of_the_kind\n", "bad.py:2: ModuleNotFoundError"),
        ("x = 1\n", "no subclass of mininet.topo.Topo"),
        ("from mininet.topo import Topo\nclass T(Topo):\n  def build(self):\n    self.addSwitch('s1')\n", "no hosts"),
        ("topos = {'T': lambda: 3}\n", "T in bad.py is no mininet.topo.Topo"),
    ],
)
def test_broken_files(tmp_path, text, words):
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(TopologyError, match=words):
        read_mininet("bad.py:T" if "T" in text else "bad.py", tmp_path)


@pytest.mark.parametrize("options", ["bw=0", "bw=-3", "bw='fast'", "loss=101", "max_queue_size=0"])
def test_impossible_numbers(tmp_path, options):
    (tmp_path / "bad.py").write_text(
        "from mininet.topo import Topo\n"
        "class T(Topo):\n"
        "    def build(self):\n"
        f"        self.addLink(self.addHost('h1'), self.addHost('h2'), {options})\n"
    )
    with pytest.raises(TopologyError, match=f"link h1-h2: {options.split('=')[0]}="):
        read_mininet("bad.py:T", tmp_path)
