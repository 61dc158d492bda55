"""What every script here shares: its command line, the cells that count, what to say where a run lacks something."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import click
import pandas as pd
from matplotlib.figure import Figure

from testbed.errors import ScenarioError, StorageError, TestbedError
from testbed.output import say
from testbed.results.run import Run, open_run

from . import style

TABLES = (".csv", ".md", ".tex", ".html", ".json")
UNITS = {"us": "µs", "kb": "kB", "mb": "MB", "gb": "GB", "kbit": "kbit/s", "mbit": "Mbit/s", "gbit": "Gbit/s"}
USUAL_BATCH = 32  # as testbed.tasks has it, which takes long to import
TRAINING_SAMPLES = {"digits": 1_437, "fashion-mnist": 60_000, "cifar10": 50_000}


class LackingError(ScenarioError):
    """The run does not hold what a figure or table shows."""


def trained(run: Run) -> pd.DataFrame:
    """Results of cells that did not fail; the network does not touch what they learned. Those that diverged are among
    them: they have no numbers, but that they did is a result. LackingError where there is none."""
    found = run.results[run.results["verdict"] != "failed"] if len(run.results) else run.results
    if found.empty and len(run.results):
        many = "the only cell that was run" if len(run.results) == 1 else f"each of the {len(run.results)} cells run"
        why = run.results["error"].iloc[0]
        raise LackingError(f"{run.name}: {many} failed: {why}", hint=f"testbed logs {run.path} shows what workers said")
    if found.empty:
        raise LackingError(f"{run.name}: no cell is done yet", hint=f"testbed up --resume {run.path} runs them")
    return found


def worked(run: Run) -> pd.DataFrame:
    """Of these, those that trained to the end. LackingError where there is none."""
    found = trained(run)
    found = found[found["verdict"] != "diverged"]
    if found.empty:
        raise LackingError(f"{run.name}: every training diverged", hint="testbed show says at which step")
    return found


def good(run: Run) -> pd.DataFrame:
    """Of these, those on a network that was not invalid. LackingError where there is none."""
    found = worked(run)
    found = found[found["verdict"] != "invalid"]
    if found.empty:
        raise LackingError(f"{run.name}: no cell is valid", hint="testbed show says why")
    return found


def left_out(run: Run) -> str:
    """How many cells a figure does not show, in words."""
    counts = {grade: int((run.results["verdict"] == grade).sum()) for grade in ("invalid", "failed", "diverged")}
    words = " and ".join(f"{count} {grade}" for grade, count in counts.items() if count)
    return f"left out: {words} {'cell' if sum(counts.values()) == 1 else 'cells'}" if words else ""


def learned(run: Run) -> None:
    """LackingError where losses mean nothing."""
    if not run.learns:
        words = f"{run.name}: gradients were emulated, so losses mean nothing"
        raise LackingError(words, hint="compute: real, or {step_time: …}")


def only_gossips(run: Run) -> bool:
    """Whether nothing was learned but the workers' mean: its loss is the error of gossip itself."""
    model = run.data.get("task", {}).get("model")
    return model == "consensus" or (isinstance(model, Mapping) and "consensus" in model)


def steps_per_epoch(run: Run) -> int | None:
    """How many steps see every sample once; None where the number of samples or of workers is not fixed."""
    task, workers = run.data.get("task", {}), {int(count) for count in run.cells["workers"]}
    samples = TRAINING_SAMPLES.get(task.get("data", ""))
    if samples is None or len(workers) != 1 or any(key.startswith("task.") for key in run.sweep):
        return None
    return ceil(samples / (workers.pop() * int(task.get("batch", USUAL_BATCH))))


def looks(run: Run) -> dict[str, style.Look]:
    return style.looks(list(zip(run.cells["method"], run.cells["family"], strict=True)))


def pretty(setting: str) -> str:
    """A setting as people write it: "latency 5 ms · rate 100 Mbit/s"."""
    return " · ".join(
        f"{name} {quantity(value)}".strip() for name, _, value in (w.partition("=") for w in setting.split())
    )


def quantity(text: str) -> str:
    """ "5ms" → "5 ms", "100mbit" → "100 Mbit/s"; other words as they are."""
    match = re.fullmatch(r"([\d.]+)(ns|us|ms|s|min|h|kb|mb|gb|kbit|mbit|gbit)", text)
    return f"{match[1]} {UNITS.get(match[2], match[2])}" if match else text


def short(value: float) -> str:
    """Three digits, without exponent."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def command(make: Callable[..., Any], argv: Sequence[str] | None = None) -> None:
    """`python -m testbed.analysis.NAME RUN [-o FILE]`; keyword-only arguments of `make` are options. Exit code 2 and
    one sentence where the run lacks what is needed."""
    module = sys.modules[make.__module__]
    options = [
        parameter
        for parameter in inspect.signature(make).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    is_table = make.__name__ == "table"

    @click.command(help=module.__doc__, context_settings={"help_option_names": ["-h", "--help"]})
    @click.argument("run", type=click.Path(path_type=Path))
    @click.option("-o", "--out", type=click.Path(path_type=Path), help=f"File: {', '.join(_suffixes(is_table))}.")
    def run_it(run: Path, out: Path | None, **given: Any) -> None:
        name = module.__spec__.name.rpartition(".")[2] if module.__spec__ else Path(str(module.__file__)).stem
        try:
            target = _checked(out, name, is_table)
            opened = open_run(run)
            made = make(opened, **given)
            for complaint in opened.damaged:
                say(f"warning: {complaint}", err=True)
            _write(made, target)
        except TestbedError as error:
            say(f"error: {error}" + (f"\n  → {error.hint}" if error.hint else ""), err=True)
            sys.exit(error.exit_code)

    for option in options:
        usual = option.default
        run_it.params.append(
            click.Option([f"--{option.name.replace('_', '-')}"], default=usual, show_default=usual is not None)
        )
    run_it(args=None if argv is None else list(argv))


def _suffixes(is_table: bool) -> tuple[str, ...]:
    return TABLES if is_table else style.SUFFIXES


def _checked(out: Path | None, name: str, is_table: bool) -> Path | None:
    if out is None:
        return None if is_table else Path(f"{name}.pdf")
    if out.suffix not in _suffixes(is_table):
        raise ScenarioError(
            f"{out}: write {', '.join(_suffixes(is_table))}", hint=f"-o {out.stem}{_suffixes(is_table)[0]}"
        )
    return out


def _write(made: Figure | pd.DataFrame, target: Path | None) -> None:
    if target is None:
        assert isinstance(made, pd.DataFrame)
        say(made.to_string(index=False, na_rep="–"))
        return
    try:
        if isinstance(made, Figure):
            style.save(made, target)
        else:
            target.write_text(as_text(made, target.suffix))
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}", hint="name another place with -o") from error
    click.echo(f"wrote {target}")


def as_text(frame: pd.DataFrame, suffix: str) -> str:
    """A table in one of the formats TABLES."""
    if suffix == ".csv":
        return str(frame.to_csv(index=False))
    if suffix == ".json":
        return str(frame.to_json(orient="records", indent=1)) + "\n"
    if suffix == ".html":
        return str(frame.to_html(index=False, border=0)) + "\n"
    rows = [[str(name) for name in frame], *([_cell(value) for value in row] for row in frame.itertuples(index=False))]
    if suffix == ".md":
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"
    escaped = [[_latex(value) for value in row] for row in rows]
    lines = [" & ".join(row) + r" \\" for row in escaped]
    head = [r"\begin{tabular}{" + "l" * len(rows[0]) + "}", r"\hline", lines[0], r"\hline"]
    return "\n".join([*head, *lines[1:], r"\hline", r"\end{tabular}"]) + "\n"


def _cell(value: Any) -> str:
    return "" if value is None or value != value else str(value)


def _latex(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, "\\" + character)
    return text.replace("~", r"\textasciitilde{}")
