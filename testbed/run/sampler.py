"""Samples links, ports, retransmissions, processors and memory while a cell runs, five times a second, on one clock."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LINK_COUNTERS = ("bytes", "packets", "drops", "backlog_bytes", "backlog_packets")
PORT_COUNTERS = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes")


@dataclass
class Sampler:
    """Collects rows (time in monotonic seconds, kind, name, counter, value). All times are the scenario's."""

    slow_motion: float = 1.0  # so many times shorter than what the kernel tells
    rows: list[tuple[float, str, str, str, float]] = field(default_factory=list)
    # Between two samples while workers trained: before and after that the network has little to do, processors much.
    idle: list[float] = field(default_factory=list)  # share of the processors
    stolen: list[float] = field(default_factory=list)  # share that a hypervisor gave to others meanwhile
    box_share: list[float] = field(default_factory=list)  # of the processor that had most to do for it
    own_share: list[float] = field(default_factory=list)  # of the time that processors were busy: workers and box
    _looks: int = 0
    _training: bool = False  # at the last sample
    # Time, idle, total, the box's seconds by processor, stolen, workers' seconds
    _last: tuple[float, float, float, Mapping[str, float], float, float] | None = None

    def take(self, counters: dict[str, Any], pids: Sequence[int], names: Sequence[str], *, training: bool) -> None:
        """Take one sample from the network's counters and from /proc."""
        now = float(counters["time"])
        for name, numbers in counters["links"].items():
            self.rows += [(now, "link", name, key, value) for key, value in zip(LINK_COUNTERS, numbers, strict=True)]
        for name, numbers in counters["ports"].items():
            self.rows += [(now, "port", name, key, value) for key, value in zip(PORT_COUNTERS, numbers, strict=True)]
        used = 0.0
        for pid, name in zip(pids, names, strict=False):
            found = self._process(pid)
            used += found.get("cpu_seconds", 0.0)
            self.rows += [(now, "worker", name, key, value) for key, value in found.items()]
        if pids:  # one at a time: the kernel walks through all of its memory for the answer, some 3 ms
            self._looks += 1
            rank = self._looks % len(pids)
            self.rows += [(now, "worker", names[rank], "memory_own", value) for value in _own_memory(pids[rank])]
        box = {core: seconds / self.slow_motion for core, seconds in counters["box_seconds"].items()}
        self._processors(now, box, used, counts=training and self._training)
        self._training = training

    def _process(self, pid: int) -> dict[str, float]:
        found = _process(pid)
        if "cpu_seconds" in found:
            found["cpu_seconds"] /= self.slow_motion
        return found

    def _processors(self, now: float, box: Mapping[str, float], workers: float, *, counts: bool) -> None:
        idle, stolen, total = _cpu_times()
        if self._last and now > self._last[0] and total > self._last[2]:
            all_idle = (idle - self._last[1]) / (total - self._last[2])
            of_box = _busiest(self._last[3], box) / (now - self._last[0])
            taken = (stolen - self._last[4]) / (total - self._last[2])
            self.rows.append((now, "host", "processors", "idle", all_idle))
            self.rows.append((now, "host", "processors", "stolen", taken))
            self.rows.append((now, "host", "box", "share", of_box))
            if counts:
                self.idle.append(all_idle)
                self.box_share.append(of_box)
                self.stolen.append(taken)
                busy = (total - self._last[2]) * (1 - all_idle) / os.sysconf("SC_CLK_TCK") / self.slow_motion
                own = sum(box.values()) - sum(self._last[3].values()) + workers - self._last[5]
                self.own_share.append(min(1.0, max(0.0, own) / busy) if busy else 0.0)
        self._last = (now, idle, total, box, stolen, workers)

    def write(self, path: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        columns = list(zip(*self.rows, strict=True)) or [()] * 5
        names = ("time_s", "kind", "name", "counter", "value")
        table = pa.table(dict(zip(names, (pa.array(column) for column in columns), strict=True)))
        parquet.write_table(table, path)


def _busiest(before: Mapping[str, float], now: Mapping[str, float]) -> float:
    """Return the largest growth of one processor's counter in seconds; processors come and go."""
    return max((seconds - before[name] for name, seconds in now.items() if name in before), default=0.0)


def _cpu_times() -> tuple[float, float, float]:
    """Return idle, stolen (by a hypervisor) and total time since boot, of the processors we may use."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
    each = [[float(part) for part in line[1:9]] for line in lines if line[0] in ours]
    idle, stolen = (sum(sum(fields[at] for at in places) for fields in each) for places in ((3, 4), (7,)))
    return idle, stolen, sum(map(sum, each))


def _process(pid: int) -> dict[str, float]:
    """Return a worker's memory, processor time and its namespace's retransmissions; nothing once it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        tcp, network = Path(f"/proc/{pid}/net/snmp").read_text(), os.readlink(f"/proc/{pid}/ns/net")
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return {}
    found = {"cpu_seconds": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")}
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            found["memory"] = 1024.0 * int(line.split()[1])
    names, values = (line.split() for line in tcp.splitlines() if line.startswith("Tcp:"))
    if network != os.readlink("/proc/self/ns/net"):  # else it has only just begun, and is not in its own yet
        found["retransmits"] = float(values[names.index("RetransSegs")])
    return found


def _own_memory(pid: int) -> list[float]:
    """Return the memory that a worker does not share: much of it belongs to the process it was forked from."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return []
    private = [int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")]
    return [1024.0 * sum(private)]
