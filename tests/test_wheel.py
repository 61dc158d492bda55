"""The wheel: what `pip install .` puts into another environment works from any directory."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # the build leaves files behind
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "testbed", "analysis", "scenarios", "containers"):
        (source / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source]
    subprocess.run(command, check=True, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def _testbed(unpacked: Path, cwd: Path, *words: str) -> str:
    code = "import sys; from testbed.cli import main; sys.argv[0] = 'testbed'; main()"
    paths = [str(unpacked), *(path for path in sys.path if path and Path(path).resolve() != ROOT)]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_claims_no_import_name_but_testbed(unpacked: Path) -> None:
    assert {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")} == {"testbed"}


def test_scenarios_are_found_by_name_from_any_directory(unpacked: Path, tmp_path: Path) -> None:
    assert _testbed(unpacked, tmp_path, "scenarios", "--where").strip() == str(unpacked / "testbed" / "scenarios")
    assert "quickstart" in _testbed(unpacked, tmp_path, "plan", "quickstart")


def test_figures_and_the_image_are_in_it(unpacked: Path) -> None:
    assert (unpacked / "testbed" / "analysis" / "winner_map.py").is_file()
    assert (unpacked / "testbed" / "containers" / "worker.Dockerfile").is_file()
