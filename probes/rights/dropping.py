"""Giving up privileges that a running capture no longer needs.

Attached programs stay attached, and the rings and their counters are mapped: reading
them needs no privilege. Other tasks of the process determine what is kept:

- CAP_BPF: events of queue pairs, `--counters`, detection of removed interfaces. If
  kernel.unprivileged_bpf_disabled is set, bpf(2) needs it, before Linux 5.19 even
  for reading.
- WATCHING, for the helper of owners: CAP_PERFMON to watch copies of libibverbs in new
  containers, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH to read the environment of
  other users' processes and the files of containers.
- LOADING: CAP_DAC_READ_SEARCH to load modules and compiled kernels from folders of root.
- WRITING, for the process that makes files: CAP_DAC_OVERRIDE for root to create files in
  other users' folders.
- CLSACT: CAP_NET_ADMIN to remove a clsact filter; links need nothing.
- ENTERING: CAP_SYS_ADMIN to do that in another network namespace, ENTERING_PROCESS:
  CAP_SYS_PTRACE in that of a process.

Root becomes an unprivileged user as well, except in the process that makes files: files and
processes of root are then out of reach.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from .identity import Identity, unprivileged

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
