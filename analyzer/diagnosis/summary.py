"""The diagnosis in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.diagnosis import Finding
from .case import Case
from .words import counted


def summary(case: Case, findings: Sequence[Finding], healthy: Sequence[str]) -> str:
    """The worst finding; without a fault, what was looked at. `findings`: worst first."""
    faults = [finding for finding in findings if finding.severity != "note"]
    if faults:
        more = f" (and {counted(len(faults) - 1, 'further fault')})" if len(faults) > 1 else ""
        return faults[0].sentence + more
    packets = sum(flow.packets for flow in case.flows) + case.ended.packets
    if not packets:
        return "No RoCE packets: nothing was checked"
    seen = f"{counted(packets, 'packet')} of {counted(case.queue_pairs, 'queue pair')}"
    if not healthy:
        return f"No check of loss, marks or retries applies to these {seen}"
    if case.ended.flows_in_trouble:
        gone = counted(case.ended.flows_in_trouble, "idle flow")
        return (
            f"No fault found in the listed flows; {gone} with anomalies removed from memory: {seen}"
        )
    if not case.whole:
        return f"No fault found in the part that was read: {seen}"
    return f"No fault found in {seen}"
