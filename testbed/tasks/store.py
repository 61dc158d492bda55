"""Data sets on this machine: one folder each, with arrays to map and a manifest. Tasks load them, `fetch` stores them.

All workers of a machine map the same files, so a data set is in memory once however many workers there are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import MissingError
from testbed.tasks.convert import Arrays
from testbed.tasks.datasets import Dataset

MANIFEST = "manifest.json"
SHIPPED = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Stored:
    """A data set's arrays, its lists of names, and what the manifest says of it."""

    dataset: Dataset
    arrays: Mapping[str, NDArray[Any]]
    manifest: Mapping[str, Any]
    folder: Path

    @cached_property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(array.shape) for name, array in self.arrays.items()}

    def names(self, kind: str) -> list[str]:
        """A list of names: the vocabulary or the authors of a text."""
        return (self.folder / f"{kind}.txt").read_text(encoding="utf-8").splitlines()


def directory(data_dir: Path | None = None) -> Path:
    """Where data sets are kept: as told, else $TESTBED_DATA, else the user's cache."""
    if data_dir is not None:
        return data_dir
    if told := os.environ.get("TESTBED_DATA"):
        return Path(told).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "testbed" / "data"


def present(dataset: Dataset, data_dir: Path | None = None) -> bool:
    return not dataset.sources or (directory(data_dir) / dataset.name / MANIFEST).is_file()


def load(dataset: Dataset, data_dir: Path | None = None) -> Stored:
    """Map the data set; MissingError says how to get it where it is missing or damaged."""
    if not dataset.sources:
        with np.load(SHIPPED / f"{dataset.name}.npz") as shipped:
            arrays = dict(shipped)
        return Stored(dataset, arrays, json.loads((SHIPPED / f"{dataset.name}.json").read_text("utf-8")), SHIPPED)
    folder = directory(data_dir) / dataset.name
    if not present(dataset, data_dir):
        raise MissingError(
            f"the data set {dataset.name} is not on this machine (looked in {folder})",
            hint=f"testbed data fetch {dataset.name}",
        )
    try:
        return open_folder(dataset, folder)
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise MissingError(
            f"the data set {dataset.name} in {folder} is damaged: {error}",
            hint=f"testbed data fetch --force {dataset.name}",
        ) from error


def open_folder(dataset: Dataset, folder: Path) -> Stored:
    """Map the arrays that a folder's manifest lists; ValueError where a file is not as listed."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    arrays: Arrays = {}
    for name, listed in manifest["arrays"].items():
        # np.asarray: indexing a plain view of the map is cheaper than indexing the memmap class
        arrays[name] = np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))
        if list(arrays[name].shape) != listed["shape"] or str(arrays[name].dtype) != listed["type"]:
            raise ValueError(f"{name}.npy is {arrays[name].dtype} {arrays[name].shape}, the manifest says otherwise")
    return Stored(dataset, arrays, manifest, folder)


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """sha256 over names, types, shapes and contents: equal data, equal digest, wherever it came from."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(array.data)
    return total.hexdigest()
