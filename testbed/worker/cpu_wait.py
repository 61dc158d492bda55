"""How long a worker was ready to run without a processor, by the kernel's account of its thread. The clock uses it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class CpuWait:
    """The wait of the thread that makes it, from then on, in nanoseconds. Waiting that cost no training is left out."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._not_counted = self._total()

    @property
    def known(self) -> bool:
        """Whether this kernel keeps such an account: on some kernels it is always 0."""
        return self._read()[0] > 0

    @property
    def ns(self) -> int:
        return self._total() - self._not_counted

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Exclude waiting inside the block."""
        before = self._total()
        try:
            yield
        finally:
            self._not_counted += self._total() - before

    def forgive(self, ns: int) -> None:
        """Subtract waiting that cost no training after all."""
        self._not_counted += ns

    def _total(self) -> int:
        return self._read()[1]

    def _read(self) -> tuple[int, int]:
        """Return the time on a processor, and ready without one."""
        if self._file is None:
            return 0, 0
        on, ready, *_ = os.pread(self._file, 96, 0).split()
        return int(on), int(ready)

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)
