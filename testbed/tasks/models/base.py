"""What a model needs to know of its data, and what every model is. Specs choose models, tasks build them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn


@dataclass(frozen=True)
class ImageShape:
    """Of one image, and how many classes there are."""

    height: int
    width: int
    channels: int
    classes: int

    @property
    def pixels(self) -> int:
        return self.height * self.width * self.channels


@dataclass(frozen=True)
class TextShape:
    """How many different tokens there are, and how many of them the model sees at once."""

    vocabulary: int
    length: int


State = tuple[Tensor, ...] | None  # what a recurrent model carries from one window of text to the next


class ImageModel(ABC):
    """Images (batch, channels, height, width) → class scores (batch, classes)."""

    name: ClassVar[str]
    data: ClassVar[str]  # the data set a scenario gets when it names only the model

    @abstractmethod
    def build(self, shape: ImageShape) -> nn.Module:
        """The module, freshly initialised from torch's default generator."""


class TextModel(ABC):
    """Tokens (batch, length) and a state → scores of the next token (batch, length, vocabulary) and the new state."""

    name: ClassVar[str]
    data: ClassVar[str] = "text"
    tokens: ClassVar[str]  # "words" or "bytes": what a scenario gets when it does not say
    length: ClassVar[int]  # tokens per window, likewise
    recurrent: ClassVar[bool] = False

    @abstractmethod
    def build(self, shape: TextShape) -> nn.Module:
        """The module, freshly initialised from torch's default generator."""
