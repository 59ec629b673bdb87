"""`rocescope sweep`: the distribution of imbalance over hash seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..analyzer.errors import UsageError
from .options.output import REPORT_OUTPUT, ReportOutput
from .options.progress import reading_shown, steps_shown
from .options.taps import OFFERED, Offered
from .table import Parameter

if TYPE_CHECKING:
    from ..replay.hashing.seeded import SeedRange

_SEEDS = 1 << 32


def sweep(
    *files: Annotated[Path, Parameter(name="FILE")],
    fabric: str,
    hash: str | None = None,
    fields: str | None = None,
    option: Annotated[list[str] | None, Parameter(negative="")] = None,
    seeds: str = "0:10000",
    per_switch: Literal["different", "equal"] = "different",
    measure: Literal["fim-bytes", "fim-flows", "max-over-mean"] = "fim-bytes",
    production: str | None = None,
    traffic: Annotated[Offered, Parameter(name="*")] = OFFERED,
    to: Annotated[ReportOutput, Parameter(name="*")] = REPORT_OUTPUT,
) -> int:
    """Show the distribution of imbalance over hash seeds, with the best and worst seeds.

    Parameters
    ----------
    files
        Captures of the hosts' traffic; several files are several taps, and a packet at several taps
        counts once.
    fabric
        A fabric such as leaf-spine:leaves=4,spines=4,hosts=8, or a file, see rocescope fabric.
    hash
        Hash function of the switches, such as linux, crc16-ccitt, crc32, toeplitz or jenkins.
    fields
        Hashed fields, such as 3-tuple, 5-tuple, 5-tuple+qpn, 5-tuple+flow-label or 5-tuple+ingress.
    option
        Another hash setting, such as rotate=4, offset=2, seed-use=xor, reduction=range or policy=0;
        may be repeated.
    seeds
        Seeds to try, FIRST:END or FIRST:END:STEP, where END is not included.
    per_switch
        different: every switch has its own seed, derived from the swept seed; equal: all have the
        swept seed.
    measure
        Measure of imbalance, of the worst layer: fim-bytes, fim-flows or max-over-mean.
    production
        The seed in use: the report shows its rank. Default: the seeds of the fabric, if any.
    """
    to.chosen()
    span = parse_seeds(seeds)
    in_use = None if production is None else parse_seed(production, "--production")

    from ..analyzer.spec import parse_options
    from ..replay.compare.captured import sweep_result
    from ..replay.compare.prepared import PreparedReplay

    options = parse_options(",".join(option or ()), "--option")
    for key in ("seed", "per-switch", "hash", "fields"):
        if key in options:
            raise UsageError(f"--option {key}: use --{key if key != 'seed' else 'seeds'}")
    options |= {k: v for k, v in (("hash", hash), ("fields", fields)) if v is not None}
    prepared = PreparedReplay(traffic.request(fabric, files, strategies=()))
    sources = prepared.request.sources
    with reading_shown(to.progress, sources[0]) as read:
        captured = prepared.read(read)
    with steps_shown(to.progress) as tell:

        def swept(done: int, total: int) -> None:
            if tell is not None:
                tell("seeds", done, total)

        result = sweep_result(
            captured,
            prepared.fabric,
            options,
            span,
            per_switch,
            measure,
            in_use,
            sources,
            swept,
        )

    from ..report.terminal.sweep import fill_sweep

    def html() -> bytes:
        from ..report.html.documents import sweep_html

        return sweep_html(result)

    to.write_replay(result, lambda page: fill_sweep(page, result), html)
    return 0


def parse_seed(text: str, option: str) -> int:
    """A seed of 32 bits, decimal or 0x...; UsageError names the option."""
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value < _SEEDS:
        raise UsageError(f"{option} {text!r} is not a seed: use 0 to {_SEEDS - 1} or 0x...")
    return value


def parse_seeds(text: str) -> SeedRange:
    """`0:10000`, `0:0x100000000` or `0:1000000:7`."""
    from ..replay.hashing.seeded import SeedRange

    parts = text.split(":")
    try:
        numbers = [int(part, 0) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3) or numbers[0] < 0 or numbers[1] > _SEEDS or min(numbers) < 0:
        raise UsageError(f"--seeds {text!r} is not a range: write FIRST:END, such as 0:10000")
    span = SeedRange(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 1)
    if span.step < 1 or span.end <= span.first:
        raise UsageError(f"--seeds {text} contains no seed")
    return span
