"""Which networks are up: one private directory each, with everything that a later command needs to find or end it.

Nothing else on the machine carries our names: namespaces, interfaces and the guest live exactly as long as the daemon
process, so a directory whose daemon is gone is only a directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.errors import NetworkError

STOP_SECONDS = 5.0
KILL_SECONDS = 60.0  # which a killed process may take to go, where many wait for a processor
LONGEST_NAME = 40
NAME = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{LONGEST_NAME - 1}}}")  # as scenarios have it; never a path
LONGEST_SOCKET_PATH = 107  # bytes; the kernel's limit


def base() -> Path:
    """Return where the directories are: /run for root, else the user's runtime directory."""
    if chosen := os.environ.get("TESTBED_STATE"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/run/testbed")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "testbed") if runtime and os.access(runtime, os.W_OK) else Path(f"/tmp/testbed-{os.getuid()}")


@dataclass(frozen=True)
class State:
    """What is recorded of a running network."""

    name: str
    daemon: int  # process id
    started: int  # its start time in clock ticks since boot: its process id may have been reused
    box: str
    kernel: str
    rootless: bool
    path: str  # its directory; not derived, because inside a user namespace everybody is root
    ready: bool = True  # False while it is being built; until the daemon runs, `daemon` is the process that starts it

    @property
    def directory(self) -> Path:
        return Path(self.path)

    def alive(self) -> bool:
        return start_time(self.daemon) == self.started

    def save(self) -> None:
        write_atomically(self.directory / "state.json", json.dumps(asdict(self)))


def start_time(pid: int) -> int | None:
    """Return when a process started, or None where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def own_name() -> str:
    """Return a name of this process that a later process with the same id does not share."""
    return f"{os.getpid()}-{start_time(os.getpid())}"


def alive(name: str) -> bool:
    """Whether the process of that name (see own_name) still runs."""
    pid, _, started = name.partition("-")
    return pid.isdecimal() and str(start_time(int(pid))) == started


def write_atomically(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


def place(name: str) -> Path:
    """Return the directory of the network of this name."""
    if not NAME.fullmatch(name):
        raise NetworkError(
            f"{name!r} cannot be the name of a network",
            hint="small letters, digits and dashes, at most 40, not a dash first",
        )
    return base() / name


def claim(name: str) -> Path:
    """Make a fresh directory for a network; refuse while a network of that name is up or being built."""
    directory = place(name)
    if len(os.fsencode(directory / "u" / "mconsole")) > LONGEST_SOCKET_PATH:
        raise NetworkError(
            f"the path {directory} is too long for the sockets in it", hint="name a shorter one in TESTBED_STATE"
        )
    try:
        base().mkdir(mode=0o700, parents=True, exist_ok=True)
        if (owner := base().stat().st_uid) != os.geteuid():
            raise NetworkError(f"{base()} belongs to user {owner}", hint="name one of your own in TESTBED_STATE")
        with _alone(base()):
            if (state := find(name)) and state.alive():
                raise NetworkError(
                    f"a network named {name} is already {'up' if state.ready else 'being built'}",
                    hint=f"testbed down {name}, or give the new one another name with --name",
                )
            if state:
                remove(directory)
            _make(directory)
            own = os.getpid()
            State(name, own, start_time(own) or 0, "", "", os.geteuid() != 0, str(directory), ready=False).save()
    except OSError as error:
        raise NetworkError(
            f"cannot keep the network's state in {directory}: {error.strerror}",
            hint="name a directory you can write to in the variable TESTBED_STATE",
        ) from error
    return directory


def _make(directory: Path) -> None:
    """Make the directory; use an existing one only if it is empty or was ours, never over a user's files."""
    if directory.is_dir() and {path.name for path in directory.iterdir()} <= {"state.json", "state.part"}:
        shutil.rmtree(directory)
    directory.mkdir(mode=0o700)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from claiming or removing a network meanwhile."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def find(name: str, folder: Path | None = None) -> State | None:
    """Return the network of this name, alive or not."""
    try:
        return State(**json.loads(((folder or base()) / name / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def everything() -> list[tuple[Path, State | None]]:
    """Return every network's directory, with its state where it can be read. Other directories are not ours."""
    if not base().is_dir():
        return []
    return [(path, find(path.name)) for path in sorted(base().iterdir()) if (path / "state.json").is_file()]


def running() -> list[State]:
    return [state for _, state in everything() if state and state.ready and state.alive()]


def pick(name: str | None) -> State:
    """Return the network a command means: the named one, else the only one."""
    up = running()
    if name is None and len(up) == 1:
        return up[0]
    names = ", ".join(state.name for state in up) or "none"
    if name is None:
        if not up:
            raise NetworkError("no network is up", hint="testbed net up SCENARIO.yaml")
        which = "say which: --name NAME (for down: testbed down NAME, or --all)"
        raise NetworkError(f"several networks are up ({names})", hint=which)
    for state in up:
        if state.name == name:
            return state
    hint = None
    if (found := find(name)) and found.alive():
        hint = "it is being built; try again in a moment"
    elif found:
        hint = f"it ended badly, see {found.directory}/daemon.log; testbed down {name} removes what is left"
    raise NetworkError(f"no network named {name} is up (up: {names})", hint=hint)


def end(directory: Path, state: State | None) -> None:
    """End a network's daemon, which ends everything else, and remove its directory."""
    deadline = time.monotonic() + STOP_SECONDS
    while state and state.alive() and not state.box and time.monotonic() < deadline:  # its daemon does not run yet
        time.sleep(0.01)
        state = find(directory.name)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not (state and state.alive()):
            break
        try:
            os.kill(state.daemon, number)
        except ProcessLookupError:  # it ended meanwhile
            break
        except PermissionError as error:
            raise NetworkError(f"the network {state.name} belongs to another user") from error
        deadline = time.monotonic() + (STOP_SECONDS if number == signal.SIGTERM else KILL_SECONDS)
        while state.alive() and time.monotonic() < deadline:
            time.sleep(0.01)
    release(directory)


def release(directory: Path) -> None:
    """Remove a network's directory unless another process has claimed it meanwhile."""
    with contextlib.suppress(FileNotFoundError), _alone(directory.parent):
        found = find(directory.name, directory.parent)
        if not (found and found.alive() and found.daemon != os.getpid()):
            remove(directory)


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        raise NetworkError(f"{directory} could not be removed", hint=f"see who owns it: ls -ld {directory}")
