"""The kernel and the operations it allows this process, tested by execution if possible."""

from __future__ import annotations

import errno
import gzip
import os
import platform
import re
import resource
from pathlib import Path

from .. import bpf
from ..program.program import kernel_version, strongly_ordered
from ..rights import privileges
from ..rings.rings import Rings
from .diagnosis import SUDO, Check

RETURN_0 = bytes.fromhex("b700000000000000 9500000000000000")
"""A program of two instructions: result 0, exit."""
_ATOMIC = bytes.fromhex(
    "7a0af8ff00000000 b701000000000000"  # *(u64 *)(r10 - 8) = 0; r1 = 1
    "db1af8ff01000000"  # r1 = atomic_fetch_add(r10 - 8, r1)
)
"""Precedes RETURN_0: an instruction that probes on some processors need."""

_OPTIONS = ("BPF_SYSCALL", "BPF_JIT", "NET_CLS_BPF", "NET_SCH_INGRESS", "UPROBE_EVENTS")


def kernel() -> Check:
    """The kernel's version."""
    release = f"Linux {os.uname().release} on {platform.machine()}"
    if kernel_version() >= privileges.OLDEST_KERNEL:
        return Check("kernel", "ok", release, True)
    oldest = ".".join(map(str, privileges.OLDEST_KERNEL))
    return Check(
        "kernel",
        "missing",
        release,
        True,
        f"live capture needs Linux {oldest} or later",
        "capture with tcpdump -s 128 and analyze the file",
    )


def capabilities() -> Check:
    """Privileges of this process."""
    missing = privileges.missing_capabilities()
    if missing:
        return Check(
            "capabilities",
            "missing",
            f"without {', '.join(missing)}",
            True,
            "the kernel does not allow loading or attaching probes without them",
            f"{SUDO}, or give CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
        )
    held = privileges.effective_capabilities()
    if not held >> privileges.CAP_SYS_ADMIN & 1:
        return Check(
            "capabilities",
            "limited",
            "CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON",
            True,
            "other network namespaces need CAP_SYS_ADMIN, ranks of other users' processes"
            " CAP_SYS_PTRACE",
            f"{SUDO} if these are needed",
        )
    return Check("capabilities", "ok", "all present", True)


def unprivileged_bpf() -> Check:
    """Whether unprivileged users may use BPF; for information only."""
    try:
        value = Path("/proc/sys/kernel/unprivileged_bpf_disabled").read_text().strip()
    except OSError:
        return Check("unprivileged bpf", "ok", "the kernel has no such setting")
    text = {"0": "allowed", "1": "off until reboot", "2": "off"}.get(value, value)
    return Check("unprivileged bpf", "ok", f"{text}; probes do not need it")


def locked_memory() -> Check:
    """Whether large rings fit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"
    if kernel_version() >= (5, 11):
        return Check("locked memory", "ok", f"{limit}; this kernel accounts maps elsewhere")
    if soft == resource.RLIM_INFINITY or soft >= 1 << 30:
        return Check("locked memory", "ok", limit)
    return Check(
        "locked memory", "limited", limit, False, "large rings may not fit", "ulimit -l unlimited"
    )


def loading() -> Check:
    """Loading of programs into the kernel, tested by execution."""
    name = "loading"
    code = RETURN_0 if strongly_ordered() else _ATOMIC + RETURN_0
    try:
        for kind in (bpf.PROG_SCHED_CLS, bpf.PROG_XDP):
            os.close(bpf.load_program(kind, code, name="rocescope_test"))
    except OSError as error:
        return _refused(name, error)
    return Check(name, "ok", "the kernel takes tc and XDP programs", True)


def ring_buffer() -> Check:
    """Rings for every CPU and the bell that wakes their reader, tested by creation."""
    name = "ring buffer"
    try:
        Rings(range(bpf.possible_cpus()), bpf.page_bytes(), 1).close()
    except OSError as error:
        return _refused(name, error)
    return Check(name, "ok", f"one for each of {bpf.possible_cpus()} CPUs", True)


def _refused(name: str, error: OSError) -> Check:
    what = errno.errorcode.get(error.errno or 0, "") or str(error)
    if error.errno != errno.EPERM:
        remedy = "update the kernel, or one with CONFIG_BPF_SYSCALL"
        return Check(name, "missing", f"refused: {what}", True, "probes cannot run", remedy)
    if privileges.missing_capabilities():
        return Check(name, "missing", "no permission to try", True, None, SUDO)
    return Check(
        name,
        "missing",
        f"refused despite the capabilities: {what}",
        True,
        "a container's seccomp profile or kernel lockdown forbids bpf(2)",
        "run on the host, or the container with --privileged",
    )


def btf() -> Check:
    """Type information, which the probes do not need."""
    there = os.path.exists("/sys/kernel/btf/vmlinux")
    return Check("BTF", "ok", "present, not needed" if there else "none, and none needed")


def kernel_options() -> Check:
    """Build options of the kernel, if readable."""
    name = "kernel options"
    text = _configuration_text()
    if text is None:
        return Check(name, "ok", "not readable; the features were tested instead")
    missing = [o for o in _OPTIONS if not re.search(rf"^CONFIG_{o}=[ym]$", text, re.MULTILINE)]
    if not missing:
        return Check(name, "ok", "all present")
    names = ", ".join(f"CONFIG_{option}" for option in missing)
    meaning = "features that need them are limited, see the other lines"
    return Check(name, "limited", f"without {names}", False, meaning, None)


def _configuration_text() -> str | None:
    try:
        with gzip.open("/proc/config.gz", "rt", encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        pass
    try:
        return Path(f"/boot/config-{os.uname().release}").read_text(errors="replace")
    except OSError:
        return None


def tracefs() -> Check:
    """Whether tracefs is mounted; for information only."""
    if os.path.isdir("/sys/kernel/tracing/events"):
        return Check("tracefs", "ok", "mounted, not needed")
    hint = "not visible" if os.geteuid() else "not mounted"
    return Check("tracefs", "ok", f"{hint}, not needed")


def clock() -> Check:
    """The clock source of timestamps."""
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    try:
        source = path.read_text().strip()
    except OSError:
        return Check("clock", "ok", "of unknown kind")
    if source in ("hpet", "acpi_pm", "refined-jiffies", "jiffies"):
        meaning = "every timestamp costs a microsecond or is coarse: slower probes"
        remedy = "see dmesg for the reason why the kernel does not use the CPU's clock (tsc)"
        return Check("clock", "limited", source, False, meaning, remedy)
    return Check("clock", "ok", source)
