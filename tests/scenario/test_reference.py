"""The reference of scenario keys: what is printed is what is published, complete, and every example really loads."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.commands.schema import BY_EXAMPLE, ELSEWHERE, SCHEMA, UNITS, _with_code, anchor, properties, text
from testbed.plan.make import plan, with_methods_checked
from testbed.plan.timeline import SLOW_FACTOR
from testbed.scenario.chapters import CHAPTERS
from testbed.scenario.load import load
from testbed.scenario.read import read
from testbed.scenario.task import Task
from testbed.scenario.verbs import DRAWN_FOR, VERBS
from testbed.tasks import datasets
from testbed.tasks.models.gpt import Gpt
from testbed.tasks.models.lstm import Lstm
from testbed.tasks.spec import USUAL_MODEL

ROOT = Path(__file__).parents[2]
TOPO = """\
from mininet.topo import Topo


class MyTopo(Topo):
    def build(self):
        switch = self.addSwitch("s1")
        for name in ("h1", "h2", "h3"):
            self.addLink(self.addHost(name), switch, delay="5ms", bw=10)
"""
EXAMPLES = [part for chapter in CHAPTERS for part in (chapter.example, *chapter.forms)]


def test_the_published_page_is_the_one_the_command_prints():
    printed = CliRunner().invoke(cli, ["schema", "--markdown"])
    assert printed.exit_code == 0
    published = (ROOT / "docs" / "scenario.md").read_text()
    assert published == printed.output, "run: testbed schema --markdown > docs/scenario.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the files that examples name are."""
    made = tmp_path_factory.mktemp("scenarios")
    for name in ("abilene.graphml", "mobile-a.csv", "own_compressor.py"):
        shutil.copy(ROOT / "scenarios" / name, made)
    (made / "my_topo.py").write_text(TOPO)
    (made / "cellular.txt").write_text("1\n3\n5\n")
    return made


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_can_be_planned(example, folder):
    """As a whole scenario: methods, models, graphs and files are looked up as well."""
    given = read(example, "example").data
    network = given.get("network", {})
    counted = "regions" in network or {"file", "mininet", "links"} & set(network.get("topology", {}) or {})
    several = 3 if "weights: [[" in example else 8
    rest = {"workers": f"{several}", "methods": "[dpsgd]"}
    missing = [
        f"{key}: {value}" for key, value in rest.items() if key not in given and not (key == "workers" and counted)
    ]
    file = folder / "example.yaml"
    file.write_text("\n".join([example, *missing]) + "\n")
    assert with_methods_checked(plan(load(file))).cells


def test_every_key_of_every_model_is_in_a_table():
    shown = {}
    for table in (table for chapter in CHAPTERS for table in chapter.tables):
        name = table.model.__name__
        shown.setdefault(name, set()).update(table.keys or properties(name)["properties"])
    shown["Event"] |= set(properties("LinkOptions")["properties"])  # what `link` says
    for name in ("Scenario", *SCHEMA["$defs"]):
        if name not in (*UNITS, *ELSEWHERE, *BY_EXAMPLE, "Nothing"):
            assert shown[name] == set(properties(name)["properties"]), name


def test_every_default_is_told():
    """A key that may be left out says what holds then, unless it is one of several to choose from."""
    for table in (table for chapter in CHAPTERS for table in chapter.tables if not table.one_of):
        found = properties(table.model.__name__)
        for key in table.keys or found["properties"]:
            schema = found["properties"][key]
            told = "default" in schema or "Default: " in schema["description"] or key in found.get("required", ())
            assert told, f"{table.model.__name__}.{key}"


def test_links_lead_to_headings():
    page = text()
    headings = {anchor(line.lstrip("# ")) for line in page.splitlines() if line.startswith("#")}
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= headings
    assert {link for link in links if not link.startswith("#")} == {"extending.md"}
    assert (ROOT / "docs" / "extending.md").is_file()


def test_tables_are_even():
    rows = [line for line in text().splitlines() if line.startswith("|")]
    width = 0
    for row, below in pairwise([*rows, ""]):
        width = row.count("|") if below.startswith("| ---") else width
        assert row.replace("\\|", "").count("|") == width, row


def test_words_about_defaults_are_what_the_code_does():
    keys = {name: field.description or "" for name, field in Task.model_fields.items()}
    assert all(f"{model} for {data}" in keys["model"] for data, model in USUAL_MODEL.items())
    assert f"{Gpt.tokens} for gpt, {Lstm.tokens} for lstm" in keys["tokens"]
    assert f"{Gpt.length} for gpt, {Lstm.length} for lstm" in keys["bptt"]
    augmented = [name for name, data in datasets.ALL.items() if getattr(data, "augment", False)]
    assert f"true for {' and '.join(augmented)}, false for the others" in keys["augment"]
    events = {key: schema["description"] for key, schema in properties("Event")["properties"].items()}
    assert f"{VERBS['flap'].usually_for:g}s" in events["for"]
    assert f"{VERBS['flap'].usually_every:g}s" in events["every"]
    assert f"Default: {SLOW_FACTOR:g}." in events["factor"]
    assert f"lasts {DRAWN_FOR:g}s" in properties("RandomEvents")["properties"]["for"]["description"]


def test_mappings_and_lists_in_words_are_set_as_code():
    words = "one of [[w0, w1], [w2]], or {a: {b: [1]}}; `{c: 1}` is."
    assert _with_code(words) == "one of `[[w0, w1], [w2]]`, or `{a: {b: [1]}}`; `{c: 1}` is."
