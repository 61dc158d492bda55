"""The table of commands and the modules of testbed.commands are the same."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import click
import pytest

import testbed.commands
from testbed.cli import COMMANDS

NOT_COMMANDS = {"options"}


def test_every_module_is_a_command() -> None:
    assert {module.name for module in iter_modules(testbed.commands.__path__)} - NOT_COMMANDS == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_module_holds_the_command_of_its_name(name: str) -> None:
    command = import_module(f"testbed.commands.{name}").command
    assert isinstance(command, click.Command)
    assert command.name == name


def test_the_list_of_commands_needs_neither_torch_nor_rich() -> None:
    code = "import sys, testbed.cli; print(sorted({'torch', 'rich', 'numpy', 'mininet'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
