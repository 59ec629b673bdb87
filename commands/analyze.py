"""`rocescope analyze`: captures in, the report out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from ..analyzer.errors import UnreadableInput, UsageError
from .output import whole_file, write_results
from .units import parse_duration, parse_rate

if TYPE_CHECKING:
    from ..analyzer.results import Analysis

Format: TypeAlias = Literal["table", "json", "csv", "parquet", "arrow"]
ColorWhen: TypeAlias = Literal["auto", "always", "never"]
ProgressAs: TypeAlias = Literal["auto", "none", "bar", "json"]

_SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "table",
}
_BINARY = ("parquet", "arrow")
_INTERRUPTED = 130
STANDARD_INPUT = Path("/dev/stdin")


def analyze(
    *files: Annotated[Path, Parameter(required=True, name="FILE")],
    format: Annotated[Format | None, Parameter(alias="-f")] = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    top: int | None = None,
    sort: str | None = None,
    filter: str | None = None,
    window: str = "100ms",
    path_by: Literal["entropy", "tap"] = "entropy",
    concat: Annotated[bool, Parameter(negative="")] = False,
    follow: Annotated[bool, Parameter(negative="")] = False,
    udp_port: Annotated[tuple[int, ...], Parameter(negative="")] = (),
    icrc: Annotated[bool, Parameter(negative="")] = False,
    link_rate: str | None = None,
    progress: ProgressAs = "auto",
    color: ColorWhen = "auto",
) -> int:
    """Report what every queue pair in the captures did.

    Parameters
    ----------
    files
        Captures: pcap or pcapng, also compressed with gzip, zstd, xz or lz4; - is standard
        input. Several files are several vantage points (taps) of the same traffic.
    format
        How to print: table (a report for people), json (everything), csv, parquet or arrow
        (one row per flow). Without it the suffix of --output decides, else table.
    output
        Write to this file instead of standard output.
    top
        Rows of each table of the report [default: 20].
    sort
        Order the flows by this column of the CSV output, the largest first.
    filter
        Analyse only packets that pass, in Wireshark's notation: ip.src == 10.0.0.0/8 and
        infiniband.bth.opcode == 6. Short names: src, dst, qp, opcode, sport, dscp, nak, cnp.
    window
        Length of the windows of the time series.
    path_by
        What tells the paths of a flow apart: the entropy value (UDP source port, IPv6 flow
        label) or the tap that saw the packet.
    concat
        Join the files in the order of time, as one rotated capture.
    follow
        Wait for more at the end of a growing file; Ctrl-C ends it with the report.
    udp_port
        Count this UDP destination port as RoCE besides 4791; may be given several times.
    icrc
        Verify the invariant CRC of packets that were captured whole.
    link_rate
        Rate of the links, such as 400G, for pause times where the capture does not tell it.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    color
        Colour in the report: auto heeds the terminal, NO_COLOR and FORCE_COLOR.
    """
    chosen = _format(format, output)
    if top is not None and chosen != "table":
        raise UsageError(f"--top cuts the tables of the report; {chosen} always holds every flow")
    if top is not None and top < 1:
        raise UsageError("--top must be 1 or more")
    if chosen in _BINARY and output is None and sys.stdout.isatty():
        raise UsageError(f"--format {chosen} is not text: give -o FILE or redirect it")
    _check_inputs(files, concat, follow)
    window_ns = parse_duration(window, "--window")
    rate = parse_rate(link_rate, "--link-rate") if link_rate else None
    if sort:
        from ..analyzer.report.flowtable import flow_column

        flow_column(sort)
    if filter is not None:
        from ..analyzer.filtering import compile_filter

        compile_filter(filter)

    from ..analyzer import analyze as engine
    from .progress import shown

    options = engine.AnalyzeOptions(
        path_by=path_by,
        window_ns=window_ns,
        filter=filter,
        concat=concat,
        follow=follow,
        udp_ports=(4791, *udp_port),
        icrc=icrc,
        link_rate_bits_per_second=rate,
    )
    paths = [input_name(path) for path in files]
    with shown(progress) as report:
        analysis = engine.analyze(paths, options, report)
    if sort:
        from ..analyzer.report.flowtable import sort_flows

        analysis = sort_flows(analysis, sort)
    _write(analysis, chosen, output, top or 20, sort, color)
    return _exit_code(analysis)


def input_name(path: Path) -> str:
    """The name by which the reader knows an input: - is standard input."""
    return "-" if path == STANDARD_INPUT else str(path)


def _format(format: Format | None, output: Path | None) -> Format:
    if format is not None:
        return format
    if output is None or output == Path("/dev/stdout"):
        return "table"
    if output.suffix.lower() not in _SUFFIXES:
        raise UsageError(
            f"the suffix of {output} does not tell a format: "
            "give --format table, json, csv, parquet or arrow"
        )
    return _SUFFIXES[output.suffix.lower()]


def _check_inputs(files: tuple[Path, ...], concat: bool, follow: bool) -> None:
    if follow and len(files) > 1:
        raise UsageError("--follow reads one growing file, not several")
    if follow and concat:
        raise UsageError("--follow and --concat exclude each other")
    repeated = {path for path in files if files.count(path) > 1}
    if repeated:
        raise UsageError(f"{min(repeated)} is given twice; its packets would count as copies")


def _write(
    analysis: Analysis,
    format: Format,
    output: Path | None,
    top: int,
    sort: str | None,
    color: ColorWhen,
) -> None:
    if format != "table":
        from ..analyzer.report import encode

        write_results(encode(analysis, format), output, format in _BINARY)
        return
    from ..tui.terminal_report import print_report

    if output is None:
        print_report(analysis, sys.stdout, top=top, sort=sort is not None, color=color)
        return
    import io

    with whole_file(output) as file:
        text = io.TextIOWrapper(file, "utf-8", write_through=True)
        print_report(analysis, text, top=top, sort=sort is not None, color=color)
        text.detach()


def _exit_code(analysis: Analysis) -> int:
    if not analysis.complete:
        print("rocescope: interrupted; the report covers what was read so far", file=sys.stderr)
        return _INTERRUPTED
    damaged = [capture.name for capture in analysis.captures if capture.damaged_places]
    if damaged:
        print(
            f"rocescope: {', '.join(damaged)} could not be read completely; "
            "the report covers the rest",
            file=sys.stderr,
        )
        return UnreadableInput.exit_code
    return 0
