"""The result of `aggregate` on a terminal: verdict, schemes, jobs, links."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from ...replay.results import ALL_REDUCES, AggregationResult, JobSummary, SchemeResult
from .. import human
from .page import Page, numbers, texts
from .replay_packets import NONE

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
    page.section("Busiest links")
    page.draw(lambda table: _links(table, result, top))
    page.section("Assumed")
    for line in result.assumed:
        page.say(line, indent=2)


def title(scheme: SchemeResult) -> str:
    """The scheme and its memory: `atp 4,096`."""
    return scheme.name if scheme.slots is None else f"{scheme.name} {human.count(scheme.slots)}"


def fastest(result: AggregationResult) -> SchemeResult | None:
    """The scheme with limited memory whose jobs complete first; None if none ended them."""
    limited = [s for s in result.schemes if s.slots is not None and s.mean_completion_ns]
    return min(limited, key=lambda scheme: scheme.mean_completion_ns or 0, default=None)


def plain(result: AggregationResult) -> SchemeResult | None:
    """The faster of ring and tree; None without."""
    known = [s for s in result.schemes if s.name in ALL_REDUCES and s.mean_completion_ns]
    return min(known, key=lambda scheme: scheme.mean_completion_ns or 0, default=None)


def verdict(result: AggregationResult) -> str:
    """The fastest scheme with limited memory, beside unlimited memory and no aggregation."""
    best = fastest(result)
    if best is None or best.mean_completion_ns is None:
        return ""
    text = (
        f"{title(best)} is the fastest with limited memory: jobs complete in "
        f"{human.duration(best.mean_completion_ns)} on average"
    )
    for scheme in result.schemes:
        whose = _UNLIMITED.get(scheme.name.partition(":")[0])
        if scheme.slots is None and scheme.mean_completion_ns and whose:
            ratio = scheme.mean_completion_ns / best.mean_completion_ns
            text += f"; {whose} takes {ratio:.2f} times as long"
    return f"{text}.{_worth(result, best)}"


def _worth(result: AggregationResult, best: SchemeResult) -> str:
    """The faster of ring and tree beside the best scheme."""
    base = plain(result)
    if base is None or not base.mean_completion_ns or not best.mean_completion_ns:
        return ""
    ratio = base.mean_completion_ns / best.mean_completion_ns
    more = base.wire_bytes / best.wire_bytes
    return (
        f" A {base.name} all-reduce among the workers{unlike(best)} takes {ratio:.2f} times as "
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
    for scheme in result.schemes:
        mean = scheme.mean_completion_ns
        weights = [job.fragments * job.iterations for job in result.jobs]
        shares = [w * job.aggregated_percent for w, job in zip(weights, scheme.jobs, strict=True)]
        table.add_row(
            scheme.name,
            NONE if scheme.slots is None else human.count(scheme.slots),
            human.duration(mean),
            NONE if mean is None else f"{mean / min(known):.2f}",
            human.size(scheme.wire_bytes),
            NONE if scheme.name in ALL_REDUCES else f"{sum(shares) / sum(weights):.1f} %",
            NONE if scheme.used_percent is None else f"{scheme.used_percent:.1f} %",
            NONE if scheme.useful_percent is None else f"{scheme.useful_percent:.1f} %",
            *(
                NONE
                if scheme.name in ALL_REDUCES
                else human.count(round(sum(getattr(job, name) for job in scheme.jobs)))
                for name in (
                    "collisions",
                    "preemptions",
                    "retransmitted",
                    "timeouts",
                    "server_packets",
                )
            ),
            NONE if scheme.name in ALL_REDUCES else human.count(round(scheme.lost)),
        )


def _jobs(table: Table, result: AggregationResult, schemes: Sequence[SchemeResult]) -> None:
    texts(table, "job")
    captured = any(job.captured_ns is not None for job in result.jobs)
    ranks = any(job.ranks for job in result.jobs)
    texts(table, *["ranks"] * ranks)
    numbers(table, "workers", "racks", *["captured"] * captured)
    numbers(table, *(title(scheme) for scheme in schemes))
    for at, job in enumerate(result.jobs[:_MOST_JOBS]):
        table.add_row(
            job.name,
            *[_ranks(job)] * ranks,
            str(len(job.workers)),
            str(job.racks),
            *[human.duration(job.captured_ns)] * captured,
            *(human.duration(scheme.jobs[at].completion_ns) for scheme in schemes),
        )


def _ranks(job: JobSummary) -> str:
    """The ranks of the workers, those of one host joined: `0 1 2 3`, `0+1 2+3`."""
    each = ["+".join(map(str, ranks)) or "?" for ranks in job.ranks]
    more = ["..."] * (len(each) > _MOST_RANKS)
    return " ".join([*each[:_MOST_RANKS], *more]) or NONE


def _links(table: Table, result: AggregationResult, top: int) -> None:
    texts(table, "scheme", "link")
    numbers(table, "carried")
    for scheme in result.schemes:
        for at, link in enumerate(scheme.links[:top]):
            table.add_row("" if at else title(scheme), link.link, human.size(link.wire_bytes))
