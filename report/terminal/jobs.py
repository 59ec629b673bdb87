"""The report's section on training jobs."""

from __future__ import annotations

from rich.text import Text

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.diagnosis import SEVERITIES
from ..jobs import Said, heading, sentences, sources, training
from ..human import Glyphs
from .diagnosis import STYLES
from .page import Page

_LONGEST = 8
"""Characters of a job's name, which logs may give."""


def print_jobs(page: Page, analysis: Analysis, most: int) -> None:
    """Print a paragraph per job, at most `most`; nothing without a training job."""
    jobs = training(analysis.jobs)
    if not jobs:
        return
    page.gap()
    page.console.print(Text("JOBS", "bold").append(f"  {heading(jobs)}", "not bold"))
    for job in jobs[:most]:
        for said in sentences(job, analysis):
            mark = mark_of(said, page.glyphs) or page.glyphs.shorten(job.name, _LONGEST)
            style = "bold" if said.severity is None else STYLES[said.severity]
            page.say(said.text, style, len(mark) + 1, mark)
    page.more(len(jobs) - most, "job")
    page.say(sources(jobs), "dim")


def mark_of(said: Said, glyphs: Glyphs) -> str:
    """The mark of a sentence; empty for what the job is."""
    if said.severity is None:
        return ""
    if said.severity == "warning":
        return glyphs.warning
    return glyphs.severities[SEVERITIES.index(said.severity)]
