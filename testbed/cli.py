"""The command line: one file per command in `testbed/commands`, imported only when it is called."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from testbed import __version__
from testbed.errors import TestbedError
from testbed.interrupts import Interrupted, ignore, patient
from testbed.output import OutputError, guard_output, output_lost, say

# The modules of testbed.commands, with what `testbed --help` says of each: listing them must not import them all.
COMMANDS = {
    "up": "Run a scenario and say which method wins.",
    "scenarios": "List the scenarios that come with testbed.",
    "plan": "Show what a scenario would build and run.",
    "runs": "List runs: when, how far, how faithful.",
    "show": "Show the results of a run.",
    "report": "Write a run's report as one HTML file.",
    "compare": "Compare several runs.",
    "trace": "Show what every worker did when, in Perfetto.",
    "export": "Write a run's results as CSV.",
    "logs": "Print what the workers of a run wrote.",
    "net": "Build and change a network without training.",
    "exec": "Run a command inside a worker's network.",
    "shell": "Open Mininet's command line on a running network.",
    "status": "Show which networks are up.",
    "down": "Take a network down.",
    "train": "Train over loopback, without an emulated network.",
    "methods": "List the training methods.",
    "compressors": "List the compressors, or check one of your own.",
    "data": "List and fetch data sets.",
    "schema": "Print the JSON schema of scenario files.",
    "doctor": "Check what this machine has and what it lacks.",
    "image": "Build the image of the docker runtime.",
    "bench": "Measure this machine.",
}


class Commands(click.Group):
    """Commands by name, each in the module of that name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(f"testbed.commands.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__)
def cli() -> None:
    """Which training method is fastest on this network, and why?"""


def main() -> None:
    """Run a command; our own errors become one clear message and an exit code that scripts can use."""
    # The spectrum of a thousand workers' mixing weights: OpenBLAS with threads takes ten times the processor time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    patient()
    code = _run()
    if (lost := output_lost()) and code == 0:  # at the very end, or somebody took it for another failure
        code = _tell(OutputError(lost))
    sys.exit(code)


def _run() -> int:
    """The exit code."""
    try:
        guard_output()
        cli(standalone_mode=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except TestbedError as error:
        return _tell(error)
    except Interrupted as stop:
        ignore()
        say(f"{stop}" + (f": {stop.hint}" if stop.hint else ""), err=True)
        return stop.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        ignore()
        say("interrupted", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


def _tell(error: TestbedError) -> int:
    """Who has seen enough of the output (`| head`) need not be told that nobody reads it."""
    if not (isinstance(error, OutputError) and error.unread):
        say(f"error: {error}", err=True, fg="red")
        if error.hint:
            say(f"  → {error.hint}", err=True)
    return error.exit_code


if __name__ == "__main__":
    main()
