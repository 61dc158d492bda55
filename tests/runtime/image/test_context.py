"""What is sent to the engine is a tar archive of what is installed here."""

from __future__ import annotations

import io
import tarfile

import pytest

from testbed.runtime.image.context import CHUNK, SOURCE, archive, members


def test_the_archive_has_the_dockerfile_the_wheels_and_this_testbed(tmp_path):
    (tmp_path / "torch-1-cp311.whl").write_bytes(b"x" * (CHUNK + 700))
    (tmp_path / "notes.txt").write_text("no wheel")
    content = b"".join(archive(members(tmp_path)))
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as made:
        names = made.getnames()
        assert names[:2] == ["Dockerfile", "wheels/torch-1-cp311.whl"]
        assert len(names) == len(set(names))
        assert {"testbed/__init__.py", "testbed/worker/job.py", "testbed/tasks/data/digits.npz"} <= set(names)
        assert not any("__pycache__" in name for name in names)
        assert made.extractfile("wheels/torch-1-cp311.whl").read() == b"x" * (CHUNK + 700)
        for name in names[2:]:
            assert made.extractfile(name).read() == (SOURCE.parent / name).read_bytes()


def test_a_file_that_is_cut_meanwhile_is_noticed(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"x" * (3 * CHUNK))
    found = [member for member in members(tmp_path) if member.name == "wheels/a.whl"]
    pieces = archive(found)
    next(pieces)
    (tmp_path / "a.whl").write_bytes(b"")
    with pytest.raises(OSError, match="cut while it was sent"):
        list(pieces)
