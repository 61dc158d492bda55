"""Damaged run directories: damage one file of a recorded run, call one reader, look for a traceback.

`python -m tests.stress.fuzz_runs --cases 5000` prints what failed; a test runs a few hundred cases. Case N of a seed is
always the same: `--case N` runs it alone and shows the traceback.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import yaml
from click.testing import CliRunner
from pyarrow import parquet

from testbed.errors import TestbedError
from tests.stress.trial import Trial

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
OTHER = "beside"  # an undamaged run in the same directory
LEAST_CASES = 20
LIMIT = 20  # seconds; a reader that takes this long hangs
NOBODY = 65534
BOMB = 1 << 40  # bytes of a sparse file

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 3.5, 10**30, 1e308, -1e308, math.nan, math.inf, "", "text", "0", "../../../etc", "a\x00b",
    "x" * 400, "\x1b[31mred", "\ud800", [], {}, [None], [[]], [1, "a"], {"a": None}, {"": []}, "faithful",
)  # fmt: skip

Damage = Callable[[Path, Random], None]
Reader = Callable[[Path], None]


@dataclass(frozen=True)
class Failure:
    """A reader that did not answer as it should."""

    case: int
    file: str
    damage: str
    reader: str
    error: str
    trace: str = ""

    def __str__(self) -> str:
        return f"case {self.case}: {self.file}, {self.damage}, {self.reader}: {self.error}"


# What happens to files ------------------------------------------------------------------------------------------------


def _write(content: bytes) -> Damage:
    return lambda path, _: path.write_bytes(content) and None


def _truncated(path: Path, random: Random) -> None:
    os.truncate(path, random.randrange(max(1, path.stat().st_size)))


def _flipped(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes() or b" ")
    for _ in range(random.choice((1, 3, 20))):
        content[random.randrange(len(content))] = random.randrange(256)
    path.write_bytes(content)


def _replaced(make: Callable[[Path], object]) -> Damage:
    def damage(path: Path, _: Random) -> None:
        path.unlink()
        make(path)

    return damage


def _huge(path: Path, _: Random) -> None:
    os.truncate(path, BOMB)


def _unreadable(path: Path, _: Random) -> None:
    path.chmod(0)


def _nodes(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to every value."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from _nodes(value, (*path, key))


def _mutated(data: Any, random: Random) -> Any:
    """Another value, or none, in one place or a few."""
    for _ in range(random.choice((1, 1, 1, 3))):
        *way, last = random.choice(list(_nodes({"root": data}))[1:])
        holder: Any = {"root": data}
        for key in way:
            holder = holder[key]
        action = random.random()
        if not way:
            data = deepcopy(random.choice(VALUES))
        elif action < 0.3:
            del holder[last]
        elif action < 0.4 and isinstance(holder, list):
            holder += [deepcopy(holder[last])] * 2
        else:
            holder[last] = deepcopy(random.choice(VALUES))
    return data


def _other_json(path: Path, random: Random) -> None:
    path.write_text(json.dumps(_mutated(json.loads(path.read_text()), random)))


def _other_yaml(path: Path, random: Random) -> None:
    changed = _mutated(yaml.safe_load(path.read_text()), random)
    path.write_text(yaml.safe_dump(changed, allow_unicode=True).encode("utf-8", "replace").decode())


def _other_table(path: Path, random: Random) -> None:
    """A column that is missing, of another type, without values, or with values that cannot be."""
    table = parquet.read_table(path)
    name = random.choice(table.column_names)
    index, rows = table.column_names.index(name), table.num_rows
    columns: tuple[Any, ...] = (
        None,
        pa.array(["?"] * rows),
        pa.array([b"\xff\x00"] * rows),
        pa.array([-1] * rows),
        pa.array([2**63 - 1] * rows),
        pa.array([-(2**63)] * rows),
        pa.array([math.nan] * rows),
        pa.array([1e308] * rows),
        pa.array([None] * rows, pa.int64()),
        pa.array([None] * rows, pa.string()),
        pa.nulls(rows),
        pa.array([[1]] * rows, pa.list_(pa.int64())),
        pa.array([{"a": 1}] * rows, pa.struct({"a": pa.int64()})),
        pa.array([True] * rows),
    )
    column = random.choice(columns)
    table = table.remove_column(index) if column is None else table.set_column(index, name, column)
    parquet.write_table(table.slice(0, random.choice((rows, rows, 1, 0))), path)


def _of_another(path: Path, random: Random) -> None:
    """The content of another file of the run."""
    others = [file for file in path.parent.iterdir() if file.is_file() and file != path]
    shutil.copyfile(random.choice(others), path) if others else path.unlink()


ANY: dict[str, Damage] = {
    "missing": lambda path, _: path.unlink(),
    "empty": _write(b""),
    "truncated": _truncated,
    "flipped bytes": _flipped,
    "binary": _write(bytes(range(256)) * 8),
    "latin-1": _write("größer: é\n".encode("latin-1")),
    "utf-16": _write('{"a": 1}'.encode("utf-16")),
    "a directory": _replaced(lambda path: path.mkdir()),
    "a named pipe": _replaced(os.mkfifo),
    "a loop of links": _replaced(lambda path: path.symlink_to(path)),
    "a dangling link": _replaced(lambda path: path.symlink_to("nowhere")),
    "huge": _huge,
    "unreadable": _unreadable,
    "another file's content": _of_another,
}
JSON: dict[str, Damage] = {
    "no JSON": _write(b"{'a': 1}"),
    "null": _write(b"null"),
    "a list": _write(b"[1, null, {}]"),
    "an object": _write(b'{"a": {"b": 1}}'),
    "a number": _write(b"7"),
    "NaN": _write(b"NaN"),
    "deep": _write(b"[" * 100_000 + b"]" * 100_000),
    **{f"other JSON {number}": _other_json for number in range(30)},
}
YAML: dict[str, Damage] = {
    "no YAML": _write(b"a: [1\n b: {"),
    "a list": _write(b"- 1\n- 2\n"),
    **{f"other YAML {number}": _other_yaml for number in range(20)},
}
PARQUET: dict[str, Damage] = {f"other table {number}": _other_table for number in range(25)}
BY_SUFFIX = {".json": JSON, ".yaml": YAML, ".parquet": PARQUET}


# Who reads ------------------------------------------------------------------------------------------------------------


def _command(*arguments: str) -> Reader:
    """A command of `testbed`, {} being the run."""

    def read(run: Path) -> None:
        from testbed.cli import cli

        words = [word.replace("{}", str(run)).replace("{other}", str(run.with_name(OTHER))) for word in arguments]
        done = CliRunner().invoke(cli, [word.replace("{all}", str(run.parent)) for word in words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if words[0] == "runs":
            assert OTHER in done.output, "a damaged run hides the others"

    return read


def _table(name: str) -> Reader:
    def read(run: Path) -> None:
        from testbed.results.run import open_run

        found = getattr(open_run(run), name)
        assert found() is not None if callable(found) else found is not None

    return read


def _analysis(name: str, how: str) -> Reader:
    def read(run: Path) -> None:
        from testbed.analysis import catalogue
        from testbed.results.run import open_run

        getattr(catalogue.module(name), how)(open_run(run))

    return read


def _page(run: Path) -> None:
    """The report but for its figures, which are readers of their own."""
    from testbed.report import page
    from testbed.results.run import open_run

    opened = open_run(run)
    page.telling_point(opened)
    page.render(opened, [])


def _resume(run: Path) -> None:
    """What `testbed up --resume` asks before it starts anything, and what its controller reads."""
    from testbed.plan.make import plan
    from testbed.results.directory import RunDirectory
    from testbed.results.own_scenario import own_scenario
    from testbed.run.controller import Controller, Options
    from testbed.run.live import PlainView
    from testbed.run.resume import check_same, incomplete

    directory = RunDirectory.open(run)
    scenario = own_scenario(directory)
    check_same(directory, scenario)
    made = plan(scenario)
    incomplete(made, directory)
    Controller(made, directory, Options(), PlainView())


def readers() -> dict[str, tuple[Reader, int]]:
    """All, with how often they are to be called relative to others."""
    from testbed.analysis import catalogue

    tables = (
        "cells",
        "results",
        "verdicts",
        "metrics",
        "counters",
        "trace",
        "time_by_kind",
        "metrics_by_step",
        "links",
    )
    return {
        "runs": (_command("runs", "{all}"), 8),
        "show": (_command("show", "{}"), 8),
        "show --json": (_command("show", "--json", "{}"), 6),
        "logs": (_command("logs", "{}"), 6),
        "logs of one": (_command("logs", "{}", "w1"), 2),
        "compare": (_command("compare", "{}", "{other}"), 6),
        "compare --json": (_command("compare", "--json", "{other}", "{}"), 4),
        "trace": (_command("trace", "{}"), 5),
        "trace --perfetto": (_command("trace", "{}", "--cell", "*", "--perfetto", "{}/../trace.json"), 2),
        "export": (_command("export", "{}", "--csv", "{}/../csv", "--counters", "--trace"), 3),
        "resume": (_resume, 6),
        "page": (_page, 5),
        **{f"table {name}": (_table(name), 2) for name in (*tables, "compare", "plan", "swept", "learns")},
        **{f"analysis {name}": (_analysis(name, "table"), 2) for name in catalogue.TABLES},
        **{f"analysis {name}": (_analysis(name, "draw"), 1) for name in catalogue.FIGURES},
    }


# Cases ----------------------------------------------------------------------------------------------------------------


class Bench:
    """Copies of the recorded runs to damage, one file at a time, and to mend again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = [Path(shutil.copytree(RECORDED / name, folder / name)) for name in ("faults", "sweep")]
        shutil.copytree(RECORDED / "faults", folder / OTHER)
        for run in self.runs:  # some cells are enough, and are read in less time
            cells = json.loads((run / "cells.json").read_text())
            (run / "cells.json").write_text(json.dumps(cells[:5]))
            for cell in cells[5:]:
                shutil.rmtree(run / "cells" / cell["id"])
        self._open_to_all()
        self.readers = readers()
        for run in self.runs:  # also so that nothing is left to import for whoever may not read the modules
            for name, (reader, _) in self.readers.items():
                if error := "".join(self._call(reader, run, unprivileged=False)):
                    raise AssertionError(f"{name} fails on an undamaged run: {error}")

    def _open_to_all(self) -> None:
        """So that what is done as another user fails only where it should."""
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o777)

    def run(self, number: int, seed: int) -> Failure | None:
        """Case `number`: None where all went well."""
        random = Random(f"{seed}/{number}")
        run = random.choice(self.runs)
        files = [path for path in run.rglob("*") if path.is_file() and path.name != "nursery.log"]  # nobody reads it
        by_kind: dict[str, list[Path]] = {}
        for path in sorted(files):
            by_kind.setdefault(path.suffix if path.parent.name == "logs" else path.name, []).append(path)
        file = random.choice(by_kind[random.choice(sorted(by_kind))])
        damages = {**ANY, **BY_SUFFIX.get(file.suffix, {})}
        damage = random.choice(sorted(damages))
        (reader,) = random.choices(sorted(self.readers), [self.readers[name][1] for name in sorted(self.readers)])
        content = file.read_bytes()
        try:
            damages[damage](file, random)
            error, trace = self._call(self.readers[reader][0], run, unprivileged=damage == "unreadable")
        finally:
            _mend(file, content)
        name = str(file.relative_to(self.folder))
        return Failure(number, name, damage, reader, error, trace) if error else None

    def _call(self, reader: Reader, run: Path, *, unprivileged: bool) -> tuple[str, str]:
        """What was raised that no user should see, and from where."""
        with _limited(), _as_nobody(unprivileged), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            try:
                reader(run)
            except TestbedError as error:
                if not str(error) or error.exit_code not in range(1, 7):
                    return f"says nothing of use: {error!r}", ""
            except Exception as error:  # noqa: BLE001  # what the test is about
                return f"{type(error).__name__}: {str(error)[:200]}", traceback.format_exc()
        return "", ""


def _mend(file: Path, content: bytes) -> None:
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    elif file.is_symlink() or file.exists():
        file.unlink()
    file.write_bytes(content)
    file.chmod(0o777)


@contextmanager
def _limited() -> Iterator[None]:
    def hang(*_: object) -> None:
        raise TimeoutError(errno.ETIMEDOUT, f"it hung for {LIMIT} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _as_nobody(wanted: bool) -> Iterator[None]:
    """Root reads everything."""
    if not wanted or os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def failures(
    cases: int, seed: int = 1, *, first: int = 0, say: Callable[[str], None] = lambda _: None
) -> list[Failure]:
    """Run that many cases; those that failed."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for number in range(first, first + cases):
            if failure := bench.run(number, seed):
                found.append(failure)
                say(str(failure))
    return found


def fuzz_runs(trial: Trial) -> None:
    """The same for as long as there is time."""
    seed = trial.chance.randrange(1 << 30)
    bench = Bench(trial.folder)
    while trial.going or trial.counts["damaged files read"] < LEAST_CASES:  # making ready may have taken all the time
        failure = bench.run(trial.counts["damaged files read"], seed)
        trial.count("damaged files read")
        if failure:
            trial.fail(f"--seed {seed} {failure}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="only this one, with its traceback")
    given = parser.parse_args()
    began = time.monotonic()
    if given.case is not None:
        found = failures(1, given.seed, first=given.case, say=print)
        print(*(failure.trace for failure in found), sep="\n")
    else:
        found = failures(given.cases, given.seed, say=print)
        print(f"{len(found)} of {given.cases} reads failed, in {time.monotonic() - began:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
