"""Settings of links as people type them; no network needed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from testbed.errors import NetworkError, ScenarioError
from testbed.link.shape import Shape
from testbed.network import setting
from testbed.plan.model import LinkPlan


def link(index: int, a: str, b: str) -> LinkPlan:
    return LinkPlan(index, a, b, Shape(), Shape(), "198.19.0.0", "198.19.0.1")


LINKS = [link(0, "w0", "w1"), link(1, "w1", "w2"), link(2, "w2", "site-a"), link(3, "site-a", "w0")]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["rate=5mbit", "latency=20ms", "loss=1%"], {"rate": 5_000_000, "latency": 0.02, "loss": 0.01}),
        (["rate=1.4gbit"], {"rate": 1_400_000_000}),
        (["rate=unlimited"], {"rate": None}),
        (["jitter=0", "buffer=50ms"], {"jitter": 0.0, "jitter_shape": "uniform", "buffer": 0.05, "limit": None}),
        (["corrupt=1%", "reorder=2%"], {"corrupt": 0.01, "reorder": 0.02}),
        (["jitter=2ms:pareto"], {"jitter": 0.002, "jitter_shape": "pareto"}),
        (["down"], {"up": False}),
        (["up", "latency=1s"], {"up": True, "latency": 1.0}),
    ],
)
def test_words_become_numbers_of_a_shape(words: list[str], numbers: dict[str, Any]) -> None:
    assert setting.parse(words) == numbers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to set"),
        (["rat=5mbit"], "did you mean 'rate'"),
        (["dwn"], "did you mean 'down'"),
        (["rate=5"], "no unit"),
        (["rate="], "needs a value"),
        (["rate"], "needs a value"),
        (["rate=5mbps"], "bits or bytes"),
        (["latency=5m"], "minutes or milliseconds"),
        (["latency=300s"], "at most 274s"),
        (["loss=100%"], "lets nothing pass"),
        (["loss=-1%"], "not a share"),
        (["corrupt=100%"], "less than 100%"),
        (["jitter=2ms:paretto"], "did you mean 'pareto'"),
        (["rate=1mbit", "rate=2mbit"], "said twice"),
        (["up", "down"], "said twice"),
        (["up=1"], "not a setting"),
        (["trace=x.csv"], "not a setting"),
    ],
)
def test_wrong_words_are_explained(words: list[str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        setting.parse(words)


@pytest.mark.parametrize(
    ("text", "index", "source"),
    [
        ("w0-w1", 0, None),
        ("w1-w0", 0, None),
        ("w0>w1", 0, "w0"),
        ("w1>w0", 0, "w1"),
        ("w2-site-a", 2, None),
        ("site-a>w2", 2, "site-a"),
        ("w0 > w1", 0, "w0"),
    ],
)
def test_the_order_of_the_ends_does_not_matter_and_the_arrow_does(text: str, index: int, source: str | None) -> None:
    assert setting.find(LINKS, text) == (LINKS[index], source)


def test_an_unknown_link_names_what_was_probably_meant() -> None:
    with pytest.raises(NetworkError, match=r"links of w0: w0-w1, site-a-w0"):
        setting.find(LINKS, "w0-w2")
    with pytest.raises(NetworkError, match="links of w0") as alone:  # what a shell leaves of an unquoted w0>w1
        setting.find(LINKS, "w0")
    assert "quotes" in (alone.value.hint or "")
    with pytest.raises(NetworkError, match="did you mean w1-w2"):
        setting.find(LINKS, "W1-w2")
    with pytest.raises(NetworkError, match=r"there is no link 'x'$"):
        setting.find(LINKS, "x")


class Daemon:
    """Stands in for a handle: remembers what it was told."""

    def __init__(self) -> None:
        self.plan = type("Plan", (), {"links": LINKS})()
        self.told: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def set_link(self, link: str, ab: dict[str, Any], ba: dict[str, Any]) -> None:
        self.told.append((link, ab, ba))


@pytest.mark.parametrize(
    ("text", "ab", "ba"),
    [
        ("w1-w0", {"rate": 1000}, {"rate": 1000}),
        ("w0>w1", {"rate": 1000}, {}),
        ("w1>w0", {}, {"rate": 1000}),
    ],
)
def test_only_the_directions_that_are_meant_change(
    text: str, ab: dict[str, Any], ba: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle: Any = Daemon()
    monkeypatch.setattr(setting, "current", lambda handle: handle.plan)
    changed = setting.apply(handle, text, {"rate": 1000})
    assert handle.told == [("w0-w1", ab, ba)]
    assert changed == {
        **({"w0>w1": Shape(rate=1000)} if ab else {}),
        **({"w1>w0": Shape(rate=1000)} if ba else {}),
    }


@given(
    some.builds(
        Shape,
        latency=some.integers(0, 274_000_000).map(lambda us: us / 1e6),
        rate=some.none() | some.integers(1000, 34_000_000_000),
        jitter=some.integers(0, 1_000_000).map(lambda us: us / 1e6),
        loss=some.integers(0, 99_999).map(lambda part: part / 1e5),
        buffer=some.none() | some.integers(0, 1_000_000).map(lambda us: us / 1e6),
        up=some.booleans(),
    )
)
def test_what_is_shown_can_be_typed_again(shape: Shape) -> None:
    numbers = setting.parse(setting.describe(shape).split())
    assert Shape(**numbers) == shape
