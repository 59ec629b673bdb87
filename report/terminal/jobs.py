"""The report's sections on training jobs, and on collectives that a job recorded itself."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.diagnosis import SEVERITIES
from ...analyzer.results.job_records import (
    BesidePackets,
    JobRecords,
    LateRank,
    MismatchedCollective,
    MissingCollective,
    RecordedGroup,
)
from ...analyzer.results.jobs import TrainingJob
from ...analyzer.words import printable
from .. import human
from ..human import Glyphs
from ..jobs import Said, heading, sentences, sources, training
from .diagnosis import STYLES
from .page import Page, numbers, texts

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


_MOST_RANKS = 8
"""Ranks named in a sentence."""
_DID_NOT = {
    "enqueued": "did not call it",
    "started": "did not start it on their GPU",
    "completed": "did not complete it",
}
GROUPS = "numbers: first and last collective that the ranks recorded"


def overview(records: JobRecords) -> str:
    """What was read, in one sentence."""
    text = f"{human.counted(records.collectives, 'collective')} in"
    text += f" {human.counted(records.files, 'file')}"
    return f"{text}, {human.counted(len(records.groups), 'group')}."


def troubles(records: JobRecords) -> list[str]:
    """Missing and mismatched collectives, contradictions: the worst first."""
    names = [group_name(group) for group in records.groups]
    certain = _hanging(records)
    lines = [_missing(each, names[each.group]) for each in records.missing if each in certain]
    lines += [_mismatch(each, names[each.group]) for each in records.mismatches]
    for part in records.beside:
        lines += [f"{names[part.group]}: contradiction: {text}" for text in part.contradictions]
    return lines


def remarks(records: JobRecords, jobs: Sequence[str]) -> list[str]:
    """Late ranks, how records fit the packets, what was not judged. jobs: names by id."""
    names = [group_name(group) for group in records.groups]
    certain = _hanging(records)
    lines = [
        f"{_missing(each, names[each.group])}; no timeout is recorded: perhaps it was in flight"
        for each in records.missing
        if each not in certain
    ]
    lines += [_late(late, names[late.group]) for late in records.late if late.slowest]
    for part in records.beside:
        lines.append(_fit(part, names[part.group], jobs[part.job]))
        lines += [f"{names[part.group]}: {text}" for text in (*part.agreements, *part.notes)]
    return [*lines, *records.notes]


def group_table(table: Table, groups: Sequence[RecordedGroup]) -> None:
    """One row per group."""
    texts(table, "group", "from")
    numbers(table, "ranks", "recorded", "collectives", "numbers")
    for group in groups:
        firsts = [r.first_sequence for r in group.ranks if r.first_sequence is not None]
        lasts = [r.last_sequence for r in group.ranks if r.last_sequence is not None]
        table.add_row(
            group_name(group),
            "PyTorch" if group.source == "flight_recorder" else "Inspector",
            human.count(group.size),
            human.count(len(group.ranks)),
            human.count(sum(rank.collectives for rank in group.ranks)),
            f"{min(firsts)} to {max(lasts)}" if firsts else "-",
        )


def group_name(group: RecordedGroup) -> str:
    """`0 (default_pg)`."""
    name = printable(group.name)
    return f"{name} ({printable(group.description)})" if group.description else name


def _missing(missing: MissingCollective, group: str) -> str:
    what = f"{group}: {printable(missing.operation)} {missing.sequence}:"
    if missing.ranks:
        text = f"{what} {_ranks(missing.ranks)} {_DID_NOT[missing.lacking]}"
        if missing.waiting:
            verb = "waits" if len(missing.waiting) == 1 else "wait"
            text += f", {_ranks(missing.waiting)} {verb} in it"
    elif missing.unknown:
        verb = "waits" if len(missing.waiting) == 1 else "wait"
        text = f"{what} {_ranks(missing.waiting)} {verb} in it; who is missing is unknown"
    else:
        text = f"{what} all ranks called it, none completed it"
    if missing.unknown:
        text += f"; no record of {_ranks(missing.unknown)}"
    return text


def _hanging(records: JobRecords) -> list[MissingCollective]:
    """Collectives that certainly hang: a rank gave up, or the packets stop there too."""
    stopped = {part.group for part in records.beside if part.matched_by == "end"}
    return [each for each in records.missing if each.timed_out or each.group in stopped]


def _mismatch(mismatch: MismatchedCollective, group: str) -> str:
    variants = "; ".join(
        f"{_ranks(variant.ranks)}: {printable(variant.operation)} {printable(variant.sizes)}"
        for variant in mismatch.variants[:3]
    )
    return f"{group}: ranks call collective {mismatch.sequence} differently: {variants}"


def _late(late: LateRank, group: str) -> str:
    return (
        f"{group}: rank {late.rank} enters last in {late.last} of"
        f" {human.counted(late.collectives, 'collective')}: the others wait"
        f" {human.duration(late.others_wait_ns)} for it"
    )


def _fit(part: BesidePackets, group: str, job: str) -> str:
    per_step = human.counted(part.collectives_per_step, "collective")
    text = f"{group}: {per_step} per step of job {job}"
    if part.matched_by is None:
        return f"{text}, not matched with its steps"
    how = {
        "end": "by the hang in both",
        "count": "by the number of steps",
        "clocks": "by clocks",
    }[part.matched_by]
    return f"{text}; {human.counted(len(part.steps), 'step')} matched {how}"


def _ranks(ranks: Sequence[int]) -> str:
    """`rank 2`, `ranks 0, 1 and 3`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = [str(rank) for rank in ranks[:_MOST_RANKS]]
    left = len(ranks) - len(shown)
    if left:
        shown.append(f"{left} more")
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"
