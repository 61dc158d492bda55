"""Profiles change a scenario before it is validated, and their mistakes are told with their own lines."""

from __future__ import annotations

import pytest

from testbed.errors import ScenarioError
from testbed.scenario.load import dump, loads
from testbed.scenario.read import read
from testbed.scenario.schema import json_schema
from testbed.scenario.sweep import variants

from .json_schema import valid

TEXT = """\
name: large
workers: 16
network: {topology: ring, link: {latency: 5ms, rate: 1gbit}}
task: {model: resnet20, data: cifar10, batch: 128, reshuffle: true}
training: {steps: 1000, lr: 0.4, momentum: 0.9, schedule: {milestones: [500]}}
methods: [allreduce, dpsgd, {choco: {compressor: sign, gamma: 0.4}}]
sweep:
  network.link.latency: [1ms, 5ms]
profiles:
  small:
    workers: 8
    network.link.rate: 20mbit
    task: {model: mlp, data: digits}
    training:
      steps: 60
      schedule: constant
    sweep: {}
  other: {}
"""


def wrong(text: str, profile: str | None = None, *sets: str) -> str:
    with pytest.raises(ScenarioError) as raised:
        loads(text, "s.yaml", sets, profile)
    return str(raised.value)


def changed(old: str, new: str) -> str:
    assert TEXT.count(old) == 1
    return TEXT.replace(old, new)


def test_without_a_profile_nothing_changes():
    plain = loads(TEXT.split("profiles:")[0])
    assert loads(TEXT) == plain
    assert loads(TEXT).training.steps == 1000


def test_a_profile_changes_what_it_names_and_leaves_the_rest():
    small = loads(TEXT, profile="small")
    assert small.worker_count == 8
    assert (small.network.link.rate, small.network.link.latency) == (20 * 10**6, 0.005)
    assert small.network.graph.kind == "ring"
    assert small.task.spec == {"model": "mlp", "data": "digits", "batch": 128, "reshuffle": True}
    assert (small.training.steps, small.training.lr, small.training.schedule.kind) == (60, 0.4, "constant")
    assert small.sweep == {}
    assert [method.name for method in small.methods] == ["allreduce", "dpsgd", "choco"]


def test_what_is_no_section_is_replaced_as_a_whole():
    text = changed("    sweep: {}\n", "    methods: [dpsgd]\n    sweep: {network.link.rate: [1mbit]}\n")
    small = loads(text, profile="small")
    assert [method.name for method in small.methods] == ["dpsgd"]
    assert [variant.label for variant in variants(small)] == ["rate=1mbit"]
    assert loads(changed("    sweep: {}\n", "    methods.2.choco.gamma: 0.1\n"), profile="small").methods[
        2
    ].options == {
        "compressor": "sign",
        "gamma": 0.1,
    }


def test_an_empty_value_is_the_default():
    small = loads(
        changed("      schedule: constant\n", "      momentum:\n      schedule:\n      lr: 1\n"), profile="small"
    )
    assert (small.training.lr, small.training.momentum, small.training.schedule.kind) == (1, 0.9, "constant")


def test_the_name_tells_the_profile():
    assert loads(TEXT, profile="small").name == "large-small"
    assert loads(TEXT, profile="other").name == "large-other"
    assert loads(changed("    workers: 8\n", "    workers: 8\n    name: tiny\n"), profile="small").name == "tiny"
    long = loads(TEXT.replace("name: large", f"name: {'x' * 40}"), profile="small").name
    assert len(long) == 40
    assert long.endswith("-small")


def test_settings_win_over_the_profile():
    small = loads(TEXT, sets=["training.steps=3", "workers=4"], profile="small")
    assert (small.training.steps, small.worker_count) == (3, 4)
    assert "--set training={steps: 0}: training.steps" in wrong(TEXT, "small", "training={steps: 0}")


def test_what_was_resolved_knows_no_profiles():
    small = loads(TEXT, profile="small")
    assert "profiles" not in dump(small)
    assert "small" not in dump(loads(TEXT))
    assert loads(dump(small)) == small


def test_an_unknown_profile():
    assert wrong(TEXT, "smal") == "s.yaml: no profile 'smal'; there are: small, other; did you mean 'small'?"
    assert wrong(TEXT.split("profiles:")[0], "small") == "s.yaml: no profile 'small'; it has none"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("      steps: 60", "      steps: 0", "s.yaml:15: training.steps: must be at least 1, not 0"),
        ("      steps: 60", "      stps: 60", "s.yaml:15: training.stps: unknown key; allowed: steps"),
        ("    network.link.rate: 20mbit", "    network.lnk.rate: 20mbit", "s.yaml:12: network.lnk: unknown key"),
        ("    network.link.rate: 20mbit", "    trainin.steps: 20", "s.yaml:12: trainin: unknown key"),
        ("    network.link.rate: 20mbit", "    methods:\n      - dpsgd\n      - 3\n", "s.yaml:14: methods.1"),
        ("    sweep: {}", "    sweep: {training.lr: [0.1, -1]}", "s.yaml:17: training.lr: must be more than 0"),
        ("    sweep: {}", "    methods.7: dpsgd", "s.yaml:17: methods is a list and has no entry '7'"),
        (
            "    sweep: {}",
            "    network.links: [{between: [w0, w9], rate: 1mbit}]",
            "s.yaml:17: network.links.0.between",
        ),
    ],
)
def test_mistakes_are_told_with_the_profiles_own_line(old, new, told):
    assert told in wrong(changed(old, new), "small")
    assert told in wrong(changed(old, new)), "asked for or not"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("profiles: 3", "s.yaml:3: profiles: should be a mapping, e.g. small: {training.steps: 60}; not 3"),
        ("profiles: {small: [1]}", "s.yaml:3: profiles.small: should be a mapping of keys and values"),
        ("profiles: {Small: {}}", "s.yaml:3: profiles.Small: a profile's name has at most 20 small letters"),
        ("profiles: {small: {profiles: {}}}", "s.yaml:3: profiles.small.profiles: is no key of a scenario"),
        (
            "profiles: {small: {training..steps: 1}}",
            "s.yaml:3: profiles.small.training..steps: is no key of a scenario",
        ),
        ("profile: {small: {}}", "s.yaml:3: profile: unknown key"),
    ],
)
def test_what_is_no_profile(written, told):
    assert told in wrong(f"workers: 2\nmethods: [dpsgd]\n{written}\n")


def test_nothing_between_profiles_is_fine():
    assert loads("workers: 2\nmethods: [dpsgd]\nprofiles: {small: }\n", profile="small").worker_count == 2
    assert loads("workers: 2\nmethods: [dpsgd]\nprofiles:\n").worker_count == 2


def test_the_schema_has_them():
    schema = json_schema()
    assert valid(read(TEXT, "s").data, schema, schema)
    assert not valid(read(changed("  other: {}", "  other: 3"), "s").data, schema, schema)
