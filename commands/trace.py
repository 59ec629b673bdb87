"""`rocescope trace`: the path of every captured flow on a fabric, once or until Ctrl-C."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..analyzer.errors import UsageError
from ..analyzer.words import parse_duration
from .discover import answers_of
from .options.output import REPORT_OUTPUT, ReportOutput
from .options.progress import reading_shown
from .options.reading import JOB_LOGS, JobLogs
from .options.taps import MAPPED, Mapped, check_inputs, input_name
from .table import Parameter, changed

if TYPE_CHECKING:
    from ..analyzer.jobs.job import Job
    from ..discovery.port_counters import Reading
    from ..discovery.traffic import HostTraffic
    from ..replay.fabrics.fabric import Fabric


def trace(
    *files: Annotated[Path, Parameter(name="FILE")],
    fabric: str,
    live: Annotated[list[str] | None, Parameter(negative="")] = None,
    hosts: Path | None = None,
    strategy: Annotated[list[str] | None, Parameter(alias="-s", negative="")] = None,
    verify: Annotated[list[Literal["taps", "counters"]] | None, Parameter(negative="")] = None,
    counters: Annotated[list[Path] | None, Parameter(negative="")] = None,
    ask: Literal["none", "sample", "all"] = "none",
    devices: str | None = None,
    advise: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    follow: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    duration: str | None = None,
    logs: Annotated[JobLogs, Parameter(name="*")] = JOB_LOGS,
    mapped: Annotated[Mapped, Parameter(name="*")] = MAPPED,
    to: Annotated[ReportOutput, Parameter(name="*")] = REPORT_OUTPUT,
    top: int = 5,
) -> int:
    """Show the path of every flow on a fabric, in both directions, with the evidence of each hop.

    Parameters
    ----------
    files
        Captures; several files are several taps. A tap with the name of a link, such as
        leaf1-spine2.pcap, is evidence for the flows on this link.
    fabric
        A fabric with hash settings and seeds, such as rocescope discover writes.
    live
        Capture on this interface, or NETNS:IFACE, in place of files, until Ctrl-C or the end of
        --duration; with --follow, new flows are traced when they appear. May be repeated.
    hosts
        Trace the queue pairs of running hosts in place of captures: an inventory, whose hosts are
        asked over SSH, or a folder with their answers. Bytes are not known.
    strategy
        Another placement of the same flows for comparison, as for replay, such as static; may be
        repeated; default assign.
    verify
        Compare the prediction of tables and hashes with captures (taps), or with the increase of
        port counters (counters); may be repeated.
    counters
        Folder with NAME.link.json (ip -j -s link) of the devices, as discover --raw writes it;
        twice: before and after the capture. With --live, the counters are read from --devices.
    ask
        Ask switches for their next hops: Linux with ip route get, others with their own path
        command (not tested on devices). sample: a sample of the computed hops, and all hops that
        cannot be computed; all: every hop. Needs --devices.
    devices
        Inventory of devices that are reached over SSH, or netns:PREFIX: the network namespace
        PREFIX + device name on this host. Flows whose switches change during the trace are marked.
    advise
        Print changes that reduce the load of the most loaded link: source ports, a seed, or static
        routes. Nothing is applied.
    follow
        Listen to the switches of --devices until Ctrl-C and print a line per change, with the flows
        that moved and the FIM. With --format json, one object per line.
    duration
        End --live or --follow after this time, such as 10m.
    top
        Number of flows, worst links and ends of unknown paths in the report.
    """
    to.chosen()
    if top < 1:
        raise UsageError("--top must be 1 or more")
    check_inputs(files)
    if not (files or live or hosts):
        raise UsageError("give captures, --live IFACE or --hosts INVENTORY")
    if bool(files) + bool(live) + (hosts is not None) > 1:
        raise UsageError("captures, --live and --hosts cannot be combined: give one of them")
    wanted = verify or []
    if hosts is not None:
        _check_hosts(wanted, advise, follow, mapped)
    _check_verify(wanted, counters, files, live, devices, mapped.concat)
    if live and mapped.concat:
        raise UsageError("--concat is for captures")
    if ask != "none" and devices is None:
        raise UsageError("--ask needs --devices")
    if follow:
        _check_follow(devices, strategy or wanted or advise or ask != "none", to)
        if live and mapped.map in ("order", "subnets"):
            raise UsageError("--live with --follow needs --map exact or a file: new addresses come")
    elif duration is not None and not live:
        raise UsageError("--duration needs --live or --follow")
    seconds = None if duration is None else parse_duration(duration, "--duration") / 1e9

    from ..discovery.collect import dialects_of, parse_devices
    from ..discovery.dialects.registry import read_all_counters
    from ..discovery.port_counters import growth
    from ..discovery.tracing.asking import Asking
    from ..discovery.tracing.trace import Verify
    from ..discovery.tracing.trace import trace as traced
    from ..replay.fabrics.parse import parse_fabric
    from ..replay.strategies.registry import parse_strategy
    from ..replay.traffic.observed import traffic_from_capture

    parsed = parse_fabric(fabric)
    grown: Reading | None = None
    if counters:
        grown = growth(*(read_all_counters(folder) for folder in counters))
    strategies = [parse_strategy(text) for text in strategy or ("assign",)]
    job = _job(logs)
    run = None if devices is None else parse_devices(devices)
    dialects = {} if devices is None else dialects_of(devices)
    names = [input_name(path) for path in files]
    from_hosts: HostTraffic | None = None
    if hosts is not None:
        names, from_hosts = [str(hosts)], _of_hosts(hosts, parsed, job, to)
        traffic = from_hosts.traffic
    elif live:
        from .live_flows import captured, counted_flows, follow_live
        from .options.capturing import Capturing
        from .options.reading import Selection

        names = live
        options = Capturing().options(Selection(filter=mapped.filter))
        with captured(live, options, parsed, mapped.map, job) as flows:
            if follow and run is not None:
                return follow_live(flows, run, dialects, parsed, seconds, top, to)
            count = run if "counters" in wanted and grown is None else None
            traffic, asked = counted_flows(flows, seconds, count, dialects, parsed)
            grown = asked if grown is None else grown
    else:
        with reading_shown(to.progress, names[0]) as read:
            how, packets = mapped.map, mapped.filter
            traffic = traffic_from_capture(
                names, parsed, how, filter=packets, concat=mapped.concat, job=job, progress=read
            )
    if follow and run is not None:
        from .live_flows import follow_fabric

        return follow_fabric(run, dialects, parsed, traffic, seconds, top, to)
    result = traced(
        traffic,
        parsed,
        strategies,
        names,
        asking=None if run is None or ask == "none" else Asking(run, ask, dialects),
        advice=advise,
        watch=run,
        verify=Verify("taps" in wanted, grown),
        most_flows=top if to.chosen() in ("table", "html") else None,
        hosts=from_hosts,
    )
    from ..report.terminal.trace import fill_trace

    def html() -> bytes:
        from ..report.html.documents import trace_html

        return trace_html(result, top)

    to.write_replay(result, lambda page: fill_trace(page, result, top), html)
    return 0


def _job(logs: JobLogs) -> Job | None:
    """The logs of the job. UsageError for a pattern without a file."""
    patterns = logs.patterns()
    if not patterns:
        return None
    from ..analyzer.jobs.job import Job
    from ..analyzer.jobs.lines import named

    return Job(named(patterns))


def _of_hosts(source: Path, fabric: Fabric, job: Job | None, to: ReportOutput) -> HostTraffic:
    """The queue pairs of an inventory's hosts, or of the answers in a folder."""
    from ..discovery.dialects.registry import DIALECTS
    from ..discovery.inventory import read_inventory
    from ..discovery.traffic import host_traffic

    if not source.is_file():
        return host_traffic(source, fabric, job)
    targets = [host for host in read_inventory(source, DIALECTS) if host.kind == "host"]
    if not targets:
        raise UsageError(f"{source}: the inventory names no host")
    with answers_of(targets, to.progress) as folder:
        return host_traffic(folder, fabric, job)


def _check_verify(
    wanted: Sequence[str],
    counters: list[Path] | None,
    files: Sequence[Path],
    live: list[str] | None,
    devices: str | None,
    concat: bool,
) -> None:
    """UsageError if what --verify compares with is not given."""
    if "taps" in wanted and (concat or len(files) < 2):
        raise UsageError("--verify taps needs captures of several taps")
    if counters is not None and ("counters" not in wanted or len(counters) != 2):
        raise UsageError("--verify counters needs --counters BEFORE --counters AFTER")
    if "counters" in wanted and counters is None and not (live and devices):
        raise UsageError(
            "--verify counters needs --counters BEFORE --counters AFTER, or --live and --devices"
        )


def _check_hosts(verify: object, advise: bool, follow: bool, mapped: Mapped) -> None:
    """UsageError for options that need packets or their bytes."""
    given = ["--verify"] * bool(verify) + ["--advise"] * advise + ["--follow"] * follow
    given += changed(mapped, MAPPED)
    if given:
        raise UsageError(f"{given[0]} needs captured packets; --hosts knows queue pairs only")


def _check_follow(devices: str | None, others: object, to: ReportOutput) -> None:
    """UsageError for options that --follow needs or excludes."""
    if devices is None:
        raise UsageError("--follow needs --devices")
    if others:
        raise UsageError(
            "--follow cannot be combined with --strategy, --verify, --ask and --advise"
        )
    if to.chosen() not in ("table", "json") or to.file is not None:
        raise UsageError("--follow writes table or json to standard output")
