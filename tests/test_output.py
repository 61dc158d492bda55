"""Output that goes away, and text that would take over a terminal: in real processes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import FAULTS, RECORDED, copy
from running import COMMAND, LIMIT, Place, write

from testbed.output import printable

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
SPELT = r"\x1b]0;owned\x07\x1b[2J"

# `testbed up` with everything real but the cells: in their place it says a line, draws, and waits to be interrupted.
DRAWING = """
import sys, time
from testbed import cli
from testbed.run import controller

def run(self, cells):
    with open("drawing", "w"):
        pass
    try:
        for number in range(ROUNDS):
            self.view.say(f"round {number}")
            self.view._live.update("drawn", refresh=True) if hasattr(self.view, "_live") else None
            time.sleep(0.05)
    finally:
        self.close()

controller.Controller.run = run
cli.main()
"""


# A command that takes its time before it says anything.
SLOW = """
import time
from testbed import cli

guard = cli.guard_output
cli.guard_output = lambda: (guard(), print("begun", flush=True), time.sleep(0.5))
cli.main()
"""


def shell(script: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=LIMIT, check=False, **options)


def command(*words: object) -> str:
    return " ".join([*COMMAND, *map(str, words)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    found = copy(FAULTS, tmp_path)
    (found / "cells/v0-dpsgd-r0/logs/w0.log").write_text(f"before {ESCAPE} after\n")
    return found


@pytest.mark.parametrize(
    "words", [("plan", RECORDED / "faults.yaml"), ("runs", "."), ("show", "faults"), ("logs", "faults")]
)
def test_output_that_cannot_be_written_is_one_clear_error(run: Path, words: tuple[object, ...]) -> None:
    full = shell(f"{command(*words)} > /dev/full", cwd=run.parent)
    assert full.returncode == 1
    assert full.stderr == "error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("words", [("export", "faults", "--csv"), ("up", RECORDED / "faults.yaml")])
def test_where_there_is_no_output_nothing_is_begun(run: Path, words: tuple[object, ...]) -> None:
    before = sorted(run.parent.rglob("*"))
    closed = shell(f"{command(*words)} >&-", cwd=run.parent)
    assert closed.returncode == 1
    assert closed.stderr == "error: cannot write the output: it is closed\n  → send it to a file, or > /dev/null\n"
    assert sorted(run.parent.rglob("*")) == before


def test_who_has_seen_enough_is_told_nothing(run: Path) -> None:
    log = run / "cells/v0-dpsgd-r0/logs/w0.log"
    log.write_text("a line of text\n" * 100_000)
    done = shell(f"{command('logs', run)} | head -c 10; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (1, "")


def test_errors_are_errors_where_nobody_can_be_told(run: Path) -> None:
    for closed in ("2>&-", "2>/dev/full", "<&- 2>&-"):
        assert shell(f"{command('show', 'nothing')} {closed}", cwd=run.parent).returncode == 2


class Terminal:
    """A process on a terminal of its own; its errors go to a file."""

    def __init__(self, folder: Path, script: str, *words: str, leading: bool = True, ignoring: bool = False) -> None:
        self.errors = folder / "errors"
        self.fd, theirs = pty.openpty()

        def in_terminal() -> None:
            os.setsid()
            if leading:
                fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN if ignoring else signal.SIG_DFL)

        environment = {**os.environ, "TERM": "xterm", "TESTBED_STATE": str(folder / "s"), "COLUMNS": "150"}
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script, *words],
                cwd=folder, stdin=theirs, stdout=theirs, stderr=errors, env=environment, preexec_fn=in_terminal,
            )  # fmt: skip
        os.close(theirs)

    def reads_until(self, condition: Callable[[bytes], bool]) -> bytes:
        seen = b""
        while not condition(seen):
            ready, _, _ = select.select([self.fd], [], [], LIMIT)
            assert ready, seen
            try:
                part = os.read(self.fd, 65536)
            except OSError:  # it has ended
                break
            seen += part
        return seen

    def closes(self) -> int:
        os.close(self.fd)
        return self.process.wait(LIMIT)


@pytest.mark.parametrize("leading", [True, False])  # False: no signal says so, only its output fails
def test_a_terminal_that_is_closed_ends_a_run_in_order(tmp_path: Path, leading: bool) -> None:
    write(tmp_path)
    words = ("up", "small.yaml", "--out", "run", "--no-report")
    terminal = Terminal(tmp_path, DRAWING.replace("ROUNDS", "10000"), *words, leading=leading)
    terminal.reads_until(lambda seen: b"round 3" in seen)
    assert terminal.closes() == 129
    said = [line for line in terminal.errors.read_text().splitlines() if not line.startswith("note: ")]
    resume = f"testbed up --resume {tmp_path / 'run'} runs the rest"
    assert said == [f"the terminal went away: 0 of 2 cells are done; {resume}"]


@pytest.mark.netem
@pytest.mark.beside
def test_a_terminal_that_is_closed_takes_the_network_down_that_was_being_measured(tmp_path: Path) -> None:
    write(tmp_path)
    terminal = Terminal(tmp_path, "from testbed.cli import main; main()", "net", "up", "small.yaml")
    terminal.reads_until(lambda seen: b"up after" in seen)
    assert terminal.closes() == 129
    assert "the terminal went away" in terminal.errors.read_text()
    assert "Traceback" not in terminal.errors.read_text()
    assert Place(tmp_path).left_behind() == []


@pytest.mark.parametrize("words", [("plan", RECORDED / "faults.yaml"), ("show", "faults"), ("runs", ".")])
@pytest.mark.parametrize("leading", [True, False])
def test_a_terminal_that_is_closed_before_there_is_anything_to_show(
    run: Path, words: tuple[object, ...], leading: bool
) -> None:
    terminal = Terminal(run.parent, SLOW, *map(str, words), leading=leading)
    terminal.reads_until(lambda seen: b"begun" in seen)
    assert terminal.closes() in (129, -signal.SIGHUP)  # commands that hold nothing may also just be ended
    assert "Traceback" not in terminal.errors.read_text()


def test_who_ignores_that_the_terminal_went_away_has_the_run_finished(tmp_path: Path) -> None:
    write(tmp_path)
    words = ("up", "small.yaml", "--out", "run", "--no-report")
    terminal = Terminal(tmp_path, DRAWING.replace("ROUNDS", "40"), *words, ignoring=True)
    terminal.reads_until(lambda seen: b"round 3" in seen)
    assert terminal.closes() == 0
    assert "Traceback" not in terminal.errors.read_text()


def test_a_run_whose_output_cannot_be_written_says_how_to_go_on(tmp_path: Path) -> None:
    write(tmp_path)
    words = [sys.executable, "-c", DRAWING.replace("ROUNDS", "10000"), "up", "small.yaml", "--out", "run"]
    environment = {**os.environ, "TESTBED_STATE": str(tmp_path / "s")}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    said = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert done.returncode == 1
    assert said[0] == "error: cannot write the output: No space left on device, so the run was ended"
    assert f"testbed up --resume {tmp_path / 'run'} runs the rest" in said[1]
    assert len(said) == 2


def test_what_workers_said_does_not_reach_the_terminal_raw(run: Path) -> None:
    script = "from testbed.cli import main; main()"
    terminal = Terminal(run.parent, script, "logs", "faults", "w0")
    seen = terminal.reads_until(lambda _: False).decode()
    assert terminal.closes() == 0
    assert f"before {SPELT} after" in seen
    assert ESCAPE not in seen


def test_a_pipe_gets_what_workers_said_as_they_said_it(run: Path) -> None:
    assert f"before {ESCAPE} after\n" in shell(command("logs", "faults", "w0"), cwd=run.parent).stdout


@pytest.mark.parametrize("words", [("show",), ("trace",)])
def test_nor_do_names_reasons_and_warnings(run: Path, words: tuple[str, ...]) -> None:
    for file in (run / "cells.json", *run.glob("cells/*/result.json")):
        text = file.read_text()
        for word in ("dpsgd", "was killed", "was lost"):
            text = text.replace(f'"{word}"', rf'"{word}\u001b]0;owned\u0007\u001b[2J"').replace(
                f"{word} ", rf"{word}\u001b]0;owned\u0007\u001b[2J "
            )
        file.write_text(text)
    terminal = Terminal(run.parent, "from testbed.cli import main; main()", *words, "faults")
    seen = terminal.reads_until(lambda _: False).decode()
    assert terminal.closes() == 0, terminal.errors.read_text()
    assert r"dpsgd\x1b" in seen  # what follows may be on the next line
    assert "\x1b]0" not in seen
    assert "\x07" not in seen
    assert "\x1b[2J" not in seen


def test_nor_do_errors(tmp_path: Path) -> None:
    done = shell(f"{command('show')} $'\\e[2J'", cwd=tmp_path)
    assert r"there is no run \x1b[2J" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain\ttext\nµ ±", "plain\ttext\nµ ±"), ("\x1b[31m", r"\x1b[31m"), ("a\rb", r"a\x0db"), ("\x9b2J", r"\x9b2J"),
     ("\u202eabc", r"\u202eabc"), ("\x7f\x00", r"\x7f\x00"), ("\udcff", r"\udcff")],
)  # fmt: skip
def test_characters_that_terminals_obey_are_spelt_out(text: str, shown: str) -> None:
    assert printable(text) == shown
