"""A method that tries what a worker must not be able to do, named in a scenario as probes.py:Prober. test_hostile.py
reads what it tells. No act does harm where it is allowed: signals are 0, arguments are such that only the permission is
looked at. Beside the scenario, `marks.json` says where the canary, the sockets and the controller are."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import socket
import stat
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.methods.base import Peer
from testbed.methods.dpsgd import DPSGD, State
from testbed.network.netlink import Netlink

MARKS = Path(__file__).with_name("marks.json")
BESIDE = 2  # the rank that tries
X86 = os.uname().machine == "x86_64"


@dataclass(frozen=True)
class Prober(DPSGD):
    """Behaves, but for one long look around."""

    name = "prober"

    def step(self, peer: Peer, state: State) -> None:
        super().step(peer, state)
        if (peer.rank, peer.step) == (BESIDE, 1):
            told = {act.__name__: tried(act) for act in FORBIDDEN}
            told |= {f"{name} {path}": tried(lambda do=do, path=path: do(path)) for name, do, path in on_paths()}
            told |= {name: tried(lambda number=number: call(number)) for name, number in calls().items()}
            allowed = {act.__name__: tried(act) for act in ALLOWED}
            Path("told.json").write_text(json.dumps({"forbidden": told, "allowed": allowed, "facts": facts()}))
            for _ in range(3):  # and leaves somebody behind, in sessions of their own
                subprocess.Popen(["sleep", "600"], start_new_session=True)


def tried(act: Callable[[], object]) -> str:
    """What forbids it; nothing where it is allowed."""
    try:
        act()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return ""


def call(number: int, *arguments: object) -> int:
    """A system call by its number, with zeros where nothing is given."""
    libc = ctypes.CDLL(None, use_errno=True)
    padded = [*arguments, *[0] * (6 - len(arguments))]
    found = libc.syscall(number, *[ctypes.c_long(one) if isinstance(one, int) else one for one in padded])
    if found < 0:
        raise OSError(ctypes.get_errno(), str(number))
    return int(found)


def calls() -> dict[str, int]:
    """Refused whatever their arguments are."""
    if not X86:
        return {}
    return {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440, "kcmp": 312,
        "pidfd_getfd": 438, "add_key": 248, "request_key": 249, "keyctl": 250, "io_uring_setup": 425, "bpf": 321,
        "perf_event_open": 298, "userfaultfd": 323, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155,
        "chroot": 161, "open_tree": 428, "move_mount": 429, "fsopen": 430, "mount_setattr": 442,
        "open_by_handle_at": 304, "kexec_load": 246, "init_module": 175, "finit_module": 313, "reboot": 169,
        "swapon": 167, "sethostname": 170, "settimeofday": 164, "syslog": 103, "acct": 163, "iopl": 172,
        "clone3": 435, "openat2": 437, "shmget": 29, "msgget": 68, "semget": 64, "mq_open": 240,
    }  # fmt: skip


def on_paths() -> list[tuple[str, Callable[[str], object], str]]:
    marks, lent = json.loads(MARKS.read_text()), Path.cwd().parent
    run, cell = lent.parent, Path.cwd().name
    secrets = ["/etc/shadow", "/proc/1/environ", "/proc/1/mem", "/proc/kcore", marks["canary"]]
    places = ["/tmp", "/var/tmp", "/dev", "/dev/shm", "/etc", "/usr/bin", "/run", "/proc/1/root/tmp", str(MARKS.parent)]
    places += [str(lent), str(run), str(run / "cells"), str(run / "cells" / cell), str(run / "notices" / cell)]
    files = ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/net/ipv4/tcp_rmem", marks["canary"]]
    files += ["/proc/self/oom_score_adj", "/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/tty", "/dev/net/tun"]
    files += [str(run / "cells.json"), str(run / "notices" / cell / "orders"), marks["group"]]
    found: list[tuple[str, Callable[[str], object], str]] = []
    found += [("read", read, path) for path in secrets]
    found += [("list", list_entries, marks["state"]), ("follow", os.readlink, "/proc/1/fd/0")]
    found += [("make in", make_in, path) for path in places]
    found += [("write to", append, path) for path in files]
    found += [("talk to", talk, path) for path in (*marks["sockets"], "/var/run/docker.sock")]
    found += [("signal", lambda path: os.kill(int(path), 0), str(pid)) for pid in marks["pids"]]
    return found


def read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def list_entries(path: str) -> None:
    """An empty directory in its place hides all there is."""
    if not os.listdir(path):
        raise PermissionError(errno.EACCES, path)


def make_in(path: str) -> None:
    with open(f"{path}/hostile", "x"):
        os.unlink(f"{path}/hostile")


def append(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def talk(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(1)
        peer.connect(path)


# Each is an act


def signal_anybody() -> None:
    """One by one: to all at once, the kernel tells nobody who was out of reach."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            with suppress(OSError):
                os.kill(int(name), 0)
                return
    raise PermissionError(errno.EPERM, "nobody")


def signal_init() -> None:
    os.kill(1, 0)


def signal_parent() -> None:
    """Out of its namespace, a parent has the number 0, which would be our own group."""
    os.kill(os.getppid() or 1, 0)


def signal_forker_by_descriptor() -> None:
    """Of those it has inherited. The kernel says EINVAL of one that leads out of our namespace."""
    own = os.pidfd_open(os.getpid())
    call(424, own, 0, None, 0)
    os.close(own)
    for name in os.listdir("/proc/self/fd"):
        try:
            info = Path(f"/proc/self/fdinfo/{name}").read_text()
        except OSError:
            continue
        if "\nPid:" in info:
            try:
                call(424, int(name), 0, None, 0)  # pidfd_send_signal
            except OSError as error:
                raise PermissionError(errno.EPERM, "out of reach") from error
            return
    raise PermissionError(errno.EPERM, "no descriptor of a process")


def become_root() -> None:
    os.setuid(0)


def choose_groups() -> None:
    os.setgroups([0])


def new_user_namespace() -> None:
    call(272, 0x10000000)


def new_network() -> None:
    call(272, 0x40000000)


def new_mounts() -> None:
    call(272, 0x00020000)


def clone_into_user_namespace() -> None:
    if call(56, 0x10000000 | 17) == 0:
        os._exit(0)
    os.wait()


def make_device() -> None:
    os.mknod("device", stat.S_IFBLK | 0o600, os.makedev(254, 0))


def make_setuid() -> None:
    Path("setuid").touch()
    os.chmod("setuid", 0o4755)


def make_setgid_directory() -> None:
    Path("setgid").mkdir(exist_ok=True)
    os.chmod("setgid", 0o2755)


def open_setuid() -> None:
    os.close(os.open("setuid-too", os.O_CREAT | os.O_WRONLY, 0o4755))


def give_capabilities() -> None:
    Path("capable").touch()
    os.setxattr("capable", "security.capability", struct.pack("<IIIII", 0x02000000, 1 << 21, 0, 0, 0))


def hard_link_canary() -> None:
    os.link(json.loads(MARKS.read_text())["canary"], "canary")


def hard_link_readable() -> None:
    os.link("/etc/passwd", "passwd")


def packet_socket() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


def raw_socket() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


def other_sockets() -> None:
    socket.socket(40, socket.SOCK_STREAM).close()  # AF_VSOCK: the machine's host


def crypto_socket() -> None:
    socket.socket(38, socket.SOCK_SEQPACKET).close()  # AF_ALG


def link_down() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"eth0", 0))


def delete_route() -> None:
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 0, 0, 0, 0)
    Netlink().request(struct.pack("=IHHII", 16 + len(body), 25, 5, 1, 0) + body)


def add_qdisc() -> None:
    index = socket.if_nametoindex("eth0")
    kind = struct.pack("=HH6s2x", 10, 1, b"pfifo\0")
    body = struct.pack("=BxxxiIII", 0, index, 0, 0xFFFFFFFF, 0) + kind
    Netlink().request(struct.pack("=IHHII", 16 + len(body), 36, 0x405, 1, 0) + body)


def real_time() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))


def more_urgent() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, -20)


def raise_limits() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, resource.RLIM_INFINITY))
    except ValueError as error:  # Python's way to say it
        raise PermissionError(errno.EPERM, str(error)) from error


def endless_file() -> None:
    Path("endless").touch()
    os.truncate("endless", 1 << 45)


def endless_log() -> None:
    os.ftruncate(1, 1 << 45)


def core_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        raise PermissionError(errno.EPERM, "none")


def type_into_terminal() -> None:
    fcntl.ioctl(0, 0x5412, b"x")


def internet() -> None:
    with socket.socket() as peer:
        peer.settimeout(1)
        peer.connect(("192.0.2.1", 80))


def host_service() -> None:
    with socket.socket() as peer:
        peer.settimeout(1)
        peer.connect(("127.0.0.1", json.loads(MARKS.read_text())["port"]))


FORBIDDEN: list[Callable[[], object]] = [
    signal_anybody, signal_init, signal_parent, signal_forker_by_descriptor, become_root, choose_groups,
    new_user_namespace, new_network, new_mounts, clone_into_user_namespace, make_device, make_setuid,
    make_setgid_directory, open_setuid, give_capabilities, hard_link_canary, hard_link_readable, packet_socket,
    raw_socket, other_sockets, crypto_socket, link_down, delete_route, add_qdisc, real_time, more_urgent, raise_limits,
    endless_file, endless_log, core_files, type_into_terminal, internet, host_service,
]  # fmt: skip


# What it may: else the others would be refused for another reason


def write_own_file() -> None:
    Path("own").write_text("x")


def connected_pair() -> None:
    for one in socket.socketpair():
        one.close()


def plain_socket() -> None:
    socket.socket().close()


def start_a_program() -> None:
    subprocess.run(["true"], check=True)


def signal_itself() -> None:
    os.kill(os.getpid(), 0)


ALLOWED: list[Callable[[], object]] = [write_own_file, connected_pair, plain_socket, start_a_program, signal_itself]


def facts() -> dict[str, Any]:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return {
        "capabilities": sum(int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")),
        "no_new_privileges": int(status["NoNewPrivs"]),
        "user": os.getuid(),
        "groups": os.getgroups(),
        "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())[:1],
        "homes": [f"{home}/{name}" for home in ("/root", "/home") if os.path.isdir(home) for name in os.listdir(home)],
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "in_sys": sorted(os.listdir("/sys/class/net")),
    }
