"""The doctor on this machine, and on machines made to lack one thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.commands import doctor
from testbed.errors import MissingError
from testbed.network import box, probe, state
from testbed.runtime import checks, landlock, pidspace, promises


def program(folder: Path, name: str, prints: str) -> None:
    """A stand-in on the path."""
    (folder / name).write_text(f"#!/bin/sh\necho '{prints}'\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def fake_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_every_finding_says_what_it_is_needed_for_and_how_to_mend_it() -> None:
    findings = doctor.examine()
    assert len({finding.name for finding in findings}) == len(findings)
    for finding in findings:
        assert finding.found, finding
        assert finding.needed_for, finding
        assert finding.ok or finding.remedy, finding


def test_required_findings_come_first() -> None:
    required = [finding.required for finding in doctor.examine()]
    assert required == sorted(required, reverse=True)
    assert required[0]


def test_names_the_box_that_up_would_take_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "choose", lambda: probe.Choice("host", "this kernel has netem"))
    finding, _ = checks.default_box()
    assert finding.ok
    assert finding.found == "host: this kernel has netem"


def test_without_any_box_up_would_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise MissingError("no network can be emulated here", hint="apt-get install user-mode-linux")

    monkeypatch.setattr(probe, "choose", refuse)
    finding, _ = checks.default_box()
    assert not doctor.is_ready([finding])
    assert finding.remedy == "apt-get install user-mode-linux"


def test_what_the_delay_box_needs_is_required_only_where_it_would_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, required in (("uml", True), ("host", False)):
        found = checks.Finding("box", True, "some words", required=True)
        monkeypatch.setattr(checks, "default_box", lambda found=found, kind=kind: (found, kind))
        findings = {finding.name: finding for finding in doctor.examine()}
        assert findings["guest memory"].required == required
        assert findings["guest (user-mode-linux)"].required == required


def test_exit_code_tells_whether_up_would_work(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = checks.Finding("torch", False, "not installed", "get it", required=True)
    monkeypatch.setattr(checks, "torch", lambda: missing)
    result = CliRunner().invoke(cli, ["doctor"])
    assert result.exit_code == 3
    assert "✗  torch" in result.output
    assert "→ get it" in result.output
    assert "not ready" in result.output


def test_optional_things_do_not_make_it_unready() -> None:
    missing = checks.Finding("Docker engine", False, "none", "install it")
    present = checks.Finding("Python", True, "3.11", required=True)
    assert doctor.is_ready([present, missing])
    assert not doctor.is_ready([checks.python((3, 10, 2)), present])


def test_a_required_thing_of_which_nothing_is_known_is_not_enough() -> None:
    assert not doctor.is_ready([checks.Finding("guest", None, "unknown", required=True)])


def test_json_and_table_are_plain_when_piped() -> None:
    command = [sys.executable, "-m", "testbed.cli", "doctor"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    table = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "\x1b" not in table.stdout
    assert table.returncode in (0, 3)
    answer = subprocess.run([*command, "--json"], capture_output=True, text=True, env=environment, check=False)
    data = json.loads(answer.stdout)
    assert answer.returncode == (0 if data["ready"] else 3)
    assert {"name", "ok", "found", "remedy", "needed_for", "required"} == set(data["findings"][0])


def test_an_old_python_is_not_enough() -> None:
    assert checks.python((3, 11, 0)).ok
    old = checks.python((3, 10, 14))
    assert not old.ok
    assert "3.10.14" in old.found


def test_other_systems_get_the_virtual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    python, system = doctor.examine()
    assert python.ok
    assert not system.ok
    assert "vagrant up" in system.remedy


@pytest.mark.parametrize(
    ("root", "sysctls", "remedy"),
    [
        (True, {}, "--privileged"),
        (False, {"kernel.apparmor_restrict_unprivileged_userns": "1"}, "apparmor_restrict_unprivileged_userns=0"),
        (False, {"kernel.unprivileged_userns_clone": "0"}, "unprivileged_userns_clone=1"),
        (False, {"user.max_user_namespaces": "0"}, "max_user_namespaces=65536"),
        (False, {"kernel.unprivileged_userns_clone": "1"}, "run it as root"),
    ],
)
def test_remedy_for_forbidden_namespaces_is_the_one_switch_that_forbids(
    root: bool, sysctls: dict[str, str], remedy: str
) -> None:
    assert remedy in checks._namespace_remedy(root, sysctls.get)


def test_the_kernel_makes_a_veth_wherever_namespaces_are_allowed() -> None:
    allowed = checks.network_namespaces().ok
    assert checks.veth().ok == allowed  # every kernel with namespaces that we know of has veth


def test_an_attempt_in_a_namespace_leaves_nothing_behind() -> None:
    before = sorted(os.listdir("/sys/class/net"))
    checks.veth()
    assert sorted(os.listdir("/sys/class/net")) == before


def test_guest_memory_must_be_large_enough_and_executable(monkeypatch: pytest.MonkeyPatch) -> None:
    def on(free: int, flags: int) -> checks.Finding:
        status = SimpleNamespace(f_bavail=free >> 12, f_frsize=4096, f_flag=flags)
        monkeypatch.setattr(os, "statvfs", lambda path: status)
        return checks.guest_memory(needed=True, environment={})

    assert on(1 << 30, 0).ok
    assert "64 MiB" in on(64 << 20, 0).found
    assert not on(64 << 20, 0).ok
    noexec = on(1 << 30, os.ST_NOEXEC)
    assert not noexec.ok
    assert "noexec" in noexec.found
    assert "/dev/shm" in noexec.remedy


def test_guest_memory_is_where_the_guest_will_put_it(tmp_path: Path) -> None:
    assert str(tmp_path) in checks.guest_memory(needed=True, environment={"TMP": str(tmp_path)}).found
    gone = checks.guest_memory(needed=True, environment={"TMPDIR": str(tmp_path / "gone")})
    assert not gone.ok
    assert "TMPDIR" in gone.remedy


def test_guest_kernel_and_modules_must_be_of_one_version(
    fake_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in probe.GUEST_TOOLS:
        program(fake_path, tool, "6.1.999")
    modules = tmp_path / "modules"
    (modules / "6.1.998").mkdir(parents=True)
    monkeypatch.setattr(box, "GUEST_MODULES", modules)
    monkeypatch.setattr(probe, "GUEST_MODULES", modules)
    finding = checks.guest(needed=True)
    assert finding.ok is False
    assert finding.required
    assert "6.1.999" in finding.found
    assert "sch_netem" in finding.found


def test_a_missing_guest_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = checks.guest(needed=False)
    assert not finding.ok
    assert not finding.required
    assert "no linux" in finding.found
    assert "user-mode-linux" in finding.remedy


def test_state_directory_needs_a_short_path_one_can_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(path: Path) -> checks.Finding:
        monkeypatch.setenv("TESTBED_STATE", str(path))
        return checks.state_directory()

    new = Path(f"/tmp/doctor-{os.getpid()}/testbed")
    assert at(new).ok
    assert not new.parent.exists()
    assert not at(Path("/proc/testbed")).ok
    assert not at(Path("/tmp") / ("long" * 20)).ok
    file = tmp_path / "file"
    file.touch()
    assert not at(file / "x").ok
    assert state.base() == file / "x"


def test_run_directory_needs_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.run_directory(tmp_path).ok
    assert not checks.run_directory(Path("/proc")).ok
    monkeypatch.setattr(checks, "RUN_BYTES", 1 << 60)
    assert not checks.run_directory(tmp_path).ok


def test_the_hard_limit_of_open_files_counts() -> None:
    assert checks.open_files((64, 4096)).ok  # the soft one can be raised
    assert checks.open_files((64, -1)).ok
    assert not checks.open_files((512, 512)).ok


def test_backends_read_from_the_library_are_those_torch_has() -> None:
    code = "import torch.distributed as d; print(d.is_gloo_available(), d.is_nccl_available())"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    found = checks.torch_backends()
    assert f"{'Gloo' in found} {'NCCL' in found}" == answer.strip()


def test_torch_that_is_too_old_or_missing_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.torch().ok
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.4.1+cu121")
    assert not checks.torch().ok
    monkeypatch.undo()
    monkeypatch.setattr(checks, "torch_backends", lambda: [])
    assert not checks.torch().ok


def test_a_gpu_wants_a_torch_that_can_use_it(fake_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(fake_path, "nvidia-smi", "0, GPU-1, NVIDIA L4, 23034")
    monkeypatch.setattr(checks, "torch_backends", lambda: ["Gloo"])
    assert checks.gpus().ok is False
    monkeypatch.setattr(checks, "torch_backends", lambda: ["Gloo", "NCCL"])
    assert checks.gpus().ok
    assert "NVIDIA L4" in checks.gpus().found


def test_no_gpu_is_nothing_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checks.gpus().ok is None


def test_limits_of_a_control_group_are_read() -> None:
    assert checks._processor_limit("150000 100000") == 1.5
    assert checks._processor_limit("max 100000") is None
    assert checks._processor_limit(None) is None


def test_data_sets_that_are_missing_can_be_fetched_by_copying_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path))
    finding = checks.data_sets()
    assert finding.ok is None
    assert finding.found.startswith("digits;")
    assert finding.remedy.startswith("testbed data fetch fashion-mnist cifar10")


def test_says_what_workers_are_kept_from_on_this_kernel() -> None:
    found = promises.finding()
    assert found.name in {finding.name for finding in doctor.examine()}
    assert not found.required
    if os.geteuid() == 0 and landlock.version() and os.uname().machine in ("x86_64", "aarch64"):
        assert found.ok, found
        assert f"user nobody, no capabilities, seccomp, Landlock {landlock.version()}" in found.found


def test_what_a_kernel_does_not_give_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    found = promises.finding()
    assert not found.ok
    assert "Landlock missing; not kept here: " in found.found
    assert "this kernel has none" in found.found
    assert "no filter is known for riscv64" in found.found


def test_processes_that_are_not_hidden_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(flags: int) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(pidspace, "unshare", refuse)
    found = promises.finding()
    assert not found.ok
    assert "the worker sees other processes: Operation not permitted" in found.found


def test_an_ordinary_user_learns_that_workers_are_no_other_user() -> None:
    found = promises.describe(["the worker may read what the user may who started it"], 7)
    assert (found.ok, found.found) == (
        False,
        "Landlock 7; not kept here: the worker may read what the user may who started it",
    )
