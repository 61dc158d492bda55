"""What a worker process cannot do any more, tried in one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534
SCRIPT = """
import json, os, socket, sys
from pathlib import Path
from testbed.runtime.confine import confine
cell, hidden, service = map(Path, sys.argv[1:])
shortcomings = confine(cell, hidden)
def can(action):
    try:
        action()
    except OSError:
        return False
    return True
def talk():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(service))
print(json.dumps({
    "shortcomings": shortcomings,
    "own": can(lambda: Path("mine").write_text("x")),
    "beside": can(lambda: (cell.parent / "theirs").write_text("x")),
    "service": can(talk),
    "networks": os.listdir(hidden) if hidden.exists() else [],
    "devices": sorted(os.listdir("/dev")),
    "null": can(lambda: open("/dev/null", "w").write("x")),
    "random": len(open("/dev/urandom", "rb").read(3)),
}))
"""


@pytest.fixture
def service() -> Iterator[Path]:
    """One of root's, as the Docker engine's is."""
    path = Path(f"/run/tbtest{os.getpid()}.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield path
    path.unlink()


def test_only_its_directory_and_nobody_to_talk_to(tmp_path: Path, service: Path) -> None:
    cell, hidden = tmp_path / "cell", tmp_path / "networks"
    cell.mkdir()
    os.chown(cell, NOBODY, NOBODY)
    (hidden / "other").mkdir(parents=True)
    words = [sys.executable, "-c", SCRIPT, str(cell), str(hidden), str(service)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert [text for text in seen["shortcomings"] if "/sys" not in text] == []
    assert (seen["own"], seen["beside"], seen["service"], seen["networks"]) == (True, False, False, [])
    assert set(seen["devices"]) >= {"null", "urandom"}
    assert not {"kmsg", "mem", "loop0", "tty"} & set(seen["devices"])
    assert (seen["null"], seen["random"]) == (True, 3)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(service))  # as everybody else can
