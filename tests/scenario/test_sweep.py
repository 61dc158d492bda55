import pytest

from testbed.errors import ScenarioError
from testbed.scenario.load import loads
from testbed.scenario.sweep import variants

from .examples import DESIGN, SHORT


def sweep(written, text=SHORT):
    return variants(loads(text + f"sweep:\n{written}", "s.yaml"))


def wrong(written, text=SHORT):
    with pytest.raises(ScenarioError) as raised:
        loads(text + f"sweep:\n{written}", "s.yaml")
    return str(raised.value)


def test_no_sweep_is_one_variant():
    scenario = loads(SHORT)
    (only,) = variants(scenario)
    assert only.label == ""
    assert only.settings == {}
    assert only.scenario == scenario


def test_all_combinations_in_order():
    found = variants(loads(DESIGN))
    assert [variant.label for variant in found] == [
        f"latency={latency} rate={rate}"
        for latency in ("0.13ms", "5ms", "25ms")
        for rate in ("1.4gbit", "100mbit", "5mbit")
    ]
    assert found[5].settings == {"network.link.latency": "5ms", "network.link.rate": "5mbit"}
    link = found[5].scenario.network.link
    assert (link.latency, link.rate, link.buffer) == (0.005, 5 * 10**6, 0.05)
    assert all(not variant.scenario.sweep for variant in found)
    assert found[0].scenario.methods == found[8].scenario.methods


def test_names_as_short_as_they_can_be():
    found = sweep(
        "  network.link.latency: [1ms]\n  network.links.0.latency: [2ms]\n  training.lr: [1]\n",
        SHORT + "network: {links: [{between: [w0, w1], rate: 1mbit}]}\n",
    )
    assert found[0].label == "link.latency=1ms links.0.latency=2ms lr=1"
    assert found[0].scenario.network.links[0].latency == 0.002


def test_any_key_can_be_swept():
    found = sweep(
        "  workers: [4, 8]\n  network.topology: [ring, {torus: 2x2}]\n  task.split: [iid, {dirichlet: 0.1}]\n"
    )
    assert len(found) == 8
    assert found[3].label == "workers=4 topology=torus:2x2 split=dirichlet:0.1"
    assert found[3].scenario.worker_count == 4
    assert found[3].scenario.network.graph.torus.rows == 2
    assert found[7].scenario.task.split.dirichlet == 0.1


def test_what_has_no_options_has_no_colon_in_labels():
    own = "{compressor: {mine.py:Half: }}, {compressor: {mine.py:Half: {}}}, {compressor: {mine.py:Half: 0}}"
    found = sweep(f"  methods.0.choco: [{own}]\n", "workers: 4\nmethods: [{choco: {compressor: sign}}]\n")
    labels = [variant.scenario.methods[0].label for variant in found]
    assert labels == [f"choco compressor=mine.py:Half{end}" for end in ("", "", ":0")]


def test_options_of_methods_can_be_swept():
    found = sweep(
        "  methods.1.choco.gamma: [0.1, 0.5]\n", "workers: 4\nmethods: [dpsgd, {choco: {compressor: sign}}]\n"
    )
    assert [variant.scenario.methods[1].options for variant in found] == [
        {"compressor": "sign", "gamma": 0.1},
        {"compressor": "sign", "gamma": 0.5},
    ]


def test_sweeps_and_settings():
    scenario = loads(SHORT + "sweep:\n  training.lr: [1, 2]\n", sets=["training.steps=7", "sweep={training.lr: [3]}"])
    (only,) = variants(scenario)
    assert (only.scenario.training.lr, only.scenario.training.steps) == (3, 7)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("  network.link.latancy: [5ms]", "s.yaml:4: network.link.latancy: unknown key; allowed: latency"),
        ("  netwrk.link: [5ms]", "s.yaml:4: netwrk: unknown key"),
        ("  network.link.rate:\n    - 5mbit\n    - 5\n", "s.yaml:6: network.link.rate: 5 has no unit"),
        ("  network.link.rate: 5mbit", "s.yaml:4: sweep.network.link.rate: should be a list, not '5mbit'"),
        ("  network.link.rate: []", "s.yaml:4: sweep.network.link.rate: has no values"),
        ("  network.link.rate: [1mbit, 1mbit]", "lists a value twice"),
        ("  name: [a, b]", "name cannot be swept"),
        ("  sweep.x: [1]", "sweep.x cannot be swept"),
        ("  repeat: [1, 2]", "repeat cannot be swept"),
        (
            "  network.links.3.rate: [1mbit]",
            "s.yaml:4: network.links is a list and has no entry '3'; it has no entries",
        ),
        ("  training.lr: [0.1, -1]\n  seed: [1, 2]", "s.yaml:4: training.lr: must be more than 0"),
        (
            f"  seed: {list(range(40))}\n  training.lr: {[i / 100 for i in range(1, 41)]}",
            "1600 combinations; at most 1000",
        ),
    ],
)
def test_what_is_wrong_is_said(written, words):
    assert words in wrong(written)


def test_a_wrong_value_is_told_once():
    assert wrong("  training.lr: [0.1, -1]\n  seed: [1, 2, 3]").count("\n") == 0


def test_combinations_are_checked_together():
    text = SHORT + "network: {links: [{between: [w6, w7], rate: 1mbit}]}\n"
    assert "there is no w6" in wrong("  workers: [8, 4]", text)
