"""`rocescope aggregate`: in-network aggregation schemes on the same jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ...analyzer.errors import UsageError
from ..options.output import OUTPUT, Output
from ..options.parameter import Parameter
from ..options.progress import reading_shown
from ..options.replaying import CAPTURED, Captured
from ..options.steps import steps_shown
from ..options.taps import check_uncombined

if TYPE_CHECKING:
    from ...replay.aggregation.jobs import Job
    from ...replay.fabrics.fabric import Fabric

_RUNS = 1000


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
    top: int = 5,
    to: Annotated[Output, Parameter(name="*")] = OUTPUT,
) -> int:
    """Compare schemes that sum gradients in switches: job completion times, memory, fallback.

    Parameters
    ----------
    files
        Captures whose all-reduces become jobs, with their sizes and gaps; several files are
        several taps, and packets count once.
    fabric
        A fabric such as leaf-spine:leaves=1,spines=1,hosts=72,rate=100G, or a file.
    jobs
        Training jobs: count=4,workers=8,model=comm,iterations=3; may be repeated, see
        docs/aggregation.md.
    memory
        Slots of the memory of each switch, of 248 bytes; may be repeated. Default 4096.
    scheme
        switchml, atp, esa, ideal or none, with options: atp:rto=50us; may be repeated. Default all.
    runs
        Runs with different seeds.
    seed
        The first seed, of compute times, paths and faults.
    jitter
        Compute times vary by up to this share.
    buffer
        Buffer of each output queue, such as 1MiB; default unlimited.
    ecn
        Switches mark packets from this queue on, such as 64KiB; default never.
    loss
        Share of packets lost on each link.
    duplicate
        Share of packets duplicated on each link.
    reorder
        Share of packets that each link delivers later than packets behind them.
    until
        End of the simulated time.
    silence
        Between two collectives of a captured job, at least.
    window
        Packets of a worker in flight, at most, of captured jobs; others have window= in --jobs.
    top
        Links per scheme in the report.
    """
    to.chosen()
    if not 1 <= runs <= _RUNS:
        raise UsageError(f"--runs is 1 to {_RUNS:,}, not {runs:,}")
    if not 0 <= seed < 1 << 32:
        raise UsageError(f"--seed is 0 to {(1 << 32) - 1}, not {seed}")
    for option, share in (
        ("jitter", jitter),
        ("loss", loss),
        ("duplicate", duplicate),
        ("reorder", reorder),
    ):
        if not 0 <= share <= (10 if option == "jitter" else 0.5):
            raise UsageError(
                f"--{option} is a share of 0 to {10 if option == 'jitter' else 0.5}, not {share:g}"
            )
    if duplicate + reorder > 0.5:
        raise UsageError("--duplicate and --reorder are together at most 0.5")

    from ...analyzer.units import parse_duration, parse_size
    from ...replay.aggregation.compare import aggregation_result, check_sizes
    from ...replay.aggregation.jobs import MOST_JOBS, MOST_WINDOW, parse_jobs, place
    from ...replay.aggregation.run import Conditions
    from ...replay.aggregation.schemes.registry import parse_schemes
    from ...replay.fabrics.parse import parse_fabric

    if not 1 <= window <= MOST_WINDOW:
        raise UsageError(f"--window is 1 to {MOST_WINDOW:,}, not {window:,}")
    schemes, sizes, plans = parse_schemes(scheme or ()), memory or [4096], parse_jobs(jobs or ())
    check_sizes(sizes)
    if not plans and not files:
        raise UsageError("give captures, or jobs with --jobs")
    conditions = Conditions(
        slots=sizes[0],
        seed=seed,
        jitter=jitter,
        buffer_bytes=None if buffer is None else parse_size(buffer, "--buffer"),
        ecn_bytes=None if ecn is None else parse_size(ecn, "--ecn"),
        loss=loss,
        copies=duplicate,
        delays=reorder,
        until_ps=parse_duration(until, "--until") * 1000,
    )
    network = parse_fabric(fabric)
    silence_ns = parse_duration(silence, "--silence")
    found, notes = _read(files, network, captured, window, silence_ns, to)
    every = [*found, *place(parse_jobs(jobs or (), len(found) + 1), network, found)]
    if len(every) > MOST_JOBS:
        raise UsageError(f"{len(every):,} jobs exceed the maximum of {MOST_JOBS}")
    with steps_shown(to.progress) as tell:

        def ran(done: int, total: int) -> None:
            if tell is not None:
                tell("runs", done, total)

        result = aggregation_result(
            schemes, sizes, every, network, conditions, runs, not scheme, notes, ran
        )

    from ...report.terminal.aggregate import print_aggregation

    to.write_replay(result, lambda file: print_aggregation(result, file, to.color, top))
    return 0


def _read(
    files: tuple[Path, ...],
    fabric: Fabric,
    options: Captured,
    window: int,
    silence_ns: int,
    to: Output,
) -> tuple[list[Job], list[str]]:
    """The jobs of captures, and notes on them."""
    captures, names = options.captures(files, none_needed=True)
    check_uncombined(names, options.concat)
    if not captures:
        if options.map != "exact" or options.filter or options.concat:
            raise UsageError("--map, --filter and --concat need captures")
        return [], []

    from ...replay.aggregation.captured import captured_jobs
    from ...replay.traffic.observed import traffic_from_capture

    with reading_shown(to.progress, captures[0]) as read:
        traffic = traffic_from_capture(
            captures,
            fabric,
            options.map,
            filter=options.filter,
            concat=options.concat,
            tap_names=names,
            messages=True,
            progress=read,
        )
    jobs, notes = captured_jobs(traffic, fabric, window, silence_ns)
    return jobs, [*traffic.warnings, *notes]
