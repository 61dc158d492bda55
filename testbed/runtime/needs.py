"""What workers read of this machine: Python with its packages, testbed, user code, data. Confinement and containers
leave it visible."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import testbed
from testbed.runtime.confine import Needs
from testbed.worker.job import Job


def needs_of(job: Job, also: Iterable[Path], *, own_processes: bool) -> Needs:
    """Return what a process with this job needs; `also`: directories with user code and data."""
    import torch

    folders = list(also)
    own = [file for folder in folders for file in folder.glob("*.py")]
    return Needs(
        readable=(*python_paths(sys.path), *folders, job.news),
        files=(*(Path(str(one.__file__)) for one in (os, torch, testbed)), *own),
        unix_sockets=job.backend == "nccl",  # it makes some at its start; no service's are to be seen
        own_processes=own_processes,
    )


def python_paths(search: Sequence[str]) -> list[Path]:
    """Return where this Python, its packages and testbed itself are."""
    executable = Path(sys.executable)
    homes = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix), executable.resolve().parent.parent]
    packages = [Path(path) for path in search if path.endswith(("site-packages", "dist-packages"))]
    found = [*homes, *packages, Path(testbed.__file__).resolve().parent]
    return [path for path in dict.fromkeys(found) if path != Path("/") and path.is_dir()]
