"""Shells in workers that never outlive the process that asked for them. `testbed shell` runs its commands through this.

A helper process sits between `testbed shell` and the workers' shells. All that these start, detached or not, stays
below it; when the asking process ends in any way, or the network goes down, the helper stops what is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from testbed.errors import NetworkError
from testbed.network import namespaces
from testbed.network.client import Client
from testbed.network.processes import adopt_orphans, descendants
from testbed.network.waiting import readable
from testbed.network.wire import read_line, send_line

CLONE_NEWUTS = 0x04000000
POLITE_SECONDS = 1.0  # between asking what is left to end and ending it
PATIENCE_SECONDS = 60.0  # which killed processes may take to go, where many wait for a processor
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)  # meant for commands, not for the shells
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

# Reads commands from descriptor 3 and answers each one's exit status on descriptor 4. It evaluates them itself, so that
# `cd`, variables and background jobs stay; they have the terminal as it is. Ctrl-C reaches this shell, too: while a
# command runs, it jumps out of the command's lists and loops (not out of functions; Ctrl-\ ends those with the shell).
LOOP = r"""
trap '{ echo "$? end" >&4; } 2>/dev/null' EXIT
while true; do
  trap : INT QUIT
  if [[ $testbed_busy ]]; then testbed_busy=; echo 130 >&4; fi
  IFS= read -r -d '' -u 3 testbed_line || { (($? > 128)) && continue; break; }
  testbed_busy=1
  trap 'continue 99 2>/dev/null' INT
  trap 'exit 131' QUIT
  eval "$testbed_line" 3<&- 4>&-
  testbed_status=$?
  trap : INT QUIT
  testbed_busy=
  echo $testbed_status >&4
done
"""


class Shells:
    """Starts shells in workers and, at the end, stops everything they started."""

    def __init__(self, handle: Client, *, stdin: bool) -> None:
        """`stdin`: whether commands may read the standard input; else theirs is empty."""
        self._control, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._control.close()
                _serve(theirs, handle, stdin)
            finally:
                os._exit(0)
        theirs.close()

    def shell(self, worker: str | None) -> Shell:
        """Return a shell in a worker, or on the host as this process sees it."""
        (commands_out, commands_in), (status_out, status_in) = os.pipe(), os.pipe()
        try:
            send_line(self._control, {"worker": worker}, [commands_out, status_in])
            answer = read_line(self._control)
        except OSError:
            answer = None
        finally:
            os.close(commands_out)
            os.close(status_in)
        if answer is None:
            raise NetworkError("the process that runs the workers' shells has ended")
        if "error" in answer:
            raise NetworkError(f"no shell in {worker}: {answer['error']}")
        return Shell(commands_in, status_out)

    def close(self) -> None:
        """Stop everything; return when it is gone."""
        self._control.close()
        os.waitpid(self._pid, 0)


class Shell:
    """One worker's shell: a place where commands run one after another."""

    def __init__(self, commands: int, status: int) -> None:
        self._commands, self._status = commands, status
        self.ended = False

    def run(self, line: str) -> int:
        """Run a command on our own terminal and wait; return its exit status. BrokenPipeError: the helper is gone."""
        _write_all(self._commands, line.encode() + b"\0")
        answer = b""
        while not answer.endswith(b"\n"):
            data = os.read(self._status, 16)
            if not data:  # killed, or replaced by `exec`
                self.ended = True
                return 255
            answer += data
        status, *end = answer.split()
        self.ended = bool(end)
        return int(status)

    def close(self) -> None:
        os.close(self._commands)
        os.close(self._status)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _serve(control: socket.socket, handle: Client, stdin: bool) -> None:
    """Run the helper process: one request per shell, then the clean-up once no request can come."""
    for number in TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children need no waiting for
    adopt_orphans()
    own = Client(handle.state)  # two processes must not share a connection
    daemon = os.pidfd_open(handle.state.daemon)
    while daemon not in readable([control.fileno(), daemon]):
        received: list[int] = []
        request = read_line(control, received)
        if request is None:
            break
        try:
            _start(own, request["worker"], received, stdin)
            send_line(control, {"result": None})
        except (OSError, NetworkError) as error:
            send_line(control, {"error": str(error)})
        finally:
            for fd in received:
                os.close(fd)
    stop_descendants()


def _start(handle: Client, worker: str | None, pipes: list[int], stdin: bool) -> None:
    if worker is None:
        _fork_shell("the host", lambda: None, pipes, stdin)
        return
    hosts = handle.directory / "hosts"
    with handle.namespace(worker) as namespace:
        _fork_shell(worker, lambda: move_in(handle, namespace, worker, hosts), pipes, stdin)


def _fork_shell(name: str, move_in: Callable[[], None], pipes: list[int], stdin: bool) -> None:
    if os.fork():
        return
    try:
        namespaces.die_with_parent()
        for number in (*TERMINAL_SIGNALS, *IGNORED_BY_PYTHON, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        move_in()
        if not stdin:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Above the numbers they shall get, so that neither overwrites the other.
        for target, source in enumerate([fcntl.fcntl(pipe, fcntl.F_DUPFD, 10) for pipe in pipes], start=3):
            os.dup2(source, target)
        os.closerange(5, os.sysconf("SC_OPEN_MAX"))
        os.execvp("bash", ["bash", "--noprofile", "--norc", "-c", LOOP, name])
    except OSError as error:
        os.write(2, f"no shell in {name}: {error}\n".encode())
    finally:
        os._exit(127)


def move_in(handle: Client, namespace: int, name: str, hosts: Path) -> None:
    """Move into a worker: its network, its name, and a hosts file with the workers' names."""
    handle.join()
    namespaces.setns(namespace)
    namespaces.unshare(namespaces.CLONE_NEWNS | CLONE_NEWUTS)
    namespaces.mount("none", "/", flags=namespaces.MS_REC | namespaces.MS_PRIVATE)
    namespaces.mount(str(hosts), "/etc/hosts", flags=namespaces.MS_BIND)
    with contextlib.suppress(OSError):  # /sys would show the host's interfaces; some containers do not let us change it
        namespaces.mount("sysfs", "/sys", "sysfs")
    socket.sethostname(name)


def stop_descendants() -> None:
    """End every descendant: ask first, kill after a moment. New ones may appear meanwhile, so look again."""
    start = time.monotonic()
    asked: set[int] = set()
    while (left := descendants(os.getpid())) and time.monotonic() < start + PATIENCE_SECONDS:
        polite = time.monotonic() < start + POLITE_SECONDS
        for pid in left:
            if polite and pid in asked:
                continue
            try:
                os.kill(pid, signal.SIGTERM if polite else signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)  # a stopped process would not hear it
            except ProcessLookupError:
                continue
            asked.add(pid)
        time.sleep(0.005)
