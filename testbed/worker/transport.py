"""How a worker's messages travel: what the gloo, nccl and in-memory transports have in common. Peers use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from testbed.errors import TrainingError, WorkerDiedError
from testbed.methods.base import Channel

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

ALL = -1  # as a peer: all workers at once (all-reduce)


@dataclass(frozen=True)
class Neighbours:
    """The workers that one worker sends to and receives from in one round."""

    targets: tuple[int, ...]
    sources: tuple[int, ...]


class PeerLostError(TrainingError):
    """A peer died, froze or was cut off. Often the consequence of another worker's failure, which explains more."""

    def __init__(self, message: str, *, hint: str | None = None, peer: int = ALL, step: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.peer = peer
        self.step = step
        self.silent: tuple[int, ...] = ()  # where all were missed: those that were silent

    def miss(self, ranks: Sequence[int], names: Sequence[str]) -> None:
        """Add the names of the silent workers."""
        self.silent = tuple(ranks)
        self.args = (f"{self}; not a word from {', '.join(names)}",)


class LeftBehindError(WorkerDiedError):
    """A worker that was started again cannot rejoin: it is lost once more, and the others go on."""


class Control(ABC):
    """Lets workers meet outside the emulated network."""

    @abstractmethod
    def meet(self, name: str) -> int:
        """Wait until every worker has come to `name`; return when the last one came, on the monotonic clock in ns. Lost
        workers are not waited for."""

    @abstractmethod
    def present(self, name: str) -> Sequence[int]:
        """Return the ranks that met at `name` alive: the same answer for all."""

    @abstractmethod
    def share(self, name: str, rank: int, text: str) -> Sequence[str]:
        """Meet, and return what every worker says, by rank; nothing of lost ones."""

    def note(self, name: str, text: str) -> None:  # noqa: B027  # only workers that come back read notes
        """Leave a note for later readers."""


class Transport(ABC):
    """One worker's connections to its peers."""

    rank: int
    size: int
    sent: dict[int, int]  # payload bytes handed to the backend, by peer; ALL: the share of an all-reduce
    message_timeout: float  # seconds to wait for one message

    @property
    def paced(self) -> dict[int, float | None]:
        """Return, by peer, the rate at which messages to it are sent, in bytes per second; None: as fast as the backend
        can. Peers that could not be paced are missing."""
        return {}

    @abstractmethod
    def channel(self, nbytes: int, rounds: Sequence[Neighbours]) -> Channel:
        """Open a channel for messages of at most nbytes; in round t with rounds[t % len(rounds)]. All workers concerned
        open their channels in the same order."""

    @abstractmethod
    def connect(self) -> None:
        """Open the connections of all channels made so far, so that training does not begin with handshakes."""

    @abstractmethod
    def connect_all(self) -> None:
        """Open what all_reduce needs; every worker must call it."""

    @abstractmethod
    def all_reduce(self, tensor: Tensor) -> None:
        """Sum over all workers in place."""

    @abstractmethod
    def process_group(self) -> ProcessGroup:
        """Return torch's process group of all workers; every worker must call it."""

    def reason(self, error: RuntimeError, since_ns: int) -> RuntimeError | PeerLostError:
        """Explain an error that came up while other code used the process group."""
        return error

    @abstractmethod
    def leave(self) -> None:
        """Close everything. Call it after all workers have met: closing earlier could destroy messages under way."""


@runtime_checkable
class Reuniting(Protocol):
    """A transport that survives its peers and lets them rejoin."""

    def leave_out(self, peers: Collection[int]) -> None:
        """Leave out workers that are lost already: where a worker rejoins, before it opens channels."""

    def reopen(self, peers: Sequence[int], rendezvous: str) -> None:
        """Connect anew to peers that have rejoined, or that this worker rejoins. Channels pause until `resume`."""

    def swap(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> None:
        """Exchange one message with some peers, beside all channels: bytes, complete on return. From a peer that has
        died, nothing may have come."""

    def resume(self, peers: Collection[int]) -> None:
        """Include these peers again in all channels, from their next round on."""

    def living(self, peers: Collection[int]) -> list[int]:
        """Return the workers that are not lost, in rank order."""


def check_message(message: Tensor, nbytes: int) -> None:
    """Refuse a message longer than the receiver's buffer: it would abort that process, not raise."""
    if message.dtype != torch.uint8 or message.dim() != 1 or not message.is_contiguous():
        raise TrainingError(
            f"a message must be a contiguous one-dimensional uint8 tensor, not {message.dtype} {tuple(message.shape)}",
            hint="this is an error in the method: tensor.view(torch.uint8)",
        )
    if message.numel() > nbytes:
        raise TrainingError(
            f"a message of {message.numel()} bytes on a channel made for {nbytes}",
            hint="this is an error in the method: ask for a channel of the largest message",
        )


def by_target(message: Tensor | Mapping[int, Tensor], targets: Sequence[int], nbytes: int) -> dict[int, Tensor]:
    """Return this round's message for each target, checked."""
    if isinstance(message, Tensor):
        check_message(message, nbytes)
        return dict.fromkeys(targets, message)
    if sorted(message) != sorted(targets):
        raise TrainingError(
            f"messages for workers {sorted(message)} on a channel whose targets are {sorted(targets)}",
            hint="this is an error in the method: one message per target",
        )
    for one in message.values():
        check_message(one, nbytes)
    return {target: message[target] for target in targets}


def ring_share(nbytes: int, size: int) -> int:
    """Return what each worker sends in a ring all-reduce of nbytes: (n−1)/n of it in each of its two phases. Gloo's and
    NCCL's large-message algorithms do that (measured with Gloo: within 0.2 % from 400 kB on)."""
    return 2 * (size - 1) * nbytes // size
