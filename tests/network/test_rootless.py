"""An ordinary user builds, measures and uses a network in the delay box, without root and without leaving anything."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import ordinary
from .examples import COMMAND
from .traces_of import left_behind, traces

pytestmark = [
    pytest.mark.netem,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="already an ordinary user: the other tests show it"),
]

RING = """
name: ring
workers: 8
network:
  topology: ring
  link: {latency: 5ms, rate: 100mbit}
  events:
    - {at: 10min, link: [w0, w1], rate: 1mbit}
methods: [allreduce]
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tb") as folder:
        os.chown(folder, ordinary.NOBODY, ordinary.NOBODY)
        (Path(folder) / "ring.yaml").write_text(RING)
        yield Path(folder)


def as_nobody(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "XDG_RUNTIME_DIR"}
    environment |= {"HOME": str(home), "TESTBED_STATE": str(home / "state")}
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=home,
        env=environment,
        preexec_fn=ordinary.become,
    )


def test_a_ring_of_eight_without_root(home: Path) -> None:
    before = traces(home)
    up = as_nobody(home, "net", "up", "ring.yaml", "--box", "uml")
    assert up.returncode in (0, 6), up.stderr  # 6: a machine too busy to be faithful
    assert "8 workers, 8 links, up after" in up.stdout
    assert "links, asked / measured" in up.stdout
    assert "no answer" not in up.stdout
    assert "1 timed change scheduled" in up.stdout
    assert (home / "state" / "ring").stat().st_uid == ordinary.NOBODY

    ping = as_nobody(home, "exec", "w0", "--", "ping", "-c1", "-W2", "w1")
    assert ping.returncode == 0, ping.stdout + ping.stderr
    assert "1 received" in ping.stdout
    whoami = as_nobody(home, "exec", "w0", "--", "hostname")
    assert whoami.stdout == "w0\n"

    change = as_nobody(home, "net", "set", "w0-w1", "latency=50ms")
    assert change.returncode == 0, change.stderr
    status = as_nobody(home, "status")
    assert "latency=50ms" in status.stdout

    down = as_nobody(home, "down")
    assert (down.returncode, down.stdout) == (0, "ring is down\n")
    left = left_behind(before, home)
    assert left == {"files": [str(home / "state")]}  # the empty place of networks to come
