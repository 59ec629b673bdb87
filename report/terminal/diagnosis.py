"""The diagnosis at the beginning of the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...analyzer.results.diagnosis import SEVERITIES, Diagnosis
from ..words import diagnosis as words
from ..words.human import UNKNOWN, Glyphs, counted

MOST_FINDINGS = 8
MOST_LIMITS = 4
STYLES = {"critical": "bold red", "warning": "yellow", "note": ""}


class Line(NamedTuple):
    """A paragraph with a mark before its first line."""

    mark: str
    text: str
    style: str = ""


def lines(diagnosis: Diagnosis, glyphs: Glyphs) -> Iterator[Line]:
    """Findings, worst first; then what is healthy; then what the captures cannot tell."""
    found = diagnosis.findings
    for finding in found[:MOST_FINDINGS]:
        mark = glyphs.severities[SEVERITIES.index(finding.severity)]
        yield Line(mark, words.sentence(finding), STYLES[finding.severity])
    if len(found) > MOST_FINDINGS:
        left = counted(len(found) - MOST_FINDINGS, "finding")
        yield Line(" ", f"... {left} not shown (--format json)", "dim")
    healthy = words.healthy(diagnosis)
    if healthy:
        yield Line(glyphs.good, f"healthy: {healthy}", "green")
    elif not found:
        yield Line(UNKNOWN, words.NO_CHECK, "dim")
    for limit in diagnosis.limits[:MOST_LIMITS]:
        yield Line(UNKNOWN, limit, "dim")
    if len(diagnosis.limits) > MOST_LIMITS:
        left = counted(len(diagnosis.limits) - MOST_LIMITS, "limit")
        yield Line(" ", f"... {left} not shown (--format json)", "dim")
