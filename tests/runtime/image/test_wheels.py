"""What is fetched for the worker image, and what is said where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import testbed
from testbed.errors import MissingError
from testbed.runtime.image import wheels


@pytest.mark.parametrize(
    ("installed", "cuda", "requirement"),
    [
        ("2.13.0+cpu", False, "torch==2.13.0+cpu"),
        ("2.13.0", False, "torch==2.13.0+cpu"),  # PyPI's brings CUDA
        ("2.13.0+cu130", False, "torch==2.13.0+cpu"),
        ("2.13.0+cpu", True, "torch===2.13.0"),  # exactly this: `==` would take a CPU build, too
        ("2.13.0", True, "torch===2.13.0"),
        ("2.13.0+cu130", True, "torch==2.13.0+cu130"),
    ],
)
def test_the_build_of_torch_follows_from_the_one_in_use(installed, cuda, requirement):
    assert wheels.torch_build(installed, cuda=cuda) == requirement


def test_everything_is_pinned_to_what_is_installed_here():
    first, *others = wheels.pins(cuda=False)
    assert first == f"torch=={metadata.version('torch').partition('+')[0]}+cpu"
    found = dict(line.split("==") for line in others)
    assert found["numpy"] == metadata.version("numpy")
    assert {"sympy", "mpmath", "jinja2", "markupsafe"} <= set(found)  # what torch needs, and what that needs
    assert not {"pandas", "pyarrow", "matplotlib", "pytest"} & set(found)  # what no worker needs
    assert not any(name.startswith("nvidia") for name in found)


def test_workers_need_no_more_than_the_image_has(tmp_path):
    """Everything that a worker imports, in a process that finds nothing else."""
    for line in wheels.pins(cuda=False):
        for file in metadata.files(line.partition("==")[0]) or ():
            top = tmp_path / file.parts[0]
            if top.name != ".." and not top.exists():
                top.symlink_to(
                    Path(file.locate()).parents[len(file.parts) - 2] if len(file.parts) > 1 else file.locate()
                )
    (tmp_path / "testbed").symlink_to(Path(testbed.__file__).parent)
    code = """
import testbed.runtime.container_main
import testbed.tasks.images, testbed.tasks.text, testbed.tasks.quadratic
from testbed.methods import available
from testbed.runtime import forkserver
forkserver.import_everything()
assert "dpsgd" in available()
try:
    import pandas
except ModuleNotFoundError:
    print("fine")
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "fine", done.stderr


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A pip that answers as told, in place of the real one; `calls` has the arguments of each."""

    def fake(*answers: str) -> None:
        module = tmp_path / "modules" / "pip"
        module.mkdir(parents=True)
        (module / "__init__.py").touch()
        (module / "__main__.py").write_text(
            f"""
import sys
from pathlib import Path
calls = Path({str(tmp_path / "calls")!r})
done = calls.read_text().splitlines() if calls.exists() else []
calls.write_text("\\n".join([*done, " ".join(sys.argv[1:])]) + "\\n")
answer = {answers!r}[len(done)]
if answer:
    sys.exit("a line\\nERROR: " + answer)
folder = Path(sys.argv[sys.argv.index("--wheel-dir") + 1])
folder.mkdir()
(folder / "torch.whl").touch()
"""
        )
        monkeypatch.setenv("PYTHONPATH", f"{module.parent}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    fake.calls = lambda: (tmp_path / "calls").read_text().splitlines()
    return fake


def test_wheels_are_fetched_once(pip):
    pip("")
    said: list[str] = []
    folder = wheels.wheelhouse(cuda=False, say=said.append)
    assert [path.name for path in folder.iterdir()] == ["torch.whl"]
    assert wheels.wheelhouse(cuda=False, say=said.append) == folder
    assert len(pip.calls()) == len(said) == 1
    assert os.listdir(folder.parent) == [folder.name]  # nothing half-made is left


def test_what_pip_says_is_told(pip):
    pip("Could not find a version that satisfies the requirement numpy")
    with pytest.raises(
        MissingError, match=r"pip could not fetch torch==.*\n.*ERROR: Could not find a version"
    ) as caught:
        wheels.wheelhouse(cuda=False, say=lambda text: None)
    assert "pip config list" in (caught.value.hint or "")
    assert not list(wheels.directory().iterdir())
