"""Where networks of tests keep their state: never where those of a user are, and in a short path, for sockets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def own_state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tb") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_STATE", folder)
        yield Path(folder)
