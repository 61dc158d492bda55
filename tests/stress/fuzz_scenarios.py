"""Scenario files with random mistakes: every one is planned, or refused with words and an exit code; no traceback."""

from __future__ import annotations

from pathlib import Path
from random import Random

from click.testing import CliRunner

from testbed.cli import cli
from testbed.errors import TestbedError
from tests.stress.trial import Trial

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
WORDS = ("-1", "0", "1e400", "nan", ".inf", "null", "{}", "[]", "[[]]", "''", "!!python/object:os.system", "&a [*a]")
MORE = (
    "5ms",
    "1gbit",
    "100%",
    "w0",
    "w99",
    "99999999999999999999",
    "true",
    "2026-01-01",
    "💥",
    "\x00",
    "\t",
    "a: b",
    "- ",
)
LARGEST = 64  # workers, of a scenario that was changed into a large one: what is tried is reading it


def fuzz_scenarios(trial: Trial) -> None:
    files = sorted(SCENARIOS.glob("*.yaml"))
    for extra in SCENARIOS.iterdir():  # recordings, graphs and code that they name
        if extra.suffix in (".csv", ".graphml", ".py"):
            (trial.folder / extra.name).write_bytes(extra.read_bytes())
    while trial.going:
        file = trial.chance.choice(files)
        text = _mutated(file.read_text(), trial.chance)
        target = trial.folder / "changed.yaml"
        target.write_text(text, errors="surrogateescape")
        words = ["plan", str(target), "--json"] if trial.chance.random() < 0.5 else ["plan", str(target)]
        result = CliRunner().invoke(cli, words)
        trial.count("inputs")
        trial.count("refused" if result.exception else "planned")
        if result.exception and not isinstance(result.exception, TestbedError):
            kept = Path(f"stress-{trial.counts['inputs']}.yaml")
            kept.write_text(text, errors="surrogateescape")
            trial.fail(f"{file.name}: exit {result.exit_code}, {result.exception!r}; the input is in {kept}")


def _mutated(text: str, chance: Random) -> str:
    lines = text.splitlines()
    for _ in range(chance.randint(1, 4)):
        number = chance.randrange(len(lines)) if lines else 0
        change = chance.randrange(7)
        if not lines:
            return chance.choice(WORDS)
        if change == 0:
            del lines[number]
        elif change == 1:
            lines.insert(number, lines[chance.randrange(len(lines))])
        elif change == 2 and ":" in lines[number]:
            key = lines[number].partition(":")[0]
            lines[number] = f"{key}: {chance.choice(WORDS + MORE)}"
        elif change == 3:
            lines[number] = chance.choice("  \t#-") + lines[number]
        elif change == 4:
            at = chance.randint(0, len(lines[number]))
            lines[number] = lines[number][:at] + chance.choice(WORDS + MORE) + lines[number][at:]
        elif change == 5:
            at = chance.randint(0, len(lines[number]))
            lines[number] = lines[number][:at]
        else:
            other = chance.randrange(len(lines))
            lines[number], lines[other] = lines[other], lines[number]
    return _smaller("\n".join(lines) + "\n")


def _smaller(text: str) -> str:
    """Without absurd numbers of workers, which `plan` may take its time for."""
    lines = []
    for line in text.splitlines():
        key, _, value = line.partition(":")
        count = value.split("#")[0].strip()
        too_many = key.strip() == "workers" and count.isdecimal() and int(count) > LARGEST
        lines.append(f"{key}: {LARGEST}" if too_many else line)
    return "\n".join(lines) + "\n"
