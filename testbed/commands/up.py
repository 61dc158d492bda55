"""`testbed up`: from a scenario file to a run directory and the comparison table."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.commands.options import BOX, PROFILE, SETS, SLOW_MOTION, with_slow_motion
from testbed.errors import MissingError, ScenarioError, StorageError, TestbedError
from testbed.interrupts import Interrupted, interruptible, put_off
from testbed.output import OutputError, say
from testbed.runtime.registry import NAMES

if TYPE_CHECKING:
    from testbed.plan.model import Cell, Plan
    from testbed.results.directory import RunDirectory
    from testbed.scenario.model import Scenario

FAILED, INVALID = 5, 6  # exit codes: a cell failed; no cell failed but some emulation was not faithful at all


@dataclass(frozen=True)
class Request:
    """The command's arguments."""

    file: Path | None
    sets: Sequence[str] = ()
    out: Path | None = None
    resume: Path | None = None
    box: str | None = None
    runtime: str | None = None
    only: Sequence[str] = ()
    dry_run: bool = False
    calibrating: bool = True
    keep: bool = False
    scenario: Scenario | None = None  # instead of a file: callers from Python have it at hand
    profile: str | None = None
    reporting: bool = True


def run(request: Request) -> int:
    """Run it; return the exit code. Ctrl-C and its kin raise Interrupted, with everything taken down."""
    with interruptible(), ExitStack() as held:
        return _up(request, held)


def _up(request: Request, held: ExitStack) -> int:
    from testbed.commands import plan as planview
    from testbed.plan.make import plan, with_methods_checked
    from testbed.plan.slow_motion import room
    from testbed.results.directory import RunDirectory
    from testbed.run.resume import chosen_before, remember
    from testbed.run.trial import paced
    from testbed.runtime.gpus import offered

    resumed = _resumed(request)
    if resumed:
        held.enter_context(resumed.locked())
    scenario = _scenario(request, resumed)
    made = plan(scenario, gpus=offered(scenario, request.runtime))
    chosen = _chosen(made, request.only)
    made = with_methods_checked(made)
    for warning in made.warnings:
        say(f"note: {warning}", err=True)
    if not request.dry_run:
        _check_machine(made, request)
    made, notes = paced(made, room(request.box or scenario.box), chosen_before(resumed) if resumed else None)
    for note in notes:
        say(f"note: {note}", err=True)
    if request.dry_run:
        planview.show(made)
        return 0
    beginning = held.enter_context(ExitStack())  # a directory that does not say what it is cannot be resumed
    if resumed:
        run, chosen = resumed, _missing(made, resumed, chosen)
    else:
        beginning.enter_context(put_off())
        run = RunDirectory.create(scenario.name, request.out)
        held.enter_context(run.locked())
        remember(run, scenario, made)
    try:
        beginning.close()
        reported = _run(made, run, chosen, request)
    except OutputError as error:
        raise StorageError(f"{error}, so the run was ended", hint=_how_to_go_on(made, run) or None) from error
    except Interrupted as stop:
        stop.hint = _how_to_go_on(made, run) or f"all cells are done; testbed report {run.path} writes the report"
        raise
    except TestbedError as error:
        error.hint = "; ".join(filter(None, [error.hint, _how_to_go_on(made, run)])) or None
        raise
    return _exit_code(run) or (0 if reported else StorageError.exit_code)


def _resumed(request: Request) -> RunDirectory | None:
    """Return the run to resume."""
    from testbed.results.directory import RunDirectory

    if request.resume is None:
        return None
    if request.out:
        raise ScenarioError("--resume and --out exclude each other", hint="a run goes on where it began")
    return RunDirectory.open(request.resume)


def _scenario(request: Request, resumed: RunDirectory | None) -> Scenario:
    """Return the file's scenario, or with --resume the run's own; both must agree where both are given."""
    from testbed.results.own_scenario import own_scenario
    from testbed.run.resume import check_same
    from testbed.scenario.load import load

    if request.scenario is not None:
        return request.scenario
    if request.file is None:
        if resumed is None:
            raise ScenarioError("which scenario?", hint="testbed up FILE.yaml, or testbed up --resume DIR")
        if request.sets or request.profile:
            slower = [text for text in request.sets if text.startswith("slow_motion=")]
            given = "--profile" if not request.sets else "--slow-motion" if slower == list(request.sets) else "--set"
            raise ScenarioError(f"{given} would change the run's scenario", hint="leave it out, or begin a new run")
        return own_scenario(resumed)
    scenario = load(request.file, request.sets, request.profile)
    if resumed:
        check_same(resumed, scenario)
    return scenario


def _chosen(made: Plan, only: Sequence[str]) -> list[Cell]:
    """Return the cells of these methods; all where none is named."""
    known = list(dict.fromkeys(cell.method for cell in made.cells))
    for name in only:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            raise ScenarioError(
                f"--only {name}: this scenario has no such method" + (f"; did you mean {close[0]}?" if close else ""),
                hint=f"it has {', '.join(known)}",
            )
    return [cell for cell in made.cells if not only or cell.method in only]


def _check_machine(made: Plan, request: Request) -> None:
    """Fail now on whatever is certain to fail, before anything is started or written."""
    from testbed.network import probe, state
    from testbed.runtime import registry
    from testbed.tasks import datasets, spec, store

    for scenario in made.variants:
        registry.check(request.runtime or scenario.runtime.kind)
        try:
            task = spec.resolve(scenario.task.spec)
            if task.data is not None and scenario.compute.emulated is None:
                store.load(datasets.find(task.data))
            _check_memory(scenario, made)
        except (ScenarioError, MissingError) as error:
            raise type(error)(f"{scenario.where('task')}: {error}", hint=error.hint) from error
    probe.choose(request.box or made.variants[0].box or "auto")
    if others := [one.name for one in state.running()]:
        click.echo(f"note: {', '.join(others)} is up, too: what both do at once disturbs the measurements", err=True)


def _check_memory(scenario: Scenario, made: Plan) -> None:
    """Check that the models alone, with a gradient each, fit into this machine."""
    from testbed.plan.timeouts import model_bytes

    each, workers = model_bytes(scenario.task.spec), max(len(point.network.workers) for point in made.points)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 2 * each * workers > there:
        words = f"{workers} workers with a model of {each / 1e9:.1f} GB and its gradient do not fit into this machine"
        raise MissingError(words, hint=f"it has {there / 1e9:.0f} GB: train a smaller model, or fewer workers")


def _missing(made: Plan, run: RunDirectory, chosen: Sequence[Cell]) -> list[Cell]:
    from testbed.run.resume import incomplete

    missing = {cell.id for cell in incomplete(made, run)}
    for complaint in run.complaints():
        say(f"note: {complaint}", err=True)
    click.echo(f"{len(missing)} of {len(made.cells)} cells are missing")
    return [cell for cell in chosen if cell.id in missing]


def _run(made: Plan, run: RunDirectory, cells: Sequence[Cell], request: Request) -> bool:
    """Run the cells; return whether the report was written, if it was asked for."""
    from testbed.answer.inputs import show_answer
    from testbed.results.comparison import compare
    from testbed.results.table import show_comparison
    from testbed.run.controller import Controller, Options
    from testbed.run.live import LiveView, PlainView

    first = made.variants[0]
    options = Options(
        box=request.box or first.box,
        calibrating=request.calibrating,
        runtime=request.runtime or first.runtime.kind,
        image=first.runtime.docker.image if first.runtime.docker else "host",
        keep=request.keep,
    )
    view = LiveView() if LiveView.possible(sys.stdout) else PlainView()
    controller = Controller(made, run, options, view)
    try:
        controller.run(cells)
    finally:
        view.close()
    show_comparison(compare(list(run.results())))
    show_answer(run)
    reported = _report(run) if request.reporting else True
    say(f"everything is in {run.path}")
    if controller.kept:
        click.echo(
            f"the network {controller.kept} is still up: testbed shell --name {controller.kept}; "
            f"testbed down {controller.kept} ends it"
        )
    return reported


def _report(run: RunDirectory) -> bool:
    """Write the report. The run is complete without it: errors here are reported, and seen in the exit code."""
    try:
        from testbed.report.write import write

        file = write(run, lambda text: say(f"note: {text}", err=True))
        say(f"report: {file}")
        return True
    except Exception as error:  # noqa: BLE001  # drawing must never cost a run that has been computed
        say(f"warning: no report was written: {type(error).__name__}: {error}", fg="yellow", err=True)
        click.echo(f"  → testbed report {run.path} tries again", err=True)
        return False


def _how_to_go_on(made: Plan, run: RunDirectory) -> str:
    """Return how to resume; "" where all cells are done."""
    from testbed.run.resume import incomplete

    done = len(made.cells) - len(incomplete(made, run))
    if not (run.path / "scenario.yaml").exists():
        return "its directory is gone: begin a new run"
    if done == len(made.cells):
        return ""
    return f"{done} of {len(made.cells)} cells are done; testbed up --resume {run.path} runs the rest"


def _exit_code(run: RunDirectory) -> int:
    """Return the exit code; a training that diverged is a finding like any other."""
    from testbed.results.status import status

    results = [result for result in run.results() if status(result) != "diverged"]
    if any(result.error for result in results):
        return FAILED
    return INVALID if any(result.verdict.grade == "invalid" for result in results) else 0


@click.command("up")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@PROFILE
@SETS
@SLOW_MOTION
@BOX
@click.option("--runtime", type=click.Choice(NAMES), help="What isolates workers. Default: process.")
@click.option("--out", type=click.Path(path_type=Path), help="Where results go. Default: runs/NAME-TIME.")
@click.option(
    "--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with a run: only what is missing."
)
@click.option("--only", multiple=True, metavar="METHOD", help="Only this method; may be given again.")
@click.option("--dry-run", is_flag=True, help="Show the plan, start nothing.")
@click.option("--no-calibrate", is_flag=True, help="Do not measure the links; every result is suspect then.")
@click.option("--no-report", is_flag=True, help="Write no report; testbed report RUN does later.")
@click.option("--keep", is_flag=True, help="Leave the network up at the end, to look around in it.")
def command(
    file: Path | None,
    profile: str | None,
    sets: tuple[str, ...],
    slow_motion: str | None,
    box: str | None,
    runtime: str | None,
    out: Path | None,
    resume: Path | None,
    only: tuple[str, ...],
    dry_run: bool,
    no_calibrate: bool,
    no_report: bool,
    keep: bool,
) -> None:
    """Run a scenario: its network, every method on it, and the table that says which wins.

    With --resume DIR no FILE is needed: a run knows its scenario.
    """
    changes = with_slow_motion(sets, slow_motion)
    given = Request(file, changes, out, resume, box, runtime, only, dry_run, not no_calibrate, keep)
    sys.exit(run(replace(given, profile=profile, reporting=not no_report)))
