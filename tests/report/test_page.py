"""The page from recorded runs: what is in it, and that nothing in a run can put something else into it."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from recorded_runs import change

from testbed.report import page
from testbed.report.figures import Drawn
from testbed.results.run import Run, open_run

RECORDED = Path(__file__).parent.parent / "recorded"
EVIL = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """What a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))


@pytest.fixture(scope="module")
def sweep() -> Reader:
    return Reader(page.render(open_run(RECORDED / "sweep"), []))


@pytest.fixture(scope="module")
def faults() -> Reader:
    return Reader(page.render(open_run(RECORDED / "faults"), []))


def copied(tmp_path: Path, name: str) -> Run:
    return open_run(shutil.copytree(RECORDED / name, tmp_path / name))


def test_it_opens_with_the_answer(sweep):
    assert sweep.text.index("The largest gain") < sweep.text.index("Comparison")
    assert sweep.count("h1") == 1


def test_one_row_for_each_method_and_network_and_a_link_for_each_section(sweep):
    rows = sum(1 for tag, attributes in sweep.tags if tag == "th" and attributes.get("scope") == "row")
    assert rows == 20 + 4 * 4  # methods × networks; links × networks
    places = {attributes.get("id") for _, attributes in sweep.tags}
    links = [attributes["href"] for tag, attributes in sweep.tags if tag == "a"]
    assert links
    assert all(link is not None and link[0] == "#" and link[1:] in places for link in links)


def test_every_method_has_its_timeline_over_the_same_time(sweep):
    drawings = [attributes["aria-label"] for tag, attributes in sweep.tags if tag == "svg"]
    assert len(drawings) == 5
    assert len({re.search(r"in ([\d.]+) s", str(label)).group(1) for label in drawings}) == 1  # type: ignore[union-attr]


def test_everything_to_repeat_it(sweep):
    scenario = (RECORDED / "sweep" / "scenario.yaml").read_text()
    assert re.sub(r"\s+", " ", scenario).strip() in sweep.text
    environment = open_run(RECORDED / "sweep").directory.read_json("environment.json")
    for value in (environment["cpu"], environment["kernel"], environment["packages"]["torch"], "Seeds: 1"):
        assert value in sweep.text


def test_failures_events_and_the_dead_are_told(faults):
    assert "all-reduce failed" in faults.text
    assert "all-reduce · repeat 1 failed" in faults.text
    assert "w3 was killed by SIGKILL" in faults.text
    assert "on_failure: continue" in faults.text  # the hint
    assert re.search(r"w3 was lost in step \d+", faults.text)
    assert "w2 3 times slower" in faults.text
    assert "2 failed" in faults.text
    assert "1 of 2 did" in faults.text  # choco reached its target in one of its repeats


def test_equal_losses_are_promised_only_where_timing_does_not_decide(sweep, faults):
    assert "the same losses under every network" in sweep.text
    assert "the same losses under every network" not in faults.text
    assert "the same losses until a worker is lost" in faults.text


def test_what_needs_a_word_of_explanation_has_one(sweep):
    assert re.search(r"All-reduce waits 2\.\d times its floor: Gloo", sweep.text)
    assert "goodput there, Mbit/s" in sweep.text
    assert "goodput: what headers leave of a rate" in sweep.text


def test_a_training_that_diverged_is_told_as_such(tmp_path):
    run = copied(tmp_path, "sweep")
    words = "w1: head holds NaN or Inf at step 86"
    change(run.path, "v0-dpsgd-r0", error=words, hint="warm up first", diverged={"worker": "w1", "step": 86})
    reader = Reader(page.render(run, []))
    for text in ("Diverged: dpsgd (at 1 of 4).", "diverged at step 86", words, "warm up first", "1 diverged"):
        assert text in reader.text
    assert "dpsgd · 5 ms, 100 Mbit/s diverged" in reader.text
    assert "1 failed" not in reader.text


def test_tables_have_captions_and_drawings_have_names(sweep, faults):
    for reader in (sweep, faults):
        assert reader.count("table") == reader.count("caption") > 0
        assert all(attributes.get("aria-label") for tag, attributes in reader.tags if tag == "svg")


def test_nothing_is_fetched_and_only_our_script_runs(sweep):
    assert not [attributes for _, attributes in sweep.tags if "src" in attributes or "srcset" in attributes]
    assert sweep.count("link") == 0
    policy = next(attributes["content"] for _, attributes in sweep.tags if "http-equiv" in attributes)
    assert policy is not None
    script = (Path(page.__file__).parent / "report.js").read_bytes()
    assert base64.b64encode(hashlib.sha256(script).digest()).decode() in policy
    assert "default-src 'none'" in policy
    assert "script-src 'unsafe-inline'" not in policy


def test_nothing_in_a_run_becomes_markup(tmp_path):
    run = copied(tmp_path, "faults")
    directory = run.directory
    directory.write_text("scenario.yaml", f'name: "{EVIL}"\n# {EVIL}\nmethods: [dpsgd]\n')
    environment = directory.read_json("environment.json")
    directory.write_json("environment.json", {**environment, "cpu": EVIL, "command": ["testbed", EVIL]})
    links = directory.read_json("links.json")
    links[0]["label"] = links[0]["probes"][0]["source"] = EVIL
    links[0]["verdict"] = {"grade": "suspect", "reasons": [EVIL]}
    directory.write_json("links.json", links)
    for cell in directory.read_json("cells.json"):
        name = f"cells/{cell['id']}/result.json"
        result = directory.read_json(name)
        result["events"] = [{"subject": EVIL, "what": EVIL, "due": 1, "at": 1.0, "problem": EVIL}]
        result["verdict"]["reasons"] = [EVIL]
        result["warnings"] = [EVIL]
        if result["error"]:
            result |= {"error": EVIL, "hint": EVIL}
            (run.path / "cells" / cell["id"] / "logs" / "w0.log").write_text(EVIL)
        directory.write_json(name, result)
    cells = directory.read_json("cells.json")
    directory.write_json("cells.json", [{**cell, "method": f"{EVIL}", "label": EVIL} for cell in cells])
    figure = Drawn("a", EVIL, EVIL, "<svg></svg>", (f"{EVIL}.pdf",), False)
    reader = Reader(page.render(open_run(run.path), [figure]))
    assert reader.count("script") == 1
    assert reader.text.count("alert(1)") > 12  # told, as text
    assert not any(EVIL in str(attributes.get("style")) for _, attributes in reader.tags)


def test_a_run_that_has_only_begun(tmp_path):
    run = copied(tmp_path, "sweep")
    shutil.rmtree(run.path / "cells")
    (run.path / "cells").mkdir()
    for name in ("links.json", "environment.json"):
        (run.path / name).unlink()
    text = Reader(page.render(open_run(run.path), [])).text
    for words in ("No cell is done yet.", "The links were not measured.", "The network was never up."):
        assert words in text


def test_a_run_without_traces_has_no_timelines(tmp_path):
    run = copied(tmp_path, "sweep")
    for trace in run.path.glob("cells/*/trace.parquet"):
        trace.unlink()
    assert "What each worker did" not in Reader(page.render(open_run(run.path), [])).text
