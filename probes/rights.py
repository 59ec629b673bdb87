"""Privileges of the process: its identity, its priority, and dropping what it no longer needs."""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

# Priority for the threads that empty rings, and for the thread that draws the screens.
#
# Rings overflow, and the user waits for the answer to a key; other threads can wait. A higher
# priority needs a privilege (CAP_SYS_NICE), which live commands give up. Threads inherit the
# priority of the thread that starts them, and lower it themselves. `allow` sets a limit (which
# needs CAP_SYS_RESOURCE) up to which later threads may raise their priority.

NICE = -10
"""Nine times the processor share of a thread with the default 0: sched(7)."""


def allow() -> None:
    """Allow threads of this process to call `raise_own`; does nothing without the privilege."""
    limit = 20 - NICE  # as getrlimit(2) counts nice values
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NICE, (limit, limit))


def raise_own() -> None:
    """Raise the priority of this thread and of threads that it starts, if allowed."""
    with suppress(OSError):  # of the thread, not of the process: sched(7)
        os.setpriority(os.PRIO_PROCESS, 0, min(NICE, os.getpriority(os.PRIO_PROCESS, 0)))


def lower_own() -> None:
    """Reset the priority of this thread; threads that it has started keep theirs."""
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # a lower priority is always allowed


# The user that a running capture becomes, and that programs run as which read its packets.

_OVERFLOW = 65_534
"""The user and group nobody, where the system does not name them: overflowuid, proc(5)."""


class Identity(NamedTuple):
    """User and group numbers."""

    uid: int
    gid: int


def unprivileged(environment: Mapping[str, str] = os.environ) -> Identity:
    """The user that has run sudo, else nobody."""
    with suppress(KeyError, ValueError):
        user = Identity(int(environment["SUDO_UID"]), int(environment["SUDO_GID"]))
        if user.uid > 0 and user.gid > 0:
            return user
    with suppress(KeyError):
        entry = pwd.getpwnam("nobody")
        return Identity(entry.pw_uid, entry.pw_gid)
    return Identity(_OVERFLOW, _OVERFLOW)


def program_settings() -> dict[str, Any]:
    """Arguments of `subprocess` for a program that parses packets: root never runs it itself.

    A home of another user is no home for it: tshark 4.0 crashes where it may not look into it.
    """
    settings: dict[str, Any] = {}
    user = os.geteuid()
    if user == 0:
        user, group = unprivileged()
        settings = {"user": user, "group": group, "extra_groups": []}
    environment = dict(os.environ)
    try:
        foreign = os.stat(environment.get("HOME", "/")).st_uid != user
    except OSError:
        foreign = True
    if foreign:
        environment.pop("XDG_CONFIG_HOME", None)
        environment["HOME"] = "/"
        with suppress(KeyError):
            environment["HOME"] = pwd.getpwuid(user).pw_dir
    return settings | {"env": environment}


def can_write(identity: Identity, folder: Path) -> bool:
    """Whether this user may create and replace files in a folder. For root, without other threads.

    In a sticky folder of another user, such as /tmp, files of root could not be replaced.
    """
    with suppress(OSError):
        status = os.stat(folder)
        if status.st_mode & stat.S_ISVTX and status.st_uid != identity.uid:
            return False
    with _acting_as(identity):
        return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


@contextmanager
def _acting_as(identity: Identity) -> Iterator[None]:
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(identity.gid)
    os.seteuid(identity.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


# Giving up privileges that a running capture no longer needs.
#
# Attached programs stay attached, and the rings and their counters are mapped: reading
# them needs no privilege. Other tasks of the process determine what is kept:
#
# - CAP_BPF: events of queue pairs, `--counters`, detection of removed interfaces. If
#   kernel.unprivileged_bpf_disabled is set, bpf(2) needs it, before Linux 5.19 even
#   for reading.
# - WATCHING, for the helper of owners: CAP_PERFMON to watch copies of libibverbs in new
#   containers, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH to read the environment of
#   other users' processes and the files of containers.
# - LOADING: CAP_DAC_READ_SEARCH to load modules and compiled kernels from folders of root.
# - WRITING, for the process that makes files: CAP_DAC_OVERRIDE for root to create files in
#   other users' folders.
# - CLSACT: CAP_NET_ADMIN to remove a clsact filter; links need nothing.
# - ENTERING: CAP_SYS_ADMIN to do that in another network namespace, ENTERING_PROCESS:
#   CAP_SYS_PTRACE in that of a process.
#
# Root becomes an unprivileged user as well, except in the process that makes files: files and
# processes of root are then out of reach.

READING = ("CAP_BPF",)
WATCHING = ("CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH")
WRITING = ("CAP_DAC_OVERRIDE",)
CLSACT = ("CAP_NET_ADMIN",)
ENTERING = ("CAP_SYS_ADMIN",)
ENTERING_PROCESS = ("CAP_SYS_PTRACE",)
LOADING = ("CAP_DAC_READ_SEARCH",)

_NUMBERS = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_CAPBSET_READ, _CAPBSET_DROP, _SET_NO_NEW_PRIVILEGES = 23, 24, 38
_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
_KEEP_CAPABILITIES = 8
_CHANGE_OF_USER = (6, 7)  # CAP_SETGID, CAP_SETUID
_HIGHEST = 63


def becomes() -> Identity | None:
    """The user that `become_unprivileged` makes of this process; None: it stays who it is."""
    held = _held(ctypes.CDLL(None, use_errno=True))
    if os.geteuid() != 0 or not all(held >> number & 1 for number in _CHANGE_OF_USER):
        return None
    return unprivileged()


def become_unprivileged(keep: Iterable[str] = READING) -> list[str]:
    """Like `drop_privileges`; root also becomes the user that has run sudo, else nobody."""
    identity = becomes()
    return drop_privileges(keep if identity is None else (*keep, *LOADING), identity)


def drop_privileges(keep: Iterable[str] = READING, identity: Identity | None = None) -> list[str]:
    """Give up all capabilities except these, permanently; returns the remaining ones.

    identity: the user to become.

    Capabilities belong to a thread: call this before other threads start, so that
    they inherit the remaining ones, as do programs that are started later. A process
    without capabilities does not change. OSError if the kernel refuses.
    """
    wanted = set(keep)
    mask = sum(1 << _NUMBERS[name] for name in wanted)
    libc = ctypes.CDLL(None, use_errno=True)
    held = _held(libc)
    for number in range(_HIGHEST + 1):
        if not mask >> number & 1 and libc.prctl(_CAPBSET_READ, number, 0, 0, 0) == 1:
            # Fails without CAP_SETPCAP; no_new_privs is sufficient then.
            libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    _checked(libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    if identity is not None:
        _checked(libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0))
        os.setgroups([])
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
    left = held & mask
    _checked(libc.capset(_header(), _data(left)))
    return [name for name, number in _NUMBERS.items() if left >> number & 1]


def _held(libc: ctypes.CDLL) -> int:
    """Effective capabilities of this thread."""
    data = ctypes.create_string_buffer(24)
    _checked(libc.capget(_header(), data))
    low, high = struct.unpack_from("I8xI", data.raw, 4)
    return int(high) << 32 | int(low)


def _header() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("Ii", _VERSION, 0), 8)


def _data(mask: int) -> ctypes.Array[ctypes.c_char]:
    """Set effective and permitted capabilities, none inheritable; the low 32 bits first."""
    low, high = mask & 0xFFFFFFFF, mask >> 32
    return ctypes.create_string_buffer(struct.pack("6I", low, low, 0, high, high, 0), 24)


def _checked(result: int) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
