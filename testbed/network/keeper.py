"""The process that holds a network: its namespaces, its box, its timed changes. One per network, started by handle.py.

It lives until it is told to stop, or until whoever started it dies before saying `detach` (the lifeline closes). All of
the network is held by this process alone, so when it ends, even by SIGKILL, the kernel removes everything.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import NetworkError, TestbedError
from testbed.network import namespaces, planfile, priority, state
from testbed.network.agent import allow_descriptors
from testbed.network.box import BOXES, Box
from testbed.network.events import Change, Done, Timeline
from testbed.network.handle import uninterrupted
from testbed.network.netlink import Netlink
from testbed.network.server import Server
from testbed.network.wire import send_line
from testbed.plan import LinkPlan, NetworkPlan, WorkerPlan

if TYPE_CHECKING:
    from testbed.network.messages import Attach

# Its chatter would be on the links, too
NO_IPV6 = {"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}
WORKER_SYSCTLS = {
    **NO_IPV6,
    "net.ipv4.tcp_slow_start_after_idle": "0",  # training is bursty
    "net.ipv4.tcp_no_metrics_save": "1",  # runs must not influence each other
}
MINIMUM_TCP_BUFFER = 32 << 20  # up to which buffers grow if need be: links may become longer and faster later


class Keeper:
    """A network while it is up."""

    def __init__(self, plan: NetworkPlan, directory: Path, kind: str) -> None:
        self.plan = plan
        self.directory = directory
        self.links: dict[str, LinkPlan] = {link.name: link for link in plan.links}
        if len(self.links) < len(plan.links):
            twice = next(link.name for link in plan.links if self.links[link.name] is not link)
            raise NetworkError(f"two links would be called {twice}", hint="give a node another name")
        self.settings: dict[str, Any] = {}
        self.partition: dict[str, list[str]] = {}  # by worker, whom it cannot reach
        self.timeline = Timeline()
        needed = 100 + 2 * len(plan.workers)  # by us, and by the guest, which inherits the limit
        if (allowed := allow_descriptors(needed)) < needed:
            raise NetworkError(
                f"{len(plan.workers)} workers need {needed} open files, but a process may have only {allowed}",
                hint=f"ulimit -n {needed}, as root",
            )
        self.box_namespace = namespaces.create()
        interfaces = len(plan.workers) + 2 * len(plan.links)
        self.box: Box = BOXES[kind](self.box_namespace, directory, interfaces)  # boots while we go on

    def build(self, attach: Attach | None = None) -> None:
        """From nothing to a network that carries packets. `attach`: another qdisc than netem, for the bench."""
        # Imported here: pyroute2 takes a while, and the box boots meanwhile.
        from testbed.network import messages, shaping

        plan = self.plan
        with namespaces.inside(self.box_namespace):
            _set_sysctls(NO_IPV6)
        self._make_workers()
        in_this_kernel = self.box.kind == "host"
        if not in_this_kernel:
            self._lay_cables()  # to the box's own namespace; the guest is still booting
        links = messages.link_messages(plan, attach or messages.netem_on(self.box.overhead))
        self.kernel = self.box.wait_ready()
        self._raise_priority()
        self.box.call("routers", count=len(plan.routers))
        if in_this_kernel:
            self._lay_cables()  # straight to the routers: moving an interface takes longer than making one
        sizes = {w.rank: shaping.superpacket_bytes(self.segments[w.name], plan.mtu) for w in plan.workers}
        ports = self.box.plug(sizes)
        if not in_this_kernel:
            self.box.send(messages.move_messages(plan, ports))
        self.box.send([*messages.port_messages(plan, ports), *links])
        self.settings["box_port_buffer"] = self._widen_ports()
        self.sockets: dict[str, Netlink] = {}
        for worker in plan.workers:  # last: a packet that reaches a guest's port while it opens may stall the guest
            self.sockets[worker.name] = self._open_side(worker)
        self._write_hosts()

    def _open_side(self, worker: WorkerPlan) -> Netlink:
        """Address, route and neighbour of a worker whose eth0 is where its namespace is."""
        from testbed.network import messages

        side = Netlink(self.workers[worker.name])
        for request in messages.worker_side(worker):
            side.request(request)
        return side

    def _widen_ports(self) -> int | None:
        try:
            return self.box.widen_ports()
        except OSError as error:  # not everywhere may one process touch another's sockets; it is on record
            print(f"the box's ports keep their small buffers: {error}", file=sys.stderr)
            return None

    def _make_workers(self) -> None:
        self.workers: dict[str, int] = {}
        for worker in self.plan.workers:
            namespace = self.workers[worker.name] = namespaces.create()
            with namespaces.inside(namespace):
                self._configure_tcp()

    def _lay_cables(self) -> None:
        """A veth from each worker to its port: in its router's namespace if it is in this kernel, else in the box's."""
        from testbed.network import messages

        plan, root = self.plan, Netlink()
        self.segments = self._fitting_segments()
        self.most_segments = dict(self.segments)  # the ports in the box are made for these
        for worker in plan.workers:
            segments = self.segments[worker.name]
            end = self.box.router_namespace(plan.routers.index(worker.router))
            target = self.box_namespace if end is None else end
            for request in messages.worker_cable(target, self.workers[worker.name], worker, segments, plan.mtu):
                root.request(request)
            if end is not None:
                os.close(end)
        if self.box.kind != "host":
            side = Netlink(self.box_namespace)
            for worker in plan.workers:
                for request in messages.port_up(worker.rank):
                    side.request(request)
            side.close()
        root.close()

    def _configure_tcp(self) -> None:
        """In a worker's namespace: what network.md calls the worker's settings; all of it goes into the record."""
        buffer = max(MINIMUM_TCP_BUFFER, int(2 * self._largest_bdp()))
        sysctls = {
            **WORKER_SYSCTLS,
            "net.ipv4.tcp_rmem": f"4096 131072 {buffer}",
            "net.ipv4.tcp_wmem": f"4096 65536 {buffer}",
        }
        _set_sysctls(sysctls)
        key = "net.ipv4.tcp_congestion_control"
        if self.plan.congestion:
            try:
                namespaces.write_sysctl(key, self.plan.congestion)
            except OSError as error:
                allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().strip()
                raise NetworkError(
                    f"congestion control {self.plan.congestion} cannot be used here: {error.strerror} "
                    f"(allowed: {allowed})",
                    hint=f"as root on the host: modprobe tcp_{self.plan.congestion}; "
                    f"sysctl net.ipv4.tcp_allowed_congestion_control='{allowed} {self.plan.congestion}'",
                ) from error
        in_force = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
        self.settings |= {**sysctls, key: in_force}

    def _largest_bdp(self) -> float:
        """Bytes in flight on the worst path that a worker could use, generously: every link's latency, once."""
        rates = [shape.rate for link in self.plan.links for shape in (link.ab, link.ba) if shape.rate]
        total = sum(link.ab.latency + link.ba.latency for link in self.plan.links)
        return min(max(rates, default=0) / 8 * total, 64 << 20)

    def _raise_priority(self) -> None:
        """The box must never wait for workers that compute: a real-time class where allowed, else a better nice."""
        self.settings["box_overhead"] = self.box.overhead
        self.settings["box_priority"] = priority.raise_above_workers(self.box.pids(), priority.EMULATING)

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost", *(f"{worker.address} {worker.name}" for worker in self.plan.workers)]
        (self.directory / "hosts").write_text("\n".join(lines) + "\n")

    # What clients may ask. Each returns JSON data, or (data, descriptors).

    def status(self) -> dict[str, Any]:
        return {
            "name": self.plan.name,
            "box": self.box.kind,
            "kernel": self.kernel,
            "box_cpu_seconds": self.box.cpu_seconds(),
            "settings": self.settings,
            "gso_segments": self.segments,
            "links": {name: [vars(link.ab), vars(link.ba)] for name, link in self.links.items()},
            "partition": self.partition,
            "changes_left": self.timeline.left,
        }

    def namespace(self, worker: str) -> tuple[None, list[int]]:
        """The descriptor of a worker's network namespace."""
        return None, [self._worker(worker)]

    def adopt(self, worker: str, pid: int) -> None:
        """Have the network namespace of a process, a container's, be this worker's from now on.

        Its eth0 moves there with all its settings; the other end stays plugged in. We keep the namespace, so that the
        cable outlives the process and can move on to the next.
        """
        from testbed.network import messages

        before, planned = self._worker(worker), next(one for one in self.plan.workers if one.name == worker)
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            taken = [namespaces.same(namespace, other) for other in self.workers.values()]
            if any(taken) or namespaces.same(namespace, namespaces.OWN):
                raise NetworkError(f"process {pid} has no network namespace of its own: {worker} cannot be there")
            with namespaces.inside(namespace):
                self._configure_tcp()
            self.sockets[worker].request(messages.worker_moves(namespace))
        except BaseException:
            os.close(namespace)
            raise
        self.workers[worker] = namespace
        self.sockets[worker].close()
        self.sockets[worker] = self._open_side(planned)
        os.close(before)

    def set_link(self, link: str, ab: Mapping[str, Any], ba: Mapping[str, Any]) -> None:
        """Change some numbers of one or both directions, live."""
        self._set_links([{"link": link, "ab": ab, "ba": ba}])

    def _set_links(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Several at once: talking to the box takes longer than changing a link there."""
        from testbed.network import messages

        new: dict[str, LinkPlan] = {}
        for change in changes:
            old = new.get(change["link"]) or self._link(change["link"])
            new[old.name] = replace(old, ab=replace(old.ab, **change["ab"]), ba=replace(old.ba, **change["ba"]))
        attach = messages.netem_on(self.box.overhead)
        self.box.send([one for link in new.values() for one in messages.change_messages(self.plan, link, attach)])
        self.links |= new
        for name, segments in self._fitting_segments().items():
            segments = min(segments, self.most_segments[name])
            if segments != self.segments[name]:  # of connections from now on
                self.sockets[name].request(messages.worker_segments(segments))
                self.segments[name] = segments

    def _fitting_segments(self) -> dict[str, int]:
        from testbed.network import superpackets

        return superpackets.fitting(self.plan, self.links.values(), self.box.packets_per_second)

    def set_partition(self, blocked: Mapping[str, list[str]]) -> None:
        """By worker, whom its packets do not reach from now on, silently; {} heals everything."""
        from testbed.network import messages

        for names in ([*blocked], *blocked.values()):
            for name in names:
                self._worker(name)
        self.box.send(messages.partition_messages(self.plan, self.partition, blocked))
        self.partition = {worker: list(others) for worker, others in blocked.items() if others}

    def counters(self) -> dict[str, Any]:
        """Counters of every link direction and of every worker's eth0, with one timestamp (monotonic clock)."""
        from testbed.network.messages import end_index

        ends: dict[int, str] = {}
        for link in self.plan.links:
            ends[end_index(link, link.a)] = f"{link.a}>{link.b}"
            ends[end_index(link, link.b)] = f"{link.b}>{link.a}"
        answer = self.box.call("counters")
        found = {ends[index]: numbers for _, index, *numbers in answer}
        ports = {}
        for name, side in self.sockets.items():
            eth0 = next(one for one in side.links() if one.interface == 2)
            ports[name] = [eth0.rx_packets, eth0.tx_packets, eth0.rx_bytes, eth0.tx_bytes]
        return {"time": time.monotonic(), "links": found, "ports": ports, "box_cpu_seconds": self.box.cpu_seconds()}

    def start_events(self, changes: list[Change]) -> None:
        """Begin the clock of timed changes: (seconds from now, "set_link" or "set_partition", its arguments)."""
        self._check(changes)
        self.timeline.start(changes)

    def update_events(self, changes: list[Change]) -> None:
        """Follow other changes from now on; the clock runs on."""
        self._check(changes)
        self.timeline.replace(changes)

    def stop_events(self) -> list[Done]:
        """End them; what was done: when it was due, how late it was, which link, what went wrong."""
        return self.timeline.stop()

    def _check(self, changes: list[Change]) -> None:
        """A change that cannot be made must not come to light in the middle of a run."""
        for _, operation, arguments in changes:
            if operation == "set_link":
                old = self._link(arguments["link"])
                replace(old.ab, **arguments["ab"])
                replace(old.ba, **arguments["ba"])
            elif operation != "set_partition":
                raise NetworkError(f"{operation} cannot be a timed change")

    def _worker(self, name: str) -> int:
        if name not in self.workers:
            raise NetworkError(f"there is no worker {name} (there are {', '.join(self.workers)})")
        return self.workers[name]

    def _link(self, name: str) -> LinkPlan:
        if name not in self.links:
            raise NetworkError(f"there is no link {name} (there are {', '.join(self.links)})")
        return self.links[name]

    def do_due_changes(self) -> float | None:
        """Apply what is due; seconds until the next change. A change that fails is on record; the network goes on."""
        due = self.timeline.due()
        links = [change for change in due if change[1] == "set_link"]
        others = [change for change in due if change[1] != "set_link"]
        for group in (links, *([one] for one in others)):
            if group:
                self.timeline.record(group, self._attempt(group))
        return self.timeline.wait()

    def _attempt(self, changes: Sequence[Change]) -> str:
        try:
            if changes[0][1] == "set_link":
                self._set_links([arguments for _, _, arguments in changes])
            else:
                self.set_partition(**changes[0][2])
        except (TestbedError, OSError) as error:
            print(f"timed change: {error}", file=sys.stderr)
            return str(error)
        return ""

    def close(self) -> None:
        self.box.close()


def _set_sysctls(values: Mapping[str, str]) -> None:
    """In the current namespace, as far as this kernel has them."""
    for key, value in values.items():
        with contextlib.suppress(FileNotFoundError):
            namespaces.write_sysctl(key, value)


def main() -> None:
    """Arguments: directory, kind of box, descriptor of the lifeline."""
    directory, kind, lifeline = Path(sys.argv[1]), sys.argv[2], socket.socket(fileno=int(sys.argv[3]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # unwinds, so that the box is closed
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    starter = os.pidfd_open(os.getppid())
    try:
        _keep(directory, kind, lifeline, starter)
    except TestbedError as error:
        _tell(lifeline, {"error": str(error), "hint": error.hint})
        print(f"error: {error}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - told to whoever started us, and where it happened, to the log
        _tell(lifeline, {"error": f"{type(error).__name__}: {error}", "hint": None})
        traceback.print_exc()
    else:
        state.release(directory)


def _keep(directory: Path, kind: str, lifeline: socket.socket, starter: int) -> None:
    """Build the network and hold it until it is not wanted any more."""
    rootless = os.geteuid() != 0
    if rootless:
        namespaces.own_user_namespace()
    pid = os.getpid()
    record = state.State(
        directory.name, pid, state.start_time(pid) or 0, kind, "", rootless, str(directory), ready=False
    )
    record.save()
    keeper: Keeper | None = None
    try:
        with uninterrupted():  # or a box that has just been started would be nobody's
            keeper = Keeper(planfile.from_json((directory / "plan.json").read_text()), directory, kind)
        keeper.build()
        server = Server(keeper, lifeline, starter)
        replace(record, kernel=keeper.kernel, ready=True).save()
        _tell(lifeline, {"ready": keeper.kernel})
        server.run()
    except SystemExit:  # SIGTERM: ended like any other
        return
    finally:
        if keeper:
            keeper.close()


def _tell(lifeline: socket.socket, data: dict[str, Any]) -> None:
    """To whoever started us, if it is still there; the lifeline's end is noticed by the server."""
    with contextlib.suppress(OSError):
        send_line(lifeline, data)


if __name__ == "__main__":
    main()
