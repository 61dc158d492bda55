"""Where the routers live: this kernel (host box) or a User-Mode-Linux guest (delay box), behind one small interface.

A box is a process that runs the agent. The daemon makes the box's namespace with the workers' ports in it, starts the
box there, and talks to the agent over the process's standard streams.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import testbed
from testbed.errors import NetworkError
from testbed.network.agent import FIRST_NAMESPACE_FD, FIRST_PORT_INDEX, port_mac, port_name
from testbed.network.namespaces import borrow, die_with_parent, inside
from testbed.network.processes import cpu_seconds, descendants, softirq_seconds
from testbed.network.waiting import LIVELY, Patience, readable

ANSWER_SECONDS = 30.0  # without a sign of life
WORKING = 0.05  # share of a processor; a guest that does nothing takes up to 3 %, for its heartbeat
WAKE_SECONDS = 0.1  # of silence, after which the guest may have missed that there is something to read
BATCH = 2000  # requests, whose answer comes within that time even from a large network
CHILD_KILLED = "unshare: sigprocmask"  # what unshare says when it cannot die of what its child died of
ENDING_SECONDS = 0.5  # between what it says last and the end of its process
INLINE_BYTES = 2000  # longer requests go through a file: the guest's console is slow, and takes no line beyond 4096
PORT_BUFFER = 4 << 20  # bytes
SO_RCVBUFFORCE = 33  # beyond what ordinary users may have
GUEST_KERNEL = "linux"  # Debian's user-mode-linux installs it under this name
GUEST_MEGABYTES, MEGABYTES_PER_INTERFACE = 256, 0.15
GUEST_MODULES = Path("/usr/lib/uml/modules")
HEARTBEAT = Path(__file__).with_name("heartbeat.py")
# Drops what the raw socket itself sent, or every packet would circulate:
# ld [ancillary packet type]; jeq PACKET_OUTGOING → drop; else pass
LOOP_FILTER = ((0x20, 0, 0, 0xFFFFF004), (0x15, 0, 1, 4), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))


class Box(ABC):
    """A running agent and the process that carries it."""

    kind: ClassVar[str]
    overhead: ClassVar[float] = 0.0  # seconds a packet spends in a link's machinery beyond netem's delay

    def __init__(self, namespace: int, directory: Path, interfaces: int = 0) -> None:
        """`interfaces`: the approximate number to come."""
        self.directory = directory
        self.interfaces = interfaces
        self._pending = b""
        self._noise: list[str] = []
        self._number = 0
        ours, theirs = socket.socketpair()
        with (directory / "box.log").open("wb") as log, inside(namespace):
            self.process = subprocess.Popen(
                self.command(),
                cwd=directory,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=log,
                preexec_fn=partial(die_with_parent, os.getpid()),  # at once: no moment in which it could be orphaned
            )
        theirs.close()
        self._stream = ours

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command to run inside the box's namespace."""

    @abstractmethod
    def router_namespace(self, number: int) -> int | None:
        """Return a descriptor of a router's namespace, where this kernel has it; the caller closes it."""

    @abstractmethod
    def plug(self, sizes: Mapping[int, int]) -> dict[int, int]:
        """Tell the agent of the workers' ports; return their interface index there, by rank. `sizes`: of the largest
        super-packet that each worker sends."""

    def widen_ports(self) -> int | None:
        """Enlarge the buffers of the ports' sockets, if any, once the ports are up; return their size in bytes."""
        return None

    def wait_ready(self) -> str:
        """Wait for the agent; return the kernel release it runs on."""
        return str(self._read_answer(0)["ready"])

    def call(self, op: str, **arguments: Any) -> Any:
        """Send one request to the agent."""
        self._number += 1
        request = {"op": op, "number": self._number, **arguments}
        line = json.dumps(request, separators=(",", ":"))
        file = self.directory / f"request-{self._number}.json"
        if len(line) > INLINE_BYTES:
            file.write_text(line)
            line = json.dumps({"file": str(file.resolve())})
        try:
            self._stream.sendall(line.encode() + b"\n")
            answer = self._read_answer(self._number)
        except OSError as error:
            raise NetworkError(f"the {self.kind} box ended{self.last_words()}") from error
        finally:
            file.unlink(missing_ok=True)
        if "error" in answer:
            raise NetworkError(f"the {self.kind} box could not do it: {answer['error']}")
        return answer["result"]

    def send(self, batch: Sequence[tuple[int, str, str]]) -> None:
        """Have the agent send netlink requests."""
        for begin in range(0, len(batch), BATCH):
            self.call("send", messages=batch[begin : begin + BATCH])

    def pids(self) -> list[int]:
        """Return the box's processes."""
        return [self.process.pid, *descendants(self.process.pid)]

    def cpu_seconds(self) -> float:
        """Return the processor time the box has used: at a whole core the emulation is no longer faithful."""
        return sum(cpu_seconds(pid) for pid in self.pids())

    def busy_seconds(self) -> dict[str, float]:
        """Return, by processor, the time spent on packets: where a processor is full, links are slower than asked."""
        return {"guest": self.cpu_seconds()}  # which has one processor

    def close(self) -> None:
        """End the box; its namespaces and links go with it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._stream.close()

    def _read_answer(self, number: int) -> dict[str, Any]:
        """Return the answer to a request; skip one that came too late for its own."""
        patience = Patience(ANSWER_SECONDS, self.cpu_seconds, lively=WORKING if number else LIVELY)
        while True:
            line, found, rest = self._pending.partition(b"\n")
            if found:
                self._pending = rest
                text = line.decode(errors="replace").strip()
                if text.startswith("@"):
                    answer: dict[str, Any] = json.loads(text[1:])
                    if answer["number"] == number:
                        return answer
                else:
                    self._noise.append(text)
                    if "Kernel panic" in text:  # after which it may just sit there
                        raise NetworkError(f"the {self.kind} box failed{self.last_words()}")
                continue
            if (remaining := patience.left) <= 0:
                raise NetworkError(f"the {self.kind} box did not answer within {patience}{self.last_words()}")
            if not readable([self._stream], min(remaining, WAKE_SECONDS)):
                self.wake()
                continue
            data = self._stream.recv(65536)
            if not data:
                raise NetworkError(f"the {self.kind} box ended{self.last_words()}")
            self._pending += data
            patience.sign()  # if only the kernel's, while it boots

    def wake(self) -> None:
        """Send a byte: while packets arrive, a guest's kernel (6.1) sometimes forgets that its console has input, and
        notices only with the next byte. Not before it runs: the kernel would echo it."""
        if self._number:
            self._stream.send(b"\n")

    def last_words(self) -> str:
        """Return its last output for an error message, or that it had no time to write any."""
        code = None
        with suppress(subprocess.TimeoutExpired):
            code = self.process.wait(ENDING_SECONDS)
        try:
            log = (self.directory / "box.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            log = []
        if code == -signal.SIGKILL or any(CHILD_KILLED in line for line in log):
            return ": it was killed, by somebody or for want of memory; the kernel's log may tell (dmesg)"
        words = [line for line in [*self._noise, *log] if line][-5:]
        return "; its last words:\n  " + "\n  ".join(words) if words else ""


class HostBox(Box):
    """Routers in this kernel."""

    kind = "host"

    def command(self) -> list[str]:
        return [*_python(), "-c", _agent_code("serve_host")]

    def busy_seconds(self) -> dict[str, float]:
        """Read softirqs, where packets travel; the agent only sets links up. Each packet stays on the processor that
        sent it or whose timer released it, so a full one delays its links while others are idle: the busiest decides.
        Other softirqs and other programs' packets count, too; they delay ours."""
        return softirq_seconds(Path("/proc/stat").read_text(), os.sysconf("SC_CLK_TCK"))

    def router_namespace(self, number: int) -> int | None:
        return os.open(f"/proc/{self.process.pid}/fd/{FIRST_NAMESPACE_FD + number}", os.O_RDONLY | os.O_CLOEXEC)

    def plug(self, sizes: Mapping[int, int]) -> dict[int, int]:
        return {rank: FIRST_PORT_INDEX + rank for rank in sizes}


class DelayBox(Box):
    """Routers in a User-Mode-Linux guest: netem for hosts whose kernel has none."""

    kind = "uml"
    overhead = 100e-6  # measured: round trips of 0.3 to 100 ms over one and two links then come within 0.15 ms

    def command(self) -> list[str]:
        directory = self.directory
        (directory / "b").write_bytes(b"".join(struct.pack("<HBBI", *step) for step in LOOP_FILTER))
        init = directory / "init"
        init.write_text("#!" + " ".join(_python()) + "\n" + _agent_code("serve_guest") + "\n")
        init.chmod(0o755)
        # A process namespace of its own: the guest is several processes, and all end with the first.
        # No address randomisation: it would put up to a gigabyte of holes into the guest's memory map, whose
        # bookkeeping then takes most of the guest's memory (it panicked) and of its boot time.
        wrapper = ["setarch", "--addr-no-randomize"]
        wrapper += ["unshare", "--pid", "--fork", "--kill-child=KILL", *_python(), str(HEARTBEAT)]
        kernel = shutil.which(GUEST_KERNEL) or GUEST_KERNEL
        memory = GUEST_MEGABYTES + int(MEGABYTES_PER_INTERFACE * self.interfaces)  # taken only as it is used
        options = [f"mem={memory}M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init.resolve()}"]
        console = ["con=null", "con0=fd:0,fd:1", "quiet"]
        return [
            *wrapper,
            kernel,
            *options,
            *console,
            f"uml_dir={directory.resolve()}/",
            "umid=u",
            "random.trust_cpu=on",
        ]

    def router_namespace(self, number: int) -> int | None:
        return None

    def plug(self, sizes: Mapping[int, int]) -> dict[int, int]:
        """Hot-plug the ports: the kernel's command line has no room for many."""
        for rank, size in sizes.items():
            # vec=0: packets one by one. In batches, all but the first one's payload arrived as zeros (kernel 6.1).
            port = f"transport=raw,ifname={port_name(rank)},mac={port_mac(rank)},mtu={size},vec=0,bpffile=b"
            self._management(f"config vec{rank}:{port}")
        names = {f"vec{rank}": rank for rank in sizes}
        # With generic receive offload netem would see one packet where there were many.
        self.call("no_merging", interfaces=list(names))
        return {names[name]: index for name, index in self.call("interfaces").items() if name in names}

    def widen_ports(self) -> int | None:
        """Enlarge the buffers: a guest that waits for a processor must not lose packets before they are counted. The
        default holds 10 ms at 100 Mbit/s."""
        kernel = descendants(self.process.pid)[0]
        smallest = None
        for entry in Path(f"/proc/{kernel}/fd").iterdir():
            if not os.readlink(entry).startswith("socket:"):
                continue
            with socket.socket(fileno=borrow(kernel, int(entry.name))) as port:
                if port.family != socket.AF_PACKET:
                    continue
                try:
                    port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, PORT_BUFFER)
                except PermissionError:  # as much as the host allows to ordinary users
                    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PORT_BUFFER)
                size = port.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                smallest = size if smallest is None else min(smallest, size)
        return smallest

    def _management(self, command: str) -> None:
        """Send one request to the guest kernel's management console (a datagram protocol of fixed 512-byte texts)."""
        here = self.directory / "m"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as console:
            console.bind(str(here))
            try:
                text = command.encode()
                request = struct.pack("<III", 0xCAFEBABE, 2, len(text)) + text.ljust(512, b"\0")
                console.sendto(request, str(self.directory / "u" / "mconsole"))
                if not Patience(ANSWER_SECONDS, self.cpu_seconds, lively=WORKING).wait_for(console):
                    raise TimeoutError("timed out")
                answer = console.recv(1024)
            except OSError as error:
                raise NetworkError(f"the guest's console did not take {command!r}: {error}") from error
            finally:
                here.unlink()
        (failed,) = struct.unpack_from("<I", answer)
        if failed:
            reason = answer[12:].rstrip(b"\0").decode(errors="replace")
            raise NetworkError(f"the guest did not take {command!r}: {reason}")


BOXES: dict[str, type[Box]] = {box.kind: box for box in (HostBox, DelayBox)}


def _python() -> list[str]:
    """Return the interpreter itself, without site-packages: it starts in a tenth of a second in the guest."""
    return [os.path.realpath(getattr(sys, "_base_executable", sys.executable)), "-IBS"]


def _agent_code(entry: str) -> str:
    root = str(Path(testbed.__file__).resolve().parent.parent)
    return f"import sys; sys.path.insert(0, {root!r}); from testbed.network.agent import {entry}; {entry}()"
