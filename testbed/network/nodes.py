"""A running network as nodes by name, as Mininet's command line expects it. `testbed shell` makes it.

Commands run through the shells; measurements open sockets in the workers and need no program there.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Iterable, Iterator

from testbed.errors import NetworkError
from testbed.network import measure
from testbed.network.client import Client
from testbed.network.measure import End
from testbed.network.shells import Shell, Shells
from testbed.scenario.base import suggestion

PINGS = 2  # per pair


class Worker:
    """A worker as a node of Mininet's command line."""

    waiting = False  # for Mininet: nothing runs behind its back

    def __init__(self, name: str | None, address: str, shells: Shells, interactive: bool) -> None:
        self.name, self.address = name, address
        self._warden = shells
        self._interactive = interactive
        self._shell: Shell | None = None

    def run(self, line: str) -> int:
        """Run a command on our terminal; return its exit status. `cd`, variables and background jobs persist."""
        with _interrupts_ignored() if self._interactive else contextlib.nullcontext():
            return self._run(line)

    def _run(self, line: str) -> int:
        if self._shell is None:
            self._shell = self._warden.shell(self.name)
        try:
            status = self._shell.run(line)
        except BrokenPipeError:  # somebody ended the shell since the last command
            self._forget()
            return self._run(line)
        if self._shell.ended:
            self._forget()
        return status

    def _forget(self) -> None:
        assert self._shell
        self._shell.close()
        self._shell = None

    def cmd(self, line: str) -> str:
        """Return what a command prints, for `py`."""
        with tempfile.NamedTemporaryFile("r") as file:
            self.run(f"{{ {line}\n}} > {file.name} 2>&1")
            return file.read()

    def IP(self) -> str:  # noqa: N802 - Mininet's name
        return self.address

    def intfNames(self) -> list[str]:  # noqa: N802 - Mininet's name
        return ["eth0"]

    def __repr__(self) -> str:
        return f"<worker {self.name}: eth0 {self.address}>"


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C: the terminal sends it to the command, too, which decides. Raising could lose its answer."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Network(dict[str, Worker]):
    """The running network as Mininet's command line expects it: nodes by name."""

    def __init__(self, handle: Client, shells: Shells, interactive: bool) -> None:
        self.handle = handle
        workers = handle.plan.workers
        super().__init__({w.name: Worker(w.name, w.address, shells, interactive) for w in workers})
        self.host = Worker(None, "", shells, interactive)

    def worker(self, name: str) -> Worker:
        if name in self:
            return self[name]
        if name in self.handle.plan.routers:
            raise NetworkError(f"{name} is a switch: it lives in the box, commands run in workers")
        raise NetworkError(f"there is no worker {name}{suggestion(name, list(self))}", hint="nodes lists them")

    def rounds(self) -> Iterator[list[tuple[str, str]]]:
        """Yield all ordered pairs in rounds, in which every worker asks once and is asked once: undisturbed."""
        names = list(self)
        for step in range(1, len(names)):
            yield [(name, names[(i + step) % len(names)]) for i, name in enumerate(names)]

    def ping(self, patience: float) -> dict[tuple[str, str], list[float]]:
        """Return round trips of every ordered pair of workers. All times are in scenario time."""
        factor = self.handle.plan.slow_motion

        def ask(inner: Client) -> dict[tuple[str, str], list[float]]:
            found: dict[tuple[str, str], list[float]] = {}
            with self._ends(inner, self) as ends:
                for pairs in self.rounds():
                    real = measure.round_trips([(ends[a], ends[b]) for a, b in pairs], PINGS, patience * factor)
                    times = [[one / factor for one in some] for some in real]
                    found |= dict(zip(pairs, times, strict=True))
            return found

        return self.handle.run(ask)

    def goodput(self, source: str, target: str, warm_up: float, seconds: float) -> float:
        """Return the TCP goodput from one worker to another, in bit/s of scenario time."""
        factor = self.handle.plan.slow_motion

        def ask(inner: Client) -> float:
            with self._ends(inner, (source, target)) as ends:
                pairs = [(ends[source], ends[target])]
                return factor * measure.tcp_goodput(pairs, warm_up * factor, seconds * factor)[0]

        return self.handle.run(ask)

    @contextlib.contextmanager
    def _ends(self, handle: Client, names: Iterable[str]) -> Iterator[dict[str, End]]:
        with contextlib.ExitStack() as stack:
            yield {n: End(n, stack.enter_context(handle.namespace(n)), self[n].address) for n in names}
