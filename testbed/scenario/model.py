"""The scenario: the one thing users write, validated. Loading makes it, plan and controller read it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Strict, Tag

from testbed.scenario.base import WHOLE, Choice, Model, Natural, Nothing, Number, Span
from testbed.scenario.events import Event, RandomEvents, Step
from testbed.scenario.graphs import (
    WORKER,
    ErdosRenyi,
    Gossip,
    GossipGraph,
    RandomPairs,
    RandomRegular,
    Topology,
    Torus,
    Tree,
)
from testbed.scenario.links import Link, LinkOptions, LinkOverride, Trace
from testbed.scenario.network import Network, RegionMatrix, RegionPair
from testbed.scenario.profiles import Profiles
from testbed.scenario.source import Keys, Source
from testbed.scenario.task import ModelChoice, Split, Task
from testbed.scenario.training import (
    Compute,
    MethodChoice,
    Methods,
    Milestones,
    Schedule,
    Target,
    Training,
)
from testbed.scenario.units import UNLIMITED, Duration, Rate, Share, Size

__all__ = [
    "UNLIMITED",
    "WORKER",
    "Compute",
    "Docker",
    "Duration",
    "ErdosRenyi",
    "Event",
    "Gossip",
    "GossipGraph",
    "Link",
    "LinkOptions",
    "LinkOverride",
    "MethodChoice",
    "Milestones",
    "ModelChoice",
    "Network",
    "RandomEvents",
    "RandomPairs",
    "RandomRegular",
    "Rate",
    "RegionMatrix",
    "RegionPair",
    "Runtime",
    "Scenario",
    "Schedule",
    "Share",
    "Size",
    "Split",
    "Step",
    "Target",
    "Task",
    "Topology",
    "Torus",
    "Trace",
    "Training",
    "Transport",
    "Tree",
    "Workers",
]

MOST_WORKERS = 1024


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, int) else value


_Numbers = Annotated[tuple[Natural, ...], Field(min_length=1)]
Gpus = Annotated[_Numbers, BeforeValidator(_one_or_more, json_schema_input_type=Natural | _Numbers)]
Cpus = Annotated[Number, Field(ge=0.01)]  # the kernel takes no less
SLOWEST = 64.0  # times
Factor = Annotated[Number, Field(ge=1, le=SLOWEST)]


class Workers(Model):
    """The workers: how many, and what each may use."""

    short: ClassVar[str | None] = "count"

    count: Annotated[int, Strict(), Field(ge=1, le=MOST_WORKERS), WHOLE] | None = Field(
        default=None,
        description="How many. They are called w0, w1, … More share the same cores: give `compute` a step_time then. "
        "Default: what the topology or the regions say; needed where they do not.",
    )
    gpus: Annotated[
        Annotated[Literal["auto", "one-each", "share", "none"], Tag("name")] | Annotated[dict[str, Gpus], Tag("each")],
        Discriminator(lambda value: "each" if isinstance(value, dict) else "name"),
    ] = Field(
        default="auto",
        examples=["auto", "one-each", "share", "none", {"w0": 0, "w1": [1]}],
        description="auto: one GPU each if there are enough, else shared, else CPU. one-each: stop if there are too "
        "few. share: each has one, dealt out in turn, so several may have the same. none: CPU only, for "
        "runs that must not depend on the machine. Or by worker: {w0: 0, w1: [1]}.",
    )
    cpus: (
        Annotated[
            Annotated[Cpus, Tag("one")] | Annotated[dict[str, Cpus], Tag("each")],
            Discriminator(lambda value: "each" if isinstance(value, dict) else "one"),
        ]
        | None
    ) = Field(
        default=None,
        examples=[1, 0.5, {"w0": 2, "w1": 0.5}],
        description="Cores each worker may use, e.g. 1 or 0.5, so that none takes another's; or by worker, {w0: 2, "
        "w1: 0.5}, to make some slow. Default: no limit.",
    )
    memory: Size | None = Field(
        default=None,
        description="Memory each worker may use, e.g. 2gb. Set it where one that grows must not bring down the "
        "others. Default: no limit.",
    )


class Docker(Model):
    """Workers in Docker containers."""

    image: str = Field(
        default="host",
        min_length=1,
        description="`host` runs this machine's own Python in an empty container: nothing to build or pull. Or an "
        "image that `testbed image build` made, to run the same software on every machine.",
    )


class Runtime(Choice):
    """What isolates a worker."""

    what: ClassVar[str] = "runtime"

    process: Nothing | None = Field(
        default=None, description="A process in its own network namespace: nothing to install, starts fastest."
    )
    docker: Docker | None = Field(
        default=None,
        description="A Docker container, with this machine's own Python unless {docker: {image: …}} names an image. "
        "Needs root and an engine on this machine.",
    )


class Transport(Model):
    """How workers hand messages to the network."""

    pacing: Literal["auto", "off"] = Field(
        default="auto",
        description="auto: workers find out how fast each connection delivers and send long messages just below that, "
        "so that queues stay short and all neighbours' messages arrive together. off: as fast as TCP likes. Set off "
        "to see what that gains; losses are the same. Gloo's own all-reduce is never paced.",
    )


class Scenario(Model):
    """Workers, the network between them, what they train and the methods to compare."""

    name: str = Field(
        default="scenario",
        pattern=r"^[a-z0-9][a-z0-9-]*$",
        max_length=40,
        description="For the run's directory and report: at most 40 small letters, digits and dashes. Default: the "
        "file's name.",
    )
    workers: Workers = Field(
        default=Workers(),
        description="How many workers, e.g. 8; or {count: 8, gpus: one-each, cpus: 1, memory: 2gb}. Default: as many "
        "as the topology or the regions name.",
    )
    network: Network = Field(
        default=Network(), description="The network between the workers. Default: a ring of links with 5ms and 100mbit."
    )
    gossip: Gossip = Field(
        default=Gossip(),
        description="Who averages with whom, for gossip methods: a graph's name or mapping, one-peer-exponential, or "
        "{graph: ring, weights: uniform}. Default: the network's own neighbours; a ring where only switches connect "
        "the workers.",
    )
    task: Task = Field(
        default=Task.model_validate({}),
        description="What is trained: a name such as digits, or {model: resnet20, data: cifar10, batch: 32}. Default: "
        "digits, 1797 small images, with a dense network: seconds on any machine.",
    )
    training: Training = Field(
        default=Training(),
        description="Steps, learning rate and target; the same for all methods. Default: 300 steps, no target.",
    )
    compute: Compute = Field(
        default=Compute.model_validate("real"),
        description="real, {step_time: 60ms} or {emulated: 60ms}: how long a gradient takes. Give a step_time "
        "wherever workers share cores.",
    )
    transport: Transport = Field(
        default=Transport(),
        description="How workers hand messages to the network: {pacing: auto} or {pacing: off}. Default: they find "
        "the rate of each connection themselves.",
    )
    methods: Methods = Field(
        examples=["dpsgd", ["allreduce", "dpsgd"], [{"choco": {"compressor": "sign"}}]],
        description="Methods to compare, e.g. [allreduce, dpsgd, choco: {compressor: sign}]. Keep allreduce among "
        "them: the report compares with it.",
    )
    on_failure: Literal["stop", "continue"] = Field(
        default="stop",
        description="When a worker dies: stop this method's training (it counts as failed), or continue with the "
        "others where the method can: gossip methods can, all-reduce cannot. Choose continue to study faults. A "
        "worker that an event freezes for longer than the others wait (`patience`) counts as dead; one that "
        "hangs by itself ends the cell, which names it.",
    )
    sweep: dict[str, tuple[Any, ...]] = Field(
        default={},
        examples=[{"training.lr": [0.1, 0.05]}],
        description="Keys to vary and their values, e.g. network.link.latency: [5ms, 25ms]; all combinations are run, "
        "up to 1000. Use it to find where one method overtakes another. Default: nothing varies.",
    )
    profiles: Profiles = Field(
        default={},
        examples=[{"small": {"training.steps": 60}}],
        exclude=True,  # a scenario that was loaded has none: they have been applied
        description="Named changes for `--profile NAME`, e.g. small: {training.steps: 60, workers: 8}; keys as in "
        "--set. Use them for a small form of a large comparison. Default: none.",
    )
    repeat: Annotated[int, Strict(), Field(ge=1, le=1000), WHOLE] = Field(
        default=1,
        description="Runs of each method on each network, with seeds seed, seed + 1, … Take 3 or more before you "
        "believe a small difference: the report then shows the spread.",
    )
    seed: Annotated[int, Strict(), Field(ge=0, lt=2**63), WHOLE] = Field(
        default=1,
        description="Seed of initial models, data order and noise; the same for all methods. Change it to see whether "
        "a result was luck; `repeat` does so for you.",
    )
    runtime: Runtime = Field(
        default=Runtime.model_validate("process"),
        description="What a worker runs in: process, docker or {docker: {image: host}}. Results are the same; choose "
        "docker for an image of its own or to shut workers off from this machine's files.",
    )
    box: Literal["auto", "host", "uml"] = Field(
        default="auto",
        description="Where the emulated network lives: this kernel (host), a User-Mode-Linux guest (uml) for kernels "
        "without netem, or whichever works (auto). Name one to get an error instead of the other.",
    )
    slow_motion: (
        Annotated[
            Annotated[Literal["auto"], Tag("name")] | Annotated[Factor, Tag("factor")],
            Discriminator(lambda value: "name" if isinstance(value, str) else "factor"),
        ]
        | None
    ) = Field(
        default=None,
        examples=["auto", 1, 2.5, 8],
        description="How many real seconds a second of the scenario lasts, 1 to 64. Links, gradients, events and "
        "work on processors are stretched by it, so that few cores can stand for many; all results are in scenario "
        "time. auto: the least that this machine needs for this network and these methods. Choose 1 to watch in real "
        "time. Default: auto where `compute` says how long a gradient takes, else 1.",
    )
    deadline: Span = Field(
        default=Duration(3600),
        description="Longest time one training run may take; it then counts as failed. Raise it for long training.",
    )
    patience: Span | None = Field(
        default=None,
        description="How long a worker waits for a message before it gives up on the sender. Raise it if workers are "
        "given up that were only slow; lower it to notice dead ones sooner. Default: 10s, or 20 times the longest "
        "step expected on this network if that is more, and longer where events cut links for a while.",
    )

    _source: Source = PrivateAttr(default_factory=Source)

    @property
    def source(self) -> Source:
        return self._source

    def where(self, path: str | Keys = "") -> str:
        """Return "file.yaml:12": where a key was written, e.g. where("network.links.1.between")."""
        return self._source.where(path)

    def resolve(self, file: str) -> Path:
        """Return a file that the scenario names, relative to the scenario's own directory."""
        return self._source.directory / file

    @property
    def worker_count(self) -> int | None:
        """Return the number of workers; None where only a topology's file has it."""
        return self.workers.count if self.workers.count is not None else self.network.worker_count

    @property
    def chooses_slow_motion(self) -> bool:
        """Whether the factor is to be found out. A real gradient shows how fast this machine is, and stays as it is
        unless the user asks for more."""
        return self.slow_motion == "auto" or (self.slow_motion is None and self.compute.real is None)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seed of each repeat."""
        return tuple(self.seed + number for number in range(self.repeat))


def with_source(scenario: Scenario, source: Source) -> Scenario:
    scenario._source = source
    return scenario
