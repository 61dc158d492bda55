"""How data reach the workers: the keys of a task beside its model's own, and the order of samples they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal

from testbed.errors import ScenarioError
from testbed.seeds import derive
from testbed.tasks import splits, text
from testbed.tasks.batches import Order, Streams
from testbed.tasks.datasets import Dataset, ImageSet, TextSet, unknown
from testbed.tasks.splits import Indices
from testbed.tasks.store import Stored

SPLITS = ("iid", "shards", "dirichlet", "contiguous", "by-source")


@dataclass(frozen=True)
class Feeding:
    """The same keys for every model that trains on data."""

    batch: int = 32  # samples per worker and step
    split: Any = None  # images: iid, {shards: k}, {dirichlet: α}; text: contiguous, iid, by-source
    reshuffle: bool = False  # instead, all samples are dealt to the workers anew each epoch
    test_samples: int | None = None  # evaluate on only so many held-out samples
    augment: bool | None = None  # images: random crops and flips; unless told, where they help
    tokens: Literal["words", "bytes"] | None = None  # text: what a token is
    bptt: int | None = None  # text: tokens per window
    carry: bool = False  # text: a recurrent model goes on from the last window's state

    def __post_init__(self) -> None:
        for key in ("batch", "test_samples", "bptt"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ScenarioError(f"{key}: at least 1, not {value}")

    def check(self, dataset: Dataset) -> None:
        """ScenarioError where these keys do not suit the data or each other."""
        of_text = isinstance(dataset, TextSet)
        strange = ["augment"] if of_text else ["tokens", "bptt", "carry"]
        for key in strange:
            if getattr(self, key):
                raise ScenarioError(f"{key}: only for {'images' if of_text else 'text'}; {dataset.name} is not")
        split = parse_split(self.split, dataset)
        if self.reshuffle and self.split is not None and split.kind != "iid":
            raise ScenarioError(f"reshuffle deals all samples anew each epoch, which undoes split: {split.kind}")
        if self.carry and (self.reshuffle or split.kind == "iid"):
            raise ScenarioError("carry needs text in order: split contiguous or by-source, without reshuffle")

    def settled(self, dataset: Dataset, model: Any) -> Feeding:
        """With what depends on the data or the model and was left open."""
        split = self.split
        if split is None and not self.reshuffle:
            split = parse_split(None, dataset).kind
        if isinstance(dataset, ImageSet):
            return replace(self, split=split, augment=dataset.augment if self.augment is None else self.augment)
        return replace(self, split=split, tokens=self.tokens or model.tokens, bptt=self.bptt or model.length)


@dataclass(frozen=True)
class Split:
    """Which function of `splits`, and its parameter."""

    kind: str
    amount: float = 0.0


def parse_split(value: Any, dataset: Dataset) -> Split:
    """What a scenario writes under `split:`."""
    of_text = isinstance(dataset, TextSet)
    if value is None:
        return Split("contiguous" if of_text else "iid")
    if isinstance(value, Mapping):
        if len(value) != 1:
            raise ScenarioError("split: one of iid, {shards: k}, {dirichlet: α}, contiguous, by-source")
        ((kind, amount),) = value.items()
    else:
        kind, amount = value, None
    if kind not in SPLITS:
        raise unknown("split", kind, SPLITS)
    if kind in ("shards", "dirichlet"):
        if of_text:
            raise ScenarioError(f"split: {kind} goes by labels and {dataset.name} has none; by-source or contiguous do")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not isfinite(amount) or amount <= 0:
            raise ScenarioError(f"split: {{{kind}: number above 0}}, not {value!r}")
        if kind == "shards" and amount != int(amount):
            raise ScenarioError(f"split: {{shards: whole number}}, not {value!r}")
        return Split(kind, amount)
    if amount is not None and amount != {}:
        raise ScenarioError(f"split: {kind} takes no value")
    if not of_text and kind == "by-source":
        raise ScenarioError(
            f"split: by-source needs to know where each sample is from and {dataset.name} does not say; "
            "{dirichlet: α} or {shards: k} also make workers differ"
        )
    if not of_text and kind == "contiguous":
        raise ScenarioError("split: contiguous is for text; the order of images means nothing, use iid")
    return Split(kind)


def image_order(feeding: Feeding, stored: Stored, rank: int, size: int, seed: int) -> Callable[[int], Indices]:
    """The samples of each step for one worker."""
    labels = stored.arrays["train_labels"]
    if feeding.reshuffle:
        return Order.of_all(len(labels), feeding.batch, seed, rank, size)
    split = parse_split(feeding.split, stored.dataset)
    chance = derive(seed, "split")
    if split.kind == "shards":
        parts = splits.shards(labels, size, int(split.amount), chance)
    elif split.kind == "dirichlet":
        parts = splits.dirichlet(labels, size, split.amount, chance)
    else:
        parts = splits.iid(len(labels), size, chance)
    return Order.of_worker(parts[rank], feeding.batch, seed, rank)


def text_order(
    feeding: Feeding, stored: Stored, tokens: str, length: int, rank: int, size: int, seed: int
) -> Callable[[int], Indices]:
    """The windows of each step for one worker: shuffled, or with `carry` in the order of the text."""
    count = text.windows(stored, tokens, length)
    if feeding.reshuffle:
        return Order.of_all(count, feeding.batch, seed, rank, size)
    split = parse_split(feeding.split, stored.dataset)
    if split.kind == "iid":
        parts = splits.iid(count, size, derive(seed, "split"))
    elif split.kind == "by-source":
        parts = splits.by_source(text.sources(stored, tokens, length), size)
    else:
        parts = splits.contiguous(count, size)
    own = parts[rank]
    if not feeding.carry:
        return Order.of_worker(own, feeding.batch, seed, rank)
    if len(own) < feeding.batch:
        raise ScenarioError(f"carry: worker {rank} has {len(own)} windows, too few for {feeding.batch} streams")
    return Streams(own, feeding.batch)
