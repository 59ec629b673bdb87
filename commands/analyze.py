"""`rocescope analyze`: captures in, the report out."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from ..analyzer.errors import UsageError
from ..analyzer.units import parse_duration, parse_rate
from .live.analyze_live import Hook, LiveArguments, analyze_live
from .options.endings import exit_code
from .options.inputs import STANDARD_OUTPUT, check_inputs, input_name
from .options.output import whole_file, write_results
from .options.parameter import Parameter
from .options.progress import ProgressAs, shown
from .options.reading import reading_options

if TYPE_CHECKING:
    from ..analyzer.results.analysis import Analysis

Format: TypeAlias = Literal["table", "json", "csv", "parquet", "arrow"]
ColorWhen: TypeAlias = Literal["auto", "always", "never"]

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


def analyze(
    *files: Annotated[Path, Parameter(required=True, name="FILE")],
    format: Annotated[Format | None, Parameter(alias="-f")] = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    top: int | None = None,
    sort: str | None = None,
    filter: str | None = None,
    window: str = "100ms",
    path_by: Literal["entropy", "tap", "srv6"] = "entropy",
    plane_by: str = "auto",
    usid: str = "32:16",
    flow_label: Literal["auto", "inner", "outer"] = "auto",
    trimmed_dscp: Annotated[list[int] | None, Parameter(negative="")] = None,
    concat: Annotated[bool, Parameter(show_default=False)] = False,
    follow: Annotated[bool, Parameter(show_default=False)] = False,
    udp_port: Annotated[list[int] | None, Parameter(negative="")] = None,
    icrc: Annotated[bool, Parameter(show_default=False)] = False,
    link_rate: str | None = None,
    clock: Literal["capture", "hardware"] = "capture",
    mirror_format: Literal["lumina"] | None = None,
    switch_counters: Path | None = None,
    drop_duplicates: str | None = None,
    conformance: Annotated[bool, Parameter(show_default=False)] = False,
    live: Annotated[bool, Parameter(show_default=False)] = False,
    netns: str | None = None,
    hook: Hook | None = None,
    snaplen: Annotated[int | None, Parameter(alias="-s")] = None,
    ring: str | None = None,
    interval: str | None = None,
    duration: str | None = None,
    count: Annotated[int | None, Parameter(alias="-c")] = None,
    progress: ProgressAs = "auto",
    color: ColorWhen = "auto",
) -> int:
    """Report what every queue pair did, in captures or live on interfaces.

    Parameters
    ----------
    files
        Captures: pcap or pcapng, also in gzip, zstd, xz or lz4; - is standard input.
        With --live interfaces, as NETNS:IFACE where they are in another network namespace.
    format
        Report for people (table), everything (json), or one row per flow (csv ...).
    output
        Write to this file; its suffix decides the format unless --format is given.
    top
        Rows of each table of the report, 20 unless given.
    sort
        Order the flows by this column of the CSV output, the largest first.
    filter
        Analyse only packets that pass a filter in Wireshark's notation, see docs/filter.md.
    window
        Length of the windows of the time series.
    path_by
        What tells paths apart: the UDP source port and flow label, the tap, or SRv6 segments.
    plane_by
        What tells planes of MRC apart: auto, tap, segment:N (SRv6) or ev:SHIFT:BITS.
    usid
        Bits of the block and of each uSID in SRv6 addresses.
    flow_label
        Of MRC in SRv6: auto asks SACKs whether the outer header's counts where the inner one is 0.
    trimmed_dscp
        DSCP that marks trimmed packets of MRC; may be repeated.
    concat
        The files are one rotated capture; else each is a vantage point (tap).
    follow
        Wait for more at the end of a growing file; Ctrl-C ends it with the report.
    udp_port
        Count this UDP destination port as RoCE besides 4791; may be repeated.
    icrc
        Verify the invariant CRC of packets that were captured whole.
    link_rate
        Rate of the links, such as 400G, for pause times.
    clock
        Where times come from; hardware: the timestamps of mirrors (ERSPAN III, Arista).
    mirror_format
        Mirrors that write into the packets' own headers: lumina.
    switch_counters
        With --mirror-format lumina: what its switch counted (switch_state_snapshot.yml).
    drop_duplicates
        Drop packets that repeat one of at most this time before, such as 20us.
    conformance
        Check the rules of the protocol too, see docs/conformance.md and rocescope check.
    live
        Capture on interfaces by eBPF: a line per interval, the report at the end (Ctrl-C).
    netns
        With --live: network namespace of the interfaces, a name, a path, or pid:N.
    hook
        With --live: tc (the default) sees both directions, xdp only what arrives.
    snaplen
        With --live: bytes kept of each frame, 96 unless given.
    ring
        With --live: size of the buffer for each CPU, for example 64MiB.
    interval
        With --live: time between two lines, 1s unless given.
    duration
        With --live: end after this time.
    count
        With --live: end after this many packets.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    color
        Colour in the report: auto heeds the terminal, NO_COLOR and FORCE_COLOR.
    """
    if output == STANDARD_OUTPUT:
        output = None
    chosen = _format(format, output)
    if top is not None and chosen != "table":
        raise UsageError(f"--top cuts the tables of the report; {chosen} always holds every flow")
    if top is not None and top < 1:
        raise UsageError("--top must be 1 or more")
    if chosen in _BINARY and output is None and sys.stdout.isatty():
        raise UsageError(f"--format {chosen} is not text: give -o FILE or redirect it")
    arguments = LiveArguments(netns, hook, snaplen, ring, interval, duration, count)
    if live:
        _check_live(chosen, concat, follow, icrc, conformance)
    else:
        arguments.refuse()
        check_inputs(files)
    if live and (plane_by != "auto" or usid != "32:16" or trimmed_dscp or flow_label != "auto"):
        raise UsageError(
            "--plane-by, --usid, --flow-label and --trimmed-dscp are for files, not for --live"
        )
    reading = reading_options(
        len(files),
        filter=filter,
        concat=concat,
        follow=follow,
        udp_port=udp_port,
        plane_by=plane_by,
        usid=usid,
        flow_label=flow_label,
        trimmed_dscp=trimmed_dscp,
        clock=clock,
        mirror_format=mirror_format,
        drop_duplicates=drop_duplicates,
        switch_counters=switch_counters,
    )
    window_ns = parse_duration(window, "--window")
    rate = parse_rate(link_rate, "--link-rate") if link_rate else None
    if live and reading.mirror is not None:
        raise UsageError(
            "--clock, --mirror-format and --drop-duplicates are for files, not for --live"
        )
    if sort:
        from ..report.files.flowtable import flow_column

        flow_column(sort)
    if live:
        analysis, code = analyze_live(
            [str(path) for path in files],
            arguments,
            json=chosen == "json",
            filter=filter,
            udp_ports=reading.udp_ports,
            path_by=path_by,
            window_ns=window_ns,
            writes_file=output is not None,
        )
        _write_sorted(analysis, chosen, output, top or 20, sort, color)
        return code

    from ..analyzer.analysis import analyze as engine
    from ..analyzer.measures.conformance.options import ConformanceOptions

    options = replace(
        reading,
        path_by=path_by,
        window_ns=window_ns,
        icrc=icrc,
        link_rate_bits_per_second=rate,
        conformance=ConformanceOptions() if conformance else None,
    )
    paths = [input_name(path) for path in files]
    with shown(progress) as report:
        analysis = engine.analyze(paths, options, report)
    _write_sorted(analysis, chosen, output, top or 20, sort, color)
    return exit_code(analysis)


def _check_live(format: Format, concat: bool, follow: bool, icrc: bool, conformance: bool) -> None:
    if format not in ("table", "json"):
        raise UsageError(f"--live prints table or json, not {format}")
    options = {"--concat": concat, "--follow": follow, "--icrc": icrc}
    for option, given in (options | {"--conformance": conformance}).items():
        if given:
            raise UsageError(f"{option} is for capture files, not for --live")


def _format(format: Format | None, output: Path | None) -> Format:
    if format is not None:
        return format
    if output is None:
        return "table"
    if output.suffix.lower() not in _SUFFIXES:
        raise UsageError(
            f"the suffix of {output} does not tell a format: "
            "give --format table, json, csv, parquet or arrow"
        )
    return _SUFFIXES[output.suffix.lower()]


def _write_sorted(
    analysis: Analysis,
    format: Format,
    output: Path | None,
    top: int,
    sort: str | None,
    color: ColorWhen,
) -> None:
    if sort:
        from ..report.files.flowtable import sort_flows

        analysis = sort_flows(analysis, sort)
    _write(analysis, format, output, top, sort, color)


def _write(
    analysis: Analysis,
    format: Format,
    output: Path | None,
    top: int,
    sort: str | None,
    color: ColorWhen,
) -> None:
    if format != "table":
        from ..report.files import encode

        write_results(encode(analysis, format), output)
        if format != "json":  # a table of flows has no place for them
            for warning in analysis.warnings:
                if not warning.startswith("interrupted"):  # exit_code says so in any format
                    print(f"rocescope: {warning}", file=sys.stderr)
        return
    from ..report.terminal.report import print_report

    if output is None:
        print_report(analysis, sys.stdout, top=top, sort=sort is not None, color=color)
        return
    import io

    with whole_file(output) as file:
        text = io.TextIOWrapper(file, "utf-8", write_through=True)
        print_report(analysis, text, top=top, sort=sort is not None, color=color)
        text.detach()
