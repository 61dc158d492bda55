"""Predicting the next token of a text, window by window, with cross-entropy; held-out text gives the perplexity."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, exp, inf
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from testbed.errors import ScenarioError
from testbed.tasks.batches import Streams
from testbed.tasks.models.base import State, TextModel, TextShape
from testbed.tasks.module import ModuleTask
from testbed.tasks.splits import Indices
from testbed.tasks.store import Stored

EVALUATE_AT_ONCE = 1 << 24  # scores


def windows(stored: Stored, tokens: str, length: int) -> int:
    """How many windows of `length` tokens, each followed by the token to predict, the training text has."""
    count = (len(stored.arrays[f"train_{tokens}"]) - 1) // length
    if count < 1 or len(stored.arrays[f"test_{tokens}"]) <= length:
        raise ScenarioError(f"bptt: the text is shorter than a window of {length} {tokens}")
    return count


def sources(stored: Stored, tokens: str, length: int) -> Indices:
    """The author of each window: of its first token, as a window may reach into the next document."""
    starts = np.arange(windows(stored, tokens, length)) * length
    documents = np.searchsorted(stored.arrays[f"train_{tokens}_starts"], starts, side="right") - 1
    return stored.arrays["train_authors"][documents].astype(np.int64)


def vocabulary(stored: Stored, tokens: str) -> int:
    return 256 if tokens == "bytes" else len(stored.names("vocabulary"))


class TextTask(ModuleTask):
    """A language model on windows of text.

    Each window starts from the zero state, so a step's loss depends on nothing before it. With `carry` a recurrent
    model goes on from the state that the step before left, as the papers' experiments do.
    """

    def __init__(
        self,
        model: TextModel,
        stored: Stored,
        order: Callable[[int], Indices],
        *,
        rank: int,
        seed: int,
        tokens: str,
        length: int,
        carry: bool = False,
        test_samples: int | None = None,
    ) -> None:
        shape = TextShape(vocabulary(stored, tokens), length)
        super().__init__(lambda: model.build(shape), rank=rank, seed=seed)
        self._vocabulary = shape.vocabulary
        self._length = length
        self._text = stored.arrays[f"train_{tokens}"]
        self._test = stored.arrays[f"test_{tokens}"]
        self._test_samples = test_samples or len(self._test)
        self._order = order
        self._carry = carry
        self._offsets = np.arange(length + 1)
        self._step = -1  # the last one; its states before and after:
        self._before: State = None
        self._after: State = None

    def bind(self, x: Tensor) -> None:
        super().bind(x)
        self._step, self._before, self._after = -1, None, None

    def _loss(self, step: int) -> Tensor:
        inputs, targets = self._windows(self._text, self._order(step))
        before = self._state(step) if self._carry else None
        scores, after = self.module(inputs, before)
        if self._carry and after is not None:
            self._step, self._before, self._after = step, before, tuple(part.detach() for part in after)
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())

    def evaluate(self, x: Tensor) -> dict[str, float]:
        # streams begin evenly spaced in the held-out text, so a part of it is a fair sample of all
        count = (len(self._test) - 1) // self._length
        batch = max(1, min(32, EVALUATE_AT_ONCE // (self._vocabulary * self._length), self._test_samples, count))
        streams = Streams(np.arange(count), batch)
        steps = min(streams.length, ceil(self._test_samples / batch))
        state: State = None
        loss = 0.0
        with self._evaluating(x):
            for step in range(steps):
                inputs, targets = self._windows(self._test, streams(step))
                scores, state = self.module(inputs, state if self._carry else None)
                loss += float(functional.cross_entropy(scores.flatten(0, 1), targets.flatten())) / steps
        return {"loss": loss, "perplexity": exp(loss) if loss < 700 else inf}

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep besides the parameters: with `carry`, where the model stands in its text."""
        return {"step": self._step, "before": self._before, "after": self._after}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` gave; call it after bind."""
        self._step = state["step"]
        self._before, self._after = (
            None if parts is None else tuple(part.to(self.device) for part in parts)
            for parts in (state["before"], state["after"])
        )

    def _windows(self, text: Indices, chosen: Indices) -> tuple[Tensor, Tensor]:
        tokens = text[(chosen * self._length)[:, None] + self._offsets].astype(np.int64)
        both = torch.from_numpy(tokens).to(self.device)
        return both[:, :-1], both[:, 1:]

    def _state(self, step: int) -> State:
        """What the step starts from: the end of the one before, or the same again where a step is repeated."""
        assert isinstance(self._order, Streams)
        if self._order.starts(step):
            return None
        if step == self._step:
            return self._before
        return self._after if step == self._step + 1 else None
