"""Puts tables and figures of runs into a page, where its words ask for them:

    <!-- consensus-small: method_table consensus_error -->
    … all of this is made anew …
    <!-- end -->

.venv/bin/python scripts/results_page.py docs/results.md RUN…       blocks of other scenarios stay as they are
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import fill

from testbed.analysis import catalogue, reading, style
from testbed.answer.inputs import answer_of
from testbed.results.directory import RunDirectory
from testbed.results.run import Run, open_run

BLOCK = re.compile(r"<!-- (?P<name>[\w-]+): (?P<makers>[\w ]+) -->\n.*?<!-- end -->", re.DOTALL)


def content(run: Run, makers: list[str], folder: Path) -> list[str]:
    """What the report says of the run in a sentence, then a table or figure of each maker."""
    answer = answer_of(RunDirectory(run.path))
    counts = run.results["verdict"].value_counts()
    cells = ", ".join(f"{count} {grade}" for grade, count in counts.items())
    parts = [fill(" ".join([answer.sentence, *answer.caveats, f"Cells: {cells}."]), 120, break_on_hyphens=False)]
    for maker in makers:
        module = catalogue.module(maker)
        if maker in catalogue.TABLES:
            parts.append(reading.as_text(module.table(run), ".md").rstrip())
            continue
        folder.mkdir(exist_ok=True)
        file = folder / f"{run.data['name']}-{maker}.png"
        style.save(module.draw(run), file)
        parts.append(f"![{catalogue.caption(maker)}]({folder.name}/{file.name})")
    return parts


def refresh(page: Path, runs: dict[str, Run]) -> None:
    def made(block: re.Match[str]) -> str:
        name, makers = block["name"], block["makers"].split()
        if name not in runs:
            return block[0]
        parts = content(runs[name], makers, page.with_suffix(""))
        return "\n\n".join([f"<!-- {name}: {' '.join(makers)} -->", *parts, "<!-- end -->"])

    page.write_text(BLOCK.sub(made, page.read_text()))


if __name__ == "__main__":
    opened = [open_run(Path(argument)) for argument in sys.argv[2:]]
    refresh(Path(sys.argv[1]), {run.data["name"]: run for run in opened if len(run.results)})
