"""The Vagrantfile: valid for Vagrant itself, its scripts for the shell, and the command that it installs works."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "Vagrantfile"


def test_vagrant_finds_nothing_wrong(tmp_path):
    own = {"VAGRANT_HOME": str(tmp_path / "home"), "VAGRANT_DOTFILE_PATH": str(tmp_path / "dot")}
    environment = {**os.environ, **own, "VAGRANT_CHECKPOINT_DISABLE": "1"}
    words = ["vagrant", "validate", "--ignore-provider"]
    done = subprocess.run(words, cwd=FILE.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "validated successfully" in done.stdout


def script(name: str) -> str:
    """One of the scripts that provision the machine, as Ruby reads it."""
    code = f"module Vagrant; def self.configure(version); end; end; load ARGV[0]; print {name}"
    return subprocess.run(["ruby", "-e", code, str(FILE)], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", ["COPY", "SETUP"])
def test_its_scripts_are_scripts(name):
    subprocess.run(["sh", "-n"], input=script(name), text=True, check=True)


def test_it_sets_up_as_everywhere_else():
    assert "make -C /home/vagrant/testbed setup" in script("SETUP")


def test_testbed_in_there_runs_as_root_and_tells_how_it_went(tmp_path):
    text = script("SETUP")
    command = tmp_path / "testbed"
    command.write_text(text[text.index("#!/bin/sh") : text.index("EOF\ntestbed doctor")])
    for name, does in {"sudo": 'echo "as root: $@"; exit 6', "rsync": "echo copied >&2"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [str(command), "up", "a file.yaml"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 6
    assert done.stdout == "as root: -E -H /home/vagrant/testbed/.venv/bin/testbed up a file.yaml\n"
