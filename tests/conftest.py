"""For all tests: one thread per process, before torch is imported. Tests fork workers, which a process must not do once
it has a pool of threads, and share two cores with each other."""

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

from engine import engine  # noqa: E402, F401  # a fixture, for all
