"""The clsact qdisc: attached, shared with others, and removed again.

A filter is not a BPF link: it stays after the process is killed, until
`Guard` removes it. Layouts: linux/rtnetlink.h, linux/pkt_sched.h, linux/pkt_cls.h.
"""
# pyroute2 0.9.7 takes 240 ms and 19 MB in each guard, one process for each filter: 3.5 and 4 times.

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from ...analyzer.errors import CaptureError
from ..rights import CLSACT, become_unprivileged
from .interfaces import in_namespace, privileges_to_enter

_NEW_QDISC, _DELETE_QDISC, _NEW_FILTER, _DELETE_FILTER, _GET_FILTER = 36, 37, 44, 45, 46
_REQUEST, _ACKNOWLEDGE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_DUMP = 0x300
_KIND, _OPTIONS = 1, 2
_TYPE_BITS = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER
_BPF_FD, _BPF_NAME, _BPF_FLAGS = 6, 7, 8
_DIRECT_ACTION = 1
_CLSACT, _CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
PARENTS = {"in": 0xFFFFFFF2, "out": 0xFFFFFFF3}
_ALL_PROTOCOLS = 0x0300  # ETH_P_ALL in network order
_NAME, _NAME_WITH_QDISC = b"rocescope\0", b"rocescope_qdisc\0"
"""The second: the qdisc is there for captures only, and the last one removes it."""
PRIORITY = 0xC001
"""After filters that users add."""
_HANDLES = range(1, 257)
"""Captures on one interface at the same time have the same priority and different handles."""
_INFO = PRIORITY << 16 | _ALL_PROTOCOLS


@dataclass(frozen=True, slots=True)
class ClsactFilter:
    """A filter attached by rocescope."""

    ifindex: int
    direction: str
    handle: int
    """Its own. Without the handle, a request to delete takes all filters of the priority."""
    made_qdisc: bool
    """Whether the qdisc was created for it, or for another capture."""


def add_filter(program: int, ifindex: int, direction: str) -> ClsactFilter:
    """Attach a program to an interface of this thread's namespace."""
    flags = _EXCLUSIVE | _CREATE
    made_qdisc = _ask(_NEW_QDISC, flags, ifindex, _CLSACT, _CLSACT_HANDLE, 0, _kind(b"clsact"))
    if any(_NAME_WITH_QDISC in _filters(ifindex, parent) for parent in PARENTS.values()):
        made_qdisc = True
    options = (
        encode_attribute(_BPF_FD, struct.pack("I", program))
        + encode_attribute(_BPF_NAME, _NAME_WITH_QDISC if made_qdisc else _NAME)
        + encode_attribute(_BPF_FLAGS, struct.pack("I", _DIRECT_ACTION))
    )
    attributes = _kind(b"bpf") + encode_attribute(_OPTIONS, options)
    for handle in _HANDLES:
        if _ask(_NEW_FILTER, flags, ifindex, PARENTS[direction], handle, _INFO, attributes):
            return ClsactFilter(ifindex, direction, handle, made_qdisc)
    raise OSError(errno.EBUSY, "too many captures")


def is_attached(filter: ClsactFilter) -> bool:
    """Whether a filter is still there: other programs may remove it, or the whole qdisc."""
    with _request(
        _GET_FILTER, 0, filter.ifindex, PARENTS[filter.direction], filter.handle, _INFO, b""
    ) as answers:
        return _code(answers.recv(65536)) == _NEW_FILTER


def delete_filter(filter: ClsactFilter) -> None:
    """Remove a filter, and its qdisc if that was created for it and has no other filters.

    A filter or interface that is already gone is not an error.
    """
    parent = PARENTS[filter.direction]
    with _already_gone():
        _ask(_DELETE_FILTER, 0, filter.ifindex, parent, filter.handle, _INFO, _kind(b"bpf"))
    if filter.made_qdisc:
        delete_unused_qdisc(filter.ifindex)


def delete_unused_qdisc(ifindex: int) -> bool:
    """Remove the qdisc of an interface if it has no filters; returns whether it is gone."""
    with _already_gone():
        if any(_filters(ifindex, parent) for parent in PARENTS.values()):
            return False
        _ask(_DELETE_QDISC, 0, ifindex, _CLSACT, _CLSACT_HANDLE, 0, _kind(b"clsact"))
    return True


@contextmanager
def _already_gone() -> Iterator[None]:
    """Ignore the error that the object to delete is already gone."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EINVAL):
            raise


def _filters(ifindex: int, parent: int) -> bytes:
    """The first filters of an interface, as the kernel describes them; empty without filters."""
    with _request(_GET_FILTER, _DUMP, ifindex, parent, 0, 0, b"") as answers:
        answer = answers.recv(65536)
    return answer if _code(answer) == _NEW_FILTER else b""


def _code(answer: bytes) -> int:
    """The type of the first message."""
    code: int = struct.unpack_from("H", answer, 4)[0]
    return code


def _kind(name: bytes) -> bytes:
    return encode_attribute(_KIND, name + b"\0")


def encode_attribute(kind: int, value: bytes) -> bytes:
    """An attribute of a netlink message."""
    length = len(value) + 4
    return struct.pack("HH", length, kind) + value + bytes(-length % 4)


def read_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and value of the attributes of a netlink message, as far as they are complete."""
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("HH", data, at)
        if length < 4 or at + length > len(data):
            return
        yield kind & _TYPE_BITS, data[at + 4 : at + length]
        at += length + -length % 4


def _ask(
    kind: int, flags: int, ifindex: int, parent: int, handle: int, info: int, attributes: bytes
) -> bool:
    """Send one request; False if the object to create exists already."""
    flags |= _ACKNOWLEDGE
    with _request(kind, flags, ifindex, parent, handle, info, attributes) as answers:
        answer = answers.recv(65536)
    error: int = -struct.unpack_from("i", answer, 16)[0]
    if error == errno.EEXIST:
        return False
    if error:
        raise OSError(error, os.strerror(error))
    return True


def _request(
    kind: int, flags: int, ifindex: int, parent: int, handle: int, info: int, attributes: bytes
) -> socket.socket:
    """A socket that receives the answers to one request."""
    message = struct.pack("B3xiIII", socket.AF_UNSPEC, ifindex, handle, parent, info) + attributes
    header = struct.pack("IHHII", 16 + len(message), kind, _REQUEST | flags, 1, 0)
    answers = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    try:
        answers.bind((0, 0))
        answers.send(header + message)
    except BaseException:
        answers.close()
        raise
    return answers


# A process that removes a clsact filter after the process that attached it was killed.
#
# A filter is not a BPF link: the kernel does not remove it with the process. So a second process
# waits for the end of the first, unless the first reports that it has removed the filter.

_REMOVED = b"removed\n"
_OTHERS_TAKE_S = 60.0
"""Longest wait for the guard of the other direction, whose filter is on the same qdisc: on a busy
machine its process may start seconds later."""


class Guard:
    """Guards one filter, with the privileges that its removal needs."""

    def __init__(self, added: ClsactFilter, namespace: str | None) -> None:
        what = json.dumps([namespace, asdict(added)])
        # Its own session protects it from Ctrl-C and the end of the terminal.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, what],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def end(self) -> None:
        """End the guard after the filter was removed."""
        with suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.communicate(_REMOVED, timeout=5)


def main() -> None:
    """Remove the filter if standard input ends without a report."""
    namespace, added = json.loads(sys.argv[1])
    become_unprivileged(CLSACT + privileges_to_enter(namespace))
    if sys.stdin.buffer.read() != _REMOVED:
        with suppress(CaptureError, OSError):  # it was removed with its interface or namespace
            in_namespace(namespace, lambda: _remove(ClsactFilter(**added)))


def _remove(filter: ClsactFilter) -> None:
    delete_filter(filter)
    ends = time.monotonic() + _OTHERS_TAKE_S
    while filter.made_qdisc and not delete_unused_qdisc(filter.ifindex):
        if time.monotonic() > ends:  # other programs use it
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main()
