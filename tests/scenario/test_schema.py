import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.scenario.load import dump, load, loads
from testbed.scenario.read import read
from testbed.scenario.schema import json_schema, text

from .examples import DESIGN, EVERYTHING, SHORT
from .json_schema import valid
from .test_misspelt import DATA, PATHS, misspell, renamed

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SCHEMA = json_schema()


def accepted(yaml_text):
    return valid(read(yaml_text, "s").data, SCHEMA, SCHEMA)


def test_the_published_schema_is_the_one_the_command_prints():
    printed = CliRunner().invoke(cli, ["schema"])
    assert printed.exit_code == 0
    published = (SCENARIOS / "scenario.schema.json").read_text()
    assert published == printed.output, "run: testbed schema > scenarios/scenario.schema.json"
    assert json.loads(published)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("file", sorted(SCENARIOS.glob("*.yaml")), ids=lambda file: file.name)
def test_bundled_scenarios_are_valid_and_name_the_schema(file):
    content = file.read_text()
    assert content.startswith("# yaml-language-server: $schema=scenario.schema.json\n")
    load(file)
    assert accepted(content)


def test_the_quickstart_is_bundled():
    scenario = load(SCENARIOS / "quickstart.yaml")
    assert scenario.worker_count == 4
    assert [method.name for method in scenario.methods] == ["allreduce", "dpsgd", "dcd", "choco", "powergossip"]


@pytest.mark.parametrize("written", [SHORT, DESIGN, EVERYTHING])
def test_examples_are_valid_as_written_and_as_dumped(written):
    assert accepted(written)
    assert accepted(dump(loads(written)))


def test_the_same_schema_every_time():
    assert text() == text()


@pytest.mark.parametrize(
    "line",
    [
        "workers: {count: 8, gpus: share}",
        "network: {topology: torus}",
        "network: {topology: {torus: 4x4}}",
        "network: {topology: {torus: {rows: 4, columns: 4}}}",
        "network: {topology: {ring: {}}}",
        "network: {topology: {links: [[w0, w1], [w1, s0]]}}",
        "network: {link: {latency: 0, rate: 10 Mbit/s, loss: 0.001}}",
        "network: {link: {latency: 250µs, trace: {mahimahi: x}}}",
        "network: {regions: {eu: [w0, w1], us: w2}, between: {latency: 5ms}}",
        "network: {regions: {eu: [w0, w1]}, between: [{regions: [eu, eu], latency: 5ms}]}",
        "network: {events: [{at: step 100, kill: w1}, {at: 0, kill: [w1, w2]}]}",
        "gossip: ring",
        "gossip: {torus: 2x4}",
        "gossip: one-peer-exponential",
        "gossip: {weights: [[0.5, 0.5], [0.5, 0.5]]}",
        "task: digits",
        "task: {model: {mlp: {hidden: [10]}}}",
        "task: {split: by-source}",
        "training: {schedule: cosine}",
        "training: {schedule: {milestones: [1, 2]}}",
        "training: {target: {accuracy: 80%}}",
        "compute: {emulated: 60ms}",
        "runtime: docker",
        "methods: [my_own, {my_other: {x: 1}}, {dpsgd: }]",
    ],
)
def test_short_and_long_forms_are_valid(line):
    assert accepted(line if line.startswith("methods") else "methods: [dpsgd]\n" + line)


@pytest.mark.parametrize(
    "line",
    [
        "workers: eight",
        "workers: 0",
        "workers: {count: 8, gpus: all}",
        "network: {topology: rng}",
        "network: {topology: file}",
        "network: {topology: {ring: , torus: }}",
        "network: {topology: {torus: 4x}}",
        "network: {link: {latency: 5}}",
        "network: {link: {latency: 5m}}",
        "network: {link: {rate: 100mbps}}",
        "network: {link: {rate: 0}}",
        "network: {link: {loss: 2}}",
        "network: {events: [{at: 30, kill: w1}]}",
        "network: {events: [{at: step x, kill: w1}]}",
        "network: {links: [{between: [w0, w1, w2], rate: 1mbit}]}",
        "gossip: {weights: heavy}",
        "task: {split: {dirichlet: 0}}",
        "training: {lr: 0}",
        "training: {momentum: 1}",
        "training: {steps: 1.5}",
        "training: {target: {accuracy: 0.8, loss: 1}}",
        "compute: reel",
        "runtime: vm",
        "name: A b",
        "methods: []",
        "methods: [{a: , b: }]",
    ],
)
def test_mistakes_are_underlined(line):
    assert not accepted(line if line.startswith("methods") else "methods: [dpsgd]\n" + line)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_misspelt_keys_are_underlined(path):
    assert valid(DATA, SCHEMA, SCHEMA)
    assert not valid(renamed(DATA, path, misspell(path[-1])), SCHEMA, SCHEMA)


def descriptions(node, path=()):
    for key, value in node.get("properties", {}).items():
        yield (*path, key), value
    for key, value in node.items():
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from descriptions(inner, (*path, key))


def test_every_key_is_described():
    free = {"rows", "columns"}
    for path, schema in descriptions(SCHEMA):
        if path[-1] not in SCHEMA["$defs"]:
            assert schema.get("description") or path[-1] in free, path


def test_defaults_are_as_users_write_them():
    link = SCHEMA["$defs"]["Link"]["properties"]
    assert link["latency"]["default"] == "5ms"
    assert link["rate"]["default"] == "100mbit"
    assert SCHEMA["properties"]["deadline"]["default"] == "1h"
