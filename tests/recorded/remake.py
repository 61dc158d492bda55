"""Makes the recorded runs anew: `.venv/bin/python tests/recorded/remake.py [NAME...]`.

It is `testbed up`, again for the cells that this machine disturbed, and then the Parquet files packed more tightly.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyarrow import parquet

HERE = Path(__file__).parent
FAIL = {"sweep": (), "faults": ("allreduce",)}  # by run: methods whose cells must fail
FINE = (0, 5, 6)  # exit codes of testbed up: all done, a cell failed, some emulation was invalid
ATTEMPTS = 4


def record(name: str) -> None:
    """Into a place where nothing has a path worth keeping, and from there to this directory."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(HERE / f"{name}.yaml", place)
        made = Path(place, name)
        up(place, f"{name}.yaml", "--out", name)
        for _ in range(ATTEMPTS - 1):
            if disturbed := unfaithful(made):
                for cell in disturbed:
                    shutil.rmtree(cell)
                up(place, "--resume", name)
        if disturbed := unfaithful(made):
            sys.exit(f"{name} is not kept: this machine disturbs {', '.join(cell.name for cell in disturbed)}")
        check_failures(name, made)
        origin = json.loads((made / "origin.json").read_text())  # where the scenario lay on the machine that ran it
        (made / "origin.json").write_text(json.dumps({**origin, "directory": "."}, indent=1))
        for file in made.rglob("*.parquet"):
            parquet.write_table(parquet.read_table(file), file, compression="zstd", compression_level=19)
        shutil.rmtree(HERE / name, ignore_errors=True)
        shutil.move(made, HERE / name)


def up(place: str, *words: str) -> None:
    code = subprocess.run(
        [sys.executable, "-m", "testbed.cli", "up", *words, "--no-report"], cwd=place, check=False
    ).returncode
    if code not in FINE:
        sys.exit(f"testbed up {' '.join(words)} ended with {code}")


def unfaithful(run: Path) -> list[Path]:
    """Cells whose emulation was disturbed; one that failed has nothing to judge."""
    return [
        run / "cells" / cell
        for cell, result in results(run)
        if not result["error"] and result["verdict"]["grade"] != "faithful"
    ]


def check_failures(name: str, run: Path) -> None:
    methods = {cell["id"]: cell["method"] for cell in json.loads((run / "cells.json").read_text())}
    for cell, result in results(run):
        if (result["error"] is not None) != (methods[cell] in FAIL[name]):
            sys.exit(f"{name} is not kept: {cell} failed, or should have: {result['error']}")


def results(run: Path) -> Iterator[tuple[str, Any]]:
    for file in run.glob("cells/*/result.json"):
        yield file.parent.name, json.loads(file.read_text())


if __name__ == "__main__":
    for wanted in sys.argv[1:] or FAIL:
        record(wanted)
