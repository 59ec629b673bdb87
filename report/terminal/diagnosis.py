"""The diagnosis at the beginning of the report: a few rows; its rest at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...analyzer.results.diagnosis import SEVERITIES, Diagnosis
from .. import notes as words
from ..human import UNKNOWN, Glyphs, counted

MOST_ROWS = 8
"""Rows of the diagnosis with its heading, after the time of the captures: the answer fits the
smallest terminal."""
STYLES = {"critical": "bold red", "warning": "yellow", "note": ""}
JOINED = "; "


class Line(NamedTuple):
    """A paragraph with a mark before its first line."""

    mark: str
    text: str
    style: str = ""


class Part(NamedTuple):
    """A paragraph that may lose its last clauses."""

    mark: str
    style: str
    clauses: Sequence[str]
    ellipsis: str
    counts: bool = False
    """Whether the number of clauses left out is worth knowing."""
    instead: str = ""
    """Stands for all clauses where the first does not fit: a cut claim would cover more."""

    @property
    def line(self) -> Line:
        return self._line(JOINED.join(self.clauses))

    def within(self, rows: int, rows_of: Callable[[Line], int]) -> Line:
        """As many clauses as fit into `rows`, at least a part of the first."""
        line = self.line
        for text in self._shorter():
            if rows_of(line) <= rows:
                break
            line = self._line(text)
        return line

    def _line(self, text: str) -> Line:
        return Line(self.mark, text, self.style)

    def _shorter(self) -> Iterator[str]:
        for kept in range(len(self.clauses) - 1, 0, -1):
            yield self._cut(JOINED.join(self.clauses[:kept]), kept)
        if self.instead:
            yield self.instead
            return
        first = self.clauses[0]
        if self.counts and ": " in first:  # the reason goes first, as a whole
            first = first.partition(": ")[0]
            yield self._cut(f"{first} {self.ellipsis}", 1)
        parts = first.split(" ")
        for kept in range(len(parts) - 1, 0, -1):
            yield self._cut(" ".join(parts[:kept]) + f" {self.ellipsis}", 1)
        for kept in range(len(parts[0]) - 1, 0, -1):
            yield self._cut(parts[0][:kept] + self.ellipsis, 1)

    def _cut(self, text: str, kept: int) -> str:
        left = len(self.clauses) - kept
        if self.counts:
            return text + (f"{JOINED}{left} more" if left else "")
        return text if text.endswith(self.ellipsis) else f"{text} {self.ellipsis}"


def in_few_rows(
    diagnosis: Diagnosis,
    begin_ns: int,
    glyphs: Glyphs,
    rows_of: Callable[[Line], int],
    heading_rows: Callable[[bool], int],
) -> tuple[list[Line], bool]:
    """At most MOST_ROWS with the heading, and whether they hold everything. begin_ns: time of the
    first packet. rows_of: rows of one line. heading_rows: rows of the heading, of everything or of
    a part.

    Findings come first, worst first; of what is healthy and of what is unknown at least one row is
    left.
    """
    every = [part.line for part in _parts(diagnosis, begin_ns, glyphs)]
    if heading_rows(True) + sum(map(rows_of, every)) <= MOST_ROWS:
        return every, True
    findings, others = _findings(diagnosis, begin_ns, glyphs), list(_others(diagnosis, glyphs))
    rows = MOST_ROWS - heading_rows(False)
    most = max(1, rows - len(others))
    if len(findings) > most:
        left = counted(len(findings) - most + 1, "finding")
        findings = [
            *findings[: most - 1],
            Part(" ", "dim", (f"... {left} not shown",), glyphs.ellipsis),
        ]
    parts, shown = [*findings, *others], []
    for number, part in enumerate(parts):
        line = part.within(rows - (len(parts) - 1 - number), rows_of)
        rows -= rows_of(line)
        shown.append(line)
    return shown, False


def in_full(diagnosis: Diagnosis, begin_ns: int, glyphs: Glyphs) -> Iterator[Line]:
    """All findings, worst first; then what is healthy; then what the captures cannot tell."""
    for part in _parts(diagnosis, begin_ns, glyphs):
        if part.counts:
            yield from (Line(part.mark, clause, part.style) for clause in part.clauses)
        else:
            yield part.line


def _parts(diagnosis: Diagnosis, begin_ns: int, glyphs: Glyphs) -> list[Part]:
    return [*_findings(diagnosis, begin_ns, glyphs), *_others(diagnosis, glyphs)]


def _findings(diagnosis: Diagnosis, begin_ns: int, glyphs: Glyphs) -> list[Part]:
    parts = []
    for finding in diagnosis.findings:
        mark = glyphs.severities[SEVERITIES.index(finding.severity)]
        clauses = words.sentence(finding, begin_ns).split(JOINED)
        parts.append(Part(mark, STYLES[finding.severity], clauses, glyphs.ellipsis))
    return parts


def _others(diagnosis: Diagnosis, glyphs: Glyphs) -> Iterator[Part]:
    healthy = words.healthy(diagnosis)
    if healthy:
        first, *rest = healthy
        complete = diagnosis.complete
        yield Part(
            glyphs.good if complete else UNKNOWN,
            "green" if complete else "dim",
            (f"{words.passed(diagnosis)}: {first}", *rest),
            glyphs.ellipsis,
            counts=True,
            instead=f"{counted(len(healthy), 'check')} passed"
            + ("" if complete else " in the part that was read"),
        )
    elif not diagnosis.findings:
        yield Part(UNKNOWN, "dim", (words.NO_CHECK,), glyphs.ellipsis, counts=True)
    if diagnosis.limits:
        yield Part(UNKNOWN, "dim", diagnosis.limits, glyphs.ellipsis, counts=True)
