"""A running network as nodes by name, the way Mininet's command line wants it. The shell makes it.

Commands run through the warden; measurements open sockets in the workers and need no program there.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Iterable, Iterator

from testbed.errors import NetworkError
from testbed.network import measure
from testbed.network.handle import Handle
from testbed.network.measure import End
from testbed.network.warden import Shell, Warden
from testbed.scenario.base import suggestion

PINGS = 2  # per pair


class Worker:
    """A worker as commands see it; what Mininet's command line wants of a node."""

    waiting = False  # for Mininet: nothing runs behind its back

    def __init__(self, name: str | None, address: str, warden: Warden, interactive: bool) -> None:
        self.name, self.address = name, address
        self._warden = warden
        self._interactive = interactive
        self._shell: Shell | None = None

    def run(self, line: str) -> int:
        """Run a command on our terminal; its exit status. `cd`, variables and background jobs stay for the next one."""
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
        """What a command prints, for `py`."""
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
    """The terminal sends Ctrl-C to the command as well: that one decides. An exception here could lose its answer."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Network(dict[str, Worker]):
    """The running network as Mininet's command line wants it: nodes by name."""

    def __init__(self, handle: Handle, warden: Warden, interactive: bool) -> None:
        self.handle = handle
        workers = handle.plan.workers
        super().__init__({w.name: Worker(w.name, w.address, warden, interactive) for w in workers})
        self.host = Worker(None, "", warden, interactive)

    def worker(self, name: str) -> Worker:
        if name in self:
            return self[name]
        if name in self.handle.plan.routers:
            raise NetworkError(f"{name} is a switch: it lives in the box, commands run in workers")
        raise NetworkError(f"there is no worker {name}{suggestion(name, list(self))}", hint="nodes lists them")

    def rounds(self) -> Iterator[list[tuple[str, str]]]:
        """All ordered pairs; in a round every worker is asked once and asks once, so that they do not disturb."""
        names = list(self)
        for step in range(1, len(names)):
            yield [(name, names[(i + step) % len(names)]) for i, name in enumerate(names)]

    def ping(self, patience: float) -> dict[tuple[str, str], list[float]]:
        """Round trips of every ordered pair of workers."""

        def ask(inner: Handle) -> dict[tuple[str, str], list[float]]:
            found: dict[tuple[str, str], list[float]] = {}
            with self._ends(inner, self) as ends:
                for pairs in self.rounds():
                    times = measure.round_trips([(ends[a], ends[b]) for a, b in pairs], PINGS, patience)
                    found |= dict(zip(pairs, times, strict=True))
            return found

        return self.handle.run(ask)

    def goodput(self, source: str, target: str, warm_up: float, seconds: float) -> float:
        """TCP from one worker to another, bit/s."""

        def ask(inner: Handle) -> float:
            with self._ends(inner, (source, target)) as ends:
                return measure.tcp_goodput([(ends[source], ends[target])], warm_up, seconds)[0]

        return self.handle.run(ask)

    @contextlib.contextmanager
    def _ends(self, handle: Handle, names: Iterable[str]) -> Iterator[dict[str, End]]:
        with contextlib.ExitStack() as stack:
            yield {n: End(n, stack.enter_context(handle.namespace(n)), self[n].address) for n in names}
