from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from testbed.tasks import datasets, store
from testbed.tasks.base import make
from testbed.tasks.images import ImageTask


def train(spec: Any, steps: int, lr: float, data_dir: Path | None = None) -> dict[str, float]:
    task = make(spec, rank=0, size=1, seed=1, data_dir=data_dir)
    x = task.initial()
    task.bind(x)
    out = torch.empty_like(x)
    for step in range(steps):
        task.gradient(step, out)
        x.sub_(out, alpha=lr)
    return task.evaluate(x)


@pytest.mark.parametrize("spec", ["digits", {"model": "logistic"}, {"model": "cnn", "data": "digits"}])
def test_digits_are_learnt_by_plain_sgd(spec: Any) -> None:
    start = make(spec, rank=0, size=1, seed=1)
    assert start.evaluate(start.initial())["accuracy"] < 0.3
    end = train(spec, 300, 0.1)
    assert end["accuracy"] > 0.9
    assert end["loss"] < 0.4


def test_a_residual_network_learns_pictures(data_dir: Path) -> None:
    end = train({"model": "resnet20", "width": 8, "batch": 16, "augment": False}, 60, 0.1, data_dir)
    assert end["accuracy"] > 0.3


def test_digits_come_with_the_package_and_are_whole() -> None:
    arrays = store.load(datasets.DIGITS).arrays
    assert arrays["train_images"].shape == (1437, 8, 8, 1)
    assert arrays["test_images"].shape == (360, 8, 8, 1)
    labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as UCI counts them
    assert arrays["train_images"].max() == 16
    together = np.concatenate([arrays["train_images"], arrays["test_images"]])
    assert len(np.unique(together.reshape(len(together), -1), axis=0)) == len(together), "an image is in both parts"


@pytest.mark.parametrize("dataset", [datasets.DIGITS, datasets.FASHION, datasets.CIFAR10])
def test_inputs_are_normalised_and_laid_out_for_torch(dataset: datasets.ImageSet, data_dir: Path) -> None:
    task = make(dataset.name, rank=0, size=1, seed=1, data_dir=data_dir)
    assert isinstance(task, ImageTask)
    images = np.random.default_rng(0).integers(0, 17, (5, 8, 8, len(dataset.mean))).astype(np.uint8)
    inputs = task._inputs(images)
    assert inputs.shape == (5, len(dataset.mean), 8, 8)
    expected = (images / dataset.top - np.array(dataset.mean)) / np.array(dataset.std)
    np.testing.assert_allclose(inputs.permute(0, 2, 3, 1).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_the_catalogues_statistics_of_digits_are_right() -> None:
    pixels = store.load(datasets.DIGITS).arrays["train_images"] / datasets.DIGITS.top
    assert pixels.mean() == pytest.approx(datasets.DIGITS.mean[0], abs=1e-4)
    assert pixels.std() == pytest.approx(datasets.DIGITS.std[0], abs=1e-4)


def test_held_out_samples_can_be_fewer() -> None:
    some = make({"data": "digits", "test_samples": 7}, rank=0, size=1, seed=1)
    accuracy = some.evaluate(some.initial())["accuracy"]
    assert (accuracy * 7) == pytest.approx(round(accuracy * 7))
    everything = make({"data": "digits", "test_samples": 10_000}, rank=0, size=1, seed=1)
    full = make("digits", rank=0, size=1, seed=1)
    assert everything.evaluate(full.initial()) == full.evaluate(full.initial())


def test_augmentation_is_on_where_it_helps_and_can_be_switched(data_dir: Path) -> None:
    losses = {}
    for augment in (None, True, False):
        spec = {"model": "resnet20", "width": 4, "batch": 4, "augment": augment}
        losses[augment] = make(spec, rank=0, size=1, seed=1, data_dir=data_dir).loss_of_step(0).item()
    assert losses[None] == losses[True] != losses[False]


def test_a_split_reaches_the_batches(data_dir: Path) -> None:
    """With one shard of 400 sorted samples per worker, each of ten workers sees one label."""
    spec = {"model": "cnn", "split": {"shards": 1}, "batch": 40}
    seen = set()
    for rank in range(10):
        task = make(spec, rank=rank, size=10, seed=1, data_dir=data_dir)
        assert isinstance(task, ImageTask)
        labels = set(task._labels[task._order(0)].tolist())
        assert len(labels) == 1
        seen |= labels
    assert seen == set(range(10))
