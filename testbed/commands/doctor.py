"""`testbed doctor`: everything a run needs, found or not, and what to do about it. The command line calls `run`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from testbed.commands.options import JSON
from testbed.errors import MissingError
from testbed.runtime import checks, engine, promises
from testbed.runtime.checks import Finding

PIPED_WIDTH = 120


def run(*, as_json: bool) -> int:
    """Run the checks, print them, and return an exit code that says whether a default `up` would work."""
    findings = examine()
    ready = is_ready(findings)
    if as_json:
        print(json.dumps({"ready": ready, "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        show(findings)
    return 0 if ready else MissingError.exit_code


def is_ready(findings: Sequence[Finding]) -> bool:
    return all(finding.ok for finding in findings if finding.required)


def examine() -> list[Finding]:
    """Return every check, required ones first."""
    if not sys.platform.startswith("linux"):
        return [checks.python(), checks.operating_system(sys.platform)]
    load = checks.processors()  # before the others make some
    box, kind = checks.default_box()
    delay_box = kind == "uml"
    findings = [
        checks.python(),
        checks.network_namespaces(),
        checks.veth(),
        box,
        checks.guest(needed=delay_box),
        checks.guest_memory(needed=delay_box),
        checks.state_directory(),
        checks.run_directory(),
        checks.open_files(),
        checks.torch(),
        checks.netem(),
        load,
        checks.memory(),
        checks.congestion_control(),
        checks.data_sets(),
        checks.gpus(),
        promises.finding(),
        engine.finding(),
        checks.bash(),
    ]
    return sorted(findings, key=lambda finding: not finding.required)


def show(findings: Sequence[Finding]) -> None:
    """Print a table for people."""
    from rich.table import Table
    from rich.text import Text

    from testbed.console import SafeConsole

    console = SafeConsole(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, style = _mark(finding)
        words = Text(finding.found)
        if finding.remedy and not finding.ok:
            words.append(f"\n→ {finding.remedy} (for {finding.needed_for})", style="dim" if finding.ok is None else "")
        table.add_row(Text(mark, style=style), finding.name, words)
    console.print(table)
    if is_ready(findings):
        console.print(Text("ready: testbed up would work here", style="bold green"))
    else:
        console.print(Text("not ready: what is marked ✗ is needed first", style="bold red"))


def _mark(finding: Finding) -> tuple[str, str]:
    if finding.ok:
        return "✓", "green"
    if finding.required:
        return "✗", "bold red"
    return ("·", "dim") if finding.ok is None else ("!", "yellow")


@click.command("doctor")
@JSON
def command(as_json: bool) -> None:
    """Look at this machine: what is needed, what was found, and how to get what is missing."""
    sys.exit(run(as_json=as_json))
