"""`testbed shell`: Mininet's command line on a running network. Leaving it leaves the network up.

Commands run in the workers through the shells, on the user's own terminal; nothing of Mininet's that needs its own
programs, switches or clean-up is used. Standard input that is no terminal is a script.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import shutil
import signal
import sys
import termios
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import click
from mininet.cli import CLI
from mininet.log import lg

from testbed.commands.options import NETWORK
from testbed.errors import MissingError, NetworkError, ScenarioError, TestbedError
from testbed.link import netem
from testbed.network import setting, state
from testbed.network.client import Client
from testbed.network.nodes import PINGS, Network, Worker
from testbed.network.shells import Shells
from testbed.plan.model import NetworkPlan
from testbed.scenario.base import suggestion
from testbed.scenario.units import Rate

# What Mininet's command line has for its own switches, controllers and X11, and what `pingall` does already.
NOT_OFFERED = {"dpctl", "gterm", "iperfudp", "noecho", "ports", "switch", "x", "xterm"}
NOT_OFFERED |= {"pingallfull", "pingpair", "pingpairfull"}
IPERF_SECONDS = 3.0
HELP = """\
A command for a worker starts with its name; names of other workers become their addresses:
  w0 ping -c1 w1        w0 python3 -m http.server &        w0 bash
Ctrl-C ends a command, Ctrl-\\ the worker's shell with it.
"""


class Prompt(CLI):  # type: ignore[misc]
    """Mininet's command line with our links, measurements and workers."""

    helpStr = HELP  # noqa: N815 - Mininet's name

    def __init__(self, network: Network, stdin: TextIO) -> None:
        self.prompt = f"{network.handle.state.name}> "
        self.status = 0  # of the last command
        super().__init__(network, stdin=stdin)  # runs until the user leaves

    # How commands are read

    def run(self) -> None:
        if not self.isatty():
            self.script(self.stdin)
            return
        before = termios.tcgetattr(self.stdin)
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # a command's business, like Ctrl-C
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # we may take the terminal back
        try:
            super().run()
        finally:
            termios.tcsetattr(self.stdin, termios.TCSADRAIN, before)
        self.status = 0

    def script(self, lines: Iterable[str]) -> None:
        for line in lines:
            if self.onecmd(self.precmd(line.rstrip("\n"))):
                return

    def precmd(self, line: str) -> str:
        """Drop whole lines of comment; within a command `#` belongs to the worker's shell."""
        return "" if line.lstrip().startswith("#") else line

    def onecmd(self, line: str) -> Any:
        word = line.split(maxsplit=1)[0] if line.strip() else ""
        try:
            if word not in ("exit", "quit", "EOF"):
                self._check_up()
            if word in self.mn:
                return self.default(line)
            if word in NOT_OFFERED:
                raise ScenarioError(f"{word} is not offered here", hint="help lists what is")
            return super().onecmd(line)
        except TestbedError as error:
            if not self.isatty() or not self.mn.handle.state.alive():
                raise
            self.status = error.exit_code
            print(f"error: {error}" + (f"\n  → {error.hint}" if error.hint else ""), file=sys.stderr)
            return None

    def get_names(self) -> list[str]:
        """Return what help and completion know."""
        return [name for name in super().get_names() if name.removeprefix("do_") not in {*NOT_OFFERED, "EOF"}]

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        """Complete commands and workers."""
        return [*super().completenames(text, *ignored), *(name for name in self.mn if name.startswith(text))]

    @classmethod
    def initReadline(cls) -> None:  # noqa: N802 - Mininet's name
        """Keep a history of our own, and none of scripts."""
        if not sys.stdin.isatty():
            return
        with contextlib.suppress(ImportError):
            import readline

            path = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "testbed" / "history"
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.exists():
                    readline.read_history_file(path)
                readline.set_history_length(1000)
                atexit.register(_save_history, path)

    # Commands in workers and on the host

    def default(self, line: str) -> None:
        name, _, command = line.strip().partition(" ")
        if name not in self.mn and name not in self.mn.handle.plan.routers:
            near = suggestion(name, self.completenames(""))
            raise ScenarioError(f"{name} is neither a command nor a worker{near}", hint="see help and nodes")
        worker = self.mn.worker(name)
        if not command.strip():
            raise ScenarioError(f"which command for {name}?", hint=f"for example: {name} ip address, or {name} bash")
        self._run(worker, " ".join(self.mn[word].address if word in self.mn else word for word in command.split(" ")))

    def do_sh(self, line: str) -> None:
        "Run a command on the host, outside the network: sh COMMAND"
        self._run(self.mn.host, line)

    def _run(self, worker: Worker, line: str) -> None:
        sys.stdout.flush()
        before = termios.tcgetattr(self.stdin) if self.isatty() else None
        self.status = worker.run(line)
        if before:  # whatever the command has done to the terminal, it is ours again
            os.tcsetpgrp(self.stdin.fileno(), os.getpgrp())
            termios.tcsetattr(self.stdin, termios.TCSADRAIN, before)
        self._check_up()  # or the command's end would look like its own

    def _check_up(self) -> None:
        if not self.mn.handle.state.alive():
            raise NetworkError(f"the network {self.mn.handle.state.name} is down")

    def do_source(self, line: str) -> None:
        "Run the commands of a file: source FILE"
        try:
            lines = Path(line.strip()).expanduser().read_text().splitlines()
        except OSError as error:
            raise ScenarioError(f"cannot read {line!r}: {error.strerror}") from error
        self.script(lines)

    # The network

    def do_nodes(self, line: str) -> None:
        "List workers and switches."
        plan = self.mn.handle.plan
        print("workers: " + " ".join(self.mn))
        if switches := [router for router in plan.routers if router not in self.mn]:
            print("switches: " + " ".join(switches))

    def do_net(self, line: str) -> None:
        "List who is connected with whom."
        plan = self.mn.handle.plan
        for router in plan.routers:
            others = [link.b if router == link.a else link.a for link in plan.links if router in (link.a, link.b)]
            print(f"{router}: {' '.join(others)}")

    def do_links(self, line: str) -> None:
        "Show what every link is asked to do now."
        links = setting.current(self.mn.handle).links
        width = max((len(link.name) for link in links), default=0)
        for link in links:
            if link.ab == link.ba:
                print(f"{link.name:{width}}  {setting.describe(link.ab)}")
            else:
                print(f"{f'{link.a}>{link.b}':{width}}  {setting.describe(link.ab)}")
                print(f"{f'{link.b}>{link.a}':{width}}  {setting.describe(link.ba)}")

    def do_set(self, line: str) -> None:
        "Change a link while it runs: set w0-w1 rate=10mbit latency=50ms, set w0>w1 loss=1%, set w0-w1 down"
        link, *words = _words(line, "set", at_least=1)
        setting.apply_and_show(self.mn.handle, link, words)

    def do_link(self, line: str) -> None:
        "Cut a link or mend it: link w0 w1 down, link w0 w1 up"
        a, b, what = _words(line, "link", 3, 3)
        setting.apply_and_show(self.mn.handle, f"{a}-{b}", [what])

    def do_pingall(self, line: str) -> None:
        "Ping between all workers: pingall [SECONDS to wait for an answer]"
        words = _words(line, "pingall", 0, 1)
        plan = setting.current(self.mn.handle)
        rank = {worker.name: worker.rank for worker in plan.workers}
        asked = plan.pairs.latency + plan.pairs.latency.T
        patience = _seconds(words[0]) if words else 1.0 + 2 * float(asked.max(initial=0.0))
        found = self.mn.ping(patience)
        print("round trips in ms, measured (asked)")
        for source in self.mn:
            others = [other for other in self.mn if other != source]
            answers = [_answer(o, found[source, o], asked[rank[source], rank[o]]) for o in others]
            print(f"{source} -> " + "  ".join(answers))
        received, sent = sum(map(len, found.values())), PINGS * len(found)
        print(f"{100 * (1 - received / sent) if sent else 0:.0f}% dropped ({received}/{sent} received)")
        self.status = int(received < sent)

    def do_iperf(self, line: str) -> None:
        "Measure TCP between two workers: iperf [FROM TO [SECONDS]]; needs no program in the workers"
        words = _words(line, "iperf", 0, 3) or list(self.mn)[:2]
        if len(words) < 2:
            raise ScenarioError("iperf needs two workers", hint="iperf w0 w1")
        source, target = (self.mn.worker(name).name for name in words[:2])
        if source == target:
            raise ScenarioError("iperf measures between two different workers")
        rate, rtt = _asked(setting.current(self.mn.handle), source, target)
        seconds = _seconds(words[2]) if len(words) > 2 else IPERF_SECONDS
        goodput = self.mn.goodput(source, target, 0.25 + 12 * rtt, seconds)
        ideal = "" if rate is None else f", of at most {_mbit(netem.ideal_goodput(rate))} at {Rate(rate)}"
        print(f"{source} -> {target}: {_mbit(goodput)} Mbit/s{ideal}")
        self.status = int(goodput == 0)


def run(name: str | None, stdin: TextIO) -> int:
    """Open the shell on a running network; return the exit status of a script's last command, else 0."""
    if shutil.which("bash") is None:
        raise MissingError("the shell needs bash", hint="apt-get install bash")
    lg.handlers[0].stream = sys.stdout  # Mininet logs what it prints
    handle = Client(state.pick(name))
    interactive = stdin.isatty()
    shells = Shells(handle, stdin=interactive)
    try:
        if interactive:
            print(f"{handle.state.name}: {len(handle.plan.workers)} workers, box {handle.state.box}; help, exit")
        return int(Prompt(Network(handle, shells, interactive), stdin).status)
    finally:
        shells.close()


def _words(line: str, command: str, at_least: int, at_most: int | None = None) -> list[str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise ScenarioError(f"{command} {line}: {error}") from error
    if len(words) < at_least or (at_most is not None and len(words) > at_most):
        usage = (getattr(Prompt, f"do_{command}").__doc__ or "").partition(": ")[2]
        raise ScenarioError(f"{command} takes other words", hint=usage)
    return words


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise ScenarioError(f"{text!r} is not a number of seconds")
    return seconds


def _asked(plan: NetworkPlan, source: str, target: str) -> tuple[int | None, float]:
    """Return the slowest rate on the way and the round trip, as asked of the links."""
    rank = {worker.name: worker.rank for worker in plan.workers}
    path = plan.forwarding.path(rank[source], rank[target])
    return path.rate, path.rtt


def _answer(target: str, times: list[float], asked: float) -> str:
    return f"{target} {1000 * min(times):.1f} ({1000 * asked:.4g})" if times else f"{target} X"


def _mbit(rate: float) -> str:
    return f"{rate / 1e6:.4g}"


def _save_history(path: Path) -> None:
    import readline

    with contextlib.suppress(OSError):  # a history is not worth an error at the end
        readline.write_history_file(path)


@click.command("shell")
@NETWORK
def command(name: str | None) -> None:
    """Mininet's command line on a running network: w0 ping w1, pingall, iperf, links, set, help.

    Commands come from standard input where that is no terminal. Leaving stops what was started from here; the network
    stays up.
    """
    sys.exit(run(name, sys.stdin))
