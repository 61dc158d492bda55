"""For all tests: signals that end programs do so, even where the tests run in the background of a shell, which has
them ignored; and one thread per process, before torch is imported. Tests fork workers, which a process must not do once
it has a pool of threads, and share two cores with each other.

Examples that Hypothesis makes up are the same in every run; HYPOTHESIS_PROFILE=explore looks for new ones."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", max_examples=3000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

from engine import engine  # noqa: E402, F401  # a fixture, for all


@pytest.fixture(scope="module")
def own_state() -> Iterator[Path]:
    """Where networks of tests keep their state: never where those of a user are, and in a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="tb") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_STATE", folder)
        yield Path(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long goes first, where files are given out to several processes."""
    items.sort(key=lambda item: item.get_closest_marker("beside") is None)
