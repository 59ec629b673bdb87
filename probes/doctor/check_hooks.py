"""Hooks for probes, tested without affecting traffic."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading

from ...analyzer.errors import CaptureError
from ...analyzer.words import printable
from .. import bpf
from ..hooks.interfaces import Interface
from ..hooks.others import programs_on
from ..owners.elf import ElfError, defaults, exported_functions
from ..owners.libraries import all_libraries
from ..owners.perf import PROG_KPROBE, attach_uprobe
from ..program.program import kernel_version
from .check_kernel import RETURN_0
from .diagnosis import NO_OWNERS, SUDO, Check

_CLONE_NEWNET = 0x40000000
_LOOPBACK = 1  # its number in every new network namespace
_RARELY_CALLED = "ibv_port_state_str"


def tc_hook() -> Check:
    """How tc programs attach."""
    tried = _try_link(bpf.PROG_SCHED_CLS, bpf.ATTACH_TCX_INGRESS, 0)
    if tried == 0:
        return Check("tc hook", "ok", "tcx links: the kernel removes probes when the process ends")
    if tried == errno.EPERM:
        return Check("tc hook", "missing", "no permission to try", False, None, SUDO)
    return Check(
        "tc hook",
        "limited",
        "clsact, no tcx",
        False,
        "a guard process, not the kernel, removes probes after a killed capture",
        "Linux 6.6 or later has tcx",
    )


def xdp_hook() -> Check:
    """How XDP programs attach."""
    tried = _try_link(bpf.PROG_XDP, bpf.ATTACH_XDP, bpf.XDP_GENERIC)
    if tried == 0:
        jumbo = "jumbo frames too" if kernel_version() >= (5, 18) else "no jumbo frames"
        return Check("XDP hook", "ok", f"XDP links, {jumbo}")
    if tried == errno.EPERM:
        return Check("XDP hook", "missing", "no permission to try", False, None, SUDO)
    what = errno.errorcode.get(tried, str(tried))
    return Check(
        "XDP hook",
        "limited",
        f"refused: {what}",
        False,
        "--hook xdp does not work",
        "use --hook tc",
    )


def other_programs() -> Check:
    """Programs of others at the interfaces of this network namespace, which run before probes."""
    name, texts = "other programs", []
    for number, interface in socket.if_nameindex():
        programs = programs_on(Interface(interface, None, number, None))
        texts += [f"{interface}: {program}" for program in programs]
    if not texts:
        return Check(name, "ok", "none at any interface of this network namespace")
    return Check(
        name,
        "limited",
        printable("; ".join(texts)),
        False,
        "packets that they drop, redirect or keep from later programs are not seen",
    )


def uprobes() -> Check:
    """A short test probe on a function that is hardly ever called."""
    name = "uprobes"
    path, offset = _probe_place()
    if path is None:
        return Check(name, "limited", "not tried: no libibverbs", False, NO_OWNERS)
    try:
        program = bpf.load_program(PROG_KPROBE, RETURN_0, name="rocescope_test")
        try:
            os.close(attach_uprobe(program, path, offset, on_return=False))
        finally:
            os.close(program)
    except CaptureError:
        return Check(
            name, "limited", "the kernel has none", False, NO_OWNERS, "CONFIG_UPROBE_EVENTS"
        )
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            more = f"{SUDO}; kernels since mid-2025 ask for CAP_SYS_ADMIN here"
            return Check(name, "missing", "no permission to try", False, NO_OWNERS, more)
        what = (error.strerror or str(error)).lower()
        return Check(name, "limited", f"refused: {what}", False, NO_OWNERS)
    return Check(name, "ok", "work, without tracefs")


def _try_link(kind: int, attach_type: int, flags: int) -> int:
    """The error number of attaching to an interface, 0 when it works.

    The test uses the loopback interface of a new network namespace, so that no
    real traffic reaches the program. A new namespace needs CAP_SYS_ADMIN: without
    it only loading is tested.
    """
    try:
        program = bpf.load_program(
            kind, RETURN_0, name="rocescope_test", attach_type=attach_type if flags else 0
        )
    except OSError as error:
        return error.errno or errno.EINVAL
    results: list[int] = []
    thread = threading.Thread(
        target=lambda: results.append(_link_in_new_namespace(program, attach_type, flags))
    )
    thread.start()  # the namespace is the thread's own, and ends with it
    thread.join()
    os.close(program)
    return results[0] if results else errno.EINVAL


def _link_in_new_namespace(program: int, attach_type: int, flags: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        return 0
    try:
        os.close(bpf.create_link(program, _LOOPBACK, attach_type, flags))
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


def _probe_place() -> tuple[str | None, int]:
    for path in all_libraries():
        try:
            symbols = defaults(exported_functions(path))
        except (ElfError, OSError):
            continue
        if _RARELY_CALLED in symbols:
            return path, symbols[_RARELY_CALLED].file_offset
    return None, 0
