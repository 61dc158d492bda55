"""`testbed exec`: one command inside a worker's network, ended with whatever it started when either side goes away."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Sequence

from testbed.errors import NetworkError
from testbed.network import namespaces, state
from testbed.network.handle import Handle
from testbed.network.processes import adopt_orphans
from testbed.network.warden import move_in, stop_descendants

NOT_FOUND, NOT_RUNNABLE = 127, 126  # as shells have it


def run(worker: str, command: Sequence[str], name: str | None = None) -> int:
    """Run a command in a worker; its exit status, or 128 + the signal that ended it."""
    handle = Handle(state.pick(name))
    try:
        keeper = os.pidfd_open(handle.state.keeper)
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
    ready, _, _ = select.select([ended, keeper], [], [])
    if ended not in ready:
        _stop_all()
        raise NetworkError(f"the network {handle.state.name} went down while {command[0]} ran in {worker}")
    _, status = os.waitpid(child, 0)
    _stop_all()
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _stop_all() -> None:
    """End what the command left running. What has ended already, or ends now, must not wait for us to take notice."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    stop_descendants()


def _become(handle: Handle, namespace: int, worker: str, command: Sequence[str]) -> None:
    """In the child: move into the worker and turn into the command."""
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
