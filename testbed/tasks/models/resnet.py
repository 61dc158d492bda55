"""ResNet-20 for CIFAR (He et al. 2016, §4.2), the network of the D-PSGD, CHOCO-SGD and PowerGossip experiments.

Three stages of three blocks with 16, 32 and 64 channels; where the shape changes the shortcut is a projection, so the
model has 272 474 parameters in 65 tensors with either norm. Batch statistics are buffers: they stay on their worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import ScenarioError
from testbed.tasks.models.base import ImageModel, ImageShape

CHANNELS_PER_GROUP = 8  # of a GroupNorm


def _norm(kind: str, channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(max(1, channels // CHANNELS_PER_GROUP), channels)


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = _norm(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = _norm(norm, outputs)
        if norm == "group":  # a block starts as its shortcut (Goyal et al. 2017); without it learning starts late
            nn.init.zeros_(self.norm2.weight)  # type: ignore[arg-type]
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        return functional.relu(y, inplace=True)


@dataclass(frozen=True)
class ResNet20(ImageModel):
    """Twenty layers in three stages of three blocks; 272 474 parameters at width 16."""

    name: ClassVar[str] = "resnet20"
    data: ClassVar[str] = "cifar10"

    norm: Literal["group", "batch"] = (
        "group"  # batch statistics differ between workers whose data differ; groups do not
    )
    width: int = 16  # channels of the first stage

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ScenarioError(f"width: at least 1, not {self.width}")
        if self.norm == "group" and self.width > CHANNELS_PER_GROUP and self.width % CHANNELS_PER_GROUP:
            raise ScenarioError(f"width: a multiple of {CHANNELS_PER_GROUP} with norm: group, not {self.width}")

    def build(self, shape: ImageShape) -> nn.Module:
        layers: list[nn.Module] = [
            nn.Conv2d(shape.channels, self.width, 3, padding=1, bias=False),
            _norm(self.norm, self.width),
            nn.ReLU(inplace=True),
        ]
        channels = self.width
        for stage in range(3):
            for block in range(3):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Block(channels, self.width << stage, stride, self.norm))
                channels = self.width << stage
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, shape.classes)]
        module = nn.Sequential(*layers)
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        return module
