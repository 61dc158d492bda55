"""Errors for people: what happened, where, what to do next. The command line prints them and exits with their code."""

import errno
import os
from typing import Self


class TestbedError(Exception):
    """Something failed that the user can understand and act on."""

    exit_code = 1
    __test__ = False  # the name is not a test class
    _named = False  # its message begins with the worker's name

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def said_by(self, worker: str) -> Self:
        """The same, with the worker's name before its message, where that is not there yet."""
        if not self._named:
            self.args, self._named = (f"{worker}: {self}",), True
        return self


class StorageError(TestbedError):
    """Results cannot be written: the disk is full, read-only or broken."""

    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what only a disk says
    closed = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT)  # of a file of the run, this means the same

    @classmethod
    def of(cls, place: object, refusal: OSError) -> "StorageError":
        """What the disk said, and what helps against it."""
        hint = "make room there"
        if refusal.errno in cls.closed:
            hint = "make it writable, or go on with a copy of the run in another place"
        if refusal.errno == errno.EIO:
            hint = "the disk is broken: dmesg says more"
        return cls(f"cannot write to {place}: {os.strerror(refusal.errno or 0)}", hint=hint)


class ScenarioError(TestbedError):
    """The scenario (or a file or argument it names) is wrong; nothing was started."""

    exit_code = 2
    problems: tuple[str, ...] = ()  # where it is about several: each


class MissingError(TestbedError):
    """This machine lacks something; the hint says how to get it."""

    exit_code = 3


class NetworkError(TestbedError):
    """The emulated network could not be built, changed, measured or taken down."""

    exit_code = 4


class TrainingError(TestbedError):
    """A worker or a method could not go on."""

    exit_code = 5


class DivergedError(TrainingError):
    """A model holds NaN or Inf. Of one training that is a failure; of a comparison it is something it has found."""

    def __init__(self, message: str, *, hint: str | None = None, step: int = 0, worker: str = "") -> None:
        super().__init__(message, hint=hint)
        self.step = step
        self.worker = worker  # that saw it first; empty: not said yet


class WorkerDiedError(TrainingError):
    """A worker ended without a word. The others may be able to go on without it."""

    def __init__(self, message: str, *, hint: str | None = None, worker: str = "", why: str = "") -> None:
        super().__init__(message, hint=hint)
        self.worker = worker
        self.why = why  # "was killed by SIGKILL"
