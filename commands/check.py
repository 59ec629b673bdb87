"""`rocescope check`: conformance of the queue pairs to the protocol rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..analyzer.errors import UsageError
from ..analyzer.words import parse_duration
from .options.output import OUTPUT, Output, ReportFormat, exit_code
from .options.progress import shown
from .options.reading import PORTS, Ports, mirror_options
from .options.taps import NAMING, Naming, check_uncombined
from .table import Parameter

if TYPE_CHECKING:
    from ..analyzer.results.analysis import Analysis
    from ..report.terminal.page import Page

_VIOLATED = 1


def check(
    *files: Annotated[Path, Parameter(name="FILE")],
    counters: Annotated[tuple[Path, Path] | None, Parameter(name="--counters")] = None,
    host: str | None = None,
    at_host: Annotated[list[str] | None, Parameter(negative="")] = None,
    cnp_interval: str = "4us",
    cnp_for_nak: Annotated[bool, Parameter(show_default=False)] = False,
    same_port: Annotated[list[str] | None, Parameter(negative="")] = None,
    reaction: str = "1s",
    concat: Annotated[bool, Parameter(show_default=False)] = False,
    naming: Annotated[Naming, Parameter(name="*")] = NAMING,
    ports: Annotated[Ports, Parameter(name="*")] = PORTS,
    mirror_format: Literal["lumina"] | None = None,
    switch_counters: Path | None = None,
    to: Annotated[Output, Parameter(name="*")] = OUTPUT,
    top: int = 20,
) -> int:
    """Check conformance to the protocol rules, see docs/conformance.md.

    Parameters
    ----------
    files
        Captures: pcap or pcapng, also in gzip, zstd, xz or lz4; - is standard input.
    counters
        Counters of one host before and after the capture: two files of ethtool -S, rdma statistic
        or hw_counters.
    host
        Address of the host of --counters.
    at_host
        This host is next to a tap: ADDRESS or ADDRESS=TAP. Missing answers of the host are then
        violations. May be repeated.
    cnp_interval
        Minimum time between two CNPs of one pacing scope.
    cnp_for_nak
        The adapters also send a CNP for a NAK (some ConnectX).
    same_port
        Addresses of one adapter port, ADDRESS,ADDRESS, that share its CNPs. May be repeated.
    reaction
        Maximum time in which a sender reacts to an answer, queueing included.
    concat
        The files are parts of one rotated capture; without this option each file is a vantage point
        (tap).
    mirror_format
        Format of mirrors that overwrite packet headers: lumina.
    switch_counters
        With --mirror-format lumina: counters of its switch (switch_state_snapshot.yml).
    top
        Rows of each table of the report.
    """
    to.chosen()
    if top < 1:
        raise UsageError("--top must be 1 or more")
    paths, tap_names = naming.captures(files)
    check_uncombined(tap_names, concat)
    if (counters is None) != (host is None):
        raise UsageError("--counters and --host must be given together")

    from ..analyzer.measures.conformance.options import (
        ConformanceOptions,
        HostCounters,
        parse_at_host,
        parse_same_port,
    )
    from ..analyzer.pipeline import captures as engine
    from ..analyzer.pipeline.options import AnalyzeOptions

    saved = None
    if counters is not None and host is not None:
        from ..analyzer.measures.conformance.counters import growth

        saved = HostCounters(host, growth(*counters))
    options = AnalyzeOptions(
        concat=concat,
        tap_names=tap_names,
        ethers=naming.addresses(),
        udp_ports=ports.udp_ports,
        mirror=mirror_options("capture", mirror_format, None, switch_counters),
        conformance=ConformanceOptions(
            cnp_interval_ns=parse_duration(cnp_interval, "--cnp-interval"),
            reaction_ns=parse_duration(reaction, "--reaction"),
            cnp_for_nak=cnp_for_nak,
            same_port=tuple(map(parse_same_port, same_port or ())),
            counters=saved,
            at_hosts=tuple(map(parse_at_host, at_host or ())),
        ),
    )
    with shown(to.progress) as report:
        analysis = engine.analyze(paths, options, report)
    _write(analysis, to, top)
    code = exit_code(analysis)
    if code == 0 and analysis.conformance and not analysis.conformance.conformant:
        return _VIOLATED
    return code


def _write(analysis: Analysis, to: Output, top: int) -> None:
    def fill(page: Page) -> None:
        from ..report.terminal.report import CheckReport

        CheckReport(analysis, page, top).print()

    def encoded(format: ReportFormat) -> bytes:
        from ..report.files.results import encode_check

        return encode_check(analysis, format)

    to.write(fill, encoded)
