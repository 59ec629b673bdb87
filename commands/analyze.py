"""`rocescope analyze`: the report on captures or live interfaces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from ..analyzer.errors import UsageError, require
from ..analyzer.summary.trust import ENDED_EARLY
from ..analyzer.words import parse_duration, parse_rate
from .analyze_live import analyze_live
from .options.capturing import CAPTURING, IDLE_AFTER, UNTIL, Capturing, Until, writable_later
from .options.output import REPORT_OUTPUT, ReportFormat, ReportOutput, exit_code
from .options.progress import shown
from .options.reading import (
    JOB_LOGS,
    JOB_RECORDS,
    READING,
    JobLogs,
    JobRecords,
    PathKey,
    Reading,
    parse_dscp_priorities,
)
from .table import Parameter, changed

if TYPE_CHECKING:
    from ..analyzer.results.analysis import Analysis
    from ..report.out_folder import OutFolder
    from ..report.terminal.page import Page

Severity: TypeAlias = Literal["critical", "warning", "note"]


def analyze(
    *files: Annotated[Path, Parameter(name="FILE")],
    to: Annotated[ReportOutput, Parameter(name="*")] = REPORT_OUTPUT,
    brief: Annotated[bool, Parameter(show_default=False)] = False,
    fail_on: Severity | None = None,
    top: int | None = None,
    sort: str | None = None,
    window: str = "100ms",
    path_by: PathKey = "auto",
    reading: Annotated[Reading, Parameter(name="*")] = READING,
    fabric: str | None = None,
    switch_counters: Path | None = None,
    logs: Annotated[JobLogs, Parameter(name="*")] = JOB_LOGS,
    records: Annotated[JobRecords, Parameter(name="*")] = JOB_RECORDS,
    icrc: Annotated[bool, Parameter(show_default=False)] = False,
    link_rate: str | None = None,
    dscp_priority: str | None = None,
    conformance: Annotated[bool, Parameter(show_default=False)] = False,
    live: Annotated[bool, Parameter(show_default=False)] = False,
    interval: Annotated[str | None, Parameter(group="With --live")] = None,
    idle_after: Annotated[str | None, Parameter(group="With --live or --follow")] = None,
    cluster: str | None = None,
    work: Annotated[Path | None, Parameter(group="With --cluster")] = None,
    partitions: Annotated[int | None, Parameter(group="With --cluster")] = None,
    until: Annotated[Until, Parameter(name="*", group="With --live")] = UNTIL,
    capturing: Annotated[Capturing, Parameter(name="*", group="With --live")] = CAPTURING,
) -> int:
    """Report what every queue pair did, in captures or live on interfaces.

    Parameters
    ----------
    files
        Captures: pcap or pcapng, also in gzip, zstd, xz or lz4; - is standard input.
        Also folders, patterns, and objects of a store: s3://BUCKET/PREFIX.
        With --live: interfaces, or NETNS:IFACE in another network namespace.
    brief
        Print only the diagnosis.
    fail_on
        Exit with code 1 when a finding has this severity or a worse one.
    top
        Rows of each table of the report, default 20.
    sort
        Sort flows by this column of the CSV output, largest first.
    window
        Length of the windows of the time series.
    path_by
        Path key of a flow: entropy (UDP source port, IPv6 flow label), tap, link (of a capture with
        several, which are taps then) or srv6 (segments); auto: tap where taps are parallel, else
        entropy.
    fabric
        A fabric spec or file, see rocescope fabric: its links show which tap should have seen a
        lost packet next, if no other packet shows it.
    switch_counters
        With --mirror-format lumina: counters of its switch (switch_state_snapshot.yml).
    icrc
        Verify the invariant CRC of packets that are not truncated.
    link_rate
        Link rate for pause times, such as 400G, if the capture does not state it.
    dscp_priority
        Priorities of DSCPs in the switches, such as 26=3,48=6: which packets a PFC pause holds.
        Other DSCPs: DSCP / 8. A VLAN tag has its own priority.
    conformance
        Also check the protocol rules, see docs/conformance.md and rocescope check.
    live
        Capture on interfaces with eBPF: one line per interval; Ctrl-C prints the report.
    interval
        Time between two lines, default 1s.
    idle_after
        End flows without a packet for this time, default 60s. The worst 1000 ended flows stay
        listed; the others are removed from memory and stay in the totals.
    cluster
        local:N: split the analysis into tasks, on N processes of this machine; tls://HOST:PORT: on
        the workers of a Dask scheduler. See docs/cluster.md.
    work
        The folder of the tasks. The same command resumes an interrupted analysis.
    partitions
        Number of partitions by host pair, which is the number of reduce tasks; default: the number
        of processes.
    """
    folder = None
    if not live:
        to.check_folder()
        folder = to.folder()
    chosen = to.chosen() if folder is None else "html"
    if top is not None and chosen not in ("table", "html"):
        raise UsageError(f"--top is for the tables of the report; {chosen} contains every flow")
    if top is not None and top < 1:
        raise UsageError("--top must be 1 or more")
    if brief and chosen != "table":
        raise UsageError(f"--brief is for the report; {chosen} contains everything")
    if brief and top is not None:
        raise UsageError("--brief prints no table: it cannot be combined with --top")
    if live:
        if chosen not in ("table", "html", "json"):
            raise UsageError(f"--live prints table, html or json, not {chosen}")
        if chosen == "html" and to.file is None:
            raise UsageError("--live prints a line per interval: give -o FILE for the HTML report")
        _only_files(reading, fabric, switch_counters, records, icrc, conformance)
        if dscp_priority is not None:
            raise UsageError("--dscp-priority cannot be combined with --live")
        if not files:
            raise UsageError("no interface is given: rocescope analyze --live IFACE")
        paths, tap_names = [str(path) for path in files], dict[str, str]()
    else:
        only_live = [
            *changed(until, UNTIL),
            *changed(capturing, CAPTURING),
            *["--interval"] * (interval is not None),
        ]
        if only_live:
            raise UsageError(f"{only_live[0]} needs --live: rocescope analyze --live IFACE")
        paths, tap_names = reading.captures(files)
    if idle_after is not None and not (live or reading.follow):
        raise UsageError("--idle-after needs --live or --follow")
    idle_ns = parse_duration(idle_after or IDLE_AFTER, "--idle-after")
    if cluster is None and (work is not None or partitions is not None):
        raise UsageError("--work and --partitions need --cluster: --cluster local:2")
    if cluster is not None and live:
        raise UsageError("--cluster cannot be combined with --live")
    options = reading.options(paths, tap_names, switch_counters)
    window_ns = parse_duration(window, "--window")
    rate = None if link_rate is None else parse_rate(link_rate, "--link-rate")
    priorities = {} if dscp_priority is None else parse_dscp_priorities(dscp_priority)
    flow_order = None
    if sort is not None:
        from ..report.files.tables import flow_order_by

        flow_order = flow_order_by(sort)
    if live:
        with writable_later(to.file) as file:
            analysis, code = analyze_live(
                paths,
                capturing.options(reading),
                until,
                json=chosen == "json",
                path_by=path_by,
                window_ns=window_ns,
                interval_ns=parse_duration(interval or "1s", "--interval"),
                idle_ns=idle_ns,
                flow_order=flow_order,
                job_logs=logs.patterns(must_exist=False),
                file=file,
            )
            to = replace(to, format=chosen, output=file)
            write_analysis(analysis, to, top or 20, sort is not None, brief)
        return code or failed(analysis, fail_on)

    from ..analyzer.measures.conformance.options import ConformanceOptions
    from ..analyzer.pipeline import captures as engine
    from .options.reading import fabric_links

    options = replace(
        records.added(options),
        path_by=path_by,
        window_ns=window_ns,
        idle_ns=idle_ns if reading.follow else None,
        icrc=icrc,
        link_rate_bits_per_second=rate,
        dscp_priority=priorities,
        flow_order=flow_order,
        fabric=None if fabric is None else fabric_links(fabric),
        job_logs=logs.patterns(),
        conformance=ConformanceOptions() if conformance else None,
    )

    def analysed(out: OutFolder | None) -> Analysis:
        if cluster is not None:
            from .options.tasks import in_tasks

            return in_tasks(paths, options, cluster, work, partitions, to.progress)
        with shown(to.progress) as report:
            return engine.analyze(paths, options, report, None if out is None else out.ended)

    if folder is None:
        analysis = analysed(None)
        write_analysis(analysis, to, top or 20, sort is not None, brief)
    else:
        require("pyarrow")
        from ..report.out_folder import out_folder

        with out_folder(folder) as out:
            analysis = analysed(out)
            out.write(analysis, top or 20, sort is not None)
    return exit_code(analysis) or failed(analysis, fail_on)


def failed(analysis: Analysis, fail_on: Severity | None) -> int:
    """1 when a finding is as severe as `fail_on` or worse, else 0."""
    if fail_on is None:
        return 0
    from ..report.notes import reaches

    return int(reaches(analysis.diagnosis, fail_on))


def _only_files(
    reading: Reading,
    fabric: str | None,
    switch_counters: Path | None,
    records: JobRecords,
    icrc: bool,
    conformance: bool,
) -> None:
    """UsageError for options that need files; of `reading`, --live takes only filter and ports."""
    kept = Reading(udp_port=reading.udp_port, filter=reading.filter)
    given = [*changed(reading, kept), *["--fabric"] * (fabric is not None)]
    given += ["--switch-counters"] * (switch_counters is not None)
    given += changed(records, JOB_RECORDS)
    given += ["--icrc"] * icrc + ["--conformance"] * conformance
    if given:
        raise UsageError(f"{given[0]} cannot be combined with --live")


def write_analysis(
    analysis: Analysis, to: ReportOutput, top: int, sorted_flows: bool, brief: bool
) -> None:
    """Print an analysis, or write it in the format of `to`."""

    def fill(page: Page) -> None:
        from ..report.terminal.report import Report

        Report(analysis, page, top, sorted_flows, brief).print()

    def encoded(format: ReportFormat) -> bytes:
        if format == "html":
            from ..report.html.documents import analysis_html

            return analysis_html(analysis, top, sorted_flows)
        from ..report.files import encode

        return encode(analysis, format)

    # exit_code reports an early end in every format.
    early = ("interrupted", ENDED_EARLY)
    to.write(fill, encoded, [w for w in analysis.warnings if not w.startswith(early)])
