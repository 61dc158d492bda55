"""Run a piece of a test in a child process with a network namespace of its own: as root, or as root of a user namespace
where an ordinary user runs the tests."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import TypeVar

from testbed.network import namespaces

T = TypeVar("T")


def isolated(function: Callable[[], T]) -> T:
    """What the function returns; its exceptions fail the test with the child's traceback."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        outcome: tuple[bool, object] = (False, "it ended without a word")
        try:
            if os.geteuid() == 0:
                namespaces.unshare(namespaces.CLONE_NEWNET)
            else:
                namespaces.own_user_namespace()
            outcome = (True, function())
        except BaseException:  # noqa: BLE001 - told to the parent, which fails
            outcome = (False, traceback.format_exc())
        finally:
            with os.fdopen(writer, "wb") as stream:
                pickle.dump(outcome, stream)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        worked, value = pickle.load(stream)
    os.waitpid(child, 0)
    assert worked, value
    return value  # type: ignore[no-any-return]
