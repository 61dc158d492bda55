"""What every method is: hyper-parameters, the state of one worker, and one step that reads like the paper.

A method is a frozen dataclass whose fields are options (testbed.compressors.option). `init` makes the worker's state
once; `step` does one whole training step and calls `peer.direction()` and the channels where the paper's order wants
them, so what overlaps with what can be read off it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from testbed.compressors.base import parse_options
from testbed.errors import TrainingError
from testbed.flat import Layout
from testbed.topology.gossip import Gossip

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup


class Channel(Protocol):
    """One message to each target and one from each source, round after round, receives posted a round ahead."""

    def send(self, message: Tensor | Mapping[int, Tensor]) -> None:
        """Start this round: the same bytes for every target, or one message per target. Returns at once;
        the message's memory must stay untouched until `receive` of the same round has returned."""

    def receive(self) -> Mapping[int, Tensor]:
        """Wait for this round's messages: uint8 by source rank, in rank order; valid until the next `send`. Buffers are
        nbytes long; of a shorter message only its own length means something. Where the job goes on without workers
        that died, the messages of those are missing, in this round and in all that follow."""

    @property
    def lost(self) -> Collection[int]:
        """Workers that died, as far as known: after `receive`, also those whom this round's message did not reach."""


class Peer(Protocol):
    """A worker as its method sees it."""

    rank: int
    size: int
    step: int  # counts from 0
    lr: float  # of this step
    seed: int  # of the run; derive with testbed.seeds
    x: Tensor  # flat fp32 parameters, updated in place by the method
    layout: Layout
    gossip: Gossip
    tolerant: bool  # neighbours may be lost and training goes on: keep what their loss would need
    absent: Collection[int]  # neighbours that are lost already when `init` is called: where a worker rejoins

    def direction(self) -> Tensor:
        """Gradient at the current x on this step's batch, with weight decay and local momentum: the d of x − η·d.
        For reading only; valid until the next call."""

    def channel(
        self, nbytes: int, *, targets: Sequence[int] | None = None, sources: Sequence[int] | None = None
    ) -> Channel:
        """A channel for messages of at most nbytes; by default to and from the gossip neighbours (of the step,
        where they change: one round per step)."""

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum over all workers in place, with the backend's stock all-reduce."""

    def span(self, kind: str) -> AbstractContextManager[None]:
        """Records a span in the trace: compress, decompress, mix, update, …"""


@runtime_checkable
class ModulePeer(Peer, Protocol):
    """A worker that also lends its module and its process group: what torch's own wrappers (ddp) need."""

    module: torch.nn.Module | None  # its parameters are views of x; None where the task has no module

    def process_group(self) -> ProcessGroup:
        """The process group of all workers, made when first asked for; every worker must ask."""

    def loss_of_step(self) -> Tensor:
        """The loss at x on this step's batch, with its autograd graph."""

    def direction_from(self, loss: Callable[[], Tensor]) -> Tensor:
        """As `direction`, with the gradient that the backward pass of loss() leaves in the parameters."""


@dataclass(frozen=True)
class Method(ABC):
    """How the workers agree."""

    name: ClassVar[str]  # in scenarios and reports
    paper: ClassVar[str] = ""  # authors, year, arXiv id
    forms: ClassVar[str] = ""  # for lists, where an option chooses the form
    pipelined: ClassVar[bool] = False  # whether its messages are a ring's whose rounds overlap
    resumes: ClassVar[bool] = True  # whether a checkpoint holds all that it remembers
    survives: ClassVar[bool] = False  # whether the others can go on when a worker is lost (on_failure: continue)

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__.lower()

    def __post_init__(self) -> None:
        parse_options(self, f"method {self.name}")

    @property
    @abstractmethod
    def form(self) -> str:
        """ "A": gradient and gossip both read x_t; "B": gradient first; "all-reduce"."""

    @property
    def overlaps(self) -> bool:
        """Whether messages travel while the gradient is computed; never changes the result, only the time."""
        return False

    def preload(self) -> None:  # noqa: B027  # most methods need nothing
        """Import what `init` would import, once, in the process that workers are forked from."""

    @abstractmethod
    def init(self, peer: Peer) -> Any:
        """This worker's state: a dataclass whose tensor, number and codec fields make up the checkpoint
        (testbed.methods.checkpoint saves and loads it)."""

    @abstractmethod
    def step(self, peer: Peer, state: Any) -> None:
        """One training step on peer.x."""

    def finish(self, peer: Peer, state: Any) -> None:  # noqa: B027  # most methods leave nothing under way
        """Complete the exchange that `step` may have left under way. Called before a checkpoint and at the end; waits
        only for messages already sent, so workers may call it at different times, and training may go on after it."""

    def public(self, peer: Peer, state: Any) -> Tensor | None:
        """What every neighbour knows of this worker and keeps a replica of, bit for bit (x̂): the tensor itself. None
        where neighbours keep nothing."""
        return None

    def join(self, peer: Peer, state: Any, others: Collection[int], known: Mapping[int, Tensor]) -> None:
        """These neighbours are back, and so is this worker to them: their weights, and whatever an edge needs, begin
        anew at both ends. `known` has their `public`. No exchange is under way (`finish`), peer.step comes next. The
        one that was away calls it too, after `init`, with the x and the `public` of the neighbour it copied."""
        raise TrainingError(f"{self.name} cannot take a worker back")

    @property
    def rejoins(self) -> bool:
        """Whether a worker that was lost can come back."""
        return self.survives and type(self).join is not Method.join

    def check(self, gossip: Gossip) -> list[str]:
        """Warnings about this method on this graph; raises ScenarioError where it cannot work at all."""
        return []

    def decided(self, state: Any) -> dict[str, float]:
        """What the method chose at run time, for the result: a tuned γ."""
        return {}
