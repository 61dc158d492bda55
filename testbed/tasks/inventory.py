"""What data sets there are and which are on this machine, as a table for people; `testbed data list` prints it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

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
    Console().print(table)


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
