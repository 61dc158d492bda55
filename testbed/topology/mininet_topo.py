"""Topologies from a user's Mininet file: a `mininet.topo.Topo` subclass, or an entry of the file's `topos`.

Hosts become workers and keep their names, switches become routers, and the options that TCLink takes become the link's
numbers, in each direction as Mininet applies them: bw in Mbit/s, delay and jitter as tc writes times, loss in percent,
max_queue_size in packets. What a link leaves open comes from `network.link`. Nothing of Mininet is started.
"""

from __future__ import annotations

import importlib.util
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed.errors import MissingError
from testbed.topology.graph import Edge, Topology, TopologyError, did_you_mean, listing

# Options that would change what packets meet and that this emulation has no equal for: never dropped without a word.
UNSUPPORTED = ("enable_ecn", "enable_red", "latency_ms", "speedup", "use_hfsc", "use_tbf")
TIME_UNITS = {"s": 1.0, "sec": 1.0, "secs": 1.0, "ms": 1e-3, "msec": 1e-3, "msecs": 1e-3}
TIME_UNITS |= {"us": 1e-6, "usec": 1e-6, "usecs": 1e-6, "": 1e-6}  # tc reads a bare number as microseconds


def read_mininet(reference: str, directory: Path) -> Topology:
    """The topology that `file.py:Name`, or `file.py` with only one, stands for; the file is relative to `directory`."""
    file, _, name = reference.partition(":")
    path = (directory / file).resolve()
    name, topo = _instantiate(_load(path), path, name)

    warnings: list[str] = []
    edges: dict[frozenset[str], Edge] = {}
    ignored: dict[str, list[str]] = {}
    for a, b, info in topo.links(withInfo=True):
        if frozenset((a, b)) in edges:
            warnings.append(f"{name}: parallel links {a}-{b}; the first one counts")
            continue
        both = {key: value for key, value in info.items() if key not in ("params1", "params2")}
        ab, ba = ({**both, **(info.get(side) or {})} for side in ("params1", "params2"))
        edges[frozenset((a, b))] = Edge(a, b, _numbers(f"{a}-{b}", ab), _numbers(f"{b}-{a}", ba))
        for option in UNSUPPORTED:
            if ab.get(option) or ba.get(option):
                ignored.setdefault(option, []).append(f"{a}-{b}")
    for option, number in (("delay", "latency"), ("bw", "rate")):
        if silent := [f"{e.a}-{e.b}" for e in edges.values() if number not in e.ab or number not in e.ba]:
            warnings.append(f"{name}: no {option} on {listing(silent, 4)}: network.link tells the {number} there")
    for option, links in ignored.items():
        warnings.append(f"{name}: {option} has no equal here and is left out, on {listing(links, 4)}")
    hosts, switches = tuple(topo.hosts()), tuple(topo.switches())
    if not hosts:
        raise TopologyError(f"{name} in {path.name} has no hosts, so there would be no workers")
    homes = {host: sum(host in pair for pair in edges) for host in hosts}
    if len(switches) and (several := [host for host, links in homes.items() if links > 1]):
        warnings.append(
            f"{name}: {listing(several)} have several links; here their routers also carry the traffic of others, "
            "which a Mininet host does not"
        )
    return Topology(name, hosts, switches, tuple(edges.values()), warnings=tuple(warnings))


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise TopologyError(f"there is no Mininet file {path}", hint="the path is relative to the scenario file")
    if importlib.util.find_spec("mininet") is None:
        raise MissingError(f"{path.name} needs Mininet's topology classes", hint="pip install mininet")
    spec = importlib.util.spec_from_file_location(f"_mininet_topology_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise TopologyError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    with _naming_the_line(path):
        spec.loader.exec_module(module)
    return module


def _instantiate(module: ModuleType, path: Path, name: str) -> tuple[str, Any]:
    """The topology called `name` and that name; without one, the only topology of the file."""
    from mininet.topo import Topo

    known: dict[str, Any] = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Topo) and value.__module__ == module.__name__
    }
    if not name and len(known) == 1:
        name = next(iter(known))
    known |= getattr(module, "topos", {})
    if name not in known:
        wrong = f"has no topology {name!r}{did_you_mean(name, known)}" if name else "has several topologies; choose one"
        hint = f"it has {listing(sorted(known))}; write {path.name}:Name"
        raise TopologyError(
            f"{path.name} {wrong if known else 'defines no subclass of mininet.topo.Topo'}",
            hint=hint if known else None,
        )
    with _naming_the_line(path):
        topo = known[name]()
    if not isinstance(topo, Topo):
        raise TopologyError(f"{name} in {path.name} is no mininet.topo.Topo")
    return name, topo


@contextmanager
def _naming_the_line(path: Path) -> Iterator[None]:
    """An exception in the user's file becomes an error that names the line there."""
    try:
        yield
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines.append(error.lineno)
        line = f":{lines[-1]}" if lines else ""
        raise TopologyError(f"{path.name}{line}: {type(error).__name__}: {error}") from error


def _numbers(link: str, options: Mapping[str, Any]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    if options.get("bw") is not None:
        numbers["rate"] = round(_number(link, "bw", options["bw"], most=1e6) * 1e6)
    for theirs, ours in (("delay", "latency"), ("jitter", "jitter")):
        if options.get(theirs) is not None:
            numbers[ours] = _time(link, theirs, options[theirs])
    if options.get("loss") is not None:
        numbers["loss"] = _number(link, "loss", options["loss"], most=100) / 100
    if options.get("max_queue_size") is not None:
        numbers["limit"] = round(_number(link, "max_queue_size", options["max_queue_size"], most=1e9))
    return numbers


def _number(link: str, option: str, value: Any, most: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    least_excluded = option in ("bw", "max_queue_size")
    if not 0 <= number <= most or (least_excluded and number == 0):
        raise TopologyError(f"link {link}: {option}={value!r} is not a number between 0 and {most:g}")
    return number


def _time(link: str, option: str, value: Any) -> float:
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*", str(value))
    if not match or match[2] not in TIME_UNITS:
        raise TopologyError(f"link {link}: {option}={value!r} is not a time", hint="as tc writes it: '5ms', '10us'")
    return float(match[1]) * TIME_UNITS[match[2]]
