"""The LSTM language model of the CHOCO-SGD and PowerGossip experiments: 3 layers of 650 units, tied embedding.

With WikiText-2's vocabulary of 28 869 words it has 28 949 319 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from torch import Tensor, nn

from testbed.errors import ScenarioError
from testbed.tasks.models.base import State, TextModel, TextShape


class WordLstm(nn.Module):
    """embedding → dropout → LSTM → dropout → scores."""

    def __init__(self, vocabulary: int, hidden: int, layers: int, dropout: float, tied: bool) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(vocabulary, hidden)
        self.rnn = nn.LSTM(hidden, hidden, layers, dropout=dropout if layers > 1 else 0.0, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        if tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        y, state = self.rnn(self.drop(self.encoder(tokens)), cast("tuple[Tensor, Tensor] | None", state))
        return self.decoder(self.drop(y)), state


@dataclass(frozen=True)
class Lstm(TextModel):
    """A recurrent language model."""

    name: ClassVar[str] = "lstm"
    tokens: ClassVar[str] = "words"
    length: ClassVar[int] = 30
    recurrent: ClassVar[bool] = True

    hidden: int = 650
    layers: int = 3
    dropout: float = 0.4
    tied: bool = True  # one matrix embeds the tokens and scores the next one

    def __post_init__(self) -> None:
        if self.hidden < 1 or self.layers < 1 or not 0 <= self.dropout < 1:
            raise ScenarioError("hidden and layers must be at least 1, dropout from 0 to below 1")

    def build(self, shape: TextShape) -> nn.Module:
        return WordLstm(shape.vocabulary, self.hidden, self.layers, self.dropout, self.tied)
