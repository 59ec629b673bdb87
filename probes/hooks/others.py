"""Programs of others that run before our probes: what they drop or redirect, no probe sees.

XDP programs run before all others, tcx before the filters of the qdisc (Documentation/bpf,
net/core/dev.c). Each looks at the packets of one interface in one direction.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ...analyzer.errors import CaptureError
from .. import bpf
from .attach import ATTACH_TYPES, Attachment, Direction, directions_of
from .clsact import PARENTS, PRIORITY, read_attributes
from .interfaces import Interface, in_namespace

_GET_LINK, _GET_FILTER, _REQUEST, _DUMP = 18, 46, 0x1, 0x300
_DONE, _ERROR = 3, 2
_XDP, _XDP_PROGRAMS = 43, (4, 5, 6, 7)  # IFLA_XDP and the program ids inside
_KIND, _OPTIONS, _BPF_NAME, _BPF_ID = 1, 2, 7, 11
_OURS = "rocescope"
_MOST_IDS = 64
_LOOK_EVERY_S = 1.0


class Program(NamedTuple):
    """A program or filter of others."""

    where: str
    """xdp, tcx or tc."""
    number: int
    """Its id in the kernel (`bpftool prog`); 0 for a filter that is no program."""
    name: str
    """Empty if this process may not ask for it."""

    def __str__(self) -> str:
        words = [self.where, f"id {self.number}" if self.number else "", self.name]
        return " ".join(word for word in words if word)


class OthersBefore:
    """What runs before some attached probes.

    Entering namespaces and asking for names and for tcx needs privileges: they are asked when
    this is made. `lines` notices XDP programs and tc filters that come later. Any thread may ask.
    """

    def __init__(self, attachments: Iterable[Attachment]) -> None:
        self._probes: list[tuple[Attachment, socket.socket, list[Program]]] = []
        self._names: dict[int, str] = {}
        self._seen: dict[str, None] = {}
        self._looked = float("-inf")
        self._lock = threading.Lock()
        for attachment in attachments:
            label = attachment.interface.namespace
            with suppress(CaptureError):  # the namespace is gone
                asked = in_namespace(label, _route)
                early = in_namespace(label, partial(_tcx_before, attachment))
                self._probes.append((attachment, asked, early))
        self.lines()

    def lines(self) -> list[str]:
        """One line per interface and program that was there at any time, for users."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= _LOOK_EVERY_S:
                self._looked = now
                self._look()
            return list(self._seen)

    def _look(self) -> None:
        for attachment, route, early in self._probes:
            programs = list(early)
            with suppress(OSError):
                programs += _netlink_before(route, attachment)
            for program in programs:
                name = self._name(program)
                if not name.startswith(_OURS):
                    self._seen[_line(attachment, program._replace(name=name))] = None

    def _name(self, program: Program) -> str:
        if program.name or not program.number:
            return program.name
        if program.number not in self._names:
            self._names[program.number] = program_name(program.number)
        return self._names[program.number]

    def close(self) -> None:
        """Look no longer; what was seen stays."""
        with self._lock:
            for _, route, _ in self._probes:
                route.close()
            self._probes.clear()


def programs_on(interface: Interface) -> list[Program]:
    """All programs of others on an interface of this thread's namespace."""
    programs: list[Program] = []
    with _route() as route:
        programs += _xdp(route, interface.ifindex)
        for direction in directions_of("tc"):
            for number in _tcx(interface.ifindex, direction):
                programs.append(Program("tcx", number, ""))
            programs += [p for _, p in _filters(route, interface.ifindex, direction)]
    named = [p if p.name else p._replace(name=program_name(p.number)) for p in programs]
    return [program for program in named if not program.name.startswith(_OURS)]


def program_name(number: int) -> str:
    """The name of a program; empty if it has none or this process may not ask (CAP_SYS_ADMIN)."""
    try:
        descriptor = bpf.program_by_id(number)
    except OSError:
        return ""
    try:
        return bpf.object_info(descriptor)[64:80].split(b"\0")[0].decode(errors="replace")
    finally:
        os.close(descriptor)


def _line(attachment: Attachment, program: Program) -> str:
    return (
        f"another program ({program}) runs before ours on {attachment.interface.label}"
        f" {attachment.direction}; packets that it drops, redirects or keeps from later programs"
        " are not seen"
    )


def _netlink_before(route: socket.socket, attachment: Attachment) -> Iterator[Program]:
    ifindex = attachment.interface.ifindex
    if attachment.hook.startswith("xdp"):
        return
    if attachment.direction == "in":
        yield from _xdp(route, ifindex)
    if attachment.filter is not None:
        for priority, program in _filters(route, ifindex, attachment.direction):
            if priority < PRIORITY:
                yield program


def _tcx_before(attachment: Attachment) -> list[Program]:
    if attachment.hook.startswith("xdp"):
        return []
    ids = _tcx(attachment.interface.ifindex, attachment.direction)
    if attachment.link >= 0:
        own_id = struct.unpack_from("I", bpf.object_info(attachment.link, 64), 8)[0]
        ids = ids[: ids.index(own_id)] if own_id in ids else ids
    return [Program("tcx", number, program_name(number)) for number in ids]


def _tcx(ifindex: int, direction: Direction) -> list[int]:
    """Ids in the order in which they run; empty without tcx (before Linux 6.6)."""
    ids = (ctypes.c_uint32 * _MOST_IDS)()
    try:
        count = bpf.query(ifindex, ATTACH_TYPES[direction], ctypes.addressof(ids), _MOST_IDS)
    except OSError:
        return []
    return list(ids[:count])


def _xdp(route: socket.socket, ifindex: int) -> Iterator[Program]:
    for _, attributes in _asked(route, _GET_LINK, 0, struct.pack("BxHiII", 0, 0, ifindex, 0, 0)):
        xdp = dict(read_attributes(attributes)).get(_XDP, b"")
        numbers = {
            struct.unpack("I", value)[0]
            for kind, value in read_attributes(xdp)
            if kind in _XDP_PROGRAMS
        }
        for number in sorted(numbers - {0}):
            yield Program("xdp", number, "")


def _filters(
    route: socket.socket, ifindex: int, direction: Direction
) -> Iterator[tuple[int, Program]]:
    """Priority and filter."""
    about = struct.pack("BxxxiIII", 0, ifindex, 0, PARENTS[direction], 0)
    for head, body in _asked(route, _GET_FILTER, _DUMP, about):
        fields = dict(read_attributes(body))
        options = dict(read_attributes(fields.get(_OPTIONS, b"")))
        number = struct.unpack("I", options[_BPF_ID])[0] if _BPF_ID in options else 0
        name = options.get(_BPF_NAME, fields.get(_KIND, b"")).rstrip(b"\0").decode(errors="replace")
        handle, _, info = struct.unpack_from("III", head, 8)
        if handle:  # else it stands for all filters of its priority
            yield info >> 16, Program("tc", number, name)


def _route() -> socket.socket:
    route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    route.settimeout(1)
    return route


def _asked(
    route: socket.socket, kind: int, flags: int, about: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """The head and the attributes of each answer to a request."""
    length = 16 + len(about)
    route.send(struct.pack("IHHII", length, kind, _REQUEST | flags, 1, 0) + about)
    while True:
        answer = route.recv(1 << 20)
        while len(answer) >= 16:
            size, answered = struct.unpack_from("IH", answer)
            if answered in (_DONE, _ERROR) or size < 16:
                return
            yield answer[16 : 16 + len(about)], answer[16 + len(about) : size]
            answer = answer[size + 3 & ~3 :]
        if not flags & _DUMP:
            return
