"""The host box, which this machine's kernel may be unable to carry: its tests run in a guest whose kernel has netem,
with the project's own pytest. What fails there fails here, with its report.

`python -m tests.hostbox.guest .venv/bin/pytest tests/hostbox/guest_network.py -x` runs some by hand.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from e2e.test_run import LOCAL

from .guest import missing, run_in_guest

pytestmark = [pytest.mark.netem, pytest.mark.beside, pytest.mark.slow, pytest.mark.timeout(1300)]

LIMIT = 1200  # seconds; nothing takes a tenth of it on an idle machine
# What runs there, one boot each: files, and which of their tests. All that should hold on any kernel may be added.
GUEST_TESTS = {
    "network": ["tests/hostbox/guest_network.py", "tests/hostbox/guest_bench.py"],
    "endings": ["tests/commands/test_down.py", "-k", "death_of_the_keeper or death_of_the_box or whoever or closing"],
    "control groups of version 2": [
        "tests/runtime/test_cgroups.py",
        "tests/runtime/test_cgroups_v2.py",
        "-m",
        "not netem",
    ],
}


@pytest.mark.parametrize("words", GUEST_TESTS.values(), ids=GUEST_TESTS)
def test_in_a_kernel_with_netem(words: list[str], tmp_path: Path) -> None:
    passes_there(words, tmp_path)


def test_whole_runs_in_a_kernel_with_netem(tmp_path: Path) -> None:
    """The quickstart's losses there are, to the bit, those of training here and without a network."""
    passes_there(["tests/hostbox/guest_runs.py"], tmp_path)
    found = json.loads((tmp_path / "losses.json").read_text())
    words = [sys.executable, "-c", LOCAL, str(tmp_path / "scenario.yaml")]
    local = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert len(local) == 5
    assert found == local


def passes_there(words: list[str], folder: Path) -> None:
    assert not missing(), f"apt-get install {' '.join(missing())}"
    pytest_there = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--durations", "10", *words]
    pytest_there += ["-o", f"timeout={LIMIT}"]
    outcome = run_in_guest(f'{shlex.join(pytest_there)} --junitxml "$OUT/report.xml"', LIMIT, folder)
    print(outcome.log)
    assert outcome.code == 0, outcome
    cases = list(ElementTree.parse(folder / "report.xml").iter("testcase"))
    assert cases
    assert [case.get("name") for case in cases if case.find("skipped") is not None] == []


def test_what_a_script_changes_stays_in_the_guest(tmp_path: Path) -> None:
    here = Path(__file__).with_name("written_in_the_guest")
    outcome = run_in_guest(f'touch {here} && ls {here}; echo kept >"$OUT/result"; exit 7', 60, tmp_path)
    assert (outcome.code, outcome.log) == (7, f"{here}\n"), outcome
    assert (tmp_path / "result").read_text() == "kept\n"
    assert not here.exists()


def test_a_script_that_does_not_end_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    outcome = run_in_guest("sleep 1000 & sleep 1000", 6, tmp_path)
    assert (outcome.code, outcome.log) == (None, ""), outcome
    assert "killed after 6 s" in outcome.console
    until = time.monotonic() + 30  # the kernel kills them when their first process dies, and takes its time under load
    while (left := _mentioning(tmp_path)) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []


def _mentioning(folder: Path) -> list[str]:
    """Processes started with this directory among their words."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:  # it has just ended
            continue
        if bytes(folder) in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found
