"""Which system calls a worker may not make: a classic BPF filter, installed with prctl(2).

What is listed answers EPERM, as it would for an ordinary user on a hardened system; the rest is allowed. A program that
asks for clone3(2) or openat2(2), whose arguments a filter cannot see, is told that there are none (ENOSYS), and falls
back to the calls that can be looked at. Confinement calls `install` last, when nothing of this is needed any more.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # where they are in struct seccomp_data
_X32 = 0x40000000  # the bit of the other calling convention of x86_64
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* that clone(2) takes; NEWTIME is a signal there
_SETUID_SETGID = 0o6000
_CREATES = os.O_CREAT | 0o20000000  # __O_TMPFILE
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# (x86_64, aarch64); None: it has no such call
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # others' memory and descriptors
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # keys of the kernel's keyrings, which are the user's, not the namespace's
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # memory and queues that outlive their process: a container's next worker would find them
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # parts of the kernel where most of its holes were, and what goes round this filter
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "modify_ldt": (154, None),
    "fanotify_init": (300, 262),
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # the machine itself
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
}
_UNKNOWN = {"clone3": (435, 435), "openat2": (437, 437)}
_SOCKET, _CLONE, _IOCTL = (41, 198), (56, 220), (16, 29)
# Which argument is the mode of a file; of those that open one, which says whether it is made
_MODES: dict[str, tuple[int, int | None, int]] = {
    "chmod": (90, None, 1),
    "fchmod": (91, 52, 1),
    "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2),
    "creat": (85, None, 1),
    "mknod": (133, None, 1),
    "mknodat": (259, 33, 2),
}
_OPENS: dict[str, tuple[int, int | None, int, int]] = {"open": (2, None, 1, 2), "openat": (257, 56, 2, 3)}
FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)  # the last one: which interfaces there are


def install(*, unix_sockets: bool = False) -> list[str]:
    """Filter the system calls of this process and all that it starts, for good; return what could not be enforced, in
    words. `unix_sockets`: allow them; pairs of connected ones are always allowed."""
    machine = os.uname().machine
    if machine not in _AUDIT:
        return [f"the worker may make every system call: no filter is known for {machine}"]
    families = (*FAMILIES, socket.AF_UNIX) if unix_sockets else FAMILIES
    code = program(machine, families)
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions)))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) != 0:
        return [f"the worker may make every system call: {os.strerror(ctypes.get_errno())}"]
    return []


def program(machine: str, families: tuple[int, ...]) -> bytes:
    """Return the filter's instructions."""
    which = list(_AUDIT).index(machine)
    refuse, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, _AUDIT[machine], 1, 0),
        _step(_RETURN, refuse),
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        code += [_step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, refuse)]
    for numbers, answer in [
        *((one, refuse) for one in _DENIED.values()),
        *((one, unknown) for one in _UNKNOWN.values()),
    ]:
        if (number := numbers[which]) is not None:
            code += [_step(_EQUAL, number, 0, 1), _step(_RETURN, answer)]
    code += _if(_SOCKET[which], [_argument(0), *_unless_one_of(families, refuse)])
    code += _if(_CLONE[which], [_argument(0), *_refuse_bits(_NEW_NAMESPACES, refuse)])
    code += _if(_IOCTL[which], [_argument(1), *_refuse_values((_TIOCSTI, _TIOCLINUX), refuse)])
    for *calls, mode in _MODES.values():
        code += _if(calls[which], [_argument(mode), *_refuse_bits(_SETUID_SETGID, refuse)])
    for *calls, flags, mode in _OPENS.values():
        made = [_argument(flags), _step(_ANY_BIT, _CREATES, 1, 0), _step(_RETURN, _ALLOW)]
        code += _if(calls[which], [*made, _argument(mode), *_refuse_bits(_SETUID_SETGID, refuse)])
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _step(operation: int, operand: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Return one instruction; the last two arguments say how many to skip."""
    return struct.pack("=HBBI", operation, then, otherwise, operand)


def _if(number: int | None, body: list[bytes]) -> list[bytes]:
    """Apply the body to this call only."""
    return [] if number is None else [_step(_EQUAL, number, 0, len(body)), *body]


def _argument(index: int) -> bytes:
    """Load the lower half of an argument; the kernel uses no more of these."""
    return _step(_LOAD, 16 + 8 * index)


def _unless_one_of(values: tuple[int, ...], answer: int) -> list[bytes]:
    tests = [_step(_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)]
    return [*tests, _step(_RETURN, answer), _step(_RETURN, _ALLOW)]


def _refuse_values(values: tuple[int, ...], answer: int) -> list[bytes]:
    tests = [_step(_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)]
    return [*tests, _step(_RETURN, _ALLOW), _step(_RETURN, answer)]


def _refuse_bits(bits: int, answer: int) -> list[bytes]:
    return [_step(_ANY_BIT, bits, 0, 1), _step(_RETURN, answer), _step(_RETURN, _ALLOW)]
