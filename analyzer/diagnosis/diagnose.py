"""The diagnosis of one analysis: all finders, causes before effects, worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..results.diagnosis import SEVERITIES, Diagnosis, Finding
from .case import Case

Finder = Callable[[Case], Iterable[Finding]]

FINDERS: tuple[Finder, ...] = ()


def diagnose(case: Case) -> Diagnosis:
    """All findings of `case`, worst first."""
    findings = [finding for finder in FINDERS for finding in finder(case)]
    findings.sort(key=lambda f: (SEVERITIES.index(f.severity), -(f.cost_ns or 0), f.from_ns))
    summary = findings[0].sentence if findings else ""
    return Diagnosis(summary, findings, [], [])
