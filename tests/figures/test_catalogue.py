"""Every figure and table on recorded runs: drawn, or said to be missing; never empty."""

import json
import re
from contextlib import suppress
from xml.etree import ElementTree

import pandas as pd
import pytest
from matplotlib.text import Text
from recorded_runs import FAULTS, SWEEP, copy, emulate

from testbed.analysis import catalogue, style
from testbed.analysis.reading import LackingError
from testbed.results.run import open_run

ALSO_WITHOUT_SWEEP = {
    "loss_vs_time",
    "loss_vs_steps",
    "accuracy_vs_megabytes",
    "loss_vs_bytes",
    "time_breakdown",
    "consensus_error",
    "network_map",
    "emulation",
    "timeline",
}
OVER_NETWORKS = {"step_time_vs_bandwidth", "epoch_time_vs_bandwidth", "epoch_time_vs_latency", "winner_map"}
OF_LEARNING = {"loss_vs_time", "loss_vs_steps", "accuracy_vs_megabytes", "loss_vs_bytes", "consensus_error"}


@pytest.fixture(scope="module")
def sweep():
    return open_run(SWEEP)


def drawn(run):
    """name → SVG of all figures that the run has something for."""
    found = {}
    for name in catalogue.FIGURES:
        with suppress(LackingError):
            found[name] = style.svg(catalogue.module(name).draw(run), name.replace("_", "-"))
    return found


@pytest.fixture(scope="module")
def figures(sweep):
    return drawn(sweep)


def test_a_sweep_over_networks_has_all_figures_about_networks(figures):
    assert set(figures) == ALSO_WITHOUT_SWEEP | OVER_NETWORKS


def test_a_run_on_one_network_has_the_others():
    assert set(drawn(open_run(FAULTS))) == ALSO_WITHOUT_SWEEP


def test_emulated_gradients_have_no_losses(tmp_path):
    path = copy(SWEEP, tmp_path)
    emulate(path)
    run = open_run(path)
    for name in OF_LEARNING:
        with pytest.raises(LackingError, match="losses mean nothing"):
            catalogue.module(name).draw(run)


def test_every_figure_follows_the_pages_colours(figures):
    for text in figures.values():
        assert "currentColor" in text
        assert style.INK not in text
        assert style.PAPER not in text
        assert "#000000" not in text


def test_figures_can_stand_in_one_page(figures):
    page = ElementTree.fromstring(f"<body>{''.join(figures.values())}</body>")
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for name, text in figures.items():
        prefix = name.replace("_", "-")
        own = set(re.findall(r'\bid="([^"]+)"', text))
        assert own
        assert all(one == prefix or one.startswith(f"{prefix}-") for one in own)
        used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text))
        assert {one or other for one, other in used} <= own
        rules = re.findall(r"<style[^>]*>(.*?)</style>", text, flags=re.DOTALL)
        assert all(f"#{prefix} " in rule and not rule.lstrip().startswith("*") for rule in rules)


def test_a_figure_is_the_same_each_time(sweep, figures):
    for name in ("loss_vs_time", "network_map"):
        assert style.svg(catalogue.module(name).draw(sweep), name.replace("_", "-")) == figures[name]


def test_every_method_is_named_in_the_comparisons(sweep, figures):
    for name in ("loss_vs_time", "loss_vs_steps", "time_breakdown", "epoch_time_vs_bandwidth"):
        for method in set(sweep.cells["method"]):
            assert method in figures[name]


@pytest.mark.parametrize("path", [SWEEP, FAULTS])
def test_every_table_has_rows(path):
    run = open_run(path)
    for name in catalogue.TABLES:
        made = catalogue.module(name).table(run)
        assert isinstance(made, pd.DataFrame)
        assert len(made)


HOSTILE = r"$\frac{$_x^2"  # what Matplotlib would typeset, and cannot


@pytest.mark.parametrize("path", [SWEEP, FAULTS])
def test_users_words_are_drawn_as_they_are(tmp_path, path):
    damaged = copy(path, tmp_path)
    cells = json.loads((damaged / "cells.json").read_text())
    for cell in cells:
        cell["options"] = {"compressor": f"{HOSTILE}\x1b"} if cell["method"] != "allreduce" else {}
        cell["setting"] = f"{cell['setting']} topology={HOSTILE}"
    (damaged / "cells.json").write_text(json.dumps(cells))
    run = open_run(damaged)
    drawn_ones = 0
    for name in catalogue.FIGURES:
        with suppress(LackingError):
            made = catalogue.module(name).draw(run)
            made.draw_without_rendering()
            ElementTree.fromstring(style.svg(made, name))
            texts = [one for one in made.findobj(Text) if "frac" in one.get_text()]
            drawn_ones += bool(texts)
            for one in texts:
                shown, typeset = one._preprocess_math(one.get_text())
                assert not typeset, (name, shown)
                assert HOSTILE in shown.replace("\n", " ")
    assert drawn_ones >= 5


def test_captions_are_sentences():
    for name in (*catalogue.FIGURES, *catalogue.TABLES):
        assert catalogue.caption(name).endswith(".")
        assert "\n" not in catalogue.caption(name)


def test_a_run_without_results_says_so(tmp_path):
    path = copy(SWEEP, tmp_path)
    for file in path.glob("cells/*/result.json"):
        file.unlink()
    found = drawn(open_run(path))
    assert set(found) == {"network_map", "emulation"}  # the network was there and was measured
