"""Every key of the schema, misspelt, gets its line and the right spelling."""

import pytest
import yaml

from testbed.errors import ScenarioError
from testbed.scenario.load import loads
from testbed.scenario.read import read

from .examples import EVERYTHING

FREE = {
    ("methods",),
    ("sweep",),
    ("network", "regions"),
    ("workers", "gpus"),
    ("workers", "cpus"),
}  # keys are users' own
FREE |= {("network", "between", setting) for setting in ("latency", "jitter")} | {("task", "model")}


def keys_of(node, path=()):
    """The path of every key in plain data."""
    if path in FREE:
        return
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if isinstance(key, str):
            yield (*path, key)
        yield from keys_of(value, (*path, key))


def misspell(word):
    middle = len(word) // 2
    return word + word[-1] if len(word) < 4 else word[:middle] + word[middle + 1 :]


def renamed(node, path, name):
    key, rest = path[0], path[1:]
    if isinstance(node, list):
        return [renamed(item, rest, name) if place == key else item for place, item in enumerate(node)]
    if rest:
        return {k: renamed(item, rest, name) if k == key else item for k, item in node.items()}
    return {name if k == key else k: item for k, item in node.items()}


DATA = read(EVERYTHING, "everything.yaml").data
PATHS = list(keys_of(DATA))


def test_the_scenario_has_every_level():
    assert len(PATHS) > 90


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_misspelt_keys_are_named_with_their_line(path):
    name = misspell(path[-1])
    text = yaml.safe_dump(renamed(DATA, path, name), sort_keys=False)
    with pytest.raises(ScenarioError) as raised:
        loads(text, "s.yaml")
    told = [line for line in str(raised.value).splitlines() if "unknown key" in line and "did you mean" in line]
    assert len(told) == 1
    assert f"did you mean '{path[-1]}'?" in told[0]
    line = int(told[0].split(":")[1])
    assert name in text.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("network: {topology: rng}", "ring"),
        ("network: {topology: erdos-reny}", "erdos-renyi"),
        ("network: {topology: Torus}", "torus"),
        ("network: {routing: hop}", "hops"),
        ("gossip: one-peer-exponentail", "one-peer-exponential"),
        ("gossip: {weights: metropolitan}", "metropolis"),
        ("task: {split: idd}", "iid"),
        ("task: {split: by-sorce}", "by-source"),
        ("training: {schedule: cosin}", "cosine"),
        ("compute: reel", "real"),
        ("runtime: dokcer", "docker"),
        ("box: hots", "host"),
        ("on_failure: contine", "continue"),
        ("workers: {count: 8, gpus: shared}", "share"),
        ("network: {events: [{random: {kind: kil, every: 1s}}]}", "kill"),
    ],
)
def test_misspelt_names_are_named(line, right):
    with pytest.raises(ScenarioError) as raised:
        loads("methods: [dpsgd]\n" + ("" if line.startswith("workers") else "workers: 8\n") + line, "s.yaml")
    assert f"did you mean '{right}'?" in str(raised.value)
    assert "allowed: " in str(raised.value)
