"""Numbers, methods and places as people write them."""

from __future__ import annotations

import pytest
import yaml

from testbed.answer import words
from testbed.results.cell import CellResult, PlannedCell
from testbed.scenario.load import as_data, loads
from testbed.verdict import Verdict


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0004, "0.4 ms"), (0.0283, "28 ms"), (0.9999, "1.0 s"), (1.16, "1.2 s"), (9.96, "10 s"), (41.2, "41 s"),
     (119.4, "119 s"), (451, "8 min"), (7300, "2.0 h")],
)  # fmt: skip
def test_seconds(value, text):
    assert words.seconds(value) == text


def test_ranges_lists_and_factors():
    assert words.between([1.2, 1.4]) == "1.2 to 1.4 s"
    assert words.between([0.5, 1.4]) == "500 ms to 1.4 s"
    assert words.between([1.21, 1.22]) == "1.2 s"
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed(list("abcdefg")) == "a, b, c and 4 more"
    assert (words.factor(1.84), words.factor(9.96), words.factor(10.6)) == ("1.8×", "10×", "11×")
    assert (words.count(1, "cell"), words.count(2, "cell")) == ("1 cell", "2 cells")


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("latency=5ms rate=10mbit", "5 ms, 10 Mbit/s"),
        ("latency=0.13ms rate=1gbit", "0.13 ms, 1 Gbit/s"),
        ("rate=unlimited", "rate unlimited"),
        ("gamma=0.4 workers=8", "gamma 0.4, workers 8"),
        ("topology=torus: 4x4", "topology torus: 4x4"),
        ("", ""),
    ],
)
def test_settings(label, text):
    assert words.setting(label) == text


RING = {"link": {"latency": "25ms", "rate": "10mbit"}}


@pytest.mark.parametrize(
    ("network", "text"),
    [
        ({"topology": "ring"}, "in a ring at 25 ms, 10 Mbit/s"),
        ({}, "in a ring at 25 ms, 10 Mbit/s"),
        ({"topology": "star", "link": {"loss": "1%", "rate": "unlimited"}},
         "around a switch at 5 ms, unlimited rate, 1 % loss"),
        ({"topology": {"torus": "2x4"}}, "in a 2x4 torus at 25 ms, 10 Mbit/s"),
        ({"links": [{"between": ["w0", "w1"], "rate": "1mbit"}]},
         "in a ring at 25 ms, 10 Mbit/s but 1 Mbit/s on w0-w1"),
        ({"links": [{"from": "w0", "to": "w1", "rate": "1mbit", "latency": "80ms", "jitter": "1ms"},
                    {"between": ["w2", "w3"], "rate": "unlimited", "latency": "26ms"}]},
         "in a ring at 25 ms, 10 Mbit/s but 80 ms, 1 Mbit/s, 1 ms jitter on w0→w1 and unlimited rate on w2-w3"),
        ({"links": [{"between": ["w0", "w1"], "loss": "1%"}, {"between": ["w1", "w2"], "loss": "1%"},
                    {"between": ["w2", "w3"], "rate": "9mbit"}]},
         "in a ring at 25 ms, 10 Mbit/s but 1 % loss on w0-w1 and w1-w2"),
        ({"links": [{"between": ["w0", "w1"], "rate": "9mbit"}]}, "in a ring at 25 ms, 10 Mbit/s (1 link differs)"),
        ({"links": [{"between": [f"w{n}", f"w{n + 1}"], "rate": "1mbit"} for n in range(3)]},
         "in a ring at 25 ms, 10 Mbit/s (3 links differ)"),
        ({"regions": {"eu": ["w0", "w1"], "us": [f"w{n}" for n in range(2, 8)]}, "between": {"latency": "80ms"}},
         "in 2 regions at 10 Mbit/s"),
    ],
)  # fmt: skip
def test_places(network, text):
    scenario = {"workers": 8, "methods": ["dpsgd"], "network": {**RING, **network}}
    data = as_data(loads(yaml.safe_dump(scenario)))
    assert words.place(data, 8) == f"8 workers {text}"


def test_a_place_from_a_file():
    assert words.place({"network": {"topology": {"file": "abilene.graphml"}}}, 11) == "11 workers on abilene.graphml"


def test_links_that_have_their_settings_from_elsewhere():
    link = {"latency": "5ms", "rate": "20mbit"}
    cities = {"network": {"topology": {"file": "abilene.graphml"}, "link": link}}
    assert words.place(cities, 11) == "11 workers on abilene.graphml at 20 Mbit/s"
    regions = {"regions": {"eu": ["w0"], "us": ["w1"]}, "link": link, "between": {"latency": "40ms", "rate": None}}
    assert words.place({"network": regions}, 2) == "2 workers in 2 regions at 20 Mbit/s"
    assert words.place({"network": {**regions, "between": [{"regions": ["eu", "us"]}]}}, 2) == "2 workers in 2 regions"


def test_what_is_swept_is_no_place():
    scenario = {"network": RING, "sweep": {"network.link.latency": ["1ms"], "workers": [4, 8]}}
    assert words.place(scenario, 4) == "the workers in a ring at 10 Mbit/s"
    apart = {**RING, "links": [{"between": ["w0", "w1"], "latency": "80ms"}]}
    scenario = {"network": apart, "sweep": {"network.link.latency": ["1ms"]}}
    assert words.place(scenario, 4) == "4 workers in a ring at 10 Mbit/s but 80 ms on w0-w1"
    scenario = {"network": apart, "sweep": {"network.links.0.latency": ["80ms", "160ms"]}}
    assert words.place(scenario, 4) == "4 workers in a ring at 25 ms, 10 Mbit/s"


def cell(seconds: float, factor: float, tried: tuple[float, ...] = ()) -> CellResult:
    numbers = {"step_s": 0.1, "floor_s": 0.1, "bytes_per_step": 1.0, "error": None, "seconds": seconds}
    found = {**numbers, "verdict": Verdict("faithful"), "slow_motion": factor, "tried": tried}
    return CellResult.of(PlannedCell("v0", "dpsgd"), found)


def test_slow_motion_in_words():
    assert words.slow_motion([cell(60, 1), cell(120, 1)]) == ""
    told = "ran in slow motion, 8×, 24 min for 3 min of scenario time"
    assert words.slow_motion([cell(60, 8), cell(120, 8)]) == told
    mixed = words.slow_motion([cell(60, 2), cell(120, 4, (2,))])
    assert mixed.startswith("ran in slow motion, 2× to 4×, 10 min for 3 min of scenario time; 1 cell repeated")
