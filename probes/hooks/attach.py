"""Probes at the hooks of interfaces, by BPF links: the kernel detaches them with the process.

If the kernel has no tcx links, a guard process replaces the link.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from ...analyzer.errors import CaptureError
from .. import bpf, rights
from ..program.program import Compiled
from . import clsact
from .clsact import Guard
from .interfaces import Interface, in_namespace, privileges_to_enter

Hook: TypeAlias = Literal["tc", "xdp", "xdp-generic", "clsact"]
"""tc: tcx if the kernel has it, else clsact. xdp: native, else generic."""
Direction: TypeAlias = Literal["in", "out"]

GONE = "has disappeared, or another program has removed its probes"
"""What `gone` means, after the name of the interface."""

ATTACH_TYPES = {"in": bpf.ATTACH_TCX_INGRESS, "out": bpf.ATTACH_TCX_EGRESS}
# Ingress: before other programs, which may drop packets. Egress: after them.
_PLACES = {"in": bpf.BEFORE, "out": bpf.AFTER}
_NO_TCX = (errno.EINVAL, errno.EOPNOTSUPP)
_NO_NATIVE_XDP = (errno.EOPNOTSUPP, errno.ERANGE, errno.EINVAL, errno.ENOTSUP)


def gone_text(labels: Sequence[str]) -> str:
    """What `gone` means for these interfaces; of many the names come last, where texts are cut."""
    if len(labels) < 2:
        return f"{labels[0]} {GONE}" if labels else ""
    what = "interfaces have disappeared, or another program has removed their probes"
    return f"{len(labels)} {what}: {', '.join(labels)}"


def directions_of(hook: Hook) -> tuple[Direction, ...]:
    return ("in",) if hook.startswith("xdp") else ("in", "out")


@dataclass(slots=True)
class Attachment:
    """One probe at one hook."""

    interface: Interface
    direction: Direction
    hook: str
    """The actual hook: tcx, clsact, xdp native or xdp generic."""
    link: int
    """Descriptor of the BPF link; -1 for clsact, and after it is closed."""
    filter: clsact.ClsactFilter | None = None
    guard: Guard | None = None
    """The guard of a clsact filter."""

    def gone(self) -> bool:
        """Whether the interface has disappeared, or another program has removed the probe."""
        if self.link >= 0:
            return _link_ifindex(self.link) == 0
        if self.filter is None:
            return False
        try:
            is_attached = partial(clsact.is_attached, self.filter)
            return not in_namespace(self.interface.namespace, is_attached)
        except CaptureError:
            return True  # the namespace is gone

    def close(self) -> None:
        """Detach the probe."""
        if self.link >= 0:
            link, self.link = self.link, -1  # first: a second Ctrl-C may interrupt the rest
            os.close(link)
        if self.filter is not None:
            remove = partial(clsact.delete_filter, self.filter)
            self.filter = None
            with suppress(CaptureError):  # the namespace is gone
                in_namespace(self.interface.namespace, remove)
        if self.guard is not None:
            self.guard.end()
            self.guard = None


def privileges_of(attachments: Iterable[Attachment]) -> tuple[str, ...]:
    """Capabilities that are still needed after everything is attached."""
    hung = [a for a in attachments if a.filter is not None]
    needed = rights.READING + (rights.CLSACT if hung else ())
    for attachment in hung:
        needed += privileges_to_enter(attachment.interface.namespace)
    return needed


def attach(
    compiled: Compiled, interface: Interface, direction: Direction, hook: Hook, tap: int
) -> Attachment:
    """Attach a probe that writes records of `tap`; CaptureError names the reason of a failure."""
    if hook.startswith("xdp"):
        program = compiled.load_xdp(tap)
        how = partial(_attach_xdp, program, interface, direction, hook == "xdp-generic")
    else:
        program = compiled.load_tc(tap)
        how = partial(_attach_tc, program, interface, direction, hook == "clsact")
    try:
        made = in_namespace(interface.namespace, how)
    finally:
        os.close(program)  # the link or filter holds a reference
    if made.filter is not None:  # outside: a process inside would keep the namespace alive
        made.guard = Guard(made.filter, interface.namespace)
    return made


def _attach_tc(
    program: int, interface: Interface, direction: Direction, clsact_only: bool
) -> Attachment:
    if not clsact_only:
        try:
            link = bpf.create_link(
                program, interface.ifindex, ATTACH_TYPES[direction], _PLACES[direction]
            )
            return Attachment(interface, direction, "tcx", link)
        except OSError as error:
            if error.errno not in _NO_TCX:
                raise _refused(error, interface, "tcx") from None
    try:
        added = clsact.add_filter(program, interface.ifindex, direction)
    except OSError as error:
        raise _refused(error, interface, "clsact") from None
    return Attachment(interface, direction, "clsact", -1, added)


def _attach_xdp(
    program: int, interface: Interface, direction: Direction, generic: bool
) -> Attachment:
    modes = [("xdp native", bpf.XDP_NATIVE), ("xdp generic", bpf.XDP_GENERIC)]
    for hook, flag in modes[generic:]:
        try:
            link = bpf.create_link(program, interface.ifindex, bpf.ATTACH_XDP, flag)
        except OSError as error:
            if flag == bpf.XDP_NATIVE and error.errno in _NO_NATIVE_XDP:
                continue
            raise _refused(error, interface, hook) from None
        return Attachment(interface, direction, hook, link)
    raise AssertionError("the last mode returns or raises")


def _refused(error: OSError, interface: Interface, hook: str) -> CaptureError:
    name = interface.label
    if error.errno in (errno.EBUSY, errno.EEXIST) and hook.startswith("xdp"):
        return CaptureError(
            f"{name} already has an XDP program: use --hook tc, which works beside it"
        )
    if error.errno == errno.EPERM:
        return CaptureError(f"no permission to attach to {name}: run with sudo (CAP_NET_ADMIN)")
    if error.errno == errno.ENODEV:
        return CaptureError(f"interface {name} has disappeared")
    what = (error.strerror or str(error)).lower()
    return CaptureError(f"cannot attach to {name} ({hook}): {what}")


def _link_ifindex(link: int) -> int:
    """The interface of a link; 0 if it is gone."""
    info = bpf.object_info(link, 64)
    # struct bpf_link_info: type, id, prog_id, padding, then ifindex for both xdp and tcx.
    ifindex: int = struct.unpack_from("I", info, 16)[0]
    return ifindex
