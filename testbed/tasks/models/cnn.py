"""A small convolutional network: two convolutions with pooling and two dense layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from testbed.errors import ScenarioError
from testbed.tasks.models.base import ImageModel, ImageShape


@dataclass(frozen=True)
class Cnn(ImageModel):
    """conv–pool–conv–pool–dense–dense, for images of at least 4×4."""

    name: ClassVar[str] = "cnn"
    data: ClassVar[str] = "fashion-mnist"

    channels: int = 16  # of the first convolution; the second has twice as many
    hidden: int = 64  # width of the dense layer

    def __post_init__(self) -> None:
        if self.channels < 1 or self.hidden < 1:
            raise ScenarioError("channels and hidden must be at least 1")

    def build(self, shape: ImageShape) -> nn.Module:
        features = 2 * self.channels * (shape.height // 4) * (shape.width // 4)
        return nn.Sequential(
            nn.Conv2d(shape.channels, self.channels, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(self.channels, 2 * self.channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(features, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, shape.classes),
        )
