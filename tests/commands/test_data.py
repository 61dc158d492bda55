"""`testbed data …` as a person meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner
from tasks.conftest import data_dir as data_dir

from testbed.cli import cli


def run(*words: str, data: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TESTBED_DATA": str(data), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "testbed.cli", "data", *words], env=environment, capture_output=True, text=True
    )


def test_the_list_tells_what_is_here(data_dir: Path) -> None:
    done = run("list", data=data_dir)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if line.startswith("│")}
    assert set(lines) >= {"digits", "fashion-mnist", "cifar10", "text"}
    assert "MB from made" in lines["cifar10"]
    empty = run("list", data=data_dir / "nothing here")
    assert "testbed data fetch cifar10" in empty.stdout
    assert not (data_dir / "nothing here").exists(), "looking creates nothing"


def test_an_unknown_name_stops_before_anything_starts(tmp_path: Path) -> None:
    done = run("fetch", "digits", "cifr10", data=tmp_path)
    assert done.returncode == 2
    assert "unknown data set 'cifr10'" in done.stderr
    assert "did you mean cifar10" in done.stderr
    assert done.stdout == ""


def test_a_failed_fetch_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run("fetch", "cifar10", "--from", str(tmp_path / "empty"), data=tmp_path / "data")
    assert done.returncode == 3
    assert "has no cifar-10-binary.tar.gz" in done.stderr
    assert "→ get cifar-10-binary.tar.gz by other means" in done.stderr


def test_where_and_what_comes_along(tmp_path: Path) -> None:
    assert run("where", data=tmp_path / "place").stdout.strip() == str(tmp_path / "place")
    assert "nothing to fetch" in run("fetch", "digits", data=tmp_path).stdout


def test_the_commands_start_without_torch() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from testbed.cli import cli;"
        "assert CliRunner().invoke(cli, ['data', 'list']).exit_code == 0; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_names_the_commands() -> None:
    shown = CliRunner().invoke(cli, ["data", "--help"]).output
    for command in ("list", "fetch", "where"):
        assert command in shown
