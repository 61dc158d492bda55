"""A run → one HTML page that needs nothing else: no server, no network, no other file. `report.write` calls it."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from testbed import __version__
from testbed.answer import sentence, words
from testbed.answer.inputs import setup
from testbed.report import tables
from testbed.report.figures import Drawn
from testbed.report.links import link_rows
from testbed.report.timeline import LEGEND, ROW, Timeline, timeline, window
from testbed.results.above_floor import above_floor
from testbed.results.cell import CellResult
from testbed.results.comparison import Line, compare
from testbed.results.listing import began
from testbed.results.logs import logs
from testbed.results.logs import read as read_log
from testbed.results.parquet import there
from testbed.results.run import Run
from testbed.results.status import outcome, status
from testbed.results.surroundings import MeasuredNetwork, newest
from testbed.verdict import ORDER

GRADES = {"faithful": "✓", "suspect": "!", "invalid": "✕", "failed": "✕", "diverged": "↗"}
MOST_LINKS, MOST_REASONS, MOST_EVENTS, MOST_FAILURES = 80, 30, 200, 20
MOST_TIMELINES = 10
OF_NETWORK = ("network_map", "emulation")  # figures of the section on the network
LOG_TAIL = 1500  # characters of each worker's log
HERE = Path(__file__).parent
_UNIT = re.compile(r"(\d) (?=(?:%|[mnµ]?s|min|h|[kMG]?bit/s|worker)\b|%)")  # a number and its unit stay on one line


def render(run: Run, figures: Sequence[Drawn]) -> str:
    """Return the whole page."""
    results = list(run.raw.values())
    lines = compare(results)
    about = setup(run.directory, done=len(results))
    found = sentence.answer(lines, about)
    shown_at = telling(lines, about)
    timelines = _timelines(run, lines, shown_at)
    events = _events(run, results)
    others = sorted(
        (figure for figure in figures if figure.name not in OF_NETWORK), key=lambda figure: figure.name != "winner_map"
    )
    script = (HERE / "report.js").read_text()
    table = tables.comparison(lines, sentence.leaders(lines, about))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    swept = len({line.setting for line in lines}) > 1
    template = _environment().get_template("report.html.j2")
    return template.render(
        name=run.data.get("name") or run.name,
        when=_when(run),
        css=Markup((HERE / "report.css").read_text()),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        sections=_sections(others, timelines, events),
        answer=found,
        table=table,
        table_means=_table_means(lines, about),
        above_floor=above_floor(lines),
        caption=f"{words.count(len(lines), 'result')}: one row for each method{' and setting' if swept else ''}"
        + (f"; {slowly}" if (slowly := words.slow_motion(results)) else ""),
        swept=swept,
        starts={number for number in range(1, len(lines)) if lines[number].setting != lines[number - 1].setting},
        grades=GRADES,
        figures=others,
        timelines=timelines,
        timeline_at=words.setting(shown_at) if swept else "",
        timeline_legend=LEGEND,
        row_height=ROW,
        window=words.seconds(timelines[0].seconds) if timelines else "",
        network_figures=[figure for figure in figures if figure.name in OF_NETWORK],
        points=_points(newest(run.directory.networks())),
        **_verdicts(results),
        warnings=tables.warnings(results),
        **events,
        seeds=sorted({str(cell) for cell in run.cells["seed"].dropna().astype(int)}) if len(run.cells) else [],
        timed=run.data.get("on_failure") == "continue",
        scenario=run.directory.scenario_text(),
        **_repeat(run),
        version=__version__,
        done=about.done,
        planned=about.planned,
    )


def telling(lines: Sequence[Line], about: sentence.Setup) -> str:
    """Return the setting to look at closely: where the fastest gains most over all-reduce, else the first."""
    best, where = 0.0, lines[0].setting if lines else ""
    for setting in dict.fromkeys(line.setting for line in lines):
        race = sentence.race([line for line in lines if line.setting == setting], about)
        if race.baseline and race.baseline.time / race.entries[0].time > best:
            best, where = race.baseline.time / race.entries[0].time, setting
    return where


def telling_point(run: Run) -> int:
    """Return the network of that setting, by its number."""
    results = list(run.raw.values())
    setting = telling(compare(results), setup(run.directory, done=len(results)))
    return next((result.cell.point for result in results if result.setting == setting), 0)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("testbed.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["kept"] = lambda text: _UNIT.sub("\\1\u00a0", text)
    return made


def _when(run: Run) -> str:
    when = began(run.directory)
    return f"{when:%Y-%m-%d %H:%M}" if when else ""


def _sections(
    figures: Sequence[Drawn], timelines: Sequence[Timeline], events: Mapping[str, Any]
) -> list[tuple[str, str]]:
    found = [("comparison", "Comparison")]
    found += [("figures", "Figures")] if figures else []
    found += [("timeline", "What each worker did")] if timelines else []
    found += [("network", "Network"), ("verdicts", "Can it be believed?")]
    found += [("events", "Failures and events")] if events["failures"] or events["happenings"] else []
    return [*found, ("repeat", "Repeat it")]


def _table_means(lines: Sequence[Line], about: sentence.Setup) -> str:
    target = None if about.emulated else next((line.target for line in lines if line.target), None)
    if target:
        return (
            f"Compared by the time until the workers' models reached {words.target(target)} on held-out data, "
            f"looked at every {about.eval_every} steps; time spent on looking does not count."
        )
    return "Compared by the time of a step: no target was set, so nothing is said about the steps a method needs."


def _timelines(run: Run, lines: Sequence[Line], setting: str) -> list[Timeline]:
    """Return timelines of every method at one setting, its first repeat that counts."""
    steps = {line.method: line.step_s for line in lines if line.setting == setting and line.step_s}
    if not steps:
        return []
    seconds = window(list(steps.values()))
    found: dict[str, Timeline] = {}
    for result in run.raw.values():
        method = result.method
        counts = result.error is None and result.verdict.grade != "invalid"
        file = run.directory.cell(result.id) / "trace.parquet"
        if result.setting != setting or method in found or not counts or not there(file):
            continue
        with run.directory.skipping():
            if one := timeline(file, words.method(method), seconds, steps[method]):
                found[method] = one
        if len(found) == MOST_TIMELINES:
            break
    return list(found.values())


def _points(networks: Sequence[MeasuredNetwork]) -> list[dict[str, Any]]:
    """Return the table of every network."""
    points = []
    for found in networks:
        headings, rows = link_rows(found.probes[:MOST_LINKS], found.mtu)
        points.append(
            {
                "label": words.setting(found.label) if found.label else "",
                "grade": found.verdict.grade,
                "reasons": found.verdict.reasons[:8],
                "headings": headings,
                "rows": rows,
                "more": max(0, len(found.probes) - MOST_LINKS),
                "unmeasured": found.unmeasured,
            }
        )
    return points


def _verdicts(results: Sequence[CellResult]) -> dict[str, Any]:
    counts = Counter(outcome(result) for result in results)
    found = tables.verdicts(results)
    return {
        "tally": {grade: counts[grade] for grade in (*ORDER, "diverged", "failed") if counts[grade]},
        "verdicts": found[:MOST_REASONS],
        "more_verdicts": max(0, len(found) - MOST_REASONS),
    }


def _events(run: Run, results: Sequence[CellResult]) -> dict[str, Any]:
    failed = sorted((result for result in results if result.error), key=status, reverse=True)  # diverged last
    happened = tables.happenings(results)
    return {
        "failures": [
            {
                "cell": tables.cell_label(result),
                "status": status(result),
                "error": result.error,
                "hint": result.hint,
                "reached": result.reached,
                "log": _log(run, result.id),
            }
            for result in failed[:MOST_FAILURES]
        ],
        "happenings": happened[:MOST_EVENTS],
        "more_happenings": max(0, len(happened) - MOST_EVENTS),
    }


def _log(run: Run, cell: str) -> str:
    """Return the ends of its workers' logs."""
    found = []
    for file in logs(run.directory, None, cell):
        text = ""
        with run.directory.skipping():
            text = read_log(file, 4 * LOG_TAIL).strip()
        if text:
            found.append(f"{file.stem}: {'…' if len(text) > LOG_TAIL else ''}{text[-LOG_TAIL:]}")
    return "\n\n".join(found[:8])


def _repeat(run: Run) -> dict[str, Any]:
    """Return what a reader needs to repeat the run."""
    found = run.directory.environment()
    if not found:
        return {"environment": [], "settings": []}
    packages = ", ".join(f"{name} {version}" for name, version in found.packages.items() if version)
    rows = [
        ("command", shlex.join(found.command)),
        ("when", f"{found.when:%Y-%m-%d %H:%M:%S %z}".strip()),
        ("testbed", found.git or f"{found.packages.get('testbed')}, not from a checkout"),
        ("box", f"{found.box} ({found.box_reason}), kernel {found.box_kernel}"),
        ("runtime", found.runtime),
        ("machine", f"{found.cpu}, {words.count(found.cores, 'core')}, {found.memory_bytes / 1e9:.0f} GB"),
        ("kernel", f"{found.kernel} {found.machine}"),
        ("python", f"{found.python}, {packages}"),
    ]
    known = {**found.sysctls, **found.network_settings}
    return {"environment": rows, "settings": list(known.items())}
