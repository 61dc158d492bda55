import pytest

from testbed.errors import ScenarioError
from testbed.scenario.load import loads

from .examples import DESIGN, SHORT


def wrong(text, *sets):
    with pytest.raises(ScenarioError) as raised:
        loads(text, "s.yaml", sets)
    return str(raised.value)


def test_settings_win_over_the_file():
    scenario = loads(DESIGN, sets=["network.link.rate=10mbit", "training.steps=20", "training.lr=1e-2", "box=uml"])
    assert scenario.network.link.rate == 10**7
    assert scenario.network.link.latency == 0.005  # its neighbours stay
    assert scenario.training.steps == 20
    assert scenario.training.lr == 0.01
    assert scenario.box == "uml"


def test_settings_reach_what_the_file_does_not_have():
    scenario = loads(SHORT, sets=["network.link.latency=7ms", "training.target.accuracy=90%"])
    assert scenario.network.link.latency == 0.007
    assert scenario.training.target.accuracy == 0.9


def test_settings_write_short_forms_out():
    text = "workers: 8\ntask: digits\ngossip: ring\nmethods: [choco]\n"
    sets = ["workers.memory=2gb", "task.batch=64", "gossip.weights=uniform", "methods.0.choco.gamma=0.5"]
    scenario = loads(text, sets=sets)
    assert scenario.workers.count == 8
    assert scenario.workers.memory == 2 * 10**9
    assert scenario.task.spec == {"data": "digits", "batch": 64}
    assert scenario.gossip.graph.kind == "ring"
    assert scenario.gossip.weights == "uniform"
    assert scenario.methods[0].options == {"gamma": 0.5}


def test_settings_write_out_other_short_forms():
    scenario = loads(SHORT + "task: quadratic\ngossip: {torus: 2x4}\n", sets=["task.model.quadratic.noise=0.1"])
    assert scenario.task.spec == {"model": "quadratic", "noise": 0.1}
    scenario = loads(SHORT + "gossip: {torus: 2x4}\n", sets=["gossip.weights=uniform"])
    assert scenario.gossip.graph.torus.rows == 2


def test_settings_take_yaml_values():
    scenario = loads(SHORT, sets=["methods=[dpsgd, {dcd: {compressor: sign}}]", "network.topology={torus: 2x4}"])
    assert [method.label for method in scenario.methods] == ["dpsgd", "dcd compressor=sign"]
    assert scenario.network.graph.torus.columns == 4


def test_settings_may_complete_a_file():
    assert loads("workers: 2", sets=["methods=[dpsgd]"]).methods[0].name == "dpsgd"


def test_later_settings_win():
    assert loads(SHORT, sets=["seed=5", "seed=6"]).seed == 6


def test_entries_of_lists():
    assert loads(DESIGN, sets=["network.links.1.rate=7mbit"]).network.links[1].rate == 7 * 10**6


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("network.link.rate=10", "--set network.link.rate=10: network.link.rate: 10 has no unit"),
        (
            "network.link.rat=10mbit",
            "--set network.link.rat=10mbit: network.link.rat: unknown key; allowed: latency, rate",
        ),
        ("trainig.steps=5", "--set trainig.steps=5: trainig: unknown key; allowed: name"),
        ("training.steps", "--set training.steps: write key=value"),
        ("=5", "--set =5: write key=value"),
        ("a..b=5", "--set a..b=5: write key=value"),
        (
            "network.links.7.rate=1mbit",
            "--set network.links.7.rate=1mbit: network.links is a list and has no entry '7'",
        ),
        ("network.links.x.rate=1mbit", "its entries are 0 to 1"),
        ("seed=[1", "--set seed=[1:1: not valid YAML"),
        ("workers=3", "there is no w3"),
    ],
)
def test_wrong_settings_are_named(setting, words):
    assert words in wrong(DESIGN, setting)


def test_the_text_is_not_changed_by_settings():
    assert loads(DESIGN, sets=["seed=9"]).seed == 9
    assert loads(DESIGN).seed == 1


def test_what_was_changed_inside_of_a_key_is_named_with_it():
    text = SHORT + "training: {target: {accuracy: 90%}}\n"
    said = wrong(text, "training.target.acuracy=3", "training.steps=5")
    assert said.startswith("s.yaml:3: training.target: choose exactly one target")
    assert said.endswith("(with --set training.target.acuracy=3)")
