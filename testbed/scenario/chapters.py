"""The chapters of the scenario reference: order, opening words and examples. testbed.commands.schema prints them,
with tables made from the models; tests load every example and every form.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.scenario.base import Model
from testbed.scenario.events import Event, RandomEvents
from testbed.scenario.graphs import ErdosRenyi, Gossip, GossipGraph, RandomPairs, RandomRegular, Topology, Torus, Tree
from testbed.scenario.links import Link, LinkOverride, Trace
from testbed.scenario.model import Docker, Runtime, Scenario, Transport, Workers
from testbed.scenario.network import Network, RegionMatrix, RegionPair
from testbed.scenario.task import Split, Task
from testbed.scenario.training import Compute, Milestones, Schedule, Target, Training
from testbed.scenario.verbs import VERBS


@dataclass(frozen=True)
class Table:
    """The table of one model, or of those of its keys that are named."""

    model: type[Model]
    title: str = ""  # above the table, where a chapter has several
    keys: tuple[str, ...] = ()
    one_of: bool = False  # exactly one key is chosen, so none has a default


@dataclass(frozen=True)
class Chapter:
    """One key of a scenario, or several that belong together."""

    title: str  # the key's path, as --set takes it
    text: str
    example: str  # a part of a scenario, or a whole one
    forms: tuple[str, ...] = ()  # all other ways to write it, a line each
    tables: tuple[Table, ...] = ()
    inventory: str = ""  # "methods", "compressors", "models": what the registries know


CHAPTERS = (
    Chapter(
        "A scenario",
        "A YAML file that says how many workers there are, what the network between them is like, what they train and"
        " which methods are compared. Only `methods` and the number of workers must be given. Wrong or unknown keys are"
        " told with file and line before anything starts; `testbed plan FILE` shows what would be built and run.",
        "workers: 8\nnetwork: {topology: ring, link: {latency: 25ms, rate: 10mbit}}\n"
        "training: {steps: 60, eval_every: 5, target: {accuracy: 90%}}\ncompute: {step_time: 50ms}\n"
        "methods: [allreduce, dpsgd, {choco: {compressor: sign}}]",
        tables=(Table(Scenario),),
    ),
    Chapter(
        "workers",
        "Each worker is isolated from the others and has one network card.",
        "workers: {count: 8, cpus: 1, memory: 2gb}",
        forms=("workers: 8", "workers: {count: 4, gpus: one-each}", "workers: {count: 4, cpus: {w0: 2, w3: 0.5}}"),
        tables=(Table(Workers),),
    ),
    Chapter(
        "network",
        "All workers reach all workers; what is not linked directly goes over the links between, and shares them.",
        "network:\n  topology: ring\n  link: {latency: 20ms, rate: 20mbit}\n"
        "  links:\n    - {between: [w0, w1], rate: 1mbit}",
        tables=(Table(Network),),
    ),
    Chapter(
        "network.link",
        "What every link does to packets, in each direction.",
        "network:\n  link: {latency: 40ms, rate: 10mbit, jitter: 2ms, loss: 0.1%, buffer: 100ms}",
        forms=(
            "network: {link: {latency: 0, rate: unlimited}}",
            "network: {link: {latency: 20ms, reorder: 1%, duplicate: 0.1%, corrupt: 0.1%}}",
            "network: {link: {latency: 50ms, jitter: {spread: 5ms, shape: pareto}}}",
            "network: {link: {trace: mobile-a.csv}}",
            "network: {link: {trace: {mahimahi: cellular.txt}}}",
        ),
        tables=(Table(Link), Table(Trace, "`trace`: a recording that changes the link over time", one_of=True)),
    ),
    Chapter(
        "network.links",
        "Links that differ from `network.link`: name the two ends, and what is different. What an entry leaves out"
        " stays as it is.",
        "network:\n  links:\n    - {between: [w0, w1], latency: 80ms, loss: 1%}   # both directions\n"
        "    - {from: w1, to: w2, rate: 5mbit}                # one direction",
        tables=(Table(LinkOverride),),
    ),
    Chapter(
        "network.topology",
        "Which nodes are linked. A name alone will do where there is nothing to choose.",
        "network:\n  topology: {torus: 2x4}",
        forms=(
            "network: {topology: ring}",
            "network: {topology: torus}",
            "network: {topology: {torus: {rows: 2, columns: 4}}}",
            "network: {topology: {tree: {branching: 3}}}",
            "network: {topology: {random-regular: {degree: 3, seed: 1}}}",
            "network: {topology: {erdos-renyi: {p: 0.4, seed: 1}}}",
            "network: {topology: {file: abilene.graphml}}",
            "network: {topology: {mininet: my_topo.py:MyTopo}}",
            "network: {topology: {links: [[w0, s0], [w1, s0], [w2, s0]]}}",
        ),
        tables=(
            Table(Topology, one_of=True),
            Table(Torus, "Options of `torus`"),
            Table(RandomRegular, "Options of `random-regular`"),
            Table(ErdosRenyi, "Options of `erdos-renyi`"),
            Table(Tree, "Options of `tree`"),
        ),
    ),
    Chapter(
        "methods",
        "How the workers agree on a model; each entry is trained on the same network from the same start. A name, or a"
        " name with options. One of your own is `file.py:Class` ([extending.md](extending.md)). `testbed methods NAME`"
        " prints a method's equations.",
        "methods:\n  - allreduce\n  - dpsgd\n  - choco: {compressor: {topk: 1%}, gamma: 0.05}",
        forms=(
            "methods: dpsgd",
            "methods: [allreduce, {dcd: {compressor: {quantize: 4bit}}}]",
            "methods: [choco: {compressor: {own_compressor.py:EveryNth: {n: 10}}}]",
        ),
        inventory="methods",
    ),
    Chapter(
        "compressor",
        "What methods that have a `compressor` option send instead of 32 bits per number: a name, a name with its main"
        " option, or a name with several.",
        "methods:\n  - choco: {compressor: sign}\n  - choco: {compressor: {topk: 1%}}\n"
        "  - choco: {compressor: {topk: {fraction: 1%, values: fp16}}}",
        inventory="compressors",
    ),
    Chapter(
        "task",
        "Model and data. A data set's name alone brings its usual model.",
        "task: {data: digits, model: {mlp: {hidden: [128]}}, batch: 16, split: {dirichlet: 0.5}}",
        forms=("task: digits", "task: quadratic", "task: {model: cnn}", "task: {data: text, model: lstm, carry: true}"),
        tables=(Table(Task),),
        inventory="models",
    ),
    Chapter(
        "task.split",
        "Who gets which data. The more the workers' data differ, the more gossip methods differ from all-reduce.",
        "task: {data: digits, split: {dirichlet: 0.1}}",
        forms=(
            "task: {data: digits, split: iid}",
            "task: {data: digits, split: {shards: 2}}",
            "task: {data: text, split: contiguous}",
            "task: {data: text, split: by-source}",
        ),
        tables=(Table(Split, one_of=True),),
    ),
    Chapter(
        "training",
        "The same for all methods.",
        "training:\n  steps: 500\n  lr: 0.1\n  eval_every: 10\n  target: {accuracy: 90%}",
        forms=(
            "training: {target: {accuracy: 0.9}}",
            "training: {target: {loss: 0.3}}",
            "training: {schedule: constant}",
            "training: {schedule: cosine}",
            "training: {schedule: {milestones: [300, 400]}}",
            "training: {schedule: {milestones: {at: [300, 400], factor: 0.2}}}",
        ),
        tables=(
            Table(Training),
            Table(Target, "`target`: what counts as done, on held-out data, by the workers' own models", one_of=True),
            Table(Schedule, "`schedule`: how the learning rate goes on after the warm-up", one_of=True),
            Table(Milestones, "Options of `milestones`"),
        ),
    ),
    Chapter(
        "compute",
        "How long a gradient takes. Eight workers on two cores compute four times slower than on eight: with a"
        " `step_time` above what they need, all of them take exactly that long, and only the network differs.",
        "compute: {step_time: 50ms}",
        forms=("compute: real", "compute: {emulated: 200ms}"),
        tables=(Table(Compute, one_of=True),),
    ),
    Chapter(
        "transport",
        "How workers hand messages to the network. Gossip keeps both directions of a link busy at once: a sender that"
        " fills its queue delays the acknowledgements of the other direction, and a step waits for the slowest message."
        " Each worker therefore measures what its connections carry and paces long messages slightly below; on real"
        " networks, too, as it asks nobody. Results say at which rate each method was paced.",
        "transport: {pacing: off}",
        forms=("transport: {pacing: auto}",),
        tables=(Table(Transport),),
    ),
    Chapter(
        "slow_motion",
        "With `slow_motion: 8` a second of the scenario lasts eight real ones: links, gradients, events, time-outs and"
        " work on processors are stretched, losses stay the same to the bit, and all results are in scenario time. What"
        " a worker computes is padded by its own processor time, so that waiting for a core no longer counts."
        " Not stretched are the kernel's and Gloo's own work (it seems cheaper by the factor), TCP's delayed"
        " acknowledgements, a connection's first retransmission, and the wall-clock windows of cubic and BBR. On a GPU"
        " all time of a gradient is padded, as the processor only waits for it.",
        "slow_motion: 8",
        forms=("slow_motion: auto", "slow_motion: 1", "slow_motion: 2.5"),
        tables=(Table(Scenario, keys=("slow_motion",)),),
    ),
    Chapter(
        "gossip",
        "Who averages with whom, and with which weights. All-reduce takes no notice of it. A graph's name or mapping is"
        " written as for `network.topology`.",
        "gossip: {graph: exponential, weights: uniform}",
        forms=(
            "gossip: ring",
            "gossip: {torus: 2x4}",
            "gossip: one-peer-exponential",
            "gossip: random-pairs",
            "gossip: {weights: [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]}",
        ),
        tables=(
            Table(Gossip),
            Table(
                GossipGraph,
                "Beside those of `network.topology` there are",
                keys=("one-peer-exponential", "random-pairs", "arcs"),
                one_of=True,
            ),
            Table(RandomPairs, "Options of `random-pairs`"),
        ),
    ),
    Chapter(
        "sweep, repeat, seed",
        "Any key but `name`, `repeat`, `box` and `runtime` can be swept: its path as for `--set`, and a list of values."
        " Entries of lists go by number, from 0. All combinations are run with every method, each `repeat` times.",
        "sweep:\n  network.link.latency: [5ms, 25ms, 100ms]\n  network.link.rate: [1gbit, 10mbit]\nrepeat: 3\nseed: 1",
        forms=(
            "sweep: {workers: [4, 8, 16]}",
            "sweep: {gossip: [ring, complete]}",
            "sweep: {training.lr: [0.1, 0.05]}",
        ),
    ),
    Chapter(
        "profiles",
        "Named changes, applied with `--profile NAME`. Keys are paths; `workers`, `network`, `network.link`, `task` and"
        " `training` may also be given as mappings, of which only the keys that are named change.",
        "profiles:\n  small: {workers: 4, training: {steps: 60}, network.link.rate: 50mbit}",
    ),
    Chapter(
        "network.regions",
        "Sites, clouds or continents. Without a topology each region is a switch with its workers around it, and all"
        " workers of a region share its links to the others. `within` and `between` set the links; what they leave out"
        " is as in `network.link`.",
        "network:\n  regions: {eu: [w0, w1], us: [w2, w3], asia: [w4, w5]}\n  within: {latency: 1ms, rate: 1gbit}\n"
        "  between: {latency: {eu: {us: 40ms, asia: 120ms}, us: {asia: 80ms}}, rate: 100mbit}",
        forms=(
            "network: {regions: {eu: [w0, w1], us: w2}, between: {latency: 40ms}}",
            "network: {regions: {eu: [w0, w1], us: w2}, between: [{regions: [eu, us], latency: 40ms, loss: 1%}]}",
        ),
        tables=(
            Table(RegionMatrix, "`between`, setting by setting: one value for all pairs, or `{eu: {us: 80ms}}`"),
            Table(RegionPair, "`between`, a list of pairs"),
        ),
    ),
    Chapter(
        "network.events",
        "What happens to links and workers while training runs; the same for every method. With"
        " `on_failure: continue` gossip methods go on without a worker that died, and take it back when it restarts.",
        "network:\n  events:\n    - {at: 30s, link: [w0, w1], rate: 1mbit, for: 10s}\n"
        "    - {at: step 100, kill: w2, for: 5s}\n    - {random: {kind: freeze, every: 30s}}\non_failure: continue",
        forms=(
            "network: {events: [{at: 30s, from: w0, to: w1, latency: 1s}]}",
            "network: {events: [{at: 30s, link: [w0, w1], down: }, {at: 40s, link: [w0, w1], up: }]}",
            "network: {events: [{at: 30s, down: [w0, w1], for: 5s, every: 20s}]}",
            "network: {events: [{at: 10s, flap: [w0, w1], for: 1s, every: 5s, until: 60s}]}",
            "network: {events: [{at: 30s, partition: [[w0, w1], [w2, w3]]}, {at: 40s, heal: true}]}",
            "network: {events: [{at: 20s, kill: [w1, w2]}, {at: 40s, restart: w1}]}",
            "network: {events: [{at: 20s, slow: w1, factor: 3, for: 30s}, {at: step 50, freeze: w2, for: 2s}]}",
        ),
        tables=(
            Table(Event, "What happens: exactly one of these", keys=tuple(VERBS), one_of=True),
            Table(Event, "When, and for how long", keys=("at", "for", "every", "until")),
            Table(Event, "More about it", keys=("to", "factor")),
            Table(RandomEvents, "Inside `random`"),
        ),
    ),
    Chapter(
        "runtime",
        "What isolates a worker. Loss curves are the same to the bit.",
        "runtime: {docker: {image: host}}",
        forms=("runtime: process", "runtime: docker"),
        tables=(Table(Runtime, one_of=True), Table(Docker, "Options of `docker`")),
    ),
)
