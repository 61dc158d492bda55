"""How a worker's messages travel: what the gloo, nccl and in-memory transports have in common. Peers use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from testbed.errors import TrainingError
from testbed.methods.base import Channel

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

ALL = -1  # as a peer: all workers at once (all-reduce)


@dataclass(frozen=True)
class Neighbours:
    """Whom one worker sends to and hears from in one round."""

    targets: tuple[int, ...]
    sources: tuple[int, ...]


class PeerLostError(TrainingError):
    """A peer died, froze or was cut off. Often the consequence of another worker's failure, which explains more."""

    def __init__(self, message: str, *, hint: str | None = None, peer: int = ALL, step: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.peer = peer
        self.step = step


class LeftBehindError(TrainingError):
    """A worker that was started again and cannot rejoin: it is lost once more, and the others go on."""


class Control(ABC):
    """Where workers meet outside the emulated network."""

    @abstractmethod
    def meet(self, name: str) -> int:
        """Wait until every worker has come to `name`; returns when the last one came, on the monotonic clock in ns.
        Nobody waits for workers that are lost."""

    @abstractmethod
    def present(self, name: str) -> Sequence[int]:
        """The ranks that met at `name` and lived: the same answer for all."""

    def note(self, name: str, text: str) -> None:  # noqa: B027  # only workers that come back read notes
        """Leave a note for whoever needs it later."""


class Transport(ABC):
    """One worker's way to its peers."""

    rank: int
    size: int
    sent: dict[int, int]  # payload bytes handed to the backend, by peer; ALL: the share of an all-reduce
    deadline: float  # seconds to wait for one message

    @abstractmethod
    def channel(self, nbytes: int, rounds: Sequence[Neighbours]) -> Channel:
        """Messages of at most nbytes; in round t with rounds[t % len(rounds)]. All workers concerned open their
        channels in the same order."""

    @abstractmethod
    def connect(self) -> None:
        """Open what the channels made so far need, so that training does not begin with handshakes."""

    @abstractmethod
    def connect_all(self) -> None:
        """Open what all_reduce needs; every worker must ask."""

    @abstractmethod
    def all_reduce(self, tensor: Tensor) -> None:
        """Sum over all workers in place."""

    @abstractmethod
    def process_group(self) -> ProcessGroup:
        """torch's process group of all workers; every worker must ask."""

    def reason(self, error: RuntimeError, since_ns: int) -> RuntimeError | PeerLostError:
        """What an error means that came up while somebody else used the process group."""
        return error

    @abstractmethod
    def leave(self) -> None:
        """Close everything. Call it after all workers have met: closing earlier could destroy what is under way."""


@runtime_checkable
class Reuniting(Protocol):
    """A transport that survives its peers, and lets them come back."""

    def leave_out(self, peers: Collection[int]) -> None:
        """These are lost already: where a worker rejoins, before it opens channels."""

    def reopen(self, peers: Sequence[int], rendezvous: str) -> None:
        """New connections to peers that have come back, or to whom this worker has. Channels rest until `resume`."""

    def swap(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> None:
        """One message to and from some peers, beside all channels: bytes, complete when it returns. Of a peer that is
        no longer among the living, nothing may have come."""

    def resume(self, peers: Collection[int]) -> None:
        """From their next round on, all channels count on these peers again."""

    def living(self, peers: Collection[int]) -> list[int]:
        """Those that are not lost, in rank order."""


def check_message(message: Tensor, nbytes: int) -> None:
    """A message longer than the receiver's buffer would abort its process, not raise."""
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
    """This round's message for each target, checked."""
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
    """What each worker sends in a ring all-reduce of nbytes: (n−1)/n of it in each of its two phases. Gloo's and NCCL's
    large-message algorithms do that (measured with Gloo: within 0.2 % from 400 kB on)."""
    return 2 * (size - 1) * nbytes // size
