"""Which method is fastest here, in one sentence made from the data, with its caveats. Pure.

`testbed up`, `testbed show` and the report open with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.answer import caveats, words
from testbed.results.comparison import BASELINE, Line

NOISE = 0.05  # of a time that was measured once: less than this between two methods says nothing
MOST_NAMED = 3
EXACT = ("ring", "ddp")  # methods that give what all-reduce gives, by other means


@dataclass(frozen=True)
class Setup:
    """What the sentence needs to know of the scenario."""

    place: str  # "8 workers in a ring at 25 ms, 10 Mbit/s"
    steps: int | None = None
    eval_every: int = 0  # steps between two looks at the target; 0: unknown
    emulated: bool = False  # gradients were not computed
    points: str = "networks"  # what a sweep's settings are
    planned: int = 0  # cells
    done: int = 0


@dataclass(frozen=True)
class Answer:
    """The sentence and its caveats, the most important first."""

    sentence: str
    caveats: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join([self.sentence, *self.caveats])


@dataclass(frozen=True)
class Entry:
    """A method in the race at one setting: its time, and its range."""

    line: Line
    time: float
    low: float
    high: float

    @property
    def name(self) -> str:
        return words.method(self.line.method)


@dataclass(frozen=True)
class Race:
    """One setting: the methods that have a time, the fastest first, with those that cannot be distinguished from it."""

    entries: tuple[Entry, ...]
    lines: tuple[Line, ...]  # all of this setting
    target: str | None

    @property
    def leaders(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.low <= self.entries[0].high)

    @property
    def undecided(self) -> bool:
        """Whether a method has only invalid runs: it might have led."""
        return any(line.invalid and not line.runs for line in self.lines)

    @property
    def baseline(self) -> Entry | None:
        return next((entry for entry in self.entries if entry.line.method == BASELINE), None)


def answer(lines: Sequence[Line], setup: Setup) -> Answer:
    """Return what the comparison says."""
    if not lines:
        return Answer("No cell is done yet.")
    if not any(line.runs for line in lines):
        lost = caveats.lost_cells(lines)
        if diverged := sum(line.diverged for line in lines):
            lost = ", ".join(filter(None, [lost, f"{words.count(diverged, 'cell')} diverged"]))
        found = (*caveats.diverged(lines), *caveats.unfinished(setup))
        return Answer(f"No method gave a result that counts: {lost}.", found)
    races = [race(some, setup) for some in _by_setting(lines).values()]
    sentence = _of_one(races[0], setup) if len(races) == 1 else _of_many(races, setup)
    return Answer(sentence, tuple(caveats.every(lines, races, setup)))


def race(lines: Sequence[Line], setup: Setup) -> Race:
    """Rank the methods at one setting by the time to the target where one is set, else by the time of a step. A method
    that diverged, even in one repeat of several, has not got there."""
    target = None if setup.emulated else next((line.target for line in lines if line.target), None)
    sound = [line for line in lines if not line.diverged]
    entries = [_entry(line, target, setup) for line in sound if (line.target_s if target else line.step_s) is not None]
    return Race(tuple(sorted(entries, key=lambda entry: entry.time)), tuple(lines), target)


def leaders(lines: Sequence[Line], setup: Setup) -> set[tuple[str, str]]:
    """Return (setting, method) of the fastest at each complete setting, and of those indistinguishable from it."""
    races = _complete([race(some, setup) for some in _by_setting(lines).values()])
    decided = [one for one in races if one.entries and not one.undecided]
    return {(entry.line.setting, entry.line.method) for one in decided for entry in one.leaders}


def _entry(line: Line, target: str | None, setup: Setup) -> Entry:
    time = (line.target_s if target else line.step_s) or 0.0
    spread = line.target_spread if target else line.step_spread
    if line.runs == 1:
        spread = NOISE / 2 * time
    # The target was reached somewhere between the last look at it and the one before.
    unseen = setup.eval_every * (line.step_s or 0.0) if target else 0.0
    return Entry(line, time, time - spread - unseen, time + spread)


def _of_one(race: Race, setup: Setup) -> str:
    """Return the sentence for a single network."""
    where = f"On {setup.place}, "
    if not race.entries:
        return where + _nobody(race, setup)
    if race.undecided:
        where += "of the methods with a valid result, "
    leaders, first, target = race.leaders, race.entries[0], race.target
    names = words.listed([entry.name for entry in leaders])
    if len(race.entries) == len(leaders) > 1:
        return f"{where}there is no clear winner: {names} {_took(leaders, target)}, too close to tell apart."
    if len(leaders) > 1:
        start = f"{where}{names} were the fastest, with no clear winner between them: they {_took(leaders, target)}"
    elif target:
        start = f"{where}{first.name} reached {words.target(target)} in {words.seconds(first.time)}"
    else:
        start = f"{where}{words.owner(first.name)} steps were the shortest: {words.milliseconds(first.time)}"
    return f"{start}{_against(race, leaders, setup)}."


def _took(entries: Sequence[Entry], target: str | None) -> str:
    times = words.between([entry.time for entry in entries])
    return f"reached {words.target(target)} in {times}" if target else f"took {times} per step"


def _against(race: Race, leaders: Sequence[Entry], setup: Setup) -> str:
    """Say how much faster than all-reduce, and why; else than the next."""
    sooner = "sooner" if race.target else "faster"
    baseline, rest = race.baseline, [entry for entry in race.entries if entry not in leaders]
    if baseline and baseline not in leaders:
        slow = "; ".join(filter(None, [words.seconds(baseline.time), _best_exact(race, leaders)]))
        return f", {_factors(leaders, baseline)} {sooner} than all-reduce ({slow}){_why(baseline.line, leaders)}"
    ran = next((line for line in race.lines if line.method == BASELINE), None)
    missing = ""
    if ran and not baseline:
        missing = f"; all-reduce {_no_time(ran, setup)}"
    if rest and rest[0].time > leaders[-1].time:  # else a leader is one only because it was looked at so seldom
        than = f", {_factors(leaders, rest[0])} {sooner} than the next, {rest[0].name} ({words.seconds(rest[0].time)})"
        return than + missing
    if rest or missing:
        return missing
    others = len(race.lines) - len(leaders)
    if others:
        return f"; no other method {'got there' if race.target else 'gave a result'}"
    return "; no other method was run, so nothing is compared"


def _best_exact(race: Race, leaders: Sequence[Entry]) -> str:
    """Compare with another implementation of the same all-reduce, where it is faster: the fairer baseline."""
    baseline = race.baseline
    for entry in race.entries:
        known = entry.line.method.split(" ")[0] in EXACT
        if known and entry not in leaders and baseline and entry.high < baseline.low:
            return f"{_factors(leaders, entry)} than {entry.name}, the fastest exact all-reduce"
    return ""


def _why(slow: Line, leaders: Sequence[Entry]) -> str:
    """Say what the baseline spent its time on."""
    waited = _waiting(slow)
    if waited is None:
        return ""
    told = f"; {words.share(waited)} of all-reduce's step was waiting"
    less = _waiting(leaders[0].line)
    if len(leaders) == 1 and less is not None:
        told += f", {words.share(less)} of {words.owner(leaders[0].name)}"
    return told


def _waiting(line: Line) -> float | None:
    if line.method.split(" ")[0] == "ddp":  # waits inside of backward, where it cannot be seen
        return None
    return line.parts_s.get("wait", 0.0) / line.step_s if line.step_s and line.parts_s else None


def _factors(leaders: Sequence[Entry], slow: Entry) -> str:
    most, least = (words.factor(slow.time / entry.time) for entry in (leaders[0], leaders[-1]))
    return most if most == least else f"{least.rstrip('×')} to {most}"


def _no_time(line: Line, setup: Setup) -> str:
    """Say why a method that was run has no time."""
    if line.diverged:
        return f"diverged{caveats.in_repeats(line)}"
    if not line.runs:
        return "failed" if line.failed else "has no valid result"
    return f"did not get there in {_steps(setup)}"


def _nobody(race: Race, setup: Setup) -> str:
    """Say that no method reached the target, or that none was set and all have diverged, at least sometimes."""
    if race.target is None:
        return "no method trained without diverging."
    wanted = words.target(race.target)
    told = f"no method reached {wanted} in {_steps(setup)}"
    best = [line for line in race.lines if line.accuracy is not None]
    if "%" in wanted and best:
        closest = max(best, key=lambda line: line.accuracy or 0.0)
        told += f"; the closest was {words.method(closest.method)} with {100 * (closest.accuracy or 0):.1f} %"
    lowest = [line for line in race.lines if line.loss is not None]
    if "%" not in wanted and lowest:
        closest = min(lowest, key=lambda line: line.loss or 0.0)
        told += f"; the closest was {words.method(closest.method)} with {closest.loss:.3g}"
    return f"{told}. More steps, or another learning rate, may get there."


def _steps(setup: Setup) -> str:
    return "its steps" if setup.steps is None else words.count(setup.steps, "step")


def _of_many(races: Sequence[Race], setup: Setup) -> str:
    """Return the sentence for a sweep: which method led how often, and by how much at most."""
    complete = _complete(races)
    undecided = sum(race.undecided for race in complete)
    run = [race for race in complete if race.entries and not race.undecided]
    where, number = f"On {setup.place}, ", f"{len(complete)} {setup.points}"
    if not run and undecided:
        return f"{where}none of {number} is decided: everywhere some method's emulation was invalid."
    if not run:
        did = f"reached {words.target(races[0].target)}" if races[0].target else "trained without diverging"
        return f"{where}no method {did} at any of {number}."
    alone = Counter(race.leaders[0].name for race in run if len(race.leaders) == 1)
    shared = Counter(entry.name for race in run if len(race.leaders) > 1 for entry in race.leaders)
    order = sorted({*alone, *shared}, key=lambda name: (-alone[name] - shared[name], -alone[name], name))
    what = f"reached {words.target(run[0].target)} first" if run[0].target else "had the shortest steps"
    first = order[0]
    parts = [f"{where}{first} {what} at {alone[first]} of {number}"]
    if not alone[first]:
        parts = [f"{where}{first} shared the lead at {shared[first]} of {number}"]
    elif shared[first]:
        parts[0] += f" and shared the lead at {shared[first]} more"
    parts += [f"{name} led at {_led(alone[name], shared[name])}" for name in order[1 : MOST_NAMED + 1]]
    baseline = words.method(BASELINE)
    stock = [line for race in run for line in race.lines if line.method == BASELINE]
    if baseline not in order and stock:
        ran = any(line.runs for line in stock)
        parts.append(f"{baseline} led at none" if ran else f"{baseline} gave no result that counts")
    if undecided:
        are = "is" if undecided == 1 else "are"
        parts.append(f"{undecided} {are} undecided, as some method's emulation was invalid")
    if nobody := len(complete) - len(run) - undecided:
        parts.append(f"at {nobody} {'nobody got there' if run[0].target else 'there is no valid result'}")
    return "; ".join(parts) + _at_most(run) + "."


def _complete(races: Sequence[Race]) -> list[Race]:
    """Return the settings that have as many methods as any: the others are not done, so they have no leader yet."""
    full = max((len(race.lines) for race in races), default=0)
    return [race for race in races if len(race.lines) == full]


def _led(alone: int, shared: int) -> str:
    """Format as "4", "2 (shared)", "4 and shared it at 2"."""
    if alone and shared:
        return f"{alone} and shared it at {shared}"
    return str(alone) if alone else f"{shared} (shared)"


def _at_most(run: Sequence[Race]) -> str:
    """Return the largest gain over all-reduce, by which method and where."""
    gains = [
        (race.baseline.time / race.entries[0].time, race.entries[0])
        for race in run
        if race.baseline and race.baseline not in race.leaders
    ]
    if not gains:
        return ""
    most, entry = max(gains, key=lambda gain: gain[0])
    sooner = "sooner than" if run[0].target else "faster than"
    there = next(race for race in run if entry in race.entries)
    exact = _best_exact(there, [entry])
    where = words.setting(entry.line.setting) + (f" ({exact})" if exact else "")
    return f". The largest gain: {entry.name}, {words.factor(most)} {sooner} all-reduce at {where}"


def _by_setting(lines: Sequence[Line]) -> Mapping[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.setting, []).append(line)
    return found
