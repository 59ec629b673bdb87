"""The result of `aggregate` on a terminal: verdict, schemes, jobs, links."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from ...replay.results.aggregation import ALL_REDUCES, AggregationResult, JobSummary, SchemeResult
from ..words import human
from .page import Page, numbers, texts
from .replay_parts import NONE

_MOST_JOBS = 16
_UNLIMITED = {"ideal": "unlimited memory", "none": "no aggregation"}
_MOST_RANKS = 8
_SIDE_BY_SIDE = 3
"""Schemes in one table of jobs, which then fits 80 columns."""
_LEGEND = (
    "JCT: job completion time; x best: JCT over the JCT of the best scheme; on links: bytes of "
    "all links; "
    "used: share of slots taken; useful: by sums that became complete in the switch"
)


def fill_aggregation(
    page: Page, result: AggregationResult, top: int = 5, charts: Callable[[], object] = bool
) -> None:
    """A comparison of schemes. top: links per scheme; charts: called below the verdict."""
    workers = sum(len(job.workers) for job in result.jobs)
    page.line(
        f"{human.counted(len(result.jobs), 'job')}, {human.counted(workers, 'worker')}, "
        f"{human.counted(result.runs, 'run')}",
        "bold",
    )
    page.say(
        f"on {result.fabric.spec}: {human.counted(result.fabric.switches, 'switch', 'switches')}, "
        f"{human.counted(result.fabric.hosts, 'host')}"
    )
    page.warn(result.warnings)
    page.section("Schemes", verdict(result))
    page.draw(lambda table: _schemes(table, result), drop=True)
    page.say(_LEGEND, "dim")
    charts()
    page.section("Completion times of jobs")
    for begin in range(0, len(result.schemes), _SIDE_BY_SIDE):
        part = result.schemes[begin : begin + _SIDE_BY_SIDE]
        page.draw(lambda table, part=part: _jobs(table, result, part))  # type: ignore[misc]
    page.more(len(result.jobs) - _MOST_JOBS, "job")
    page.section("Fullest links")
    page.draw(lambda table: _links(table, result, top))
    page.section("Assumed")
    for line in result.assumed:
        page.say(line, indent=2)


def title(one: SchemeResult) -> str:
    """The scheme and its memory: `atp 4,096`."""
    return one.name if one.slots is None else f"{one.name} {human.count(one.slots)}"


def fastest(result: AggregationResult) -> SchemeResult | None:
    """The scheme with limited memory whose jobs complete first; None if none ended them."""
    limited = [s for s in result.schemes if s.slots is not None and s.mean_completion_ns]
    return min(limited, key=lambda one: one.mean_completion_ns or 0, default=None)


def plain(result: AggregationResult) -> SchemeResult | None:
    """The faster of ring and tree; None without."""
    found = [s for s in result.schemes if s.name in ALL_REDUCES and s.mean_completion_ns]
    return min(found, key=lambda one: one.mean_completion_ns or 0, default=None)


def verdict(result: AggregationResult) -> str:
    """The fastest scheme with limited memory, beside unlimited memory and no aggregation."""
    best = fastest(result)
    if best is None or best.mean_completion_ns is None:
        return ""
    text = (
        f"{title(best)} is the fastest with limited memory: jobs complete in "
        f"{human.duration(best.mean_completion_ns)} on average"
    )
    for one in result.schemes:
        whose = _UNLIMITED.get(one.name.partition(":")[0])
        if one.slots is None and one.mean_completion_ns and whose:
            ratio = one.mean_completion_ns / best.mean_completion_ns
            text += f"; {whose} takes {ratio:.2f} times as long"
    return f"{text}.{_worth(result, best)}"


def _worth(result: AggregationResult, best: SchemeResult) -> str:
    """The faster of ring and tree beside the best scheme."""
    one = plain(result)
    if one is None or not one.mean_completion_ns or not best.mean_completion_ns:
        return ""
    ratio = one.mean_completion_ns / best.mean_completion_ns
    more = one.wire_bytes / best.wire_bytes
    return (
        f" A {one.name} all-reduce among the workers{unlike(best)} takes {ratio:.2f} times as "
        f"long, with {more:.2f} times the bytes on all links."
    )


def unlike(best: SchemeResult) -> str:
    """Words for what a ring or tree does not meet and the best scheme did: losses."""
    return " without these losses" if best.lost else ""


def _schemes(table: Table, result: AggregationResult) -> None:
    texts(table, "scheme")
    numbers(table, "slots", "mean JCT", "x best", "on links", "aggregated", "used", "useful")
    numbers(table, "collisions", "preempt", "retrans", "timeouts", "to server", "lost")
    known = [s.mean_completion_ns for s in result.schemes if s.mean_completion_ns]
    for one in result.schemes:
        mean = one.mean_completion_ns
        weights = [job.fragments * job.iterations for job in result.jobs]
        whole = [w * job.aggregated_percent for w, job in zip(weights, one.jobs, strict=True)]
        table.add_row(
            one.name,
            NONE if one.slots is None else human.count(one.slots),
            human.duration(mean),
            NONE if mean is None else f"{mean / min(known):.2f}",
            human.size(one.wire_bytes),
            NONE if one.name in ALL_REDUCES else f"{sum(whole) / sum(weights):.1f} %",
            NONE if one.used_percent is None else f"{one.used_percent:.1f} %",
            NONE if one.useful_percent is None else f"{one.useful_percent:.1f} %",
            *(
                NONE
                if one.name in ALL_REDUCES
                else human.count(round(sum(getattr(job, name) for job in one.jobs)))
                for name in (
                    "collisions",
                    "preemptions",
                    "retransmitted",
                    "timeouts",
                    "server_packets",
                )
            ),
            NONE if one.name in ALL_REDUCES else human.count(round(one.lost)),
        )


def _jobs(table: Table, result: AggregationResult, schemes: Sequence[SchemeResult]) -> None:
    texts(table, "job")
    captured = any(job.captured_ns is not None for job in result.jobs)
    ranks = any(job.ranks for job in result.jobs)
    texts(table, *["ranks"] * ranks)
    numbers(table, "workers", "racks", *["captured"] * captured)
    numbers(table, *(title(one) for one in schemes))
    for at, job in enumerate(result.jobs[:_MOST_JOBS]):
        table.add_row(
            job.name,
            *[_ranks(job)] * ranks,
            str(len(job.workers)),
            str(job.racks),
            *[human.duration(job.captured_ns)] * captured,
            *(human.duration(one.jobs[at].completion_ns) for one in schemes),
        )


def _ranks(job: JobSummary) -> str:
    """The ranks of the workers, those of one host joined: `0 1 2 3`, `0+1 2+3`."""
    each = ["+".join(map(str, own)) or "?" for own in job.ranks]
    more = ["..."] * (len(each) > _MOST_RANKS)
    return " ".join([*each[:_MOST_RANKS], *more]) or NONE


def _links(table: Table, result: AggregationResult, top: int) -> None:
    texts(table, "scheme", "link")
    numbers(table, "carried")
    for one in result.schemes:
        for at, link in enumerate(one.links[:top]):
            table.add_row("" if at else title(one), link.link, human.size(link.wire_bytes))
