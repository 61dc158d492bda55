"""A compressor of one's own: sends every n-th value, each step beginning one further. See own-compressor.yaml."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.compressors import Codec, Compressor
from testbed.flat import Layout


@dataclass(frozen=True)
class EveryNth(Compressor):
    """C(x) keeps the values at s, s + n, s + 2n, … where s is the step modulo n. Wire: s, then the values, all fp32."""

    name = "every-nth"
    n: int = 10

    def bind(self, layout: Layout, seed: int) -> Codec:
        return EveryNthCodec(layout, self.n)


class EveryNthCodec(Codec):
    def __init__(self, layout: Layout, n: int) -> None:
        self.n = n
        super().__init__(layout, nbytes=4 * (1 + -(-layout.numel // n)))

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        message = torch.zeros(self.nbytes // 4)
        start = step % self.n
        kept = x[start :: self.n]
        message[0] = start
        message[1 : 1 + len(kept)] = kept
        coded = message.view(torch.uint8)
        return coded if out is None else out.copy_(coded)

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        values = message.clone().view(torch.float32)  # a message may lie anywhere in memory
        part = dest[int(values[0]) :: self.n]
        part.add_(values[1 : 1 + len(part)], alpha=weight)
