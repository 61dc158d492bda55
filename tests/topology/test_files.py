"""Topology files: latency from coordinates, rate from LinkSpeedRaw, and what to do with what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.topology.files import great_circle_latency, read_graph
from testbed.topology.graph import TopologyError

DATA = Path(__file__).parent / "data"
ABILENE = Path(__file__).parents[2] / "scenarios" / "abilene.graphml"


def latencies(topology):
    return {f"{edge.a}-{edge.b}": edge.ab["latency"] for edge in topology.edges}


def test_great_circle():
    pole, equator = (90.0, 0.0), (0.0, 123.0)
    quarter = 10_007_557 / (299_792_458 * 2 / 3)  # metres of a quarter of the mean great circle
    assert great_circle_latency(pole, equator) == pytest.approx(quarter, rel=1e-5)
    assert great_circle_latency((12.0, 34.0), (12.0, 34.0)) == 0
    assert great_circle_latency((0.0, 179.5), (0.0, -179.5)) == pytest.approx(quarter / 90, rel=1e-5)


def test_abilene():
    topology = read_graph(ABILENE).check()
    assert len(topology.workers) == 11
    assert len(topology.edges) == 14
    assert topology.warnings == ()
    found = latencies(topology)
    assert found["Seattle-Sunnyvale"] == pytest.approx(0.0057, abs=0.0001)  # 1140 km
    assert found["Chicago-NewYork"] == pytest.approx(0.00572, abs=0.0001)  # 1145 km
    assert found["LosAngeles-Houston"] == pytest.approx(0.0110, abs=0.0001)  # 2205 km
    assert all(0.001 < latency < 0.012 for latency in found.values())
    assert all("rate" not in edge.ab for edge in topology.edges)  # the scenario chooses


def test_parallel_links_become_the_fastest_and_missing_places_get_a_word():
    topology = read_graph(DATA / "parallel.gml").check()
    assert topology.workers == ("NewYork", "London", "Nowhere")
    assert [(edge.a, edge.b) for edge in topology.edges] == [("NewYork", "London"), ("London", "Nowhere")]
    assert topology.edges[0].ab["rate"] == topology.edges[0].ba["rate"] == 5_000_000
    assert topology.edges[0].ab["latency"] == pytest.approx(0.02787, abs=0.0002)  # 5570 km
    assert "latency" not in topology.edges[1].ab
    assert any("no coordinates for Nowhere; 1 links" in warning for warning in topology.warnings)
    assert any("parallel" in warning for warning in topology.warnings)


def test_directions_of_a_directed_file():
    topology = read_graph(DATA / "directed.graphml").check()
    there, onward = topology.edges
    assert (there.a, there.b) == ("a", "b")
    assert (there.ab["rate"], there.ba["rate"]) == (20_000_000, 1_000_000)
    assert (onward.ab["rate"], onward.ba["rate"]) == (3_000_000, 3_000_000)  # one direction given stands for both
    assert topology.warnings == ()  # a file without any coordinates says nothing about latency


def test_pieces_are_named():
    with pytest.raises(TopologyError, match="nothing links Tromsø to the rest"):
        read_graph(DATA / "split.graphml").check()


def test_files_that_are_none(tmp_path):
    with pytest.raises(TopologyError, match="no topology file"):
        read_graph(tmp_path / "missing.graphml")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(TopologyError, match=r"\.graphml or \.gml"):
        read_graph(tmp_path / "notes.txt")
    for kind in ("graphml", "gml"):
        (tmp_path / f"broken.{kind}").write_text("hello <graph [")
        with pytest.raises(TopologyError, match=f"broken.{kind} is not {kind}"):
            read_graph(tmp_path / f"broken.{kind}")


def test_equal_labels_are_told_apart(tmp_path):
    (tmp_path / "twins.gml").write_text(
        'graph [ node [ id 1 label "A B" ] node [ id 2 label "AB" ] edge [ source 1 target 2 ] ]'
    )
    assert read_graph(tmp_path / "twins.gml").workers == ("AB", "AB_2")
