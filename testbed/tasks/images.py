"""Classifying images: batches from mapped bytes, normalised on the way to the model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from testbed.seeds import derive
from testbed.tasks.batches import crop_and_flip
from testbed.tasks.datasets import ImageSet
from testbed.tasks.models.base import ImageModel, ImageShape
from testbed.tasks.module import ModuleTask
from testbed.tasks.splits import Indices
from testbed.tasks.store import Stored

EVALUATE_AT_ONCE = 100  # images


def shape_of(stored: Stored) -> ImageShape:
    """What a model needs to know of the images."""
    assert isinstance(stored.dataset, ImageSet)
    height, width, channels = stored.arrays["train_images"].shape[1:]
    return ImageShape(height, width, channels, stored.dataset.classes)


class ImageTask(ModuleTask):
    """A model, images and cross-entropy."""

    def __init__(
        self,
        model: ImageModel,
        stored: Stored,
        order: Callable[[int], Indices],
        *,
        rank: int,
        seed: int,
        augment: bool = False,
        test_samples: int | None = None,
    ) -> None:
        shape = shape_of(stored)
        super().__init__(lambda: model.build(shape), rank=rank, seed=seed)
        dataset = stored.dataset
        assert isinstance(dataset, ImageSet)
        self._images, self._labels = stored.arrays["train_images"], stored.arrays["train_labels"]
        self._test = stored.arrays["test_images"][:test_samples], stored.arrays["test_labels"][:test_samples]
        self._order = order
        self._augment = augment
        # (value / top − mean) / std in one multiplication and one addition per channel
        std = torch.tensor(dataset.std)
        self._scale = (1 / (dataset.top * std)).view(1, -1, 1, 1)
        self._shift = (-torch.tensor(dataset.mean) / std).view(1, -1, 1, 1)

    def bind(self, x: Tensor) -> None:
        super().bind(x)
        self._scale, self._shift = self._scale.to(x.device), self._shift.to(x.device)

    def _loss(self, step: int) -> Tensor:
        chosen = self._order(step)
        images = self._images[chosen]
        if self._augment:
            images = crop_and_flip(images, derive(self._seed, "augment", self._rank, step))
        return functional.cross_entropy(self.module(self._inputs(images)), self._targets(self._labels[chosen]))

    def evaluate(self, x: Tensor) -> dict[str, float]:
        images, labels = self._test
        loss = correct = 0.0
        with self._evaluating(x):
            for start in range(0, len(images), EVALUATE_AT_ONCE):
                chunk = slice(start, start + EVALUATE_AT_ONCE)
                scores = self.module(self._inputs(images[chunk].copy()))
                targets = self._targets(labels[chunk])
                loss += float(functional.cross_entropy(scores, targets, reduction="sum"))
                correct += float((scores.argmax(1) == targets).sum())
        return {"loss": loss / len(images), "accuracy": correct / len(images)}

    def _inputs(self, images: NDArray[np.uint8]) -> Tensor:
        # bytes lie channels last; so does the view, which is also the faster layout for convolutions
        pixels = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).to(torch.float32)
        return pixels.mul_(self._scale).add_(self._shift)

    def _targets(self, labels: NDArray[np.uint8]) -> Tensor:
        return torch.from_numpy(labels.astype(np.int64)).to(self.device)
