"""Wheels for the worker image: what a worker imports besides testbed, in the versions in use here.

`testbed image build` calls it. Wheels are fetched on this machine with its own pip settings and kept in the user's
cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from testbed.errors import MissingError, StorageError

NEEDED = ("torch", "numpy")  # what workers import; the rest of testbed's dependencies stays outside of images
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def directory() -> Path:
    """Return the directory in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "testbed" / "wheels"


def torch_build(installed: str, *, cuda: bool) -> str:
    """Return the installed build of torch as a requirement.

    PyPI's builds include CUDA and have no suffix, so only `===` keeps pip from accepting a CPU build.
    """
    release, _, suffix = installed.partition("+")
    if not cuda:
        return f"torch=={release}+cpu"
    return f"torch=={installed}" if suffix.startswith("cu") else f"torch==={release}"


def pins(*, cuda: bool) -> list[str]:
    """Return the exact installed versions of all that a worker needs; torch first."""
    found: dict[str, str] = {}
    todo = list(NEEDED)
    while todo:
        name = _plain(todo.pop())
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of another system or Python, or of a CUDA build; torch names those exactly
        if name not in found:
            found[name] = distribution.version
            requires = [text for text in distribution.requires or () if "extra ==" not in text]
            todo += [match[0] for text in requires if (match := re.match(r"[\w.-]+", text))]
    if "torch" not in found:
        raise MissingError("torch is not installed here, so that its version for the image is unknown")
    wanted = torch_build(found.pop("torch"), cuda=cuda)
    if cuda:  # what came with a CPU build may not fit: a CUDA build names what it needs
        found = {name: version for name, version in found.items() if name in NEEDED}
    return [wanted, *(f"{name}=={version}" for name, version in sorted(found.items()))]


def wheelhouse(*, cuda: bool, say: Callable[[str], None]) -> Path:
    """Return a directory with all wheels; fetch them unless they are cached."""
    wanted = pins(cuda=cuda)
    key = hashlib.sha256("\n".join([PYTHON, *wanted]).encode()).hexdigest()[:16]
    folder = directory() / f"{'cuda' if cuda else 'cpu'}-{key}"
    if folder.is_dir():
        return folder
    say(f"fetching wheels: {wanted[0].replace('===', '==')} and what it needs")
    if find_spec("pip") is None:
        raise MissingError("pip is missing in this environment", hint=f"{sys.executable} -m ensurepip")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder.parent) as temporary:
            fetched = Path(temporary) / "wheels"
            _fetch(wanted, fetched)
            shutil.rmtree(folder, ignore_errors=True)
            fetched.rename(folder)  # complete, or not there
    except OSError as error:
        raise StorageError(
            f"cannot keep wheels in {folder.parent}: {error.strerror}", hint="XDG_CACHE_HOME names another place"
        ) from error
    return folder


def _fetch(wanted: list[str], folder: Path) -> None:
    constraints = folder.parent / "constraints.txt"
    constraints.write_text("\n".join(wanted) + "\n")
    names = [*wanted[:1], *(name for name in NEEDED if name != "torch")]
    command = [sys.executable, "-m", "pip", "wheel", "--no-input", "--disable-pip-version-check"]
    command += ["--wheel-dir", str(folder), "--constraint", str(constraints), *names]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return
    if "No space left on device" in done.stderr:
        raise StorageError(f"no room for wheels in {folder.parent.parent}", hint="make room there, or in /tmp")
    words = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    raise MissingError(
        f"pip could not fetch {wanted[0]}" + "".join(f"\n  {line}" for line in words[-3:]),
        hint="pip must reach an index that has it: PyTorch's own has builds for CPUs and for each CUDA, PyPI one with "
        "CUDA; pip config list shows what is asked, PIP_EXTRA_INDEX_URL adds one",
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
