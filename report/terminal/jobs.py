"""The report's section on training jobs."""

from __future__ import annotations

from rich.text import Text

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.diagnosis import SEVERITIES
from ...analyzer.results.jobs import TrainingJob
from ..human import Glyphs
from ..jobs import Said, heading, sentences, sources, training
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
        print_job(page, job, analysis)
    page.more(len(jobs) - most, "job")
    page.say(sources(jobs), "dim")


def print_job(page: Page, job: TrainingJob, analysis: Analysis) -> None:
    """What the job is, and what its steps show, a paragraph each."""
    for said in sentences(job, analysis):
        mark = mark_of(said, page.glyphs) or page.glyphs.shorten(job.name, _LONGEST)
        style = "bold" if said.severity is None else STYLES[said.severity]
        page.say(said.text, style, len(mark) + 1, mark)


def mark_of(said: Said, glyphs: Glyphs) -> str:
    """The mark of a sentence; empty for what the job is."""
    if said.severity is None:
        return ""
    if said.severity == "warning":
        return glyphs.warning
    return glyphs.severities[SEVERITIES.index(said.severity)]
