"""Software in user space: the compiler, libibverbs, RDMA tools, Wireshark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from ...analyzer.errors import CaptureError
from .. import sysfs
from ..owners.elf import ElfError, defaults, exported_functions
from ..owners.libraries import all_libraries
from ..owners.nldev import dump_queue_pairs
from ..owners.resources import rdma_tool, read_resources
from ..program.bcc_module import import_bcc
from ..program.compile import machine_code
from .diagnosis import NO_OWNERS, Check


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
