"""The tables of the report: their flows, order and columns."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.base import Event, Imbalance, PathShare, Quantiles
from ...analyzer.results.captures import CaptureSummary
from ...analyzer.results.flow import Flow
from .. import human, verdicts
from ..human import UNKNOWN, Glyphs
from ..notes import first_ns
from .page import folded, numbers, texts
from .ranks import lost_packets, ranks_of_owner

_ADDRESS_WIDTH = 15
_MAX_BARS = 32
_ACTIVITY = 20


class FlowTable(NamedTuple):
    """A table with one row per flow."""

    fits: Callable[[Flow], object]
    """Whether a flow is in the table."""
    weight: Callable[[Flow], float]
    """Rows are in descending order of this value."""
    fill: Callable[[Table, Sequence[Flow], Glyphs, bool], None]
    """Adds the columns and rows; `True`: also the extra columns of a wide terminal."""
    legend: str = ""


def _name(flow: Flow, glyphs: Glyphs, wide: bool) -> str:
    """`10.0.1.3 > 10.0.7.3`; long addresses lose their middle on narrow terminals."""
    width = 39 if wide else _ADDRESS_WIDTH
    source, destination = (glyphs.shorten(text, width) for text in (flow.src, flow.dst))
    return f"{source} {glyphs.arrow} {destination}"


def add_flow_columns(table: Table) -> None:
    """The columns of `flow_cells`."""
    table.add_column("#", justify="right", style="dim", no_wrap=True)
    texts(table, "source and destination", "QP", "ranks")


def flow_cells(flow: Flow, glyphs: Glyphs, wide: bool) -> list[str | Text]:
    """The cells that identify the flow of a row; `-` without ranks: then the column is left out."""
    named = [str(flow.id), _name(flow, glyphs, wide), human.queue_pair(flow.dest_qp)]
    return [*named, ranks_of_owner(flow.owner) or "-"]


def _bad(text: str, glyphs: Glyphs, is_bad: object) -> Text:
    """The number of a problem: marked, and red if there is colour."""
    return Text(f"{glyphs.bad} {text}", "red") if is_bad else Text(text)


def _three(record: Quantiles | None, form: object) -> str:
    """`p50 / p99 / max`, `-` without values."""
    if record is None or not record.count:
        return "-"
    show = form if callable(form) else str
    return " / ".join(show(value) for value in (record.p50, record.p99, record.max))


def capture_table(table: Table, captures: Sequence[CaptureSummary], glyphs: Glyphs) -> None:
    """One row per capture file."""
    folded(table, "capture")
    numbers(table, "frames", "RoCE", "bytes", "duration", "dropped")
    for capture in captures:
        drops = [tap.dropped_frames for tap in capture.taps]
        known = None if None in drops else verdicts.total(drops)
        table.add_row(
            capture.name,
            human.count(capture.frames),
            human.count(capture.roce_packets),
            human.size(sum(tap.wire_bytes for tap in capture.taps)),
            human.duration(capture.duration_ns),
            _bad(human.count(known), glyphs, known),
        )


def _flow_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    """The flows with their sizes and bytes over time."""
    add_flow_columns(table)
    texts(table, "type")
    numbers(table, "packets", "bytes", "goodput")
    if wide:
        numbers(table, "messages", "path MTU")
        texts(table, "bytes over time")
    for flow in flows:
        cells = [
            *flow_cells(flow, glyphs, wide),
            flow.transport,
            human.count(flow.packets),
            human.size(flow.wire_bytes),
            human.rate(flow.goodput_bits_per_second) if flow.data_packets else "-",
        ]
        if wide:
            mtu = UNKNOWN if flow.data_packets else "-"
            cells += [human.count(flow.messages), str(flow.path_mtu or mtu)]
            cells.append(Text(glyphs.sparkline(flow.activity_bytes, _ACTIVITY), "cyan"))
        table.add_row(*cells)


def _spraying_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    """Flows with several paths; one bar per path, in the order of the path names."""
    add_flow_columns(table)
    numbers(table, "paths", "width", "largest", "(fair)")
    if wide:
        numbers(table, "switches")
    table.add_column("share of each path" if wide else "shares", no_wrap=True)
    for flow in flows:
        record = verdicts.chosen_spraying(flow)
        seen = record.paths_seen if record else len(flow.paths)
        bars = _MAX_BARS if wide else 8
        table.add_row(
            *flow_cells(flow, glyphs, wide),
            human.count(seen),
            f"{flow.spraying_width:.1f}",
            human.percent(max(share.share for share in flow.paths)),
            human.percent(1 / seen),
            *([human.count(record.switches if record else None)] if wide else []),
            Text(glyphs.columns(_shares_by_name(flow.paths)[:bars]), "cyan"),
        )


def _shares_by_name(paths: Sequence[PathShare]) -> list[float]:
    """Shares in the order of the path names; numbers are sorted by value."""
    ordered = sorted(paths, key=lambda p: (not p.path.isdigit(), p.path.zfill(8)))
    return [path.share for path in ordered]


def _reordering_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    """Flows with late packets."""
    add_flow_columns(table)
    if not wide:
        numbers(table, "late", "ratio", "max extent", "late by p99")
    else:
        numbers(
            table, "late", "ratio", "extent p50 / p99 / max", "late by p50 / p99 / max", "buffer"
        )
        texts(table, "mostly over")
    for flow in flows:
        record = flow.reordering
        assert record is not None
        late, extent = record.late_time_ns, record.extent_packets
        cells = [
            *flow_cells(flow, glyphs, wide),
            _bad(human.count(flow.reordered_packets), glyphs, True),
            human.percent(record.ratio),
        ]
        if wide:
            share, path = verdicts.worst_path([flow])
            cells += [
                _three(extent, "{:.0f}".format),
                _three(late, human.duration),
                human.size(record.byte_offset.max) if record.byte_offset else "-",
                f"{path} ({human.percent(share)})" if path else "-",
            ]
        else:
            cells += [str(record.max_extent), human.duration(late.p99) if late else "-"]
        table.add_row(*cells)


def _loss_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    """Flows with lost, retransmitted or duplicate packets."""
    add_flow_columns(table)
    numbers(table, "retrans", "lost", "missing", "dup", "NAKs")
    if wide:
        numbers(table, "rewinds", "rewound", "NAK to retrans p50 / max", "timeout max")
    for flow in flows:
        recovery = flow.recovery
        doubled = verdicts.total((flow.duplicate_packets, flow.mirror_duplicates))
        rnr_naks, codes = recovery.rnr_naks, recovery.naks
        naks = None if rnr_naks is None or codes is None else sum(codes.values()) + rnr_naks
        lost = lost_packets(flow)
        cells = [
            *flow_cells(flow, glyphs, wide),
            human.count(flow.retransmitted_packets),
            _bad(human.count(lost), glyphs, lost),
            _bad(human.count(flow.missing_packets), glyphs, flow.missing_packets),
            human.count(doubled),
            human.count(naks),
        ]
        if wide:
            resend, timeout = recovery.nak_to_resend_ns, recovery.timeout_ns
            cells += [
                human.count(recovery.rewinds),
                human.size(recovery.rewound_bytes),
                " / ".join(map(human.duration, (resend.p50, resend.max))) if resend else "-",
                human.duration(timeout.max) if timeout else "-",
            ]
        table.add_row(*cells)


def _congestion_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    """Flows with CE marks, CNPs or more than one DSCP."""
    add_flow_columns(table)
    numbers(table, "CE", "of ECT", "CNPs", "CNP gap")
    texts(table, "DSCP")
    for flow in flows:
        record = flow.congestion
        base = max(record.ecn_capable_packets, record.ecn_marked_packets)
        table.add_row(
            *flow_cells(flow, glyphs, wide),
            human.count(record.ecn_marked_packets),
            human.percent(record.ecn_marked_packets / base) if base else "-",
            human.count(flow.cnps),
            human.duration(record.cnp_spacing_ns.p50) if record.cnp_spacing_ns else "-",
            " ".join(map(str, sorted(record.dscp)[:4])),
        )


def imbalance_table(table: Table, record: Imbalance, top: int, glyphs: Glyphs, width: int) -> None:
    """The paths of one set: share, its ratio to the fair share, and a bar."""
    fair = 1 / record.paths
    bar = max(10, width - 60)
    largest = max((share.share for share in record.shares), default=1.0)
    short = verdicts.path_names(record)
    folded(table, "path")
    numbers(table, "packets", "bytes", "share", "x fair")
    texts(table, f"fair: {human.percent(fair)}")
    for share in sorted(record.shares, key=lambda share: share.share, reverse=True)[:top]:
        ratio = share.share / fair
        style = "red" if ratio > 1.25 else "blue" if ratio < 0.75 else "cyan"
        mark = " ++" if ratio > 1.25 else " --" if ratio < 0.75 else ""
        table.add_row(
            short[share.path],
            human.count(share.packets),
            human.size(share.wire_bytes),
            human.percent(share.share),
            f"{ratio:.2f}",
            Text(glyphs.bar(share.share / largest, bar) + mark, style),
        )


def _latency_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    """Flows with messages, the slowest first."""
    add_flow_columns(table)
    numbers(table, "messages", "size", "done p50", "p99")
    if wide:
        numbers(table, "request to ACK p50 / p99 / max", "READ to response", "outstanding")
    for flow in flows:
        record = flow.message_statistics
        done = record.completion_ns
        never = "-" if flow.transport in ("UC", "UD") else UNKNOWN  # these are not acknowledged
        if verdicts.never_acknowledged(flow):
            never = "never"
        cells = [
            *flow_cells(flow, glyphs, wide),
            human.count(flow.messages),
            human.message_size(record.size_bytes.p50) if record.size_bytes else UNKNOWN,
            human.duration(done.p50) if done else never,
            human.duration(done.p99) if done else never,
        ]
        if wide:
            first = flow.latency.read_to_first_response_ns
            cells += [
                _three(flow.latency.request_to_ack_ns, human.duration),
                human.duration(first.p50) if first else "-",
                human.count(record.max_outstanding),
            ]
        table.add_row(*cells)


def event_table(
    table: Table, events: Sequence[Event], analysis: Analysis, listed: Container[int]
) -> None:
    """Events, with times since the first RoCE packet; ids of `listed` flows stand for names."""
    begin = first_ns(analysis)
    names: dict[int | None, str] = {
        flow.id: f"{flow.src} > {flow.dst} QP {human.queue_pair(flow.dest_qp)}: "
        for flow in analysis.flows
        if flow.id in listed
    }
    ranks = {flow.id: ranks_of_owner(flow.owner) for flow in analysis.flows}
    some = any(ranks.get(event.flow, "") for event in events if event.flow is not None)
    numbers(table, "time, s", "frame", "flow")
    texts(table, *["ranks"] * some)
    folded(table, "what")
    for event in events:
        table.add_row(
            f"{(event.time_ns - begin) / 1e9:.6f}",
            "-" if event.frame_number is None else str(event.frame_number),
            f"#{event.flow}" if event.flow in names else "-",
            *[("" if event.flow is None else ranks.get(event.flow, "")) or "-"] * some,
            event.text.removeprefix(names.get(event.flow, "")),
        )


def troubled_packets(flow: Flow) -> int:
    """Lost, retransmitted and duplicate packets of a flow."""
    return verdicts.total(
        (
            flow.missing_packets,
            flow.retransmitted_packets,
            flow.recovered_packets,
            flow.lost_between_taps,
            flow.duplicate_packets,
            flow.mirror_duplicates,
        )
    )


def _slowest(flow: Flow) -> float:
    done = flow.message_statistics.completion_ns or flow.message_statistics.duration_ns
    return done.p99 if done else 0.0


def _mixes_dscp(flow: Flow) -> bool:
    return flow.data_packets > 0 and len(flow.congestion.dscp) > 1


FLOWS = FlowTable(lambda flow: True, lambda flow: flow.wire_bytes, _flow_table)
SPRAYING = FlowTable(
    lambda flow: flow.data_packets and len(flow.paths) > 1,
    lambda flow: flow.spraying_width,
    _spraying_table,
)
REORDERING = FlowTable(
    lambda flow: flow.reordered_packets and flow.reordering,
    lambda flow: flow.reordered_packets or 0,
    _reordering_table,
    "extent: arrivals since the first packet that overtook it",
)
LOSS = FlowTable(
    lambda flow: (
        flow.lost_between_taps  # also of ACKs alone
        or (
            flow.data_packets
            and (troubled_packets(flow) or flow.recovery.rnr_naks or flow.recovery.naks)
        )
    ),
    troubled_packets,
    _loss_table,
    "retrans: retransmitted; lost: before or between taps; missing: never seen",
)
CONGESTION = FlowTable(
    lambda flow: flow.ecn_marked_packets or flow.cnps or _mixes_dscp(flow),
    lambda flow: flow.ecn_marked_packets + flow.cnps,
    _congestion_table,
)
LATENCY = FlowTable(lambda flow: flow.messages, _slowest, _latency_table)
