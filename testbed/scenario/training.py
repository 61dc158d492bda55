"""The training settings: steps, optimiser, where compute time comes from, and the methods to compare."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, Strict, model_validator

from testbed.scenario.base import WHOLE, Choice, Model, Natural, Nothing, Number, Positive, Span
from testbed.scenario.named import Named
from testbed.scenario.units import Duration, Share


class Milestones(Model):
    """The learning rate falls at given steps."""

    short: ClassVar[str | None] = "at"

    at: tuple[Positive, ...] = Field(min_length=1, description="Steps at which it falls, ascending, e.g. [300, 400].")
    factor: Number = Field(default=0.1, gt=0, lt=1, description="What it is multiplied with at each.")

    @model_validator(mode="after")
    def _ascending(self) -> Milestones:
        if any(a >= b for a, b in zip(self.at, self.at[1:], strict=False)):
            raise ValueError("milestones must ascend")
        return self


class Schedule(Choice):
    """How the learning rate changes after the warm-up."""

    what: ClassVar[str] = "schedule"

    constant: Nothing | None = Field(default=None, description="It stays.")
    cosine: Nothing | None = Field(default=None, description="It falls to 0 along half a cosine over all steps.")
    milestones: Milestones | None = Field(
        default=None, description="It falls at these steps: [300, 400], or {at: [300, 400], factor: 0.1}."
    )


class Target(Choice):
    """What counts as done, measured on held-out data with the mean of all workers' models."""

    what: ClassVar[str] = "target"

    accuracy: Share | None = Field(default=None, description="At least this accuracy, e.g. 0.8 or 80%. For images.")
    loss: Number | None = Field(default=None, description="At most this loss, e.g. 0.3. For every task.")


class Training(Model):
    """Steps and optimiser; the same for all methods."""

    steps: Annotated[int, Strict(), Field(ge=1, le=10**9), WHOLE] = Field(
        default=300,
        description="Training steps of each worker. Take as many as the slowest method needs to reach the target.",
    )
    lr: Number = Field(
        default=0.1,
        gt=0,
        description="Learning rate. Lower it if the loss jumps or grows; compression often needs less.",
    )
    momentum: Number = Field(
        default=0.9,
        ge=0,
        lt=1,
        description="Local momentum of each worker, never mixed; 0 is plain SGD, as in most proofs.",
    )
    nesterov: bool = Field(
        default=False,
        description="Nesterov's momentum. Turn it on to repeat a paper that uses it.",
    )
    weight_decay: Number = Field(
        default=0.0, ge=0, description="L2 penalty. 1e-4 is usual for resnet20; small tasks need none."
    )
    warmup: Natural = Field(
        default=0,
        description="Steps over which the learning rate rises from 0. Raise it if training blows up at the start.",
    )
    schedule: Schedule = Field(
        default=Schedule.model_validate("constant"),
        description="How the learning rate falls: constant, cosine or {milestones: [300, 400]}. Let it fall where the "
        "loss stops falling before the target.",
    )
    eval_every: Positive = Field(
        default=50,
        description="Steps between evaluations. Far fewer than `steps` where there is a target: they say "
        "when it was reached. They cost time, which is kept out of the comparison.",
    )
    checkpoint_every: Positive | None = Field(
        default=None,
        description="Steps between checkpoints, from which `testbed up --resume` goes on with a cell that was "
        "interrupted, to the same bits. For cells that take hours: writing takes time, which is kept out of the "
        "comparison. Not with events, traces or on_failure: continue; ddp starts afresh all the same. Default: none, "
        "a cell begins anew.",
    )
    target: Target | None = Field(
        default=None,
        description="{accuracy: 0.8} or {loss: 0.3}: the report then says how long each method took to get there. Set "
        "it: without one only the times of a step can be compared. Default: none.",
    )

    @model_validator(mode="after")
    def _possible(self) -> Training:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum above 0")
        return self


class Compute(Choice):
    """Where the time of a gradient comes from."""

    what: ClassVar[str] = "compute"

    real: Nothing | None = Field(
        default=None,
        description="It takes as long as it takes on this machine. For workers with cores or GPUs of their own.",
    )
    step_time: Span | None = Field(
        default=None,
        description="Each gradient is computed and takes exactly this long, as on a machine of another speed. Use it "
        "when workers share cores: they then do not distort the comparison.",
    )
    emulated: Duration | None = Field(
        default=None,
        description="No gradient is computed: workers wait this long and exchange messages of the model's true size. "
        "Times are right, losses mean nothing. For models too large for this machine.",
    )


class MethodChoice(Named):
    """A method to compare: its name, or {name: {options}}, e.g. {choco: {compressor: sign}}."""

    what: ClassVar[str] = "method"
    known: ClassVar[tuple[str, ...]] = (
        "allreduce",
        "ddp",
        "ring",
        "dpsgd",
        "sgp",
        "naive",
        "dcd",
        "ecd",
        "deepsqueeze",
        "choco",
        "powergossip",
        "ef_sign",
    )


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


_Several = Annotated[tuple[MethodChoice, ...], Field(min_length=1)]
Methods = Annotated[_Several, BeforeValidator(_one_or_more, json_schema_input_type=str | _Several)]
