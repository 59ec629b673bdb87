"""What live capture needs on this host: kernel, hooks, software, with remedies."""

from __future__ import annotations

import ctypes
import errno
import gzip
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

from ..analyzer.errors import CaptureError
from ..analyzer.results.base import Record, about
from ..analyzer.words import printable
from . import bpf, live, sysfs
from .hooks.interfaces import Interface
from .hooks.others import programs_on
from .owners.elf import ElfError, defaults, exported_functions
from .owners.nldev import dump_queue_pairs
from .owners.queue_pairs import rdma_tool, read_resources
from .owners.uprobes import PROG_KPROBE, all_libraries, attach_uprobe
from .program.compile import import_bcc, machine_code
from .program.program import kernel_version, strongly_ordered
from .rings import Rings

# The findings of `rocescope doctor`.

SUDO: Final = "run with sudo"
NO_OWNERS: Final = "owner processes of some or all queue pairs are unknown"


class Check(Record, frozen=True):
    """One check."""

    name: str
    state: Literal["ok", "limited", "missing"]
    found: Annotated[str, about("what was found")]
    needed: Annotated[bool, about("without it there is no live capture")] = False
    meaning: Annotated[str | None, about("what does not work as a result")] = None
    remedy: Annotated[str | None, about("what to install or run")] = None


class Diagnosis(Record, frozen=True):
    """The result of `rocescope doctor`."""

    live_capture_works: bool
    checks: list[Check]


# The kernel and the operations it allows this process, tested by execution if possible.

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
    if kernel_version() >= live.OLDEST_KERNEL:
        return Check("kernel", "ok", release, True)
    oldest = ".".join(map(str, live.OLDEST_KERNEL))
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
    missing = live.missing_capabilities()
    if missing:
        return Check(
            "capabilities",
            "missing",
            f"without {', '.join(missing)}",
            True,
            "the kernel does not allow loading or attaching probes without them",
            f"{SUDO}, or give CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
        )
    held = live.effective_capabilities()
    if not held >> live.CAP_SYS_ADMIN & 1:
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
    if live.missing_capabilities():
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


# Hooks for probes, tested without affecting traffic.

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


# Software in user space: the compiler, libibverbs, RDMA tools, Wireshark.


def bcc() -> Check:
    """The compiler's Python package."""
    try:
        version = getattr(import_bcc(), "__version__", "of unknown version")
    except CaptureError:
        return Check(
            "bcc",
            "missing",
            "not installed for this Python",
            True,
            "it compiles the probes; bcc on PyPI is another package",
            "apt-get install python3-bpfcc, or dnf install python3-bcc",
        )
    return Check("bcc", "ok", f"bcc {version}", True)


def compiling() -> Check:
    """Compilation of C to BPF, tested by execution."""
    name = "compiling"
    try:
        with _standard_error_closed():
            code = machine_code("int probe(void *context) { return 0; }", ["probe"])["probe"]
    except CaptureError as error:
        reason = "bcc is missing" if "needs bcc" in str(error) else str(error)
        remedy = "reinstall python3-bpfcc and libbpfcc; check that /tmp is writable"
        return Check(name, "missing", reason, True, "the probes cannot be compiled", remedy)
    return Check(name, "ok", f"C to {len(code) // 8} BPF instructions, without headers", True)


def libibverbs() -> Check:
    """Copies of libibverbs and their functions to watch."""
    libraries = all_libraries()
    if not libraries:
        remedy = "apt-get install libibverbs1 (only where RDMA is used)"
        return Check("libibverbs", "limited", "not installed", False, NO_OWNERS, remedy)
    bad = {}
    for path in libraries:
        try:
            symbols = defaults(exported_functions(path))
            wanted = ("ibv_create_qp", "ibv_modify_qp", "ibv_destroy_qp")
            lacking = [name for name in wanted if name not in symbols]
            if lacking:
                bad[path] = f"without {', '.join(lacking)}"
        except (ElfError, OSError) as error:
            bad[path] = str(error)
    if bad:
        faults = "; ".join(f"{path}: {why}" for path, why in bad.items())
        return Check("libibverbs", "limited", faults, False, NO_OWNERS, "install rdma-core's own")
    count = f" and {len(libraries) - 1} more" if len(libraries) > 1 else ""
    return Check("libibverbs", "ok", f"{libraries[0]}{count}")


def rdma_devices() -> Check:
    """RDMA devices and their counters."""
    ports, reason = sysfs.read_ports()
    if reason is not None and not ports:
        meaning = "no port counters; packets of other hosts are still captured"
        return Check("RDMA devices", "limited", reason, False, meaning)
    names = ", ".join(sysfs.devices())
    return Check("RDMA devices", "ok", names if reason is None else f"{names}; {reason}")


def queue_pair_table() -> Check:
    """The kernel's table of queue pairs, by the rdma tool or by netlink."""
    name = "queue pair table"
    tool = rdma_tool()
    rows, reason = read_resources() if tool else dump_queue_pairs()
    if reason is not None:
        meaning = "queue pairs created before a capture have no owner"
        return Check(
            name, "limited", reason, False, meaning, "modprobe ib_core, where RDMA is used"
        )
    return Check(name, "ok", f"{len(rows)} queue pairs, by {tool or 'netlink'}")


def tshark() -> Check:
    """Wireshark's dissector."""
    path = shutil.which("tshark")
    if path is None:
        meaning = "no dissection of single packets"
        return Check("tshark", "limited", "not installed", False, meaning, "apt-get install tshark")
    done = subprocess.run(
        [path, "--version"], capture_output=True, text=True, errors="replace", timeout=20
    )
    version = re.search(r"\d+\.\d+\.\d+", done.stdout)
    return Check("tshark", "ok", version[0] if version else path)


@contextmanager
def _standard_error_closed() -> Iterator[None]:
    """Context manager that discards standard error, where the compiler prints."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


_CHECKS: tuple[Callable[[], Check], ...] = (
    kernel,
    capabilities,
    bcc,
    compiling,
    loading,
    ring_buffer,
    tc_hook,
    xdp_hook,
    other_programs,
    uprobes,
    libibverbs,
    rdma_devices,
    queue_pair_table,
    tshark,
    clock,
    locked_memory,
    unprivileged_bpf,
    btf,
    tracefs,
    kernel_options,
)


def diagnose() -> Diagnosis:
    """Run all checks; never raises."""
    checks = [_safely(look) for look in _CHECKS]
    works = all(check.state != "missing" for check in checks if check.needed)
    return Diagnosis(works, checks)


def _safely(look: Callable[[], Check]) -> Check:
    try:
        return look()
    except Exception as error:  # a failed check must not end the others
        name = look.__name__.replace("_", " ")
        return Check(name, "limited", f"the check failed: {type(error).__name__}: {error}")
