"""Requirements of live capture on this machine and process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from ...analyzer.errors import CaptureError
from .. import bpf
from ..program.program import kernel_version, strongly_ordered

OLDEST_KERNEL = (5, 15) if strongly_ordered() else (5, 18)
"""From 5.18 on atomic additions in BPF are ordered on arm64 too."""
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_PERFMON": 38, "CAP_BPF": 39}
CAP_SYS_ADMIN = 21


def effective_capabilities() -> int:
    """Bit mask of this process's effective capabilities."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    return 0


def missing_capabilities(namespaces: bool = False) -> list[str]:
    """Capabilities that live capture needs and this process lacks.

    CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON; other network `namespaces`
    need it.
    """
    held = effective_capabilities()
    is_admin = bool(held >> CAP_SYS_ADMIN & 1)
    missing = [
        name
        for name, bit in CAPABILITIES.items()
        if not held >> bit & 1 and not (is_admin and name != "CAP_NET_ADMIN")
    ]
    if namespaces and not is_admin:
        missing.append("CAP_SYS_ADMIN")
    return missing


def check(namespaces: Iterable[str | None] = ()) -> None:
    """CaptureError with the remedy if live capture cannot work here."""
    version = kernel_version()
    if version < OLDEST_KERNEL:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        raise CaptureError(
            f"live capture needs Linux {oldest} or later, this is {os.uname().release};"
            " capture with tcpdump -s 128 and analyze the file"
        )
    missing = missing_capabilities(any(namespaces))
    if missing:
        raise CaptureError(
            f"live capture needs {', '.join(missing)}: run with sudo, or give the process"
            " these capabilities (setcap, systemd AmbientCapabilities)"
        )
    try:
        os.close(bpf.create_map(bpf.MAP_RINGBUF, 0, 0, bpf.page_bytes(), name="rocescope_test"))
    except OSError as error:
        raise CaptureError(_no_ring(error)) from None


def _no_ring(error: OSError) -> str:
    match error.errno:
        case errno.ENOSYS:
            return "this kernel has no BPF (CONFIG_BPF_SYSCALL): capture with tcpdump"
        case errno.EPERM:
            return (
                "bpf(2) is refused despite the capabilities: a container's seccomp"
                " profile or kernel lockdown forbids it; run on the host or with --privileged"
            )
        case errno.EINVAL:
            return "this kernel has no BPF ring buffer: Linux 5.8 or later is needed"
        case errno.ENOMEM:
            return "no memory for BPF maps: raise the memory limit of this control group"
    return f"the BPF ring buffer does not work here: {(error.strerror or '').lower()}"
