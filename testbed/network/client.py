"""A running network as seen by commands and the controller: start one, talk to it, enter its workers, end it."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from testbed.errors import NetworkError, TestbedError
from testbed.network import namespaces, probe, state
from testbed.network.processes import descendants
from testbed.network.waiting import Patience, cpu_of
from testbed.network.wire import read_line, send_line
from testbed.plan import file
from testbed.plan.model import NetworkPlan

T = TypeVar("T")
START_SECONDS, SECONDS_PER_LINK = 60.0, 0.05
ANSWER_SECONDS = 60.0


class Client:
    """One network that is up."""

    def __init__(
        self, running: state.State, lifeline: socket.socket | None = None, patience: float = ANSWER_SECONDS
    ) -> None:
        self.state = running
        self._lifeline = lifeline
        self._control = socket.socket(socket.AF_UNIX)
        self._patience = patience
        self._control.settimeout(patience)
        try:
            self._control.connect(str(running.directory / "control"))
        except OSError as error:
            raise NetworkError(f"the daemon of {running.name} does not answer: {error.strerror}") from error

    @property
    def directory(self) -> Path:
        return self.state.directory

    @property
    def plan(self) -> NetworkPlan:
        """Return the network as it was built."""
        return file.from_json((self.directory / "plan.json").read_text())

    def call(self, op: str, **arguments: Any) -> Any:
        """Send one request to the network daemon."""
        return self._call(op, arguments)[0]

    def _call(self, op: str, arguments: dict[str, Any]) -> tuple[Any, list[int]]:
        descriptors: list[int] = []
        try:
            with contextlib.suppress(BrokenPipeError):  # it may have said why it closed
                send_line(self._control, {"op": op, **arguments})
            self._await_answer()
            answer = read_line(self._control, descriptors)
        except TimeoutError as error:
            self._control.close()  # or the next request would read this one's answer
            raise NetworkError(f"the daemon of {self.state.name} did not answer in {error}") from error
        except OSError as error:
            raise self._gone() from error
        if answer is None:
            raise self._gone()
        if "error" in answer:
            raise NetworkError(answer["error"])
        return answer["result"], descriptors

    def _await_answer(self) -> None:
        """Wait for the answer; on a busy machine the box may take long. A caller's own timeout is never exceeded."""
        most = None if self._patience >= ANSWER_SECONDS else self._patience
        patience = _patience(self._patience, self.state.daemon, most)
        if not patience.wait_for(self._control):
            raise TimeoutError(str(patience))

    def _gone(self) -> NetworkError:
        """Explain why the daemon is gone: it ends with the box, or by a signal; its last output says why."""
        try:
            words = (self.directory / "daemon.log").read_text(errors="replace").strip().splitlines()[-3:]
        except OSError:
            words = []
        why = "; its last words:\n  " + "\n  ".join(words) if words else ": it was killed, or the box was"
        return NetworkError(f"the daemon of {self.state.name} is gone{why}", hint="testbed down --all removes the rest")

    def set_link(self, link: str, ab: dict[str, Any], ba: dict[str, Any]) -> None:
        self.call("set_link", link=link, ab=ab, ba=ba)

    def counters(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("counters")
        return found

    @contextlib.contextmanager
    def namespace(self, worker: str) -> Iterator[int]:
        """Yield a descriptor of a worker's network namespace."""
        _, (fd,) = self._call("namespace", {"worker": worker})
        try:
            yield fd
        finally:
            os.close(fd)

    def join(self) -> None:
        """Enter the network daemon's namespaces, where it has its own user namespace; this process stays there.

        That includes the network namespace: it would not be allowed back to the host's from a worker's.
        """
        if not self.state.rootless:
            return
        kinds = {"user": namespaces.CLONE_NEWUSER, "mnt": namespaces.CLONE_NEWNS, "net": namespaces.CLONE_NEWNET}
        for fd, flag in [(os.open(f"/proc/{self.state.daemon}/ns/{kind}", os.O_RDONLY), kinds[kind]) for kind in kinds]:
            namespaces.setns(fd, flag)
            os.close(fd)

    def run(self, function: Callable[[Client], T]) -> T:
        """Call a function in a child process that may enter the workers' namespaces; return or raise what it does."""
        reader, writer = os.pipe()
        child = 0
        with os.fdopen(reader, "rb") as stream:
            try:
                with uninterrupted():  # or the child might take a signal for us, and unwind as if it were us
                    child = os.fork()
                    if child == 0:
                        os.close(reader)
                        self._run_and_exit(function, writer)
                    os.close(writer)
                data = stream.read()
            except BaseException:  # interrupted: it must not go on while everything is taken down
                if child:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                raise
        os.waitpid(child, 0)
        if not data:
            raise NetworkError("the measuring process ended without an answer (its error is above)")
        worked, value = pickle.loads(data)
        if not worked:
            raise value
        return value  # type: ignore[no-any-return]

    def _run_and_exit(self, function: Callable[[Client], T], answers: int) -> NoReturn:
        """Run the function in the child."""
        status = 1
        try:
            namespaces.die_with_parent()
            try:
                self.join()
                outcome: tuple[bool, Any] = (True, function(Client(self.state)))
            except (TestbedError, OSError) as error:
                outcome = (False, error)
            except Exception:
                traceback.print_exc()
                raise
            with os.fdopen(answers, "wb") as stream:
                pickle.dump(outcome, stream)
            status = 0
        finally:
            os._exit(status)

    def disconnect(self) -> None:
        """Close this process's connection; the network stays as it is."""
        self._control.close()

    def detach(self) -> None:
        """Let the network outlive this process."""
        if self._lifeline:
            self._lifeline.sendall(b"detach\n")
            self._lifeline.close()
            self._lifeline = None

    def close(self) -> None:
        """End the network: its daemon, and with it everything else."""
        self._control.close()
        if self._lifeline:
            self._lifeline.close()
            self._lifeline = None
        state.end(self.directory, self.state)


def start(plan: NetworkPlan, box: str = "auto") -> tuple[Client, probe.Choice]:
    """Build the network. It ends with this process unless `detach` is called."""
    with uninterrupted():  # it forks, and Python drops what is raised meanwhile
        choice = probe.choose(box)
    ours, theirs = socket.socketpair()
    directory: Path | None = None
    daemon: subprocess.Popen[bytes] | None = None
    try:
        with uninterrupted():
            directory = state.claim(plan.name)
            try:
                (directory / "plan.json").write_text(file.to_json(plan))
                daemon = _start_keeper(directory, choice.kind, theirs)
            except OSError as error:
                raise NetworkError(f"the network {plan.name} could not be started: {error}") from error
        theirs.close()
        patience = _patience(START_SECONDS + SECONDS_PER_LINK * len(plan.links), daemon.pid)
        answer = (
            read_line(ours) if patience.wait_for(ours) else {"error": f"the network was not ready after {patience}"}
        )
        if answer is None or "error" in answer:
            raise _not_built(plan.name, answer, directory)
        running = state.find(plan.name)
        if running is None:
            raise NetworkError(f"the network {plan.name} was taken down while it was being built")
        return Client(running, ours), choice
    except BaseException:  # Ctrl-C included: nothing half-built is left behind
        with uninterrupted():
            theirs.close()
            ours.close()
            if daemon:
                daemon.terminate()  # it would notice that we are gone, but only when it has built everything
                with contextlib.suppress(subprocess.TimeoutExpired):
                    daemon.wait(state.STOP_SECONDS)
                daemon.kill()
                daemon.wait()
            if directory:
                state.release(directory)
        raise


def _patience(seconds: float, daemon: int, most: float | None = None) -> Patience:
    """Wait as long as the network daemon or its box shows life."""
    return Patience(seconds, cpu_of(lambda: [daemon, *descendants(daemon)]), most)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back handled signals until the block is done: an interrupted claim or clean-up would stay half done."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    came: list[tuple[Any, Any]] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = {number: handler for number, handler in before.items() if callable(handler)}
    for number in handled:
        signal.signal(number, lambda *arguments: came.append(arguments))
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
    if came:
        handled[came[0][0]](*came[0])


def _start_keeper(directory: Path, kind: str, lifeline: socket.socket) -> subprocess.Popen[bytes]:
    fd = lifeline.fileno()
    # -P: where the current directory holds one called testbed, such as a clone of it, that is not the package
    command = [sys.executable, "-P", "-m", "testbed.network.daemon", str(directory), kind, str(fd)]
    with (directory / "daemon.log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[fd], start_new_session=True
        )


def _not_built(name: str, answer: dict[str, Any] | None, directory: Path) -> NetworkError:
    if answer is None:
        try:
            words = (directory / "daemon.log").read_text(errors="replace").strip().splitlines()[-5:]
        except FileNotFoundError:
            return NetworkError(f"the network {name} was taken down while it was being built")
        told = "; the daemon's last words:\n  " + "\n  ".join(words) if words else ": its daemon was ended"
        return NetworkError(f"the network {name} could not be built{told}")
    return NetworkError(f"the network {name} could not be built: {answer['error']}", hint=answer.get("hint"))
