"""From counters to the records of an analysis; what counters cannot know is None, with a note."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..analyzer.frames import LINKTYPE_ETHERNET
from ..analyzer.measures.series import DEFAULT_WINDOW_NS
from ..analyzer.measures.shares import Carried, jain, path_shares, width
from ..analyzer.opcodes import CNP, RC, TRANSPORT_NAMES, UC, XRC
from ..analyzer.results import (
    Analysis,
    CaptureSummary,
    Congestion,
    Flow,
    IdleGaps,
    Latency,
    Messages,
    Recovery,
    Series,
    Spraying,
    TapSummary,
)
from .counter_layout import IS_IPV6, together
from .counters import CounterSource, Reading

_ORDERED = (RC, UC, XRC)
_MODE = (
    "counted in the kernel: opcodes, DSCPs, latencies, retransmission, rewinds and the times of"
    " messages need the headers (capture without --counters)"
)


def analysis_of(source: CounterSource, reading: Reading, complete: bool = True) -> Analysis:
    """Everything the counters tell, in the shape of an analysis of the same traffic."""
    names = [f"{interface.label} {direction}" for interface, direction in source.taps]
    flows = _flows(reading, names)
    return Analysis(
        version=__version__,
        complete=complete,
        captures=[_capture(source, reading, names, flows)],
        flows=flows,
        connections=[],
        imbalance=[],
        hops=[],
        events=[],
        events_omitted=0,
        series=Series(
            DEFAULT_WINDOW_NS, _first(flows) or 0, [], [], [], [], [], [], [], [], [], {}
        ),
        warnings=_warnings(reading, complete),
    )


def _flows(reading: Reading, taps: Sequence[str]) -> list[Flow]:
    """The flows in order of their first packet."""
    entries = reading.entries
    numbers: dict[tuple[str, str, int], int] = {}
    of = np.zeros(len(entries), np.int64)
    for i, key in enumerate(entries["key"]):
        is_ipv6 = bool(key["flags"] & IS_IPV6)
        flow = (
            _address(key["src"].tobytes(), is_ipv6),
            _address(key["dst"].tobytes(), is_ipv6),
            int(key["dest_qp"]),
        )
        of[i] = numbers.setdefault(flow, len(numbers))
    sums = together(entries, of, len(numbers))
    by_flow = np.argsort(of, kind="stable")
    ends = np.cumsum(np.bincount(of, minlength=len(numbers)))
    rows = np.split(entries[by_flow], ends[:-1]) if len(numbers) else []
    names = list(numbers)
    order = np.argsort(sums["created_ns"], kind="stable").tolist()
    return [
        _flow(number, names[f], sums[f], rows[f], taps, reading.clock_offset_ns)
        for number, f in enumerate(order)
    ]


def _flow(
    number: int,
    name: tuple[str, str, int],
    total: Any,
    entries: NDArray[Any],
    taps: Sequence[str],
    clock_offset_ns: int,
) -> Flow:
    transports = entries["key"]["flags"] >> 1 & 7
    own = [t for t in transports.tolist() if t != CNP]
    transport = own[0] if own else RC
    has_order = bool(transport in _ORDERED and total["requests"] + total["responses"])
    seen_at = {
        taps[tap]: int(entries["packets"][entries["key"]["tap"] == tap].sum())
        for tap in np.unique(entries["key"]["tap"]).tolist()
    }
    late, missing, notes = _order(total, has_order)
    if len(seen_at) > 1:
        notes.append(
            f"seen at {len(seen_at)} taps: counters cannot tell copies of a packet from other"
            " packets, so all are counted"
        )
    spraying = _spraying(entries, transports, clock_offset_ns)
    src, dst, dest_qp = name
    over_10us, over_50us, over_100us, over_500us = total["idle"].tolist()
    return Flow(
        id=number,
        src=src,
        dst=dst,
        dest_qp=dest_qp,
        transport=TRANSPORT_NAMES[transport],
        connection=None,
        first_time_ns=int(total["created_ns"]) + clock_offset_ns,
        last_time_ns=int(total["last_ns"]) + clock_offset_ns,
        packets=int(total["packets"]),
        wire_bytes=int(total["wire_bytes"]),
        payload_bytes=int(total["payload_bytes"]),
        request_packets=int(total["requests"]),
        response_packets=int(total["responses"]),
        ack_packets=int(total["acks"]),
        opcodes={},
        path_mtu=None,
        messages=int(total["messages"]),
        reordered_packets=late,
        retransmitted_packets=None,
        recovered_packets=None,
        duplicate_packets=None,
        mirror_duplicates=None,
        tap_copies=0,
        missing_packets=missing,
        capture_loss_suspected_packets=None,
        sequence_restarts=int(total["restarts"]),
        naks=int(total["naks"]),
        rnr_naks=int(total["rnr_naks"]),
        cnps=int(total["cnps"]),
        ecn_marked_packets=int(total["ecn_marked"]),
        entropy_values=spraying.paths_seen,
        spraying_width=spraying.width,
        paths=spraying.paths,
        spraying=[spraying],
        reordering=None,
        recovery=Recovery({}, None, {}, None, None, None, None, None),
        message_statistics=Messages(int(total["messages"]), None, None, None, None, None),
        latency=Latency(None, None),
        congestion=Congestion(
            ecn_capable_packets=int(total["ecn_capable"]),
            ecn_marked_packets=int(total["ecn_marked"]),
            cnps=int(total["cnps"]),
            cnp_spacing_ns=None,
            dscp={},
        ),
        idle_gaps=IdleGaps(over_10us, over_50us, over_100us, over_500us, int(total["idle_max_ns"])),
        goodput_bits_per_second=None,
        activity_bytes=[],
        activity_bin_ns=DEFAULT_WINDOW_NS,
        taps=seen_at,
        notes=notes,
    )


def _order(total: Any, has_order: bool) -> tuple[int | None, int | None, list[str]]:
    """Late packets, missing PSNs, and what limits both."""
    notes = [_MODE]
    if not has_order:
        notes.append("datagrams, ACKs and CNPs have no PSN order: nothing can be late or missing")
        return None, None, notes
    passed = int(total["gap_psns"])
    late: int | None = int(total["late"])
    missing: int | None = passed
    if late:
        notes.append(
            f"{late} packets came behind later ones: those sent again are among them, counters"
            " cannot tell"
        )
    if passed and late:
        missing = None
        notes.append(
            f"{passed} PSNs were passed over in {int(total['gaps'])} gaps; at most {late} of them"
            " came after all"
        )
    if total["jumps"]:
        notes.append(
            f"{int(total['jumps'])} times the PSN moved on behind a READ request or between"
            " responses: how far it may is unknown, so nothing is counted as missing there"
        )
    if total["restarts"]:
        missing = None
        notes.append(
            f"{int(total['restarts'])} times the PSN jumped far: the queue pair restarted or much"
            " was not seen"
        )
    if total["unordered"]:
        late = missing = None
        notes.append(
            f"{int(total['unordered'])} packets were counted but not put in order: several"
            " processors were at this flow at once"
        )
    return late, missing, notes


def _spraying(entries: NDArray[Any], transports: NDArray[Any], clock_offset_ns: int) -> Spraying:
    """The UDP source ports of a flow: those of its data, where it has any."""
    data = entries["requests"] + entries["responses"] > 0
    if not data.any():
        data = transports != CNP
    measured = data if data.any() else np.ones(len(entries), np.bool_)
    ports, group = np.unique(entries["key"]["sport"][measured], return_inverse=True)
    paths = together(entries[measured], group, len(ports))
    weights = paths["wire_bytes"].astype(np.int64)
    life = (
        (port, _carried(path, clock_offset_ns)) for port, path in zip(ports, paths, strict=True)
    )
    lines = sorted(life, key=lambda line: (-line[1].wire_bytes, -line[1].packets, line[0]))
    named = [(str(port), carried) for port, carried in lines]
    if not measured.all():
        rest = together(entries[~measured], np.zeros((~measured).sum(), np.int64), 1)
        named.append(("control packets", _carried(rest[0], clock_offset_ns)))
    return Spraying(
        path_by="entropy",
        inferred=True,
        paths_seen=len(ports),
        width=width(weights),
        jain=jain(weights),
        switches=None,
        switches_per_second=None,
        path_lifetime_ns=None,
        paths=path_shares(named),
    )


def _carried(path: Any, clock_offset_ns: int) -> Carried:
    return Carried(
        int(path["packets"]),
        int(path["wire_bytes"]),
        int(path["late"]),
        int(path["ecn_marked"]),
        int(path["created_ns"]) + clock_offset_ns,
        int(path["last_ns"]) + clock_offset_ns,
    )


def _capture(
    source: CounterSource, reading: Reading, names: Sequence[str], flows: Sequence[Flow]
) -> CaptureSummary:
    first, last = _first(flows), max((flow.last_time_ns for flow in flows), default=None)
    matched = reading.total("counted") + reading.total("filtered")
    short = reading.total("too_short")
    others = reading.total("seen") - matched - short
    return CaptureSummary(
        name=", ".join(interface.label for interface in source.interfaces),
        format="counters",
        compression=None,
        frames=reading.total("seen"),
        roce_packets=matched,
        first_time_ns=first,
        last_time_ns=last,
        duration_ns=None if first is None or last is None else last - first,
        snapped_frames=0,
        out_of_order_frames=0,
        undecodable_frames={"too short": short} if short else {},
        later_fragments=0,
        icrc=None,
        contents={"not RoCE": others} if others else {},
        taps=[
            TapSummary(
                name=name,
                link_type=LINKTYPE_ETHERNET,
                frames=int(reading.tally[tap]["seen"].sum()),
                roce_packets=int(reading.tally[tap]["counted"].sum()),
                wire_bytes=int(reading.tally[tap]["counted_bytes"].sum()),
                dropped_frames=int(reading.lost_packets[tap]),
                speed_bits_per_second=source.taps[tap][0].speed_bits_per_second,
                pauses=[],
            )
            for tap, name in enumerate(names)
        ],
        warnings=[],
    )


def _first(flows: Sequence[Flow]) -> int | None:
    return min((flow.first_time_ns for flow in flows), default=None)


def _warnings(reading: Reading, complete: bool) -> list[str]:
    """What limits the trust in all the results, worst first."""
    lines = []
    lost, lost_bytes = int(reading.lost_packets.sum()), int(reading.lost_bytes.sum())
    if lost:
        lines.append(
            f"{lost} packets ({lost_bytes} bytes) of {reading.total('counted')} are missing from"
            f" the flows: {reading.total('evicted')} entries gave way to others before they were"
            " read: give a larger --max-flows or a shorter --interval"
        )
    forgotten = reading.total("orders_lost")
    if forgotten:
        lines.append(
            f"the order of a flow was forgotten {forgotten} times to make room: more packets may"
            " have been late or missing than is told: give a larger --max-flows"
        )
    merged = reading.total("merged")
    if merged:
        lines.append(
            f"{merged} packets stand for several that the kernel merged (GRO or GSO): --hook xdp"
            " sees each"
        )
    if not complete:
        lines.append("interrupted: the report covers what was counted so far")
    if reading.total("filtered"):
        lines.append("a filter is set: packets it leaves out count as neither seen nor lost")
    return lines


def _address(raw: bytes, is_ipv6: bool) -> str:
    """An address as the analyzer writes it: an IPv4 host and its GID are one."""
    if not is_ipv6:
        return str(IPv4Address(raw[:4]))
    address = IPv6Address(raw)
    return str(address.ipv4_mapped or address)
