"""Directories that behave as control groups of version 2 do, as far as limiting workers is concerned: for kernels that
have version 1. test_groups_v2.py asks real ones."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from testbed.runtime import cgroups, controllers

FILES = {"memory": {"memory.max": "max", "memory.swap.max": "max"}, "cpu": {"cpu.max": "max 100000"}}


class FakeGroups:
    """Below a directory that is the top. No process ever becomes a member; `crowded` are said to have some."""

    def __init__(self, top: Path, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.top = top
        self.crowded: set[Path] = set()
        self._write, self._read = controllers.write, cgroups.read
        self._mkdir, self._own = Path.mkdir, own
        for file, text in (("cgroup.controllers", "memory cpu"), ("cgroup.subtree_control", ""), ("cgroup.procs", "")):
            (top / file).write_text(text)
        monkeypatch.setattr(Path, "mkdir", lambda path: self.make(path))
        monkeypatch.setattr(Path, "rmdir", lambda path: self.remove(path))
        monkeypatch.setattr(controllers, "write", self.write)
        monkeypatch.setattr(cgroups, "write", self.write)
        monkeypatch.setattr(cgroups, "read", self.read)

    def group(self, path: str, *handed_on: str) -> Path:
        group = self.top / path
        group.mkdir()
        self.write(group / "cgroup.subtree_control", " ".join(f"+{name}" for name in handed_on))
        return group

    def handed_on(self, group: Path) -> set[str]:
        return set((group / "cgroup.subtree_control").read_text().split())

    def read(self, path: Path) -> str:
        if path == Path("/proc/self/mountinfo"):
            return f"30 24 0:26 / {self.top} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
        return f"0::{self._own}\n" if path == Path("/proc/self/cgroup") else self._read(path)

    def make(self, path: Path) -> None:
        self._mkdir(path)
        for file, text in (("cgroup.procs", ""), ("cgroup.controllers", ""), ("cgroup.subtree_control", "")):
            (path / file).write_text(text)
        for controller in self.handed_on(path.parent):
            self._provide(path, controller)

    def remove(self, path: Path) -> None:
        if any(child.is_dir() for child in path.iterdir()):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        shutil.rmtree(path)

    def write(self, path: Path, text: str, *, optional: bool = False) -> None:
        if path.name != "cgroup.subtree_control":
            self._write(path, text, optional=optional)
            return
        group, before = path.parent, self.handed_on(path.parent)
        children = [child for child in group.iterdir() if child.is_dir()]
        adding = {word[1:] for word in text.split() if word[0] == "+"}
        removing = {word[1:] for word in text.split() if word[0] == "-"}
        if not adding <= set((group / "cgroup.controllers").read_text().split()):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        # The processor is an exception to the rule that a group with processes hands on nothing.
        if (group in self.crowded and "memory" in adding) or any(removing & self.handed_on(one) for one in children):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        path.write_text(" ".join((before | adding) - removing))
        for child in children:
            for controller in adding - before:
                self._provide(child, controller)
            for controller in removing & before:
                (child / "cgroup.controllers").write_text(
                    " ".join(set((child / "cgroup.controllers").read_text().split()) - {controller})
                )
                for file in FILES[controller]:
                    (child / file).unlink()

    def _provide(self, group: Path, controller: str) -> None:
        available = (group / "cgroup.controllers").read_text().split()
        (group / "cgroup.controllers").write_text(" ".join([*available, controller]))
        for file, text in FILES[controller].items():
            (group / file).write_text(text)
