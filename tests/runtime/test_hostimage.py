"""`image: host`: which parts of this machine a container sees."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import testbed
from testbed.runtime import hostimage


def merged(root: Path) -> Path:
    """A machine whose /bin and /lib are links, as today's are; /lib64 is not."""
    for name in ("usr/bin", "usr/lib", "usr/sbin", "lib64", "etc/alternatives", "home/me/env"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    for name in ("passwd", "shadow", "ld.so.cache"):
        (root / "etc" / name).touch()
    return root


def test_the_image_has_the_links_and_nothing_else(tmp_path: Path) -> None:
    content = hostimage.archive(merged(tmp_path))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        found = {member.name: member.linkname for member in tar.getmembers()}
    assert found == {"etc": "", "bin": "usr/bin", "lib": "usr/lib"}
    assert hostimage.archive(tmp_path) == content, "the same machine, the same image"


def test_containers_see_the_system_but_no_secrets(tmp_path: Path) -> None:
    root = merged(tmp_path)
    found = hostimage.directories(root, python=[root / "home/me/env"])
    assert [str(Path(one.source).relative_to(root)) for one in found] == [
        "usr",
        "lib64",
        "etc/ld.so.cache",
        "etc/alternatives",
        "etc/passwd",
        "home/me/env",
    ]
    assert not any(one.writable for one in found)


def test_containers_see_all_of_this_python() -> None:
    found = hostimage.python_paths(["", "/nowhere/site-packages", str(Path(testbed.__file__).parent.parent)])
    assert {Path(sys.prefix), Path(sys.base_prefix)} <= set(found)
    assert Path(testbed.__file__).parent in found
    assert Path(testbed.__file__).parent.parent not in found, "only the package, not what lies beside it"
    assert all(path.is_dir() for path in found)
