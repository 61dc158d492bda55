"""`image: host`: this machine's own system and Python in a container, with nothing to build or pull.

The image holds only the links between system directories; the directories themselves are mounted, read-only. docker.py
uses both.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.runtime.container_spec import Directory
from testbed.runtime.needs import python_paths as python_paths

if TYPE_CHECKING:
    from docker import DockerClient

REPOSITORY = "testbed/host"
# Not /sbin: the engine puts its init process there, and would have to write to this machine's
SYSTEM = ("usr", "bin", "lib", "lib32", "lib64", "libx32", "nix")
# What the loader, the C library and Python ask for; nobody's secrets
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime")


def ensure(client: DockerClient, root: Path = Path("/")) -> str:
    """Return the image's name; make it where the engine does not have it yet."""
    from docker.errors import ImageNotFound

    content = archive(root)
    tag = hashlib.sha256(content).hexdigest()[:12]
    name = f"{REPOSITORY}:{tag}"
    try:
        client.images.get(name)
    except ImageNotFound:
        client.api.import_image_from_data(content, repository=REPOSITORY, tag=tag)
    return name


def archive(root: Path) -> bytes:
    """Return a tar file with the links of the top directory (/bin → usr/bin); the same for the same links."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        etc = tarfile.TarInfo("etc")
        etc.type, etc.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(etc)
        for name in SYSTEM:
            if (root / name).is_symlink():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, str((root / name).readlink())
                tar.addfile(link)
    return data.getvalue()


def directories(root: Path = Path("/"), python: Iterable[Path] | None = None) -> list[Directory]:
    """Return what containers see of this machine: system, some of /etc, and everything of this Python."""
    system = [root / name for name in SYSTEM if (root / name).is_dir() and not (root / name).is_symlink()]
    etc = [root / "etc" / name for name in ETC if (root / "etc" / name).exists()]
    return [Directory(str(path)) for path in dict.fromkeys([*system, *etc, *(python or python_paths(sys.path))])]
