"""`rocescope aggregate`: in-network aggregation schemes on the same jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..analyzer.errors import UsageError
from .options.output import REPORT_OUTPUT, ReportOutput
from .options.progress import reading_shown, steps_shown
from .options.reading import JOB_LOGS, JobLogs
from .options.taps import CAPTURED, Captured, check_uncombined
from .table import Parameter


def aggregate(
    *files: Annotated[Path, Parameter(name="FILE")],
    fabric: str,
    jobs: Annotated[list[str] | None, Parameter(negative="")] = None,
    memory: Annotated[list[int] | None, Parameter(negative="")] = None,
    scheme: Annotated[list[str] | None, Parameter(name=("--scheme", "-s"), negative="")] = None,
    runs: int = 1,
    seed: int = 0,
    jitter: float = 0.2,
    buffer: str | None = None,
    ecn: str | None = None,
    loss: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    until: str = "60s",
    silence: str = "1ms",
    window: int = 400,
    captured: Annotated[Captured, Parameter(name="*")] = CAPTURED,
    logs: Annotated[JobLogs, Parameter(name="*")] = JOB_LOGS,
    top: int = 5,
    to: Annotated[ReportOutput, Parameter(name="*")] = REPORT_OUTPUT,
) -> int:
    """Compare schemes of in-network aggregation: job completion times, memory, fallback.

    Parameters
    ----------
    files
        Captures whose all-reduces become jobs, with their sizes and gaps; several files are several
        taps, and a packet at several taps counts once.
    fabric
        A fabric such as leaf-spine:leaves=1,spines=1,hosts=72,rate=100G, or a file.
    jobs
        Training jobs: count=4,workers=8,model=comm,iterations=3; may be repeated, see
        docs/aggregation.md.
    memory
        Aggregator slots of each switch, 248 bytes each; may be repeated. Default 4096.
    scheme
        switchml, atp, esa, a2tp, ideal or none, or the all-reduces between hosts ring and tree;
        with options: atp:rto=50us. May be repeated; default all.
    runs
        Number of runs, each with another seed.
    seed
        Seed of the first run: of compute times, paths, loss, duplicates and reordering.
    jitter
        Compute times vary by up to this share, 0 to 10.
    buffer
        Buffer of each output queue, such as 1MiB; default unlimited.
    ecn
        Queue length from which switches mark packets CE, such as 64KiB; default never.
    loss
        Share of packets lost on each link, 0 to 0.5.
    duplicate
        Share of packets duplicated on each link, 0 to 0.5.
    reorder
        Share of packets that each link delivers out of order, 0 to 0.5.
    until
        End the simulation at this simulated time.
    silence
        Minimum time without packets between two collectives of a captured job.
    window
        Maximum number of packets in flight per worker, for captured jobs; other jobs have window=
        in --jobs.
    top
        Links per scheme in the report.
    """
    if top < 1:
        raise UsageError("--top must be 1 or more")
    to.chosen()
    captures, names = captured.captures(files, none_needed=True)
    check_uncombined(names, captured.concat)

    from ..replay.aggregation.request import AggregationRequest, PreparedAggregation

    prepared = PreparedAggregation(
        AggregationRequest(
            fabric=fabric,
            captures=tuple(captures),
            jobs=tuple(jobs or ()),
            memory=tuple(memory or (4096,)),
            schemes=tuple(scheme or ()),
            runs=runs,
            seed=seed,
            jitter=jitter,
            buffer=buffer,
            ecn=ecn,
            loss=loss,
            duplicate=duplicate,
            reorder=reorder,
            until=until,
            silence=silence,
            window=window,
            tap_names=names,
            ethers=captured.addresses(),
            job_logs=logs.patterns(),
            map=captured.map,
            filter=captured.filter,
            concat=captured.concat,
        )
    )
    if captures:
        with reading_shown(to.progress, captures[0]) as read:
            prepared.read(read)
    with steps_shown(to.progress) as tell:
        result = prepared.run(tell)

    from ..report.terminal.aggregate import fill_aggregation

    def html() -> bytes:
        from ..report.html.documents import aggregation_html

        return aggregation_html(result, top)

    to.write_replay(result, lambda page: fill_aggregation(page, result, top), html)
    return 0
