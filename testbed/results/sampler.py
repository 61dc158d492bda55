"""Counters while a cell runs: links, ports, retransmits, processors, memory, five times a second, on one clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LINK_COUNTERS = ("bytes", "packets", "drops", "backlog_bytes", "backlog_packets")
PORT_COUNTERS = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes")


@dataclass
class Sampler:
    """Collects rows (time in monotonic seconds, kind, name, counter, value)."""

    rows: list[tuple[float, str, str, str, float]] = field(default_factory=list)
    # Between two samples while workers trained: before and after that the network has little to do, processors much.
    idle: list[float] = field(default_factory=list)  # share of the processors
    stolen: list[float] = field(default_factory=list)  # share that a hypervisor gave to others meanwhile
    box_share: list[float] = field(default_factory=list)  # of one processor
    _looks: int = 0
    _training: bool = False  # at the last sample
    _last: tuple[float, float, float, float, float] | None = None  # time, idle, total, box seconds, stolen

    def take(self, counters: dict[str, Any], pids: Sequence[int], names: Sequence[str], *, training: bool) -> None:
        """One sample from the network's counters and from /proc."""
        now = float(counters["time"])
        for name, numbers in counters["links"].items():
            self.rows += [(now, "link", name, key, value) for key, value in zip(LINK_COUNTERS, numbers, strict=True)]
        for name, numbers in counters["ports"].items():
            self.rows += [(now, "port", name, key, value) for key, value in zip(PORT_COUNTERS, numbers, strict=True)]
        for pid, name in zip(pids, names, strict=False):
            self.rows += [(now, "worker", name, key, value) for key, value in _process(pid).items()]
        if pids:  # one at a time: the kernel walks through all of its memory for the answer, some 3 ms
            self._looks += 1
            rank = self._looks % len(pids)
            self.rows += [(now, "worker", names[rank], "memory_own", value) for value in _own_memory(pids[rank])]
        self._processors(now, float(counters["box_cpu_seconds"]), counts=training and self._training)
        self._training = training

    def _processors(self, now: float, box: float, *, counts: bool) -> None:
        idle, stolen, total = _cpu_times()
        if self._last and now > self._last[0] and total > self._last[2]:
            all_idle = (idle - self._last[1]) / (total - self._last[2])
            of_box = (box - self._last[3]) / (now - self._last[0])
            taken = (stolen - self._last[4]) / (total - self._last[2])
            self.rows.append((now, "host", "processors", "idle", all_idle))
            self.rows.append((now, "host", "processors", "stolen", taken))
            self.rows.append((now, "host", "box", "share", of_box))
            if counts:
                self.idle.append(all_idle)
                self.box_share.append(of_box)
                self.stolen.append(taken)
        self._last = (now, idle, total, box, stolen)

    def write(self, path: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        columns = list(zip(*self.rows, strict=True)) or [()] * 5
        names = ("time_s", "kind", "name", "counter", "value")
        table = pa.table(dict(zip(names, (pa.array(column) for column in columns), strict=True)))
        parquet.write_table(table, path)


def _cpu_times() -> tuple[float, float, float]:
    """Idle, stolen by a hypervisor, and all there was, since the machine started: of the processors we may use."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
    each = [[float(part) for part in line[1:9]] for line in lines if line[0] in ours]
    idle, stolen = (sum(sum(fields[at] for at in places) for fields in each) for places in ((3, 4), (7,)))
    return idle, stolen, sum(map(sum, each))


def _process(pid: int) -> dict[str, float]:
    """Memory and processor time of a worker, retransmissions of its network namespace; nothing once it is gone."""
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
    """What a worker shares with nobody: much of its memory is that of the process it was forked from."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return []
    private = [int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")]
    return [1024.0 * sum(private)]
