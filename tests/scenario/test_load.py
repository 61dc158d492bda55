from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.link.shape import Shape
from testbed.scenario.load import dump, load, loads, name_from, validate
from testbed.scenario.source import Source
from testbed.scenario.sweep import variants

from .examples import DESIGN, EVERYTHING, SHORT
from .test_misspelt import PATHS


def wrong(text, sets=()):
    with pytest.raises(ScenarioError) as raised:
        loads(text, "s.yaml", sets)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_two_lines_are_a_scenario():
    scenario = loads(SHORT, "my.yaml")
    assert scenario.name == "my"
    assert scenario.worker_count == 8
    assert scenario.network.graph.kind == "ring"
    assert scenario.network.link.shape() == Shape(latency=0.005, rate=100_000_000)
    assert scenario.gossip.graph is None
    assert scenario.task.spec == {"data": "digits"}
    assert scenario.compute.kind == "real"
    assert scenario.runtime.kind == "process"
    assert [method.name for method in scenario.methods] == ["allreduce", "dpsgd"]
    assert scenario.seeds == (1,)


def test_the_example_of_the_design():
    scenario = loads(DESIGN)
    network = scenario.network
    assert network.link.shape() == Shape(latency=0.005, rate=10**8, buffer=0.05)
    assert network.links[0].directions == (("w0", "w1"), ("w1", "w0"))
    assert network.links[0].on(network.link.shape()) == Shape(latency=0.08, rate=10**7, loss=0.001, buffer=0.05)
    assert network.links[1].directions == (("w2", "w3"),)
    assert network.links[1].on(network.link.shape()) == Shape(latency=0.005, rate=5 * 10**6, buffer=0.05)
    assert network.events[0].verb == "link"
    assert scenario.gossip.graph.kind == "ring"
    assert scenario.task.spec == {"data": "cifar10", "model": "resnet20", "batch": 32, "split": {"dirichlet": 0.5}}
    assert scenario.training.target.accuracy == 0.8
    assert scenario.methods[2].options == {"compressor": {"quantize": "8bit"}}
    assert scenario.methods[3].options == {"compressor": "sign", "gamma": 0.45}
    assert scenario.seeds == (1, 2, 3)


@pytest.mark.parametrize("text", [SHORT, DESIGN, EVERYTHING])
def test_what_is_dumped_loads_as_the_same(text):
    scenario = loads(text)
    again = loads(dump(scenario), "elsewhere.yaml")
    assert again == scenario
    assert dump(again) == dump(scenario)


def test_a_dump_names_the_defaults():
    text = dump(loads(SHORT))
    for line in ("rate: 100mbit", "steps: 300", "mtu: 1500", "deadline: 1h", "runtime: process"):
        assert line in text


words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-9)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(words.filter(lambda word: word != "<<"), plain, max_size=3))
def test_options_of_methods_survive_a_dump_whatever_they_are(options):
    base = loads(SHORT)
    method = type(base.methods[0]).model_validate({"choco": options})
    scenario = base.model_copy(update={"methods": (method,)})
    assert loads(dump(scenario)).methods == scenario.methods


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "s.yaml: is empty; the shortest scenario is:"),
        ("# nothing yet\n", "s.yaml: is empty"),
        ("- workers", "s.yaml:1: a scenario is a mapping"),
        ("workers:8", "s.yaml:1: a scenario is a mapping"),
        ("5", "s.yaml:1: a scenario is a mapping"),
        ("workers: 8", "s.yaml: methods is missing: Methods to compare"),
        ("methods: [dpsgd]", "s.yaml: workers is missing: how many"),
        ("workers: 8\nmethods: []", "s.yaml:2: methods: needs at least 1 entry"),
        ("workers: 8\nmethods: {dpsgd: , dcd: }", "s.yaml:2: methods: should be a list"),
        (
            "workers: 3\nmethods: [dpsgd]\non_failure: continue\ntraining: {checkpoint_every: 5}",
            "s.yaml:4: training.checkpoint_every: cannot be had together with on_failure: continue",
        ),
        (
            "workers: 3\nmethods: [dpsgd]\ntraining: {checkpoint_every: 5}\nnetwork: {events: [{at: 1s, slow: w1}]}",
            "s.yaml:3: training.checkpoint_every: cannot be had together with network.events",
        ),
        ("workers: 0\nmethods: [dpsgd]", "s.yaml:1: workers: must be at least 1, not 0"),
        ("workers: 10000\nmethods: [dpsgd]", "s.yaml:1: workers: must be at most 1024"),
        ("workers: eight\nmethods: [dpsgd]", "s.yaml:1: workers: should be a whole number, not 'eight'"),
        ("workers: true\nmethods: [dpsgd]", "s.yaml:1: workers: should be a whole number, not true"),
        ("workers: 8.5\nmethods: [dpsgd]", "s.yaml:1: workers: should be a whole number, not 8.5"),
        ("workers: 010\nmethods: [dpsgd]", "s.yaml:1: workers: should be a whole number, not '010'"),
        ("workers: {count: 8, gpus: all}\nmethods: [dpsgd]", "workers.gpus: unknown 'all'; allowed: auto, one-each"),
        ("name: 5\nworkers: 8\nmethods: [a]", "s.yaml:1: name: should be text, not 5; put it in quotes"),
        ("name: A b\nworkers: 8\nmethods: [a]", "s.yaml:1: name: 'A b' is not allowed. "),
        (f"name: {'a' * 41}\nworkers: 8\nmethods: [a]", "s.yaml:1: name: is longer than 40 characters"),
        (SHORT + "network: [ring]", "s.yaml:3: network: should be a mapping with any of: topology"),
        (SHORT + "network:\n  link:\n    latency: 300s", "s.yaml:5: network.link.latency: 5min is too long"),
        (SHORT + "network: {link: {loss: 100%}}", "a loss of 100% lets nothing pass; to cut a link use an event"),
        (SHORT + "network: {link: {buffer: 64kb}}", "network.link.buffer: unknown unit 'kb'"),
        (SHORT + "network: {mtu: 100}", "network.mtu: must be at least 576, not 100"),
        (SHORT + "network: {topology: {torus: 4x}}", "topology.torus: '4x' is not a size; write rows and columns"),
        (SHORT + "network: {topology: {ring: , torus: }}", "network.topology: choose exactly one topology of"),
        (SHORT + "network: {topology: file}", "topology 'file' needs a value: {file: …}"),
        (SHORT + "network: {topology: {links: [[w0, w0]]}}", "topology.links.0: a link joins two different nodes"),
        (SHORT + "network: {topology: {links: [[w0, w1, w2]]}}", "topology.links.0"),
        (SHORT + "gossip: {graph: ring, weights: heavy}", "gossip.weights: unknown 'heavy'; allowed: metropolis"),
        (SHORT + "gossip: {weights: [[1, 0], [0]]}", "gossip.weights: the matrix of weights must be square"),
        (SHORT + "gossip: {weights: [[1, 0], [0, 1]]}", "gossip.weights: a matrix of 2 rows for 8 workers"),
        (SHORT + "training: {nesterov: true, momentum: 0}", "training: nesterov needs momentum"),
        (SHORT + "training: {lr: fast}", "training.lr: should be a number, not 'fast'"),
        (SHORT + "training: {lr: .inf}", "training.lr: should be a number, not '.inf'"),
        (SHORT + "training: {lr: 0}", "training.lr: must be more than 0, not 0"),
        (SHORT + "training: {schedule: {milestones: [5, 3]}}", "milestones must ascend"),
        (SHORT + "training: {target: {accuracy: 0.8, loss: 1}}", "training.target: choose exactly one target of"),
        (SHORT + "training: {target: 0.8}", "training.target: should be a mapping with any of: accuracy, loss"),
        (SHORT + "training: {steps:20}", "training.steps:20: unknown key; is a space missing after the colon?"),
        (SHORT + "compute: {step_time: 0}", "compute.step_time: must be longer than 0"),
        (SHORT + "task: {split: dirichlet}", "split 'dirichlet' needs a value: {dirichlet: …}"),
        (SHORT + "task: {model: {a: , b: }}", "task.model: one model per entry"),
        (SHORT + "runtime: {docker: {image: ''}}", "runtime.docker.image: is empty"),
        (SHORT + "box: vm", "s.yaml:3: box: unknown 'vm'; allowed: auto, host, uml"),
        ("workers: 2\nmethods: [dcd, dpsgd, dcd]", "s.yaml:2: methods.2: dcd is listed twice with the same options"),
        ("workers: 2\nmethods: [7]", "methods.0: 7 is not a method"),
        ("workers: 2\nmethods: ['a b']", "methods.0: 'a b' is not allowed. A name is a letter, then"),
        ("workers: 2\nmethods: [{dcd: 8bit}]", "methods.0: the options of dcd are a mapping"),
    ],
)
def test_what_is_wrong_is_said(text, words):
    assert words in wrong(text)


def test_all_problems_come_at_once_in_the_order_of_their_lines():
    lines = wrong("workers: 0\nnetwrk: 1\ntraining:\n  lr: -1\n  step: 5\nbox: x\nmethods: [a]\n").splitlines()
    assert lines[0] == "5 problems in s.yaml"
    assert [line.split(":")[1] for line in lines[1:]] == ["1", "2", "4", "5", "6"]


def test_a_flood_of_problems_is_cut():
    text = SHORT + "network:\n  links:\n" + "    - {between: [w0, w1], rate: 5}\n" * 30
    lines = wrong(text).splitlines()
    assert lines[0] == "30 problems in s.yaml"
    assert len(lines) == 12
    assert lines[-1] == "… and 20 more"


def test_keys_left_empty_are_left_out():
    scenario = loads("workers: 8\nnetwork:\ntraining:\n  target:\n  lr:\nmethods:\n  - dpsgd:\n  - allreduce\n")
    assert scenario.training.lr == 0.1
    assert scenario.methods[0].options == {}


def test_switches_in_words():
    assert loads(SHORT + "training: {nesterov: yes}").training.nesterov is True
    assert loads(SHORT + "training: {nesterov: off}").training.nesterov is False


def test_one_method_needs_no_list():
    assert [method.name for method in loads("workers: 2\nmethods: dpsgd").methods] == ["dpsgd"]


def test_files(tmp_path):
    file = tmp_path / "My Scenario_2.yaml"
    file.write_text(SHORT)
    scenario = load(file)
    assert scenario.name == "my-scenario-2"
    assert scenario.resolve("a.csv") == tmp_path / "a.csv"
    assert scenario.where("methods") == f"{file}:2"


@pytest.mark.parametrize(
    ("stem", "name"), [("a", "a"), ("Übung 1", "bung-1"), ("...", "scenario"), ("x" * 50, "x" * 40), ("a--b_", "a-b")]
)
def test_names_come_from_files(stem, name):
    assert name_from(stem) == name


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "quickstart.yaml").write_text(SHORT)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    (tmp_path / "big.yaml").write_bytes(b"#" * 2_000_000)
    for path, words in (
        (tmp_path / "quikstart.yaml", "no such file; did you mean 'quickstart.yaml'?"),
        (tmp_path / "none" / "x.yaml", "no such file"),
        (tmp_path / "quickstart.yaml" / "x.yaml", "Not a directory"),
        (tmp_path, "is a directory"),
        (tmp_path / "latin.yaml", "latin.yaml:1: not UTF-8"),
        (tmp_path / "big.yaml", "larger than 1000 kB"),
        (tmp_path / ("x" * 300), "cannot be read"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(ScenarioError) as raised:
            load(path)
        assert words in str(raised.value)


def test_files_without_permission(tmp_path, monkeypatch):
    def refuse(self, mode):  # root, who may run the tests, may read everything
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ScenarioError, match="cannot be read: Permission denied"):
        load(tmp_path / "secret.yaml")


def told(call, *arguments):
    """What a ScenarioError says; nothing else may be raised."""
    try:
        call(*arguments)
    except ScenarioError as error:
        return str(error)
    return None


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_gets_past_the_errors(text):
    words = told(loads, text, "s.yaml")
    assert words is None or "s.yaml" in words


def mutated(text, draw):
    """The text after a few slips of the keyboard."""
    for _ in range(draw.randint(1, 3)):
        here, there = draw.randrange(len(text)), draw.randrange(len(text))
        slip = draw.choice(["", draw.choice("ab01:{}[]-&*!|>'\"%@#,\n\t ~"), text[there : there + draw.randint(1, 30)]])
        text = text[:here] + slip + text[here + draw.randint(0, 5) :]
    return text


def test_no_slip_of_the_keyboard_gets_past_the_errors():
    draw = Random(1)
    for _ in range(150):
        text = mutated(draw.choice([DESIGN, EVERYTHING]), draw)
        words = told(lambda text=text: dump(loads(text, "s.yaml")))
        assert words is None or "s.yaml" in words


keys = st.sampled_from(sorted({key for path in PATHS for key in path if isinstance(key, str)} | {"w0", "eu", "x"}))
leaves = st.sampled_from(["5ms", "1mbit", "0.1%", "step 5", "4x4", "ring", "w0", "w99", "", "\0", "~/x", "x" * 300])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2000) | st.floats() | keys | leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=400)
@given(st.dictionaries(keys, values, max_size=6))
def test_no_data_gets_past_the_errors(data):
    words = told(lambda: variants(validate({"workers": 2, "methods": ["a"], **data}, Source("s.yaml"))))
    assert words is None or "s.yaml" in words
