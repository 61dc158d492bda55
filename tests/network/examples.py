"""Networks that the tests of this folder build, as plans, and what they do with those that are up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.network import measure
from testbed.network.client import Client
from testbed.network.measure import End
from testbed.plan.make import plan
from testbed.plan.model import NetworkPlan
from testbed.scenario.load import loads
from testbed.scenario.model import Scenario

COMMAND = [sys.executable, "-m", "testbed.cli"]

LOOKS = 4  # at most, where the machine is disturbed


def scenario(network: str, workers: int | None = None, name: str = "net") -> Scenario:
    """Of a network's YAML in braces."""
    count = "" if workers is None else f"workers: {workers}\n"
    return loads(f"name: {name}\n{count}network: {network}\nmethods: [allreduce]\n", "scenario.yaml")


def network(text: str, workers: int | None = None, name: str = "net") -> NetworkPlan:
    return plan(scenario(text, workers, name), cores=2).network


def command(*words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """`testbed …`, to its end."""
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
    )


@contextmanager
def ends(handle: Client, names: Iterable[str] | None = None) -> Iterator[dict[str, End]]:
    """Workers as measurements want them; for use inside `handle.run`."""
    wanted = [worker for worker in handle.plan.workers if names is None or worker.name in names]
    with ExitStack() as stack:
        yield {w.name: End(w.name, stack.enter_context(handle.namespace(w.name)), w.address) for w in wanted}


def fastest(handle: Client, *pairs: tuple[str, str], count: int = 5, patience: float = 1.0) -> list[float | None]:
    """The shortest of a few round trips of each pair, which a busy machine does not lengthen; None: no answer. Asked
    again where a hypervisor took processors away meanwhile, which lengthens them all."""

    def ask(inner: Client) -> list[float | None]:
        with ends(inner) as found:
            times = measure.round_trips([(found[a], found[b]) for a, b in pairs], count, patience, spin=False)
            return [min(some, default=None) for some in times]

    looks = []
    for _ in range(LOOKS):
        before = stolen()
        looks.append(handle.run(ask))
        if stolen() == before:
            break
    return [min((time for time in some if time is not None), default=None) for some in zip(*looks, strict=True)]


def stolen() -> int:
    """Processor time that a hypervisor gave to others, in ticks since the machine started."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])


def goodput(handle: Client, *pairs: tuple[str, str], warm_up: float = 0.6, window: float = 0.8) -> list[float]:
    """TCP streams side by side, bit/s."""

    def ask(inner: Client) -> list[float]:
        with ends(inner) as found:
            return measure.tcp_goodput([(found[a], found[b]) for a, b in pairs], warm_up, window, slices=2)

    return handle.run(ask)
