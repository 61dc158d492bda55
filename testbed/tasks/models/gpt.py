"""A small GPT: pre-norm transformer decoder with learned positions and tied embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import ScenarioError
from testbed.tasks.models.base import State, TextModel, TextShape


class Layer(nn.Module):
    """Causal self-attention, then a dense network, each beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.dense_in = nn.Linear(width, 4 * width)
        self.dense_out = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        mixed = self.attention_in(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, length, width))
        y: Tensor = self.dense_out(functional.gelu(self.dense_in(self.norm2(x))))
        return x + y


class Transformer(nn.Module):
    """embedding + positions → layers → norm → scores with the embedding's own matrix."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        for layer in self.layers:  # the sum of 2·layers branches starts with the variance of one
            assert isinstance(layer, Layer)
            nn.init.normal_(layer.attention_out.weight, std=0.02 / (2 * layers) ** 0.5)
            nn.init.normal_(layer.dense_out.weight, std=0.02 / (2 * layers) ** 0.5)

    def forward(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.layers(self.tokens(tokens) + self.positions(positions))
        return functional.linear(self.norm(x), self.tokens.weight), None


@dataclass(frozen=True)
class Gpt(TextModel):
    """A transformer language model."""

    name: ClassVar[str] = "gpt"
    tokens: ClassVar[str] = "bytes"
    length: ClassVar[int] = 64

    width: int = 128
    heads: int = 4
    layers: int = 4

    def __post_init__(self) -> None:
        if self.heads < 1 or self.layers < 1 or self.width < 1 or self.width % self.heads:
            raise ScenarioError(f"width ({self.width}) must be a multiple of heads ({self.heads}), layers at least 1")

    def build(self, shape: TextShape) -> nn.Module:
        return Transformer(shape.vocabulary, shape.length, self.width, self.heads, self.layers)
