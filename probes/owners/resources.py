"""The kernel's table of queue pairs, read by iproute2's `rdma` tool.

It contains every queue pair, including those older than the probes, and the process
that created it; it has no addresses (rdma-resource(8)).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

_TIMEOUT_S = 10
_TOOL_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin:/opt/mellanox/iproute2/sbin"

QP_TYPES = {2: "RC", 3: "UC", 4: "UD", 8: "RAW_PACKET", 9: "XRC_INI", 10: "XRC_TGT", 0xFF: "DRIVER"}
QP_STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
"""enum ibv_qp_type and enum ibv_qp_state of infiniband/verbs.h, in rdma-resource(8)'s words."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One row of the table."""

    device: str
    port: int | None
    local_qp: int
    remote_qp: int | None
    """None for datagrams and for queue pairs that are not connected."""
    type: str
    state: str
    rq_psn: int | None
    """The PSN expected next, at the time of the query."""
    sq_psn: int | None
    """The PSN sent next, at the time of the query."""
    pid: int | None
    """None for queue pairs of the kernel (MADs, NVMe over RDMA, NFS)."""
    command: str


def command_of(pid: int, proc: str = "/proc") -> str:
    """The name of a process; empty if it has ended."""
    try:
        with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def rdma_tool() -> str | None:
    """The path of the `rdma` tool."""
    return shutil.which("rdma") or shutil.which("rdma", path=_TOOL_FOLDERS)


def read_resources() -> tuple[list[Resource], str | None]:
    """The table of this network namespace's devices, and the reason if it is not available."""
    tool = rdma_tool()
    if tool is None:
        return [], "the rdma tool is not installed (package iproute2)"
    try:
        done = subprocess.run(
            [tool, "-j", "resource", "show", "qp"],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"{tool} does not run: {error}"
    if done.returncode:
        what = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        if "NETLINK_RDMA" in what:
            return [], "the kernel has no NETLINK_RDMA: its RDMA modules are not loaded"
        return [], f"rdma resource show: {what}"
    return parse_resources(done.stdout)


def parse_resources(text: str) -> tuple[list[Resource], str | None]:
    """Rows of `rdma -j resource show qp`; invalid rows are omitted and counted."""
    try:
        rows = json.loads(text or "[]")
    except json.JSONDecodeError:
        return [], "rdma resource show: unknown output, iproute2 may be too old"
    found = [_resource(row) for row in rows] if isinstance(rows, list) else [None]
    bad = found.count(None)
    reason = f"rdma resource show: {bad} rows could not be parsed" if bad else None
    return [row for row in found if row is not None], reason


def _resource(row: Any) -> Resource | None:
    if not isinstance(row, dict):
        return None
    device, local_qp = row.get("ifname"), _number(row, "lqpn")
    if not isinstance(device, str) or local_qp is None:
        return None
    return Resource(
        device=device,
        port=_number(row, "port"),
        local_qp=local_qp,
        remote_qp=_number(row, "rqpn"),
        type=str(row.get("type", "?")),
        state=str(row.get("state", "?")),
        rq_psn=_number(row, "rq-psn"),
        sq_psn=_number(row, "sq-psn"),
        pid=_number(row, "pid"),
        command=str(row.get("comm", "")).strip("[]"),
    )


def _number(row: dict[str, Any], name: str) -> int | None:
    value = row.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
