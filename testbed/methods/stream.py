"""One worker's stream of compressed messages: its codec and the buffer they are packed into."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from testbed.compressors.base import Codec, Compressor
from testbed.errors import TrainingError
from testbed.flat import Layout
from testbed.methods.base import Peer
from testbed.methods.checkpoint import TRANSIENT
from testbed.seeds import derive


@dataclass
class Stream:
    """Encodes what this worker sends and decodes what its peers' equal streams sent."""

    codec: Codec
    message: Tensor = field(metadata=TRANSIENT)  # reused: the channel lets go of it before the next step compresses

    @staticmethod
    def of(compressor: Compressor, peer: Peer, layout: Layout | None = None, purpose: str = "model") -> Stream:
        """A stream of messages about `layout` (by default the whole model); its noise is this worker's own."""
        codec = compressor.bind(layout or peer.layout, derive(peer.seed, "noise", purpose, peer.rank))
        return Stream(codec, torch.empty(codec.nbytes, dtype=torch.uint8, device=peer.x.device))

    def encode(self, peer: Peer, vector: Tensor) -> Tensor:
        """This step's message; valid until the next call."""
        with peer.span("compress"):
            message = self.codec.compress(vector, peer.step, out=self.message)
        if message.shape != self.message.shape or message.dtype != torch.uint8:
            raise TrainingError(
                f"{type(self.codec).__name__} made a message of {message.numel()} {message.dtype} and had announced"
                f" {self.codec.nbytes} bytes",
                hint="this is an error in the compressor: testbed compressors file.py:Class --check",
            )
        return message

    def add(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        """dest ← dest + weight · decode(message); a channel's buffer may be longer than the message in it."""
        self.codec.decompress_into(message[: self.codec.nbytes], dest, weight)
