"""The diagnosis of one analysis: causes before effects, worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..results.diagnosis import SEVERITIES, Diagnosis, Finding
from .case import Case
from .finders.copies import copies_before
from .finders.corruption import corrupt_packets
from .finders.fatal_nak import fatal_naks
from .finders.late import late_before
from .finders.loss_after import losses_after
from .finders.loss_before import losses_before
from .finders.marks import marks_before, marks_without_notification, notifications_without_marks
from .finders.mrc_path import mrc_paths
from .finders.mtu import mtu_mismatches
from .finders.pause import pauses
from .finders.receiver_not_ready import receivers_not_ready
from .finders.retry_storm import retry_storms
from .finders.spraying import sprays
from .finders.stalled import stalled
from .finders.timeout_recovery import timeout_recoveries
from .finders.traffic_class import traffic_classes
from .healthy import healthy
from .known import Known
from .limits import limits
from .summary import summary

Finder = Callable[[Case, Known], Iterable[Finding]]
"""Finds faults of one kind; `Known` tells which flows a cause already explains."""

FINDERS: tuple[Finder, ...] = (
    corrupt_packets,
    pauses,
    fatal_naks,
    receivers_not_ready,
    mrc_paths,
    losses_before,
    late_before,
    copies_before,
    losses_after,
    stalled,
    timeout_recoveries,
    retry_storms,
    marks_before,
    notifications_without_marks,
    marks_without_notification,
    traffic_classes,
    mtu_mismatches,
    sprays,
)
"""In the order of cause and effect."""


def diagnose(case: Case) -> Diagnosis:
    """All findings of `case`, worst first, and what was checked without a finding."""
    known = Known()
    findings: list[Finding] = []
    for finder in FINDERS:
        found = list(finder(case, known))
        findings += found
        for finding in found:
            known.add(finding)
    findings.sort(key=lambda f: (SEVERITIES.index(f.severity), -(f.cost_ns or 0), f.from_ns))
    passed = healthy(case, findings)
    return Diagnosis(summary(case, findings, passed), findings, passed, limits(case))
