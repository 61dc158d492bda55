"""The network daemon: holds a network's namespaces, box and timed changes. One per network, started by client.py.

It lives until told to stop, or until the process that started it dies before saying `detach` (the lifeline closes). It
alone holds all of the network, so when it ends, even by SIGKILL, the kernel removes everything.
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
from testbed.network import namespaces, priority, state, sysctls
from testbed.network.agent import allow_descriptors
from testbed.network.box import BOXES, Box
from testbed.network.client import uninterrupted
from testbed.network.netlink import Netlink
from testbed.network.server import MOST_CLIENTS, Server
from testbed.network.wire import send_line
from testbed.plan import file
from testbed.plan.changes import Change, Done, Timeline
from testbed.plan.model import LinkPlan, NetworkPlan, WorkerPlan

if TYPE_CHECKING:
    from testbed.network.messages import Attach

FEWEST_CLIENTS = 20  # that there are always descriptors for
MINIMUM_TCP_BUFFER = 32 << 20  # up to which buffers grow if need be: links may become longer and faster later


class Daemon:
    """A network while it is up."""

    def __init__(self, plan: NetworkPlan, directory: Path, kind: str) -> None:
        self.plan = plan
        self.directory = directory
        self.links: dict[str, LinkPlan] = {link.name: link for link in plan.links}
        if len(self.links) < len(plan.links):
            twice = next(link.name for link in plan.links if self.links[link.name] is not link)
            raise NetworkError(f"two links would be called {twice}", hint="give a node another name")
        self.settings: dict[str, Any] = {}
        self.partition: dict[str, list[str]] = {}  # by worker, those it cannot reach
        self.timeline = Timeline(plan.slow_motion)
        needed = 100 + 2 * len(plan.workers)  # by us, and by the guest, which inherits the limit
        if (allowed := allow_descriptors(needed + MOST_CLIENTS)) < needed:
            raise NetworkError(
                f"{len(plan.workers)} workers need {needed} open files, but a process may have only {allowed}",
                hint=f"ulimit -n {needed}, as root",
            )
        self.most_clients = max(FEWEST_CLIENTS, min(MOST_CLIENTS, allowed - needed))
        self.box_namespace = namespaces.create()
        interfaces = len(plan.workers) + 2 * len(plan.links)
        self.box: Box = BOXES[kind](self.box_namespace, directory, interfaces)  # boots while we go on
        self._raise_priority()  # what it starts inherits that; on a busy machine it would boot for minutes

    def build(self, attach: Attach | None = None) -> None:
        """Build a network that carries packets, from nothing. `attach`: another qdisc than netem, for the bench."""
        # Imported here: pyroute2 takes a while, and the box boots meanwhile.
        from testbed.link import netem
        from testbed.network import messages

        plan = self.plan
        with namespaces.inside(self.box_namespace):
            sysctls.apply(sysctls.WORKER)  # this kernel has nothing to say there, and passes nothing on
        self._make_workers()
        in_this_kernel = self.box.kind == "host"
        if not in_this_kernel:
            self._lay_cables()  # to the box's own namespace; the guest is still booting
        links = messages.link_messages(plan, attach or self._netem())
        self.kernel = self.box.wait_ready()
        self._raise_priority()  # also what it may have started in the moment before
        chosen = self.box.call("routers", count=len(plan.routers))
        self.settings |= {f"routers: {key}": value for key, value in chosen.items()}
        if in_this_kernel:
            self._lay_cables()  # straight to the routers: moving an interface takes longer than making one
        sizes = {w.rank: netem.superpacket_bytes(self.segments[w.name], plan.mtu) for w in plan.workers}
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
        """Set address, route and neighbour of a worker whose eth0 is in its namespace."""
        from testbed.network import messages

        side = Netlink(self.workers[worker.name])
        for request in messages.worker_side(worker, self.plan.slow_motion):
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
        """Make a veth from each worker to its port: in its router's namespace if in this kernel, else in the box's."""
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
        """Apply the TCP settings in a worker's namespace; all of them go into the record."""
        buffer = max(MINIMUM_TCP_BUFFER, int(2 * self._largest_bdp()))
        buffers = {"net.ipv4.tcp_rmem": f"4096 131072 {buffer}", "net.ipv4.tcp_wmem": f"4096 65536 {buffer}"}
        chosen = sysctls.apply(sysctls.in_workers(self.plan.slow_motion) | buffers)
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
        self.settings |= {**chosen, key: in_force}

    def _largest_bdp(self) -> float:
        """Return a generous bound of bytes in flight on a worker's worst path: every link's latency, once."""
        rates = [shape.rate for link in self.plan.links for shape in (link.ab, link.ba) if shape.rate]
        total = sum(link.ab.latency + link.ba.latency for link in self.plan.links)
        return min(max(rates, default=0) / 8 * total, 64 << 20)

    def _raise_priority(self) -> None:
        """Raise the box above computing workers: it must never wait for them. Real-time if allowed, else nice."""
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
            "slow_motion": self.plan.slow_motion,
            "box_cpu_seconds": self.box.cpu_seconds(),
            "settings": self.settings,
            "gso_segments": self.segments,
            "links": {name: [vars(link.ab), vars(link.ba)] for name, link in self.links.items()},
            "partition": self.partition,
            "changes_left": self.timeline.left,
        }

    def namespace(self, worker: str) -> tuple[None, list[int]]:
        """Return the descriptor of a worker's network namespace."""
        return None, [self._worker(worker)]

    def adopt(self, worker: str, pid: int) -> None:
        """Use the network namespace of a process, a container's, for this worker from now on.

        Its eth0 moves there with all its settings; the other end stays plugged in. We keep the namespace, so the cable
        outlives the process and can move on to the next.
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
        """Change some properties of one or both directions, live."""
        self._set_links([{"link": link, "ab": ab, "ba": ba}])

    def _set_links(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Change several links at once: talking to the box takes longer than changing a link there."""
        from testbed.network import messages

        new: dict[str, LinkPlan] = {}
        for change in changes:
            old = new.get(change["link"]) or self._link(change["link"])
            new[old.name] = replace(old, ab=replace(old.ab, **change["ab"]), ba=replace(old.ba, **change["ba"]))
        attach = self._netem()
        pairs = [(self.links[name], link) for name, link in new.items()]
        self.box.send([one for pair in pairs for one in messages.change_messages(self.plan, *pair, attach)])
        self.links |= new
        for name, segments in self._fitting_segments().items():
            segments = min(segments, self.most_segments[name])
            if segments != self.segments[name]:  # of connections from now on
                self.sockets[name].request(messages.worker_segments(segments))
                self.segments[name] = segments

    def _netem(self) -> Attach:
        from testbed.network import messages

        return messages.netem_on(self.box.overhead, self.plan.slow_motion)

    def _fitting_segments(self) -> dict[str, int]:
        from testbed.plan import superpackets

        return superpackets.fitting(self.plan, self.links.values(), superpackets.CALM[self.box.kind])

    def set_partition(self, blocked: Mapping[str, list[str]]) -> None:
        """Set, by worker, the workers its packets silently do not reach from now on; {} heals everything."""
        from testbed.network import messages

        for names in ([*blocked], *blocked.values()):
            for name in names:
                self._worker(name)
        self.box.send(messages.partition_messages(self.plan, self.partition, blocked))
        self.partition = {worker: list(others) for worker, others in blocked.items() if others}

    def counters(self) -> dict[str, Any]:
        """Return counters of every link direction and of every worker's eth0, with one timestamp: the monotonic clock
        in scenario time."""
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
        now = time.monotonic() / self.plan.slow_motion
        return {"time": now, "links": found, "ports": ports, "box_seconds": self.box.busy_seconds()}

    def start_events(self, changes: list[Change]) -> None:
        """Start the clock of timed changes: (scenario seconds from now, "set_link" or "set_partition", its
        arguments)."""
        self._check(changes)
        self.timeline.start(changes)

    def update_events(self, changes: list[Change]) -> None:
        """Follow other changes from now on; the clock keeps running."""
        self._check(changes)
        self.timeline.replace(changes)

    def stop_events(self) -> list[Done]:
        """Stop them; return what was done: when it was due, how late it was, which link, what went wrong."""
        return self.timeline.stop()

    def _check(self, changes: list[Change]) -> None:
        """Check a change now: one that cannot be made must not fail in the middle of a run."""
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
        """Apply due changes; return the seconds until the next. A failed change is recorded; the network goes on."""
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
        except Exception as error:  # noqa: BLE001 - a number that no link can have must not end the network
            print(f"timed change: {type(error).__name__}: {error}", file=sys.stderr)
            return f"{type(error).__name__}: {error}"
        return ""

    def close(self) -> None:
        self.box.close()


def main() -> None:
    """Run the daemon. Arguments: directory, kind of box, descriptor of the lifeline."""
    directory, kind, lifeline = Path(sys.argv[1]), sys.argv[2], socket.socket(fileno=int(sys.argv[3]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # unwinds, so that the box is closed
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    starter = os.pidfd_open(os.getppid())
    try:
        _keep(directory, kind, lifeline, starter)
    except TestbedError as error:
        _tell(lifeline, {"error": str(error), "hint": error.hint})
        print(f"error: {error}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - reported to the process that started us; the traceback goes to the log
        _tell(lifeline, {"error": f"{type(error).__name__}: {error}", "hint": None})
        traceback.print_exc()
    else:
        state.release(directory)


def _keep(directory: Path, kind: str, lifeline: socket.socket, starter: int) -> None:
    """Build the network and hold it until it is no longer wanted."""
    rootless = os.geteuid() != 0
    if rootless:
        namespaces.own_user_namespace()
    pid = os.getpid()
    record = state.State(
        directory.name, pid, state.start_time(pid) or 0, kind, "", rootless, str(directory), ready=False
    )
    record.save()
    daemon: Daemon | None = None
    try:
        with uninterrupted():  # or a box that has just been started would be left behind
            daemon = Daemon(file.from_json((directory / "plan.json").read_text()), directory, kind)
        daemon.build()
        server = Server(daemon, lifeline, starter, daemon.most_clients)
        replace(record, kernel=daemon.kernel, ready=True).save()
        _tell(lifeline, {"ready": daemon.kernel})
        server.run()
    except SystemExit:  # SIGTERM: ended like any other
        return
    finally:
        if daemon:
            daemon.close()


def _tell(lifeline: socket.socket, data: dict[str, Any]) -> None:
    """Send to the process that started us, if it is still there; the server notices the lifeline's end."""
    with contextlib.suppress(OSError):
        send_line(lifeline, data)


if __name__ == "__main__":
    main()
