"""Limits of memory and processor time: found, enforced, removed, and told where they cannot be enforced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime.fake_groups import FakeGroups
from runtime.members import child
from testbed.runtime.cgroups import PREFIX, Groups, Hierarchy, _by_worth, find, join, remove_leftovers

PURE_2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "34 30 0:30 / /sys/fs/cgroup/memory rw,relatime shared:11 - cgroup cgroup rw,memory\n"
    "35 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)


def test_version_2_alone():
    found = find("memory", PURE_2, "0::/user.slice/session-1.scope\n")
    assert found == Hierarchy(Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/user.slice/session-1.scope"), 2)
    assert [str(place.relative_to("/sys/fs/cgroup")) for place in found.places()] == [
        "user.slice/session-1.scope",
        "user.slice",
        ".",
    ]


def test_version_1_where_it_has_the_controller():
    groups = "4:memory:/jobs/7\n2:cpu,cpuacct:/\n0::/\n"
    assert find("memory", HYBRID, groups) == Hierarchy(
        Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/memory/jobs/7"), 1
    )
    cpu = find("cpu", HYBRID, groups)
    assert (cpu.own, cpu.version) == (Path("/sys/fs/cgroup/cpu,cpuacct"), 1)
    assert cpu.places() == [cpu.own]


def test_a_container_that_shows_only_its_part_of_the_tree():
    mounts = PURE_2.replace(" / /sys", " /docker/abc /sys")
    assert find("memory", mounts, "0::/docker/abc\n").own == Path("/sys/fs/cgroup")


def test_no_control_groups_at_all():
    assert find("memory", "1 0 0:1 / / rw - ext4 /dev/vda rw\n", "") is None


def limited(**limits: dict[str, float]) -> Groups:
    """Groups, or a shortcoming in words where they cannot be had: then there is no more to test."""
    groups = Groups.make(limits.get("memory", {}), limits.get("cpus", {}))
    if groups.shortcomings:
        assert all("could not be limited" in text for text in groups.shortcomings)
        assert groups.members == {}
        pytest.skip(f"LIMITS ARE NOT TESTED: {groups.shortcomings}")
    return groups


def test_whoever_takes_more_memory_is_killed_and_named():
    groups = limited(memory={"w0": 50_000_000, "w1": 50_000_000})
    try:
        assert child(groups, "w1", lambda: bytearray(10_000_000).count(1)) == 0
        assert groups.out_of_memory() == []
        assert child(groups, "w1", lambda: (b"x" * 200_000_000).count(b"y")) == -9
        assert groups.out_of_memory() == ["w1"]
    finally:
        made = list(groups.made)
        groups.close()
    assert made
    assert not any(group.exists() for group in made)


def test_a_part_of_a_core_is_that_part():
    groups = limited(cpus={"w0": 0.2})

    def work() -> None:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
        if time.process_time() > 0.25:
            os._exit(1)

    try:
        assert child(groups, "w0", work) == 0
    finally:
        groups.close()


def test_nobody_has_more_processes_than_allowed():
    groups = Groups.make({}, {}, {"w0": 5})
    assert groups.processes_limited, "no control group counts processes here"
    assert groups.shortcomings == []

    def work() -> None:
        for count in range(10):
            try:
                if os.fork() == 0:
                    time.sleep(60)
            except BlockingIOError:
                os.killpg(0, 9) if count == 4 else os._exit(1)

    try:
        assert child(groups, "w0", lambda: (os.setsid(), work())) == -9
    finally:
        groups.close()


def test_what_is_worth_most_is_tried_first():
    tried = [
        "+".join(sorted(some, key=["memory", "cpu", "pids"].index)) for some in _by_worth(["memory", "cpu", "pids"])
    ]
    assert tried == ["memory+cpu+pids", "memory+cpu", "memory+pids", "memory", "cpu+pids", "cpu", "pids"]


def test_nothing_asked_nothing_made():
    groups = Groups.make({}, {})
    assert (groups.made, groups.shortcomings, groups.joined_by("w0")) == ([], [], [])


def test_what_killed_runs_left_is_removed_but_not_what_lives():
    groups = limited(memory={"w0": 50_000_000})
    parent = groups.made[0]
    dead = parent.with_name(f"{PREFIX}{os.getpid()}-1")  # the number is somebody's, the start time nobody's
    try:
        (dead / "w0").mkdir(parents=True)
        assert str(dead) in remove_leftovers()
        assert not dead.exists()
        assert parent.exists()
    finally:
        groups.close()


def test_where_nothing_may_be_made_it_is_told(monkeypatch, tmp_path):
    mounts = PURE_2.replace("/sys/fs/cgroup", str(tmp_path))  # a directory that is no control group
    texts = {"/proc/self/mountinfo": mounts, "/proc/self/cgroup": "0::/\n"}
    monkeypatch.setattr("testbed.runtime.cgroups.read", lambda path: texts.get(str(path), ""))
    groups = Groups.make({"w0": 1_000_000}, {"w0": 0.5})
    assert len(groups.shortcomings) == 2
    assert groups.shortcomings[0].startswith("memory could not be limited: No such file or directory")
    assert (groups.made, groups.members, list(tmp_path.iterdir())) == ([], {}, [])


def test_no_mount_no_limits(monkeypatch):
    monkeypatch.setattr("testbed.runtime.cgroups.read", lambda path: "")
    assert Groups.make({"w0": 1_000_000}, {}).shortcomings == [
        "memory could not be limited: no control groups are mounted here"
    ]


@pytest.fixture
def service(tmp_path, monkeypatch) -> FakeGroups:
    """As systemd has it: our group has processes, and the slice around it is not asked for processor time."""
    fake = FakeGroups(tmp_path, "/system.slice/x.service", monkeypatch)
    fake.write(tmp_path / "cgroup.subtree_control", "+memory +cpu")
    fake.group("system.slice", "memory")
    fake.crowded.add(fake.group("system.slice/x.service"))
    return fake


def test_both_limits_are_in_one_group(service):
    slice_ = service.top / "system.slice"
    groups = Groups.make({"w0": 4096, "w1": 4096}, {"w1": 0.5, "w2": 0.25})
    assert groups.shortcomings == []
    assert [len(groups.joined_by(f"w{number}")) for number in range(4)] == [1, 1, 1, 0]
    (group,) = groups.members["w1"]
    assert group.parent.parent == slice_
    assert [(group / file).read_text()[:11] for file in ("memory.max", "memory.swap.max", "cpu.max")] == [
        "4096",
        "0ax",  # a file keeps what a longer text had beyond
        "10000 20000",
    ]
    assert sorted(groups.watched) == ["w0", "w1"]
    assert service.handed_on(slice_) == {"memory", "cpu"}
    groups.close()
    assert service.handed_on(slice_) == {"memory"}
    assert [path.name for path in slice_.iterdir() if path.is_dir()] == ["x.service"]


def test_memory_is_preferred_where_no_place_has_both(service):
    slice_ = service.top / "system.slice"
    service.write(service.top / "cgroup.subtree_control", "-cpu")
    (service.top / "cgroup.controllers").write_text("memory")
    groups = Groups.make({"w0": 4096}, {"w0": 0.5})
    assert groups.shortcomings == [
        f"processor time could not be limited: the cpu controller is not available ({slice_}), "
        f"the cpu controller is not available ({service.top})"
    ]
    assert [group.parent.parent for group in groups.members["w0"]] == [slice_]
    groups.close()
    assert service.handed_on(slice_) == {"memory"}


def test_the_top_is_taken_where_the_slice_cannot_have_both(service):
    service.write(service.top / "cgroup.subtree_control", "-cpu")
    groups = Groups.make({"w0": 4096}, {"w0": 0.5})
    assert (groups.shortcomings, groups.members["w0"][0].parent.parent) == ([], service.top)
    groups.close()
    assert service.handed_on(service.top) == {"memory"}


def test_a_place_that_fails_halfway_is_left_as_it_was(service, monkeypatch):
    write = service.write

    def no_quota(path: Path, text: str, *, optional: bool = False) -> None:
        if path.name == "cpu.max":
            raise OSError(22, "Invalid argument", str(path))
        write(path, text, optional=optional)

    monkeypatch.setattr("testbed.runtime.cgroups.write", no_quota)
    groups = Groups.make({"w0": 4096}, {"w0": 0.5})
    (words,) = groups.shortcomings
    assert words.startswith("processor time could not be limited: Invalid argument (")
    assert len(groups.made) == 2
    assert service.handed_on(service.top / "system.slice") == {"memory"}


def test_real_time_processes_may_keep_the_top_from_handing_on_cpu(service, monkeypatch):
    service.write(service.top / "cgroup.subtree_control", "-cpu")
    file, write = service.top / "cgroup.subtree_control", service.write

    def refuse(path: Path, text: str, *, optional: bool = False) -> None:
        if path == file and "+cpu" in text:
            raise OSError(22, "Invalid argument", str(path))
        write(path, text, optional=optional)

    monkeypatch.setattr("testbed.runtime.controllers.write", refuse)
    groups = Groups.make({"w0": 4096}, {"w0": 0.5})
    assert groups.shortcomings == [
        f"processor time could not be limited: the cpu controller is not available ({file.parent / 'system.slice'}), "
        f"this kernel (RT_GROUP_SCHED) cannot limit it while a real-time process runs ({file})"
    ]
    assert groups.members["w0"][0].parent.parent == service.top / "system.slice"


def test_ordinary_users_are_told_what_to_do(service, monkeypatch):
    service.write(service.top / "cgroup.subtree_control", "-cpu")
    (service.top / "cgroup.controllers").write_text("memory")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (words,) = Groups.make({"w0": 4096}, {"w0": 0.5}).shortcomings
    assert words.endswith(": systemd-run --user --scope -p Delegate=yes testbed up …")


def test_what_a_killed_run_enabled_is_disabled_with_its_groups(service):
    slice_ = service.top / "system.slice"
    service.write(slice_ / "cgroup.subtree_control", "+cpu")
    dead = service.group(f"system.slice/{PREFIX}{os.getpid()}-1+cpu", "cpu", "memory")
    (dead / "w0").mkdir()
    assert remove_leftovers() == [str(dead)]
    assert service.handed_on(slice_) == {"memory"}


def test_a_worker_that_is_no_member_in_the_end_says_so(service):
    groups = Groups.make({"w0": 4096}, {})
    (group,) = groups.members["w0"]
    assert join(groups.joined_by("w0")) == [f"the worker's limits do not hold: it is not in {group}"]
    file = group.with_name("gone") / "cgroup.procs"
    assert join([str(file)]) == [
        f"the worker's limits could not be applied: No such file or directory ({file})",
    ]


GUEST = """#!{python} -IBS
import ctypes, os, sys, traceback
sys.path.insert(0, {root!r})
try:
    from testbed.network.namespaces import mount
    from testbed.runtime.cgroups import Groups, join
    mount("proc", "/proc", "proc")
    mount("sysfs", "/sys", "sysfs")
    mount("none", "/sys/fs/cgroup", "cgroup2")
    top = "/sys/fs/cgroup/"
    if {scope!r}:  # as a session of systemd: its group has processes, the one above has the controllers
        os.makedirs(top + "a.slice/b.scope")
        for group in ("", "a.slice/"):
            open(top + group + "cgroup.subtree_control", "w").write("+memory +cpu")
        open(top + "a.slice/b.scope/cgroup.procs", "w").write("0")
    groups = Groups.make({{"w0": 30_000_000, "w1": 30_000_000}}, {{"w1": 0.5}})
    print("shortcomings", groups.shortcomings, flush=True)
    for name, size in (("w0", 90_000_000), ("w1", 1_000_000)):
        child = os.fork()
        if child == 0:
            join(groups.joined_by(name))
            (b"x" * size).count(b"y")
            os._exit(0)
        print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    print("quota", open(str(groups.members["w1"][0]) + "/cpu.max").read().strip(), flush=True)
    print("killed", groups.out_of_memory(), flush=True)
    made = groups.made[:]
    groups.close()
    print("left", [one for one in made if one.exists()], flush=True)
except BaseException:
    traceback.print_exc(file=sys.stdout)
finally:
    sys.stdout.flush()
    ctypes.CDLL(None).reboot(0x4321FEDC)
"""


@pytest.mark.netem
@pytest.mark.skipif(shutil.which("linux") is None, reason="VERSION 2 IS NOT TESTED: no guest kernel")
@pytest.mark.parametrize("scope", [False, True])
def test_version_2_in_a_kernel_of_its_own(tmp_path: Path, scope: bool) -> None:
    root = str(Path(__file__).resolve().parents[2])
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    init = tmp_path / "init"
    init.write_text(GUEST.format(python=python, root=root, scope=scope))
    init.chmod(0o755)
    options = ["mem=256M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}", "con=null", "con0=fd:0,fd:1"]
    done = subprocess.run(
        ["setarch", "--addr-no-randomize", "linux", *options, "quiet", f"uml_dir={tmp_path}/", "umid=u"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = done.stdout.splitlines()
    for words in ("shortcomings []", "w0 -9", "w1 0", "quota 10000 20000", "killed ['w0']", "left []"):
        assert words in lines, done.stdout
