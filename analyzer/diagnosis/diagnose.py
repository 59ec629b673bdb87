"""The diagnosis of one analysis: causes before effects, worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..results.diagnosis import SEVERITIES, Diagnosis, Finding
from .case import Case
from .finders.fatal_nak import fatal_naks
from .finders.loss_after import losses_after
from .finders.loss_before import losses_before
from .finders.receiver_not_ready import receivers_not_ready
from .finders.stalled import stalled
from .finders.timeout_recovery import timeout_recoveries
from .healthy import healthy
from .known import Known
from .limits import limits
from .summary import summary

Finder = Callable[[Case, Known], Iterable[Finding]]
"""Finds faults of one kind; `Known` tells which flows a cause already explains."""

FINDERS: tuple[Finder, ...] = (
    fatal_naks,
    receivers_not_ready,
    losses_before,
    losses_after,
    stalled,
    timeout_recoveries,
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
    passed = healthy(case)
    return Diagnosis(summary(case, findings, passed), findings, passed, limits(case))
