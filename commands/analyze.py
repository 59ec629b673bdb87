"""`rocescope analyze`: captures in, the report out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from .units import parse_duration, parse_rate

Format = Literal["table", "json", "csv", "parquet", "arrow"]


def analyze(
    *files: Annotated[Path, Parameter(required=True)],
    format: Annotated[Format | None, Parameter(alias="-f")] = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    filter: str | None = None,
    window: str = "100ms",
    path_by: Literal["entropy", "tap"] = "entropy",
    concat: Annotated[bool, Parameter(negative="")] = False,
    follow: Annotated[bool, Parameter(negative="")] = False,
    udp_port: Annotated[tuple[int, ...], Parameter(negative="")] = (4791,),
    icrc: Annotated[bool, Parameter(negative="")] = False,
    link_rate: str | None = None,
    top: int = 20,
) -> int:
    """Report what every queue pair in the captures did."""
    window_ns = parse_duration(window, "--window")
    rate = parse_rate(link_rate, "--link-rate") if link_rate else None

    import sys

    import msgspec

    from ..analyzer import analyze as engine

    options = engine.AnalyzeOptions(
        path_by=path_by,
        window_ns=window_ns,
        filter=filter,
        concat=concat,
        follow=follow,
        udp_ports=udp_port,
        icrc=icrc,
        link_rate_bits_per_second=rate,
        top=top,
    )
    analysis = engine.analyze([str(path) for path in files], options, None)
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(analysis)) + b"\n")
    return 0 if analysis.complete else 130
