"""The report of recorded runs in a real browser, wide and narrow, light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from report.browser import Browser, chromium
from testbed.report.write import write
from testbed.results.directory import RunDirectory

pytestmark = pytest.mark.slow
RECORDED = Path(__file__).parent.parent / "recorded"
PHONE, DESKTOP = 390, 1280
ROWS = "[...document.querySelectorAll('#comparison-table tbody tr')].filter(r => !r.hidden)"
METHOD = "r.querySelector('th').textContent.trim()"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By run; what could not be drawn fails."""
    found = {}
    for name in ("sweep", "faults"):
        run = RunDirectory.open(shutil.copytree(RECORDED / name, tmp_path_factory.mktemp("runs") / name))
        found[name] = write(run, lambda text: pytest.fail(text))
    return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.mark.parametrize("name", ["sweep", "faults"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("dark", [False, True])
def test_it_shows_without_complaint_and_asks_nobody(browser: Browser, reports: dict[str, Path], name, width, dark):
    browser.open(reports[name], width=width, dark=dark)
    assert browser.complaints == []
    assert browser.requests == [reports[name].as_uri()]
    page = "document.documentElement"
    assert browser.value(f"{page}.scrollWidth - {page}.clientWidth") == 0  # the page itself never scrolls sideways
    ground = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark


@pytest.mark.parametrize("name", ["sweep", "faults"])
def test_every_figure_is_there_and_has_a_size(browser: Browser, reports: dict[str, Path], name):
    browser.open(reports[name], width=DESKTOP)
    sizes = browser.value(
        "[...document.querySelectorAll('figure')].map(f => { const r = f.querySelector('svg').getBoundingClientRect();"
        " return [r.width, r.height, f.querySelectorAll('svg path').length]; })"
    )
    drawn = {file.stem for file in (reports[name].parent / "figures").iterdir()}
    assert len(sizes) > len(drawn) > 3  # and a timeline for each method
    assert all(width > 300 and height > 30 and paths > 2 for width, height, paths in sizes)
    ids = browser.value("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_figures_take_the_colours_of_the_page(browser: Browser, reports: dict[str, Path]):
    inks = set()
    for dark in (False, True):
        browser.open(reports["sweep"], dark=dark)
        inks.add(browser.value("getComputedStyle(document.querySelector('.figures svg text')).fill"))
        text = browser.value("getComputedStyle(document.body).color")
        assert text in inks
    assert len(inks) == 2


def test_a_click_on_a_heading_sorts_and_another_turns_it_round(browser: Browser, reports: dict[str, Path]):
    browser.open(reports["sweep"])
    heading = "#comparison-table th:nth-child(3) button"
    assert "s to " in browser.value(f"document.querySelector('{heading}').textContent")
    times = f"{ROWS}.map(r => r.cells[2].dataset.value)"
    before = browser.value(times)
    browser.click(heading)
    reached = [float(value) for value in before if value]
    assert len(reached) == 16  # powergossip never got there: last, whichever way round
    assert browser.value(times) == [str(value) for value in sorted(reached)] + [""] * 4
    assert browser.value(f"document.querySelector('{heading}').closest('th').ariaSort") == "ascending"
    browser.click(heading)
    assert browser.value(times) == [str(value) for value in sorted(reached, reverse=True)] + [""] * 4
    assert browser.value("document.querySelectorAll('[aria-sort]').length") == 1


def test_typing_filters_rows(browser: Browser, reports: dict[str, Path]):
    browser.open(reports["sweep"])
    browser.click("#filter")
    browser.type("choco 25 ms")
    assert browser.value(f"{ROWS}.map(r => {METHOD})") == ["choco sign", "choco sign"]
    assert browser.value("document.getElementById('count').textContent") == "2 of 20"
    browser.type(" nowhere")
    assert browser.value(f"{ROWS}.length") == 0
    assert browser.complaints == []


def test_wide_things_scroll_in_boxes_of_their_own_on_a_phone(browser: Browser, reports: dict[str, Path]):
    browser.open(reports["sweep"], width=PHONE)
    box = "document.querySelector('#comparison-table').closest('.scroll')"
    assert browser.value(f"{box}.scrollWidth > {box}.clientWidth")
    assert browser.value(f"{box}.getBoundingClientRect().right") <= PHONE
    assert browser.value("getComputedStyle(document.body).fontSize") == "16px"


def test_on_paper_nothing_is_cut_off(browser: Browser, reports: dict[str, Path]):
    browser.open(reports["sweep"], width=794, height=1123)  # A4
    browser.call("Emulation.setEmulatedMedia", media="print")
    cut = browser.value(
        "[...document.querySelectorAll('.scroll, pre')].filter(e => e.scrollWidth > innerWidth).map(e => e.outerHTML)"
    )
    assert cut == []
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    pages = browser.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]
    assert len(pages) > 10_000
