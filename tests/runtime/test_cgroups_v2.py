"""Limits by real control groups of version 2: where processes are as systemd puts them, for root and for others."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.members import child
from testbed.runtime import cgroups as module
from testbed.runtime.cgroups import REMEDY, Groups, join, remove_leftovers
from testbed.runtime.controllers import PREFIX

BOTH = ("memory", "cpu")
LIMIT = 20_000_000
NOBODY = 65534


def top() -> Path | None:
    """The mount, where we may make groups in it that limit memory and processor time."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, kind = Path(line.split()[4]), line.partition(" - ")[2].split()[0]
        if kind != "cgroup2" or not os.access(mount / "cgroup.subtree_control", os.W_OK):
            continue
        if set(BOTH) <= set((mount / "cgroup.controllers").read_text().split()):
            return mount
    return None


TOP = top()
pytestmark = [
    pytest.mark.cgroup2,
    pytest.mark.skipif(TOP is None, reason="CONTROL GROUPS OF VERSION 2 ARE NOT TESTED: none here that we may change"),
]


class Tree:
    """Groups around which to try ours."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self.made: list[Path] = []
        self.before = handed_on(mount)
        hand_on(mount, *BOTH)
        self.base = self.group(f"tree-{os.getpid()}", *BOTH)

    def group(self, path: str, *controllers: str) -> Path:
        group = (self.base if self.made else self.mount) / path
        group.mkdir()
        self.made.append(group)
        hand_on(group, *controllers)
        return group

    def close(self) -> None:
        for group in reversed(self.made):
            group.rmdir()
        for controller in handed_on(self.mount) - self.before:
            (self.mount / "cgroup.subtree_control").write_text(f"-{controller}")


def handed_on(group: Path) -> set[str]:
    return set((group / "cgroup.subtree_control").read_text().split())


def hand_on(group: Path, *controllers: str) -> None:
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in controllers))


@pytest.fixture
def tree() -> Iterator[Tree]:
    assert TOP
    found = Tree(TOP)
    yield found
    found.close()  # fails where a test has left a group in it


def run(own: Path, work: Callable[[], Any], *, user: int = 0, shown: Path | None = None) -> Any:
    """What a function returns in a process of that group. `shown`: the group that it takes for the top, as in a
    container that is shown only a part of the tree."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            (own / "cgroup.procs").write_text("0")
            if shown:
                view(shown)
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.write(writer, json.dumps(work()).encode())
        finally:  # with an answer, or without one where it failed
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def view(shown: Path) -> None:
    assert TOP
    line = f"30 24 0:26 /{shown.relative_to(TOP)} {shown} rw - cgroup2 cgroup2 rw\n"
    read = module.read
    module.read = lambda path: line if path == Path("/proc/self/mountinfo") else read(path)


def limited(memory: int = LIMIT, cpus: float = 0.9) -> dict[str, Any]:
    """All that there is to know of a cell of one worker, which takes more than its memory."""
    groups = Groups.make({"w0": memory} if memory else {}, {"w0": cpus} if cpus else {})
    found: dict[str, Any] = {"shortcomings": groups.shortcomings}
    if groups.members:
        (group,) = groups.members["w0"]
        found["place"] = str(group.parent.parent)
        found["cpu.max"] = (group / "cpu.max").read_text().split() if (group / "cpu.max").exists() else None
        found["little"] = child(groups, "w0", lambda: bytearray(1_000_000).count(1))
        found["much"] = child(groups, "w0", lambda: (b"x" * (3 * memory)).count(b"y"))
        found["killed"] = groups.out_of_memory()
    made = groups.made[:]
    groups.close()
    found["left"] = [str(group) for group in made if group.exists()]
    return found


KILLED = {"little": 0, "much": -signal.SIGKILL, "killed": ["w0"], "left": []}


@pytest.mark.parametrize("available", [False, True])
def test_a_service_whose_slice_does_not_hand_on_cpu_keeps_its_memory_limit(tree: Tree, available: bool) -> None:
    """As systemd has it where no unit has asked for processor time: in the slice, or anywhere."""
    part = tree.group("part", *(BOTH if available else ["memory"]))
    slice_ = tree.group("part/system.slice", "memory")
    found = run(tree.group("part/system.slice/x.service"), lambda: limited(memory=100_000_000), shown=part)
    place = slice_ if available else part
    assert found == {"shortcomings": [], "place": str(place), "cpu.max": ["18000", "20000"], **KILLED}
    assert handed_on(slice_) == {"memory"}
    assert handed_on(part) == (set(BOTH) if available else {"memory"})


def test_memory_is_limited_where_cpu_cannot_be_had_at_all(tree: Tree) -> None:
    part = tree.group("part")
    (tree.base / "cgroup.subtree_control").write_text("-cpu")
    hand_on(part, "memory")
    slice_ = tree.group("part/a.slice", "memory")
    found = run(tree.group("part/a.slice/b.service"), limited, shown=part)
    why = [f"the cpu controller is not available ({group})" for group in (slice_, part)]
    words = f"processor time could not be limited: {', '.join(why)}"
    assert found == {"shortcomings": [words], "place": str(slice_), "cpu.max": None, **KILLED}


def test_at_the_top_where_nothing_was_handed_on_nothing_is_afterwards(tree: Tree) -> None:
    part = tree.group("part")
    found = run(tree.group("part/own"), limited, shown=part)
    assert found == {"shortcomings": [], "place": str(part), "cpu.max": ["18000", "20000"], **KILLED}
    assert handed_on(part) == set()


def test_each_limit_alone(tree: Tree) -> None:
    slice_ = tree.group("a.slice")
    own = tree.group("a.slice/b.scope")
    found = run(own, lambda: limited(cpus=0))
    assert (found["shortcomings"], found["much"], found["killed"]) == ([], -signal.SIGKILL, ["w0"])
    found = run(own, lambda: limited(memory=0))
    assert (found["shortcomings"], found["much"], found["killed"]) == ([], 0, [])
    assert found["cpu.max"] == ["18000", "20000"]
    assert handed_on(slice_) == handed_on(own) == set()


def delegate(*groups: Path) -> None:
    for group in groups:
        for path in (group, *(group / f"cgroup.{name}" for name in ("procs", "threads", "subtree_control"))):
            os.chown(path, NOBODY, NOBODY)


def test_an_ordinary_user_in_a_scope_of_their_own(tree: Tree) -> None:
    """As `systemd-run --user --scope` makes it: the slice and the scope are the user's."""
    app = tree.group("app.slice")
    scope = tree.group("app.slice/run.scope")
    delegate(app, scope)
    found = run(scope, limited, user=NOBODY)
    assert found == {"shortcomings": [], "place": str(app), "cpu.max": ["18000", "20000"], **KILLED}
    assert handed_on(app) == set()


def test_an_ordinary_user_without_one_is_told_how_to_get_it(tree: Tree) -> None:
    tree.group("user.slice", *BOTH)
    found = run(tree.group("user.slice/session.scope"), limited, user=NOBODY)
    memory, cpu = found.pop("shortcomings")
    assert found == {"left": []}
    assert memory.startswith("memory could not be limited: Permission denied (")
    assert cpu.startswith("processor time could not be limited: Permission denied (")
    assert memory.endswith(REMEDY)


def test_what_a_killed_run_had_enabled_is_disabled(tree: Tree) -> None:
    slice_ = tree.group("a.slice", "memory")
    own = tree.group("a.slice/b.service")

    def killed() -> None:
        assert not Groups.make({"w0": LIMIT}, {"w0": 0.5}).shortcomings
        os.kill(os.getpid(), signal.SIGKILL)

    assert run(own, killed) is None
    assert handed_on(slice_) == set(BOTH)
    (removed,) = run(own, remove_leftovers)
    assert Path(removed).parent == slice_
    assert handed_on(slice_) == {"memory"}
    assert not list(slice_.glob(f"{PREFIX}*"))


def test_of_two_runs_the_last_disables_what_the_first_had_enabled(tree: Tree) -> None:
    slice_ = tree.group("a.slice")

    def two() -> list[list[str]]:
        first, second = Groups.make({"w0": LIMIT}, {}), Groups.make({"w0": LIMIT}, {})
        first.close()
        between = sorted(handed_on(slice_))
        killed = child(second, "w0", lambda: (b"x" * (3 * LIMIT)).count(b"y"))
        second.close()
        return [first.shortcomings + second.shortcomings, between, [str(killed)], sorted(handed_on(slice_))]

    assert run(tree.group("a.slice/b.service"), two) == [[], ["memory"], ["-9"], []]


@pytest.mark.parametrize(("file", "value"), [("memory.high", "1000000000"), ("cgroup.subtree_control", "+memory")])
def test_what_somebody_else_uses_by_now_stays_enabled(tree: Tree, file: str, value: str) -> None:
    slice_ = tree.group("a.slice")
    other = tree.group("a.slice/other")

    def meanwhile() -> list[str]:
        groups = Groups.make({"w0": LIMIT}, {"w0": 0.5})
        (other / file).write_text(value)
        groups.close()
        return groups.shortcomings

    assert run(tree.group("a.slice/b.service"), meanwhile) == []
    assert handed_on(slice_) == {"memory"}


def test_a_worker_says_where_its_limits_do_not_hold(tree: Tree) -> None:
    one, other = tree.group("one"), tree.group("other")
    refusing = tree.group("refusing", "memory")  # takes no processes
    files = [str(group / "cgroup.procs") for group in (one, other, refusing)]
    assert run(tree.base / "one", lambda: join(files[1:2])) == []
    assert run(tree.base / "one", lambda: join(files[:2])) == [
        f"the worker's limits do not hold: it is not in {one}",
    ]
    assert run(tree.base / "one", lambda: join(files[2:])) == [
        f"the worker's limits could not be applied: Device or resource busy ({files[2]})",
    ]


def test_a_group_of_an_earlier_cell_that_will_not_go_is_not_in_the_way(tree: Tree) -> None:
    tree.group("a.slice", *BOTH)

    def lingering() -> list[Any]:
        first = Groups.make({"w0": LIMIT}, {})
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            join(first.joined_by("w0"))
            os.write(writer, b"!")
            signal.pause()
        os.read(reader, 1)
        first.close()
        second = limited()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return [first.shortcomings, second["shortcomings"], second["much"]]

    own = tree.group("a.slice/b.service")
    assert run(own, lingering) == [[], [], -9]
    assert len(run(own, remove_leftovers)) == 1
