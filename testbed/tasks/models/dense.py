"""Dense models for small images: logistic regression (convex) and a multi-layer perceptron."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from torch import nn

from testbed.errors import ScenarioError
from testbed.tasks.models.base import ImageModel, ImageShape


@dataclass(frozen=True)
class Logistic(ImageModel):
    """Softmax regression: one linear layer, a convex problem."""

    name: ClassVar[str] = "logistic"
    data: ClassVar[str] = "digits"

    def build(self, shape: ImageShape) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(shape.pixels, shape.classes))


@dataclass(frozen=True)
class Mlp(ImageModel):
    """Linear layers with ReLU between them."""

    name: ClassVar[str] = "mlp"
    data: ClassVar[str] = "digits"

    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise ScenarioError(f"hidden: widths must be at least 1, not {list(self.hidden)}")

    def build(self, shape: ImageShape) -> nn.Module:
        widths = [shape.pixels, *self.hidden]
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], shape.classes))
