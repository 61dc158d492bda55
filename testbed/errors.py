"""Errors for people: what happened, where, what to do next. The command line prints them and exits with their code."""

import errno


class TestbedError(Exception):
    """Something failed that the user can understand and act on."""

    exit_code = 1
    __test__ = False  # the name is not a test class

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class StorageError(TestbedError):
    """Results cannot be written: the disk is full, read-only or broken."""

    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what only a disk says
    closed = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT)  # of a file of the run, this means the same


class ScenarioError(TestbedError):
    """The scenario (or a file or argument it names) is wrong; nothing was started."""

    exit_code = 2


class MissingError(TestbedError):
    """This machine lacks something; the hint says how to get it."""

    exit_code = 3


class NetworkError(TestbedError):
    """The emulated network could not be built, changed, measured or taken down."""

    exit_code = 4


class TrainingError(TestbedError):
    """A worker or a method could not go on."""

    exit_code = 5
