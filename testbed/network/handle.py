"""A running network as commands and the controller see it: start one, talk to it, enter its workers, end it."""

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
from testbed.network import namespaces, planfile, probe, state
from testbed.network.wire import read_line, send_line
from testbed.plan import NetworkPlan

T = TypeVar("T")
START_SECONDS, SECONDS_PER_LINK = 60.0, 0.05
ANSWER_SECONDS = 60.0


class Handle:
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
            raise NetworkError(f"the keeper of {running.name} does not answer: {error.strerror}") from error

    @property
    def directory(self) -> Path:
        return self.state.directory

    @property
    def plan(self) -> NetworkPlan:
        """The network as it was built."""
        return planfile.from_json((self.directory / "plan.json").read_text())

    def call(self, op: str, **arguments: Any) -> Any:
        """One request to the keeper."""
        return self._call(op, arguments)[0]

    def _call(self, op: str, arguments: dict[str, Any]) -> tuple[Any, list[int]]:
        descriptors: list[int] = []
        try:
            send_line(self._control, {"op": op, **arguments})
            answer = read_line(self._control, descriptors)
        except TimeoutError as error:
            self._control.close()  # or the next request would read this one's answer
            raise NetworkError(f"the keeper of {self.state.name} did not answer in {self._patience:g} s") from error
        except OSError as error:
            raise self._gone() from error
        if answer is None:
            raise self._gone()
        if "error" in answer:
            raise NetworkError(answer["error"])
        return answer["result"], descriptors

    def _gone(self) -> NetworkError:
        """It ends with the box, or by a signal; what it said before, it said for a reason."""
        try:
            words = (self.directory / "keeper.log").read_text(errors="replace").strip().splitlines()[-3:]
        except OSError:
            words = []
        why = "; its last words:\n  " + "\n  ".join(words) if words else ": it was killed, or the box was"
        return NetworkError(f"the keeper of {self.state.name} is gone{why}", hint="testbed down --all removes the rest")

    def set_link(self, link: str, ab: dict[str, Any], ba: dict[str, Any]) -> None:
        self.call("set_link", link=link, ab=ab, ba=ba)

    def counters(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("counters")
        return found

    @contextlib.contextmanager
    def namespace(self, worker: str) -> Iterator[int]:
        """A descriptor of a worker's network namespace."""
        _, (fd,) = self._call("namespace", {"worker": worker})
        try:
            yield fd
        finally:
            os.close(fd)

    def join(self) -> None:
        """Enter the keeper's namespaces, where it has a user namespace of its own; this process stays there.

        The network namespace, too: there would be no permission to come back to the host's from a worker's.
        """
        if not self.state.rootless:
            return
        kinds = {"user": namespaces.CLONE_NEWUSER, "mnt": namespaces.CLONE_NEWNS, "net": namespaces.CLONE_NEWNET}
        for fd, flag in [(os.open(f"/proc/{self.state.keeper}/ns/{kind}", os.O_RDONLY), kinds[kind]) for kind in kinds]:
            namespaces.setns(fd, flag)
            os.close(fd)

    def run(self, function: Callable[[Handle], T]) -> T:
        """Call a function in a child process that may enter the workers' namespaces; its result or error comes back."""
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

    def _run_and_exit(self, function: Callable[[Handle], T], answers: int) -> NoReturn:
        """In the child."""
        status = 1
        try:
            namespaces.die_with_parent()
            try:
                self.join()
                outcome: tuple[bool, Any] = (True, function(Handle(self.state)))
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
        """Not to be used any more by this process; the network stays as it is."""
        self._control.close()

    def detach(self) -> None:
        """Let the network outlive this process."""
        if self._lifeline:
            self._lifeline.sendall(b"detach\n")
            self._lifeline.close()
            self._lifeline = None

    def close(self) -> None:
        """End the network: its keeper, and with it everything."""
        self._control.close()
        if self._lifeline:
            self._lifeline.close()
            self._lifeline = None
        state.end(self.directory, self.state)


def start(plan: NetworkPlan, box: str = "auto") -> tuple[Handle, probe.Choice]:
    """Build the network. It ends with this process unless `detach` is called."""
    with uninterrupted():  # it forks, and Python drops what is raised meanwhile
        choice = probe.choose(box)
    ours, theirs = socket.socketpair()
    directory: Path | None = None
    keeper: subprocess.Popen[bytes] | None = None
    try:
        with uninterrupted():
            directory = state.claim(plan.name)
            try:
                (directory / "plan.json").write_text(planfile.to_json(plan))
                keeper = _start_keeper(directory, choice.kind, theirs)
            except OSError as error:
                raise NetworkError(f"the network {plan.name} could not be started: {error}") from error
        theirs.close()
        patience = START_SECONDS + SECONDS_PER_LINK * len(plan.links)
        ours.settimeout(patience)
        try:
            answer = read_line(ours)
        except TimeoutError:
            answer = {"error": f"the network was not ready after {patience:g} s"}
        ours.settimeout(None)
        if answer is None or "error" in answer:
            raise _not_built(plan.name, answer, directory)
        running = state.find(plan.name)
        if running is None:
            raise NetworkError(f"the network {plan.name} was taken down while it was being built")
        return Handle(running, ours), choice
    except BaseException:  # Ctrl-C included: nothing half-built is left behind
        with uninterrupted():
            theirs.close()
            ours.close()
            if keeper:
                keeper.terminate()  # it would notice that we are gone, but only when it has built everything
                with contextlib.suppress(subprocess.TimeoutExpired):
                    keeper.wait(state.STOP_SECONDS)
                keeper.kill()
                keeper.wait()
            if directory:
                state.release(directory)
        raise


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that somebody handles wait until the block is done: half a claim or clean-up would stay behind."""
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
    command = [sys.executable, "-P", "-m", "testbed.network.keeper", str(directory), kind, str(fd)]
    with (directory / "keeper.log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[fd], start_new_session=True
        )


def _not_built(name: str, answer: dict[str, Any] | None, directory: Path) -> NetworkError:
    if answer is None:
        try:
            words = (directory / "keeper.log").read_text(errors="replace").strip().splitlines()[-5:]
        except FileNotFoundError:
            return NetworkError(f"the network {name} was taken down while it was being built")
        told = "; the keeper's last words:\n  " + "\n  ".join(words) if words else ": its keeper was ended"
        return NetworkError(f"the network {name} could not be built{told}")
    return NetworkError(f"the network {name} could not be built: {answer['error']}", hint=answer.get("hint"))
