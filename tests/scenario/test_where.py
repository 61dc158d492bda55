import pickle
from pathlib import Path

import pytest

from testbed.scenario.load import dump, loads
from testbed.scenario.source import Source
from testbed.scenario.sweep import variants

TEXT = """\
workers: 8
network:
  links:
    - {between: [w0, w1], latency: 80ms}
    - between: [w2,
                w3]
      rate: 5mbit
gossip:
  torus: 2x4
methods:
  - dpsgd
  - choco:
      gamma: 0.5
sweep:
  network.link.latency:
    - 5ms
    - 25ms
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("workers", 1),
        ("workers.count", 1),  # the short form has no such key
        ("network.links.0", 4),
        ("network.links.1.between", 5),
        ("network.links.1.between.1", 6),
        ("network.links.1.rate", 7),
        ("network.links.1.loss", 5),  # not written: the entry it would be in
        ("network.mtu", 2),
        ("gossip.graph.torus.rows", 9),
        ("methods.1.choco.gamma", 13),
        (("methods", 1), 12),
        ("sweep.network.link.latency", 15),
        (("sweep", "network.link.latency", 1), 17),
    ],
)
def test_keys_know_their_line(path, line):
    assert loads(TEXT, "dir/s.yaml").where(path) == f"dir/s.yaml:{line}"


@pytest.mark.parametrize("path", ["", "seed", "nonsense.key"])
def test_what_was_not_written_is_in_the_file(path):
    assert loads(TEXT, "s.yaml").where(path) == "s.yaml"


def test_settings_know_themselves():
    scenario = loads(TEXT, "s.yaml", ["network.link={rate: 1mbit}", "training.lr=1"])
    assert scenario.where("network.link.rate") == "--set network.link={rate: 1mbit}"
    assert scenario.where("training.lr") == "--set training.lr=1"
    assert scenario.where("training") == "--set training.lr=1"
    assert scenario.where("network.links.0") == "s.yaml:4"


def test_variants_point_at_the_value_of_the_sweep():
    second = variants(loads(TEXT, "s.yaml"))[1].scenario
    assert second.where("network.link.latency") == "s.yaml:17"
    assert second.where("network.link.rate") == "s.yaml:2"
    assert second.where("network.links.1.rate") == "s.yaml:7"


def test_the_source_is_no_part_of_what_a_scenario_says():
    scenario = loads(TEXT, "s.yaml")
    assert loads("\n\n" + TEXT, "s.yaml") == scenario
    assert loads(dump(scenario), "s.yaml").where("seed") != scenario.where("seed")


def test_scenarios_travel_with_their_source():
    scenario = pickle.loads(pickle.dumps(loads(TEXT, "s.yaml")))
    assert scenario == loads(TEXT, "s.yaml")
    assert scenario.where("gossip") == "s.yaml:8"


def test_a_scenario_made_by_hand_has_a_name():
    assert Source().where("network") == "scenario"
    assert Source(directory=Path("/x")).directory == Path("/x")
