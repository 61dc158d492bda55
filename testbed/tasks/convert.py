"""The formats data sets come in → the arrays that tasks map into memory. Each reader takes a folder of files.

Images become bytes (samples, height, width, channels) with one label each. A text becomes two token streams, words and
bytes, in the order of its documents.
"""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

HOLD_OUT = 16  # of the addresses, one in so many is held out
RARE = 3  # words seen less often in the training text become UNKNOWN, as in WikiText-2
UNKNOWN, END = "<unk>", "<end>"  # END closes each document
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


class MalformedError(Exception):
    """The files are not what they should be."""


@dataclass(frozen=True)
class Converted:
    """What is stored of a data set: arrays, and lists of names for people."""

    arrays: Arrays
    lists: dict[str, list[str]] = field(default_factory=dict)


def _images(train: tuple[NDArray[Any], NDArray[Any]], test: tuple[NDArray[Any], NDArray[Any]]) -> Converted:
    for images, labels in (train, test):
        if len(images) != len(labels):
            raise MalformedError(f"{len(images)} images but {len(labels)} labels")
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return Converted({name: np.ascontiguousarray(a) for name, a in zip(names, (*train, *test), strict=True)})


def idx_files(folder: Path) -> Converted:
    """MNIST's own format: a big-endian header and bytes, gzipped, in four files anywhere in the folder."""

    def read(name: str, axes: int) -> NDArray[np.uint8]:
        content = gzip.decompress(_only(folder, name).read_bytes())
        header = np.frombuffer(content, ">i4", count=1 + axes)
        if header[0] != 0x0800 + axes:
            raise MalformedError(f"{name} is not an idx file of bytes with {axes} axes")
        return np.frombuffer(content, np.uint8, offset=4 * len(header)).reshape(header[1:])

    return _images(
        (read("train-images-idx3-ubyte.gz", 3)[..., None], read("train-labels-idx1-ubyte.gz", 1)),
        (read("t10k-images-idx3-ubyte.gz", 3)[..., None], read("t10k-labels-idx1-ubyte.gz", 1)),
    )


def cifar_records(folder: Path) -> Converted:
    """CIFAR-10's binary version: records of a label and 32×32 bytes of red, green and blue."""

    def read(names: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        with tarfile.open(_only(folder, "cifar-10-binary.tar.gz")) as tar:
            members = [tar.extractfile(f"cifar-10-batches-bin/{name}.bin") for name in names]
            content = b"".join(member.read() for member in members if member is not None)
        records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]

    return _images(read(f"data_batch_{i}" for i in range(1, 6)), read(["test_batch"]))


def cifar_pictures(folder: Path) -> Converted:
    """CIFAR-10 as six large pictures, one row of 1024 pixels for each image, and labels in JSON."""
    from PIL import Image  # comes with matplotlib

    def images(names: Iterable[str]) -> NDArray[np.uint8]:
        rows = []
        for name in names:
            with Image.open(_only(folder, f"{name}.png")) as picture:
                rows.append(np.asarray(picture.convert("RGB")))
        return np.concatenate(rows).reshape(-1, 32, 32, 3)

    def labels(name: str) -> NDArray[np.uint8]:
        return np.array(json.loads(_only(folder, f"{name}_lables.json").read_text()), np.uint8)

    train = images(f"data_batch_{i}" for i in range(1, 6)), labels("train")
    return _images(train, (images(["test_batch"]), labels("test")))


def addresses(folder: Path) -> Converted:
    """State of the Union addresses, one JSON file each; file names begin with the year."""
    files = sorted(folder.rglob("data/[0-9]*.json"), key=lambda path: path.name)
    if not files:
        raise MalformedError("no addresses found")
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return texts([(document["name"], document["text"]) for document in documents])


def texts(documents: list[tuple[str, str]]) -> Converted:
    """(author, text) in order → token streams with the start and the author of each document."""
    if len(documents) <= HOLD_OUT:
        raise MalformedError(f"{len(documents)} documents are too few to hold some out")
    parts = {
        "train": [document for i, document in enumerate(documents) if i % HOLD_OUT != HOLD_OUT // 2],
        "test": [document for i, document in enumerate(documents) if i % HOLD_OUT == HOLD_OUT // 2],
    }
    authors = list(dict.fromkeys(author for author, _ in documents))
    counts = Counter(word for _, text in parts["train"] for word in WORD.findall(text))
    common = sorted((word for word, count in counts.items() if count >= RARE), key=lambda word: (-counts[word], word))
    vocabulary = [UNKNOWN, END, *common]
    if len(vocabulary) > np.iinfo(np.uint16).max:
        raise MalformedError(f"{len(vocabulary)} different words do not fit 16 bits")
    index = {word: i for i, word in enumerate(vocabulary)}

    arrays: Arrays = {}
    for part, chosen in parts.items():
        words = [np.array([*(index.get(w, 0) for w in WORD.findall(text)), 1], np.uint16) for _, text in chosen]
        octets = [np.frombuffer(text.encode() + b"\n", np.uint8) for _, text in chosen]
        for name, streams in (("words", words), ("bytes", octets)):
            arrays[f"{part}_{name}"] = np.concatenate(streams)
            arrays[f"{part}_{name}_starts"] = np.cumsum([0, *map(len, streams)])[:-1].astype(np.int64)
        arrays[f"{part}_authors"] = np.array([authors.index(author) for author, _ in chosen], np.uint16)
    return Converted(arrays, {"vocabulary": vocabulary, "authors": authors})


def _only(folder: Path, name: str) -> Path:
    found = sorted(folder.rglob(name))
    if len(found) != 1:
        raise MalformedError(f"expected one {name}, found {len(found)}")
    return found[0]
