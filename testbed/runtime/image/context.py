"""The build context sent to the engine: a tar archive, made while it is sent. `build.py` calls it."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import testbed

CHUNK = 1 << 20
DOCKERFILE = "Dockerfile"  # its name in the archive
SOURCE = Path(testbed.__file__).parent


@dataclass(frozen=True)
class Member:
    """A file and its name in the archive."""

    name: str
    path: Path


def members(wheels: Path) -> list[Member]:
    """Return the Dockerfile, the wheels, and testbed itself as it is installed (or checked out) here."""
    found = [Member(DOCKERFILE, SOURCE / "containers" / "worker.Dockerfile")]
    found += [Member(f"wheels/{path.name}", path) for path in sorted(wheels.glob("*.whl"))]
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found.append(Member(f"testbed/{path.relative_to(SOURCE)}", path))
    return found


def archive(found: Sequence[Member]) -> Iterator[bytes]:
    """Yield the archive's bytes without storing it."""
    for member in found:
        with member.path.open("rb") as file:
            info = tarfile.TarInfo(member.name)  # owner, time and mode as ever, so that the engine's cache holds
            info.size = left = os.fstat(file.fileno()).st_size
            yield info.tobuf()
            while left:
                chunk = file.read(min(left, CHUNK))
                if not chunk:
                    raise OSError(f"{member.path} was cut while it was sent")
                left -= len(chunk)
                yield chunk
        yield bytes(-info.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)
