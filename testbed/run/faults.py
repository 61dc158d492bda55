"""Carries out the scenario's events while a cell trains, on time, and records them.

The controller polls the injector. Link changes at fixed times are left to the network daemon, which is exact to the
millisecond; workers are killed, frozen and slowed from here. When the cell is over, every link is as planned again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count, takewhile
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from testbed.plan import schedule
from testbed.plan.changes import Change
from testbed.plan.model import NetworkPlan
from testbed.plan.timeline import Action, at_steps, at_times
from testbed.results.cell import Event
from testbed.run.rejoin_coordinator import Rejoins
from testbed.scenario.links import in_words
from testbed.scenario.units import Duration
from testbed.scenario.verbs import ON_WORKERS
from testbed.worker.progress import Where

if TYPE_CHECKING:
    from testbed.scenario.model import Scenario

NEVER = 3600.0  # seconds until the injector must be asked again: it has nothing to do
SOON = 0.005  # while it waits for training to begin, or for a step
GIVEN_UP = 0.8  # of the message timeout: the others give up on a frozen worker by then, so it is killed
AGAIN = 0.1  # seconds of changes that are sent twice where the schedule changes: none must be lost, twice is harmless
MOST = 200  # changes of links that are listed one by one; the counters have all of them


class Network(Protocol):
    """The part of a network's client that the injector needs."""

    def call(self, op: str, **arguments: Any) -> Any: ...


class Workers(Protocol):
    """The part of a runtime that it needs."""

    def kill(self, rank: int) -> None: ...
    def freeze(self, rank: int, frozen: bool) -> None: ...


class Board(Protocol):
    """The part of the workers' progress that it needs."""

    def all(self) -> list[Where]: ...
    def set_slow(self, rank: int, factor: float) -> None: ...


@dataclass(frozen=True)
class Done:
    """Something that happened. Times, including due times, are seconds of scenario time since training began."""

    subject: str  # a worker, a link, or "network"
    what: str  # "killed", "rate=1mbit", "frozen for 5s"
    due: float | str  # a time, or "step 100"
    at: float
    problem: str = ""  # why it did not happen after all
    kind: str = ""  # kill or freeze: what makes others miss a worker

    @property
    def text(self) -> str:
        return f"{self.subject} {self.what}"

    @property
    def rounded_due(self) -> float | str:
        return round(self.due, 6) if isinstance(self.due, float) else self.due


class FaultInjector:
    """Carries out the events of one cell."""

    def __init__(
        self,
        scenario: Scenario,
        network: NetworkPlan,
        handle: Network,
        workers: Workers,
        board: Board,
        *,
        patience: float,
        tolerant: bool,
        rejoins: Rejoins | None = None,
    ) -> None:
        """`rejoins`: set where killed workers may rejoin."""
        self.done: list[Done] = []
        self.killed: dict[tuple[int, int], Done] = {}  # by rank and life
        self._rejoins = rejoins
        self._away: set[int] = set()  # dead, or not yet back
        self._network, self._handle, self._workers, self._board = network, handle, workers, board
        self._names = [worker.name for worker in network.workers]
        self._given_up = GIVEN_UP * patience if tolerant else None
        self._slow_motion = network.slow_motion
        self._steps = scenario.training.steps
        self._horizon = float(scenario.deadline)
        self._resolve: Callable[[str], str] = lambda file: str(scenario.resolve(file))
        events = scenario.network.events
        links = [(link.a, link.b) for link in network.links]
        self._at_steps = deque(action for action in at_steps(events) if action.at < self._steps)
        within = partial(takewhile, lambda action: action.at <= self._horizon)
        self._at_times = _Upcoming(_only(within(at_times(events, self._names, links)), workers=True))
        self._on_links = list(_only(within(at_times(events, self._names, links)), workers=False))
        self._changes = self._schedule()
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._frozen: dict[int, tuple[float, float]] = {}  # since and until when, by rank
        self._slowed: dict[int, list[float]] = {}  # factors in force, by rank
        self._start: float | None = None  # monotonic clock
        self._offset = 0.0  # of the daemon's clock against the training's
        self._sent: dict[tuple[float, str], Change] = {}  # by due time on the daemon's clock and subject
        self._triggers: dict[float, str] = {}  # the step that made something due at this time
        if any(event.partition for event in events):
            handle.call("set_partition", blocked={})  # the first one takes the daemon a while longer
        self._closed = not (events or self._changes)

    def follow(self) -> float:
        """Do what is due; return in how many real seconds to call again."""
        if self._closed:
            return NEVER
        workers = self._board.all()
        if self._start is None:
            if not (begun := max(where.start_ns for where in workers)):
                return SOON
            self._begin(begun / 1e9)
        away = self._away
        if self._rejoins and self._rejoins.pending:
            self._welcome(self._rejoins)
            away = self._away | self._rejoins.lost
        living = [where.step for rank, where in enumerate(workers) if rank not in away]
        if not living or min(living) >= self._steps:
            for rank in self._frozen:
                self._workers.freeze(rank, False)
            self.close()
            return NEVER
        while self._at_steps and self._at_steps[0].at <= max(living):
            self._do(self._at_steps.popleft())
        while self._at_times.at <= self._now:
            self._do(self._at_times.pop())
        while self._undo and self._undo[0][0] <= self._now:
            heappop(self._undo)[2]()
        self._give_up_frozen()
        coming_back = self._rejoins is not None and self._rejoins.pending
        return SOON if self._at_steps or coming_back else self._slow_motion * self._until_due()

    def quiet_for(self, seconds: float) -> bool:
        """Whether nothing is due in the next `seconds` of real time."""
        return self._closed or self._start is None or self._slow_motion * self._until_due() > seconds

    def close(self) -> None:
        """Stop: training is over. Set every link back to its plan."""
        if self._closed:
            return
        self._closed = True
        if self._start is None:
            return
        if self._rejoins:
            self._rejoins.close()
        self._hear_of_links(self._handle.call("stop_events"))
        now = self._handle.call("status")
        for link in self._network.links:
            if now["links"][link.name] != [asdict(link.ab), asdict(link.ba)]:
                self._handle.call("set_link", link=link.name, ab=asdict(link.ab), ba=asdict(link.ba))
        if now["partition"]:
            self._handle.call("set_partition", blocked={})

    @property
    def record(self) -> tuple[Event, ...]:
        """Return what was due and what was done, in order, for the cell's result; of many link changes the first."""
        found = sorted(self.done, key=lambda done: done.at)
        of_links = [done for done in found if done.subject not in self._names]
        left_out = set(map(id, of_links[MOST:]))
        kept = [done for done in found if id(done) not in left_out]
        if left_out:
            what = f"{len(left_out)} more changes of links, the last at {of_links[-1].at:.1f} s"
            kept.append(replace(of_links[MOST], subject="network", what=what))
        return tuple(Event(one.subject, one.what, one.rounded_due, round(one.at, 6), one.problem) for one in kept)

    def counters(self) -> Iterator[tuple[float, str, str, str, float]]:
        """Yield all of it as rows of the sampler: (monotonic seconds in scenario time, "fault", subject, what, 1)."""
        for done in self.done:
            if not done.problem:
                yield (self._start or 0.0) / self._slow_motion + done.at, "fault", done.subject, done.what, 1.0

    @property
    def _now(self) -> float:
        assert self._start is not None
        return (time.monotonic() - self._start) / self._slow_motion

    def _begin(self, start: float) -> None:
        """Start the network daemon's clock with the training clock, which runs or is about to."""
        self._start = start
        self._offset = (start - time.monotonic()) / self._slow_motion
        self._handle.call("start_events", changes=[])  # start the clock first: a long list takes a moment to read
        self._send(self._changes)

    def _until_due(self) -> float:
        """Return the seconds until something is due at a time."""
        coming = [self._at_times.at, *(due for due, _, _ in self._undo[:1])]
        if self._given_up is not None:
            coming += [since + self._given_up for since, _ in self._frozen.values()]
        return min(NEVER, max(0.0, min(coming) - self._now))

    def _do(self, action: Action) -> None:
        if action.verb not in ON_WORKERS:
            self._change_links(action)
            return
        do = {"kill": self._kill, "restart": self._restart, "freeze": self._freeze, "slow": self._slow}[action.verb]
        for name in action.workers:
            do(self._names.index(name), action.at if isinstance(action.at, float) else str(action.at), action)

    def _kill(self, rank: int, due: float | str, action: Action, what: str = "killed", kind: str = "kill") -> None:
        gone = rank in self._away and not self._coming_back(rank)
        done = self._note(rank, what, due, "it was dead already" if gone else "", kind)
        if not gone:
            self._workers.kill(rank)
            self.killed[rank, self._rejoins.life(rank) if self._rejoins else 0] = done
            self._away.add(rank)
            self._frozen.pop(rank, None)
        if action.lasting is not None:
            again = self._now + action.lasting
            self._later(action.lasting, partial(self._restart, rank, again, action))

    def _restart(self, rank: int, due: float | str, action: Action) -> None:
        if self._rejoins is None:
            self._note(rank, "restarted", due, "the method cannot take a worker back")
        elif self._coming_back(rank) or rank not in self._away | self._rejoins.lost:
            self._note(rank, "restarted", due, "it is alive")
        else:
            self._note(rank, "restarted", due)
            self._away.add(rank)
            self._rejoins.request(rank)

    def _coming_back(self, rank: int) -> bool:
        return self._rejoins is not None and self._rejoins.waits(rank)

    def _welcome(self, rejoins: Rejoins) -> None:
        """Mark rejoined workers alive unless they were killed again."""
        known = len(rejoins.done)
        rejoins.follow()
        for back in rejoins.done[known:]:
            self._note(back.rank, f"rejoined in step {back.step}", self._now)
            if (back.rank, back.life) not in self.killed:
                self._away.discard(back.rank)

    def _freeze(self, rank: int, due: float | str, action: Action) -> None:
        assert action.lasting is not None
        if rank in self._away and not self._coming_back(rank):
            self._note(rank, "frozen", due, "it is dead")
            return
        self._workers.freeze(rank, True)
        self._note(rank, f"frozen for {Duration(action.lasting)}", due, kind="freeze")
        since, until = self._frozen.get(rank, (self._now, 0.0))
        self._frozen[rank] = since, max(until, self._now + action.lasting)
        self._later(action.lasting, partial(self._thaw, rank))

    def _thaw(self, rank: int) -> None:
        if rank in self._frozen and self._now >= self._frozen[rank][1]:
            _, until = self._frozen.pop(rank)
            self._workers.freeze(rank, False)
            self._note(rank, "goes on", until)

    def _slow(self, rank: int, due: float | str, action: Action) -> None:
        factors = self._slowed.setdefault(rank, [])
        factors.append(action.factor)
        self._board.set_slow(rank, max(factors))
        self._note(rank, f"{action.factor:g} times slower", due)
        if action.lasting is not None:
            self._later(action.lasting, partial(self._speed_up, rank, action.factor, self._now + action.lasting))

    def _speed_up(self, rank: int, factor: float, due: float) -> None:
        factors = self._slowed[rank]
        factors.remove(factor)
        self._board.set_slow(rank, max(factors, default=1.0))
        self._note(rank, f"no longer {factor:g} times slower", due)

    def _give_up_frozen(self) -> None:
        """Kill workers that have been frozen for so long that the others would give up on them, where the others go on
        without the dead. Thawed later, such a worker would be missing for some and not for others."""
        if self._given_up is None:
            return
        for rank, (since, _) in list(self._frozen.items()):
            if self._now - since >= self._given_up:
                what = f"frozen for {self._now - since:.1f} s, too long for the others, and killed"
                self._kill(rank, since + self._given_up, Action(self._now, "kill"), what, "freeze")

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        heappush(self._undo, (self._now + seconds, next(self._order), do))

    def _note(self, rank: int, what: str, due: float | str, problem: str = "", kind: str = "") -> Done:
        self.done.append(Done(self._names[rank], what, due, self._now, problem, kind))
        return self.done[-1]

    # Links: a change triggered by a step joins the schedule at the time when it happened.

    def _schedule(self) -> list[Change]:
        return schedule.changes(self._on_links, self._network, self._horizon, resolve=self._resolve).changes

    def _change_links(self, action: Action) -> None:
        now = self._now
        self._triggers[now] = str(action.at)
        self._on_links.append(replace(action, at=now))
        self._on_links.sort(key=lambda one: one.at)
        self._changes = self._schedule()
        self._send([change for change in self._changes if change[0] >= now - AGAIN])

    def _send(self, changes: Sequence[Change]) -> None:
        for change in changes:
            at, operation, arguments = change
            self._sent[at + self._offset, arguments.get("link", operation)] = change
        self._handle.call("update_events", changes=[(at + self._offset, *what) for at, *what in changes])

    def _hear_of_links(self, told: Sequence[Sequence[Any]]) -> None:
        known: dict[tuple[float, str], tuple[float, str]] = {}
        for due, late, what, problem in told:
            known.setdefault((due, what), (late, problem))
        for key, (late, problem) in known.items():
            at, operation, arguments = self._sent[key]
            for subject, words in _in_words(operation, arguments):
                self.done.append(Done(subject, words, self._triggers.get(at, at), at + late, problem))


class _Upcoming:
    """Actions in order of time, with a look at the next one."""

    def __init__(self, actions: Iterator[Action]) -> None:
        self._actions = actions
        self._next = next(actions, None)

    @property
    def at(self) -> float:
        """Return when the next one is due."""
        return inf if self._next is None else float(self._next.at)

    def pop(self) -> Action:
        assert self._next is not None
        action, self._next = self._next, next(self._actions, None)
        return action


def _only(actions: Iterator[Action], *, workers: bool) -> Iterator[Action]:
    return (action for action in actions if (action.verb in ON_WORKERS) == workers)


def _in_words(operation: str, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return subject and change as people write them: ("w0-w1", "rate=1mbit down")."""
    if operation == "set_partition":
        cut = [f"{worker} cannot reach {', '.join(others)}" for worker, others in arguments["blocked"].items()]
        return [("network", "; ".join(cut) or "healed")]
    link, ab, ba = arguments["link"], arguments["ab"], arguments["ba"]
    if ab == ba:
        return [(link, in_words(ab))]
    a, _, b = link.partition("-")
    return [(subject, in_words(one)) for subject, one in ((f"{a}>{b}", ab), (f"{b}>{a}", ba)) if one]
