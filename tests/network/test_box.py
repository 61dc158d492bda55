"""The host's box, in this kernel and with plain queues in netem's place: all but the shaping needs no netem."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from testbed.errors import NetworkError
from testbed.network import box as boxes
from testbed.network import measure, namespaces, waiting
from testbed.network.box import Box, DelayBox, HostBox
from testbed.network.daemon import Daemon
from testbed.network.measure import End
from testbed.network.messages import attach_pfifo

from .examples import network
from .isolated import isolated

T = TypeVar("T")
REFUSED = "20000000100005000100000000000000" + 32 * "0"  # a change of no interface


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tb"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def with_box(work: Callable[[Box], T], kind: type[Box] = HostBox) -> T:
    def run() -> T:
        with folder() as directory:
            box = kind(namespaces.create(), directory)
            try:
                return work(box)
            finally:
                box.close()

    return isolated(run)


def test_an_agent_answers() -> None:
    def work(box: Box) -> tuple[str, object, list[str]]:
        release = box.wait_ready()
        box.call("routers", count=2)
        return release, box.call("ports"), [path.name for path in box.directory.iterdir()]

    release, ports, files = with_box(work)
    assert release == os.uname().release
    assert [(router, name) for router, _, name, *_ in ports] == [(0, "lo"), (1, "lo")]  # type: ignore[attr-defined]
    assert files == ["box.log"]


def test_what_cannot_be_done_is_said_and_the_agent_goes_on() -> None:
    def work(box: Box) -> None:
        box.wait_ready()
        with pytest.raises(NetworkError, match=r"could not do it: .*no_such"):
            box.call("no_such")
        with pytest.raises(NetworkError, match=r"could not do it: .*count"):
            box.call("routers")
        with pytest.raises(NetworkError, match="link of w0: "):
            box.send([(-1, "link of w0", REFUSED)])
        assert "lo" in box.call("interfaces")

    with_box(work)


def test_an_empty_line_is_no_request() -> None:
    def work(box: Box) -> None:
        box.wait_ready()
        box._stream.send(b"\n\n")
        assert "lo" in box.call("interfaces")

    with_box(work)


def test_long_requests_arrive_whole_and_leave_no_file() -> None:
    def work(box: Box) -> list[str]:
        box.wait_ready()
        with pytest.raises(NetworkError, match="x" * 1000):
            box.send([(-1, "x" * 100_000, REFUSED)])
        return [path.name for path in box.directory.iterdir()]

    assert with_box(work) == ["box.log"]


def test_an_answer_that_comes_too_late_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(box: Box) -> None:
        box.wait_ready()
        monkeypatch.setattr(boxes, "ANSWER_SECONDS", 0.2)
        os.kill(box.process.pid, signal.SIGSTOP)
        with pytest.raises(NetworkError, match=r"did not answer within 0\.2 s"):
            box.call("interfaces")
        os.kill(box.process.pid, signal.SIGCONT)
        monkeypatch.setattr(boxes, "ANSWER_SECONDS", 30.0)
        assert box.call("ports") == []  # and not the interfaces

    with_box(work)


def test_a_box_that_has_ended_says_so() -> None:
    def work(box: Box) -> None:
        box.wait_ready()
        box.process.kill()
        box.process.wait()
        for _ in range(2):
            with pytest.raises(NetworkError, match="the host box ended"):
                box.call("interfaces")

    with_box(work)


class Failing(Box):
    """One that says something and fails."""

    kind = "failing"
    script = "echo 'booting'; echo 'Kernel panic - not syncing: no room'; sleep 60"

    def command(self) -> list[str]:
        return ["sh", "-c", self.script]

    def router_namespace(self, number: int) -> int | None:
        return None

    def plug(self, sizes: object) -> dict[int, int]:
        return {}


class Silent(Failing):
    script = "echo 'cannot open /dev/shm' >&2; exit 1"


class Slow(Failing):
    """Takes its time to boot, as on a busy machine: computes, then says a word now and then."""

    script = (
        "for i in {1..400000}; do :; done; for i in 1 2 3 4 5 6; do echo still here; sleep 0.3; done; "
        """echo '@{"number": 0, "ready": "6.1"}'; sleep 60"""
    )

    def command(self) -> list[str]:
        return ["bash", "-c", self.script]


class Endless(Slow):
    script = "while :; do :; done"


class Forgetful(DelayBox):
    """Does what a busy guest's kernel does at times: reads nothing before one more byte has come."""

    def command(self) -> list[str]:
        return [
            "bash",
            "-c",
            """echo '@{"number": 0, "ready": "6.1"}'; read -r request; read -r wake; """
            """echo '@{"number": 1, "result": "'"$wake"'"}'; sleep 60""",
        ]


def test_a_guest_that_missed_a_request_is_woken() -> None:
    def work(box: Box) -> None:
        assert box.wait_ready() == "6.1"
        assert box.call("ports") == ""

    with_box(work, Forgetful)


def test_a_guest_that_boots_slowly_is_waited_for_as_long_as_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "ANSWER_SECONDS", 1.0)
    assert with_box(lambda box: box.wait_ready(), Slow) == "6.1"


def test_a_guest_that_boots_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(waiting, "MOST_SECONDS", 1.5)

    def work(box: Box) -> None:
        with pytest.raises(NetworkError, match=r"did not answer within 0\.5 s"):
            box.wait_ready()

    with_box(work, Endless)


def test_a_box_goes_before_others_from_its_first_moment_on() -> None:
    """On a busy machine a guest would take minutes to boot, and be given up."""
    plan = network("{topology: chain}", workers=2)

    def run() -> None:
        with folder() as directory:
            daemon = Daemon(plan, directory, "host")  # not built yet
            try:
                said = daemon.settings["box_priority"]
                policy, nice = (
                    os.sched_getscheduler(daemon.box.process.pid),
                    os.getpriority(os.PRIO_PROCESS, daemon.box.process.pid),
                )
                own = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
                expected = {"real-time": (os.SCHED_RR, nice), "nice -10": (os.SCHED_OTHER, -10), "ordinary": own}
                assert (policy, nice) == expected[said]
            finally:
                daemon.close()

    isolated(run)


def test_a_guest_that_panics_is_not_waited_for() -> None:
    def work(box: Box) -> None:
        with pytest.raises(NetworkError, match="no room") as caught:
            box.wait_ready()
        assert "booting" in str(caught.value)

    with_box(work, Failing)


def test_the_last_words_of_a_box_are_told() -> None:
    def work(box: Box) -> None:
        with pytest.raises(NetworkError, match=r"the failing box ended; its last words:\n  cannot open /dev/shm"):
            box.wait_ready()

    with_box(work, Silent)


def test_a_box_that_was_killed_is_not_quoted() -> None:
    def work(box: Box) -> None:
        box.wait_ready()
        box.process.kill()
        with pytest.raises(NetworkError, match=r"the host box ended: it was killed, by somebody or for want of memory"):
            box.call("ports")

    with_box(work)


def test_more_routers_than_low_descriptor_numbers() -> None:
    def work(box: Box) -> tuple[int, int]:
        box.wait_ready()
        box.call("routers", count=450)
        names = [name for _, _, name, *_ in box.call("ports")]
        own = {os.stat(f"/proc/{box.process.pid}/fd/{400 + number}").st_ino for number in range(450)}
        return len(names), len(own)

    assert with_box(work) == (450, 450)


def test_a_whole_network_in_this_kernel() -> None:
    """Routers, cables, routes, neighbours, counters, partitions; as in the guest, but for netem."""
    plan = network("{topology: {links: [[w0, s0], [s0, s1], [s1, w1], [s1, w2], [w2, w3]]}}")

    def run() -> None:
        with folder() as directory:
            daemon = Daemon(plan, directory, "host")
            try:
                daemon.build(attach_pfifo)
                ends = {w.name: End(w.name, daemon.workers[w.name], w.address) for w in plan.workers}
                pairs = [(ends[path.source], ends[path.target]) for path in plan.paths]
                for _ in range(3):  # the kernel may take a moment to let packets through
                    times = measure.round_trips(pairs, 2, patience=0.5)
                assert all(len(some) == 2 for some in times)
                before = daemon.counters()["links"]
                measure.round_trips([(ends["w0"], ends["w3"])], 3)
                after = daemon.counters()["links"]
                moved = {way: after[way][1] - before[way][1] for way in after if after[way] != before[way]}
                there, back = ["w0>s0", "s0>s1", "s1>w2", "w2>w3"], ["w3>w2", "w2>s1", "s1>s0", "s0>w0"]
                assert moved == dict.fromkeys(there + back, 3)
                assert len(after) == 10
                daemon.set_partition({"w0": ["w1"], "w1": ["w0"]})
                times = measure.round_trips(pairs, 1, patience=0.3)
                cut = [(path.source, path.target) for path, some in zip(plan.paths, times, strict=True) if not some]
                assert cut == [("w0", "w1")]
                assert (directory / "hosts").read_text().splitlines()[1:] == [
                    f"{w.address} {w.name}" for w in plan.workers
                ]
            finally:
                daemon.close()

    isolated(run)


def test_two_links_of_one_name_are_refused() -> None:
    plan = network("{topology: {links: [[w0, s-t], [w0-s, t], [w0-s, w1], [t, w1], [s-t, w1]]}, switches: [w0-s]}")

    def run() -> None:
        with folder() as directory, pytest.raises(NetworkError, match="two links would be called w0-s-t"):
            Daemon(plan, directory, "host")

    isolated(run)
