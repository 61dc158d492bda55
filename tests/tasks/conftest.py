"""Small data sets in the shape of the large ones, stored the way `testbed data fetch` stores them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from testbed.tasks import convert, datasets
from testbed.tasks.convert import Converted
from testbed.tasks.datasets import Dataset
from testbed.tasks.fetch import fetch
from testbed.tasks.sources import Source


@dataclass(frozen=True)
class Made(Source):
    """A source that makes its data, and counts how often."""

    make: Callable[[], Converted]
    kind: ClassVar[str] = "made"
    calls: list[Path] = field(default_factory=list)

    def describe(self) -> str:
        return "made by a test"

    def obtain(self, folder: Path) -> None:
        self.calls.append(folder)

    def read(self, folder: Path) -> Converted:
        return self.make()


def pictures(height: int, width: int, channels: int, train: int = 400, test: int = 100) -> Converted:
    """Noise with a bright band whose height tells the label, so that there is something to learn."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", train), ("test", test)):
        labels = rng.permutation(np.arange(count) % 10).astype(np.uint8)
        images = rng.integers(0, 120, (count, height, width, channels))
        band = np.arange(height)[None, :] * 10 // height == labels[:, None]
        arrays[f"{part}_images"] = (images + 120 * band[:, :, None, None]).astype(np.uint8)
        arrays[f"{part}_labels"] = labels
    return Converted(arrays)


def speeches() -> Converted:
    """64 documents by 8 authors, each author with favourite words."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(40)]
    documents = []
    for i in range(64):
        author = i // 8
        favourites = rng.permutation(np.array(words))[:10]
        documents.append((f"author {author}", " ".join(rng.choice(favourites, 150)) + "."))
    return convert.texts(documents)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # as in a worker: sums over threads are not bit-identical


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-ins for every data set that must be fetched, under their real names."""
    root = tmp_path_factory.mktemp("data")
    for dataset, make in (
        (datasets.CIFAR10, lambda: pictures(32, 32, 3)),
        (datasets.FASHION, lambda: pictures(28, 28, 1)),
        (datasets.TEXT, speeches),
    ):
        fetch(Dataset(dataset.name, dataset.about, dataset.licence, (Made(make),)), root, say=lambda _: None)
    return root
