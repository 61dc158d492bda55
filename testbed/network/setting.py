"""Changes to a running link as people type them: `w0-w1 rate=5mbit loss=1%`. `net set` and the shell share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from testbed.errors import NetworkError, ScenarioError
from testbed.link.shape import PROPERTIES, WRITTEN, Shape, unusual
from testbed.scenario.base import suggestion
from testbed.scenario.links import in_words, number_of
from testbed.scenario.units import shown

if TYPE_CHECKING:
    from testbed.network.client import Client
    from testbed.plan.model import LinkPlan, NetworkPlan

KEYS = {name: PROPERTIES[name].example for name in WRITTEN}  # with an example each
SWITCHES = {"up": True, "down": False}
GRAMMAR = f"{', '.join(f'{key}=…' for key in KEYS)}, up or down"
ENDS = "a link is w0-w1 (both directions) or w0>w1 (one; in a shell put it in quotes)"


def parse(words: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a Shape that "rate=5mbit", "loss=1%", "down" set; units and limits as in scenarios."""
    given: dict[str, Any] = {}
    for word in words:
        key, numbers = ("up", {"up": SWITCHES[word]}) if word in SWITCHES else _field(word)
        if key in given:
            raise ScenarioError(f"{word}: {' or '.join(SWITCHES) if key == 'up' else key} is said twice")
        given |= numbers
    if not given:
        raise ScenarioError("nothing to set", hint=f"write any of {GRAMMAR}")
    return given


def _field(word: str) -> tuple[str, dict[str, Any]]:
    key, _, text = word.partition("=")
    if key not in KEYS:
        near = suggestion(key, [*KEYS, *SWITCHES])
        raise ScenarioError(f"{shown(word)} is not a setting of a link{near}", hint=f"write any of {GRAMMAR}")
    if not text:
        raise ScenarioError(f"{key} needs a value", hint=f"for example {key}={KEYS[key]}")
    try:
        return key, number_of(key, text)
    except ValueError as error:
        raise ScenarioError(str(error)) from error


def apply(handle: Client, link_text: str, settings: dict[str, Any]) -> dict[str, Shape]:
    """Change one link, live; return the changed directions ("w0>w1") as they are now."""
    links = current(handle).links
    link, source = find(links, link_text)
    ab = settings if source in (None, link.a) else {}
    ba = settings if source in (None, link.b) else {}
    handle.set_link(link.name, ab, ba)
    changed = {}
    if ab:
        changed[f"{link.a}>{link.b}"] = replace(link.ab, **ab)
    if ba:
        changed[f"{link.b}>{link.a}"] = replace(link.ba, **ba)
    return changed


def apply_and_show(handle: Client, link_text: str, words: Sequence[str]) -> None:
    """Do what `net set` and the shell's `set` do: print one line per changed direction."""
    for direction, shape in apply(handle, link_text, parse(words)).items():
        print(f"{direction}  {describe(shape)}")


def current(handle: Client) -> NetworkPlan:
    """Return the plan with every link as it is shaped now."""
    plan, shapes = handle.plan, handle.call("status")["links"]
    links = []
    for link in plan.links:
        ab, ba = shapes[link.name]
        links.append(replace(link, ab=Shape(**ab), ba=Shape(**ba)))
    return replace(plan, links=tuple(links))


def find(links: Sequence[LinkPlan], text: str) -> tuple[LinkPlan, str | None]:
    """Return the link that a text means, and the end it starts at where only one direction is meant."""
    known: dict[str, tuple[LinkPlan, str | None]] = {}
    for link in links:
        for one, other in ((link.a, link.b), (link.b, link.a)):
            known[f"{one}-{other}"] = (link, None)
            known[f"{one}>{other}"] = (link, one)
    wanted = text.replace(" ", "")
    if wanted in known:
        return known[wanted]
    raise _unknown(links, wanted, [name for name in known if (">" in name) == (">" in wanted)])


def _unknown(links: Sequence[LinkPlan], text: str, names: Sequence[str]) -> NetworkError:
    nodes = {end for link in links for end in (link.a, link.b)}
    ends = [node for node in nodes if text.startswith((f"{node}-", f"{node}>")) or text == node]
    if ends:
        first = max(ends, key=len)
        others = [link.name for link in links if first in (link.a, link.b)]
        return NetworkError(f"there is no link {shown(text)}; links of {first}: {', '.join(others)}", hint=ENDS)
    near = get_close_matches(text, names, n=1, cutoff=0.6)
    meant = f"; did you mean {near[0]}?" if near else ""
    return NetworkError(f"there is no link {shown(text)}{meant}", hint=ENDS)


def describe(shape: Shape) -> str:
    """Describe a shape in the words that `parse` takes."""
    return in_words(unusual(shape, besides=("latency", "rate")))
