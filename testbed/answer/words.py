"""Numbers, methods and networks as people write them in a sentence. Pure; the answer and the page use it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.results.cell import CellResult

from testbed.link.shape import WRITTEN

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)(ns|us|ms|s|min|h|[kmg]?bit|%)")
_UNITS = {"kbit": "kbit/s", "mbit": "Mbit/s", "gbit": "Gbit/s", "bit": "bit/s", "us": "µs"}
_SCALES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "min": 60, "h": 3600, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_SETTINGS = tuple(name for name in WRITTEN if name != "buffer")
CLEARLY = 1.5  # times as much, by which a link differs enough from the others to be named
MOST_LINKS = 2  # that are named
_GRAPHS = {
    "complete": "all linked with each other",
    "star": "around a switch",
    "torus": "in a torus",
    "hypercube": "in a hypercube",
    "davis": "in Davis' social network",
    "exponential": "in an exponential graph",
    "random-regular": "in a random regular graph",
    "erdos-renyi": "in a random graph",
    "links": "on a network of their own",
}


def seconds(value: float) -> str:
    """Format as "840 ms", "1.2 s", "41 s", "12 min", "3.4 h"."""
    if value < 0.9995:
        return milliseconds(value)
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def slow_motion(results: Sequence[CellResult]) -> str:
    """Return "ran in slow motion, 8×, 24 min for 3 min of scenario time"; empty where all ran in real time."""
    trained = [(one.slow_motion, one.seconds) for one in results if one.seconds is not None]
    factors = sorted({factor for factor, _ in trained})
    if not trained or factors == [1]:
        return ""
    named = f"{factors[0]:g}×" if len(factors) == 1 else f"{factors[0]:g}× to {factors[-1]:g}×"
    real, shown = sum(factor * time for factor, time in trained), sum(time for _, time in trained)
    text = f"ran in slow motion, {named}, {seconds(real)} for {seconds(shown)} of scenario time"
    if again := [one for one in results if one.tried]:
        text += f"; {count(len(again), 'cell')} repeated in slower motion than planned"
    return text


def milliseconds(value: float) -> str:
    """Format as "0.4 ms", "28 ms", "1664 ms"."""
    return f"{1e3 * value:.1f} ms" if value < 0.00995 else f"{1e3 * value:.0f} ms"


def between(values: Sequence[float]) -> str:
    """Format as "1.2 s", or "1.2 to 1.4 s" where several differ."""
    low, high = seconds(min(values)), seconds(max(values))
    if low == high:
        return low
    number, unit = low.split(" ", 1)
    return f"{number} to {high}" if unit == high.split(" ", 1)[1] else f"{low} to {high}"


def factor(value: float) -> str:
    """Format as "1.8×", "11×"."""
    return f"{value:.1f}×" if value < 9.95 else f"{value:.0f}×"


def share(value: float) -> str:
    return f"{100 * value:.0f} %"


def count(number: int, noun: str) -> str:
    """Format as "1 cell", "5 cells"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Format as "a", "a and b", "a, b and c", "a, b, c and 4 more"."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def method(label: str) -> str:
    """Return the comparison's label as written in a sentence."""
    return re.sub(r"^allreduce\b", "all-reduce", label)


def quantity(text: str) -> str:
    """Convert "10mbit" → "10 Mbit/s"; anything but a quantity stays."""
    number, _, kind = text.partition(":")  # 5ms:pareto
    if found := _QUANTITY.fullmatch(number):
        return f"{found[1]} {_UNITS.get(found[2], found[2])}{kind and ' ' + kind}"
    return text


def setting(label: str) -> str:
    """Convert a sweep's label: "latency=5ms rate=10mbit" → "5 ms, 10 Mbit/s"; other keys keep their names."""
    words: list[str] = []
    for part in label.split(" "):
        key, equals, value = part.partition("=")
        known = equals and key in ("latency", "rate") and _QUANTITY.fullmatch(value)
        if not equals and words:  # a value with a space in it
            words[-1] += f" {part}"
        else:
            words.append(quantity(value) if known else f"{key} {quantity(value)}" if equals else part)
    return ", ".join(words)


def target(text: str) -> str:
    """Convert the comparison's target: "90%" → "90 %", "loss 0.3" → "a loss of 0.3"."""
    return text.replace("%", " %") if "%" in text else text.replace("loss ", "a loss of ")


def place(scenario: Mapping[str, Any], workers: int | None) -> str:
    """Describe the network of the resolved scenario: "8 workers in a ring at 25 ms, 10 Mbit/s". Swept settings are left
    out: each point has its own."""
    network = scenario.get("network") or {}
    swept = {key.removeprefix("network.link.") for key in scenario.get("sweep") or {}}
    link = {key: value for key, value in (network.get("link") or {}).items() if key not in swept}
    people = count(workers, "worker") if workers and "workers" not in swept else "the workers"
    shape = "in varying networks" if "network.topology" in swept else _graph(network)
    link = {key: value for key, value in link.items() if key in ("latency", "rate") or _amount(value)}
    for key in _of_their_own(network):
        link.pop(key, None)
    at = f" at {told}" if (told := _link(link)) else ""
    apart = "" if any(key.startswith("network.links") for key in swept) else _apart(network, link)
    return f"{people} {shape}{at}{apart}"


def _link(settings: Mapping[str, Any]) -> str:
    """Format as "25 ms, 10 Mbit/s, 1 % loss"."""
    words = {key: quantity(str(settings[key])) for key in _SETTINGS if key in settings}
    named = {*_SETTINGS[2:], *(key for key, word in words.items() if word == "unlimited")}
    return ", ".join(f"{word} {key}" if key in named else word for key, word in words.items())


def _apart(network: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Describe the links that differ from the others: " but 1 Mbit/s on w0-w1", or how many they are."""
    own: dict[str, dict[str, Any]] = {}  # later ones win
    for one in network.get("links") or ():
        name = "-".join(one["between"]) if "between" in one else f"{one.get('from')}→{one.get('to')}"
        own.setdefault(name, {}).update(one)
    clear: dict[str, list[str]] = {}  # setting in words → names of links
    for name, link in own.items():
        if told := _link({key: link[key] for key in _SETTINGS if key in link and _differ(link[key], usual.get(key))}):
            clear.setdefault(told, []).append(name)
    if 0 < sum(map(len, clear.values())) <= MOST_LINKS:
        return " but " + " and ".join(f"{told} on {listed(names)}" for told, names in clear.items())
    return f" ({count(len(own), 'link')} {'differs' if len(own) == 1 else 'differ'})" if own else ""


def _differ(one: Any, other: Any) -> bool:
    amounts = sorted([_amount(one), _amount(other)])
    return amounts[1] > CLEARLY * amounts[0]


def _amount(value: Any) -> float:
    """Return seconds, bit/s or per cent; anything but a quantity is infinite, and a missing value is 0."""
    if found := _QUANTITY.fullmatch(str(value).partition(":")[0]):
        return float(found[1]) * _SCALES.get(found[2], 1)
    return 0.0 if value is None else inf


def _of_their_own(network: Mapping[str, Any]) -> set[str]:
    """Return the settings that links have from elsewhere than `link`: from the cities in a file, from regions."""
    topology = network.get("topology")
    if isinstance(topology, Mapping) and {"file", "mininet"} & set(topology):
        return {"latency"}
    between = network.get("between")
    if isinstance(between, Mapping):
        return {key for key, value in between.items() if value is not None}
    return set(_SETTINGS) if between else set()


def _graph(network: Mapping[str, Any]) -> str:
    topology = network.get("topology")
    if topology is None:
        regions = network.get("regions")
        return f"in {count(len(regions), 'region')}" if regions else "in a ring"
    if isinstance(topology, Mapping):
        (kind, options), *_ = topology.items()
        if kind in ("file", "mininet"):
            return f"on {options}"
        if kind == "torus" and isinstance(options, str):
            return f"in a {options} torus"
        topology = kind
    return _GRAPHS.get(topology, f"in a {topology}")


def owner(name: str) -> str:
    return f"{name}'" if name.endswith("s") else f"{name}'s"
