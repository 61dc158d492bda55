"""Which networks are up: one private directory each, holding everything that a later command needs to find or end it.

Nothing else on the machine has a name of ours: namespaces, interfaces and the guest live exactly as long as the keeper
process, so a directory whose keeper is gone is only a directory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.errors import NetworkError

STOP_SECONDS = 5.0


def base() -> Path:
    """Where the directories are: /run for root, the user's runtime directory otherwise."""
    if chosen := os.environ.get("TESTBED_STATE"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/run/testbed")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "testbed") if runtime and os.access(runtime, os.W_OK) else Path(f"/tmp/testbed-{os.getuid()}")


@dataclass(frozen=True)
class State:
    """What is written down of a running network."""

    name: str
    keeper: int  # process id
    started: int  # its start time in clock ticks since boot: a process id alone may be somebody else's by now
    box: str
    kernel: str
    rootless: bool
    path: str  # its directory; not derived, because inside a user namespace everybody is root

    @property
    def directory(self) -> Path:
        return Path(self.path)

    def alive(self) -> bool:
        return start_time(self.keeper) == self.started

    def save(self) -> None:
        write_atomically(self.directory / "state.json", json.dumps(asdict(self)))


def start_time(pid: int) -> int | None:
    """When a process started, or None where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def write_atomically(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


def claim(name: str) -> Path:
    """A fresh directory for a network; refused while a network of that name is up."""
    directory = base() / name
    if (state := find(name)) and state.alive():
        raise NetworkError(
            f"a network named {name} is already up (box: {state.box})",
            hint=f"testbed down {name}, or give the new one another name with --name",
        )
    remove(directory)
    try:
        base().mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise NetworkError(
            f"cannot keep the network's state in {directory}: {error.strerror}",
            hint="name a directory you can write to in the variable TESTBED_STATE",
        ) from error
    owner = base().stat().st_uid
    if owner != os.geteuid():
        raise NetworkError(f"{base()} belongs to user {owner}", hint="name a directory of your own in TESTBED_STATE")
    return directory


def find(name: str) -> State | None:
    """The network of this name, alive or not."""
    try:
        return State(**json.loads((base() / name / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def everything() -> list[tuple[Path, State | None]]:
    """Every directory there is, with its state where it has one."""
    if not base().is_dir():
        return []
    return [(path, find(path.name)) for path in sorted(base().iterdir()) if path.is_dir()]


def running() -> list[State]:
    return [state for _, state in everything() if state and state.alive()]


def pick(name: str | None) -> State:
    """The network a command means: the named one, else the only one."""
    up = running()
    if name is None and len(up) == 1:
        return up[0]
    names = ", ".join(state.name for state in up) or "none"
    if name is None:
        what = "several networks are up" if up else "no network is up"
        raise NetworkError(f"{what} ({names})", hint="--name NAME" if up else "testbed net up SCENARIO.yaml")
    for state in up:
        if state.name == name:
            return state
    raise NetworkError(f"no network named {name} is up (up: {names})")


def end(directory: Path, state: State | None) -> None:
    """End a network's keeper, which ends everything else, and remove its directory."""
    if state and state.alive():
        os.kill(state.keeper, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while state.alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        if state.alive():
            os.kill(state.keeper, signal.SIGKILL)
    remove(directory)


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        raise NetworkError(f"{directory} could not be removed", hint=f"see who owns it: ls -ld {directory}")
