"""`testbed exec`: runs one command inside a worker's network; all that it started ends when either side goes away."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

import click

from testbed.commands.options import NETWORK
from testbed.errors import NetworkError
from testbed.network import namespaces, state
from testbed.network.client import Client
from testbed.network.processes import adopt_orphans
from testbed.network.shells import move_in, stop_descendants
from testbed.network.waiting import readable

NOT_FOUND, NOT_RUNNABLE = 127, 126  # as shells have it


def run(worker: str, command: Sequence[str], name: str | None = None) -> int:
    """Run a command in a worker; return its exit status, or 128 + the signal that ended it."""
    handle = Client(state.pick(name))
    try:
        daemon = os.pidfd_open(handle.state.daemon)
    except ProcessLookupError as error:
        raise NetworkError(f"the network {handle.state.name} is gone") from error
    adopt_orphans()
    with handle.namespace(worker) as namespace:
        child = os.fork()
        if child == 0:
            _become(handle, namespace, worker, command)
    for number in (signal.SIGINT, signal.SIGQUIT):  # meant for the command, which shares our terminal
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    ended = os.pidfd_open(child)
    if ended not in readable([ended, daemon]):
        _stop_all()
        raise NetworkError(f"the network {handle.state.name} went down while {command[0]} ran in {worker}")
    _, status = os.waitpid(child, 0)
    _stop_all()
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _stop_all() -> None:
    """End what the command left running. What has ended already, or ends now, must not wait for us to notice."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    stop_descendants()


def _become(handle: Client, namespace: int, worker: str, command: Sequence[str]) -> None:
    """Move into the worker and become the command, in the child."""
    code = NOT_RUNNABLE
    try:
        namespaces.die_with_parent()
        move_in(handle, namespace, worker, handle.directory / "hosts")
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs expect them
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], list(command))
    except FileNotFoundError as error:
        code = NOT_FOUND
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
    finally:
        os._exit(code)


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("worker")
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@NETWORK
def command(worker: str, words: tuple[str, ...], name: str | None) -> None:
    """Run a command inside a worker's network: testbed exec w0 -- ping w1."""
    if words[0] != "--" and words[0].startswith("-"):  # all that follows the worker is the command
        raise click.UsageError(f"{words[0]} goes before the worker: testbed exec --name NAME {worker} -- COMMAND")
    sys.exit(run(worker, words[1:] if words[0] == "--" else words, name))
