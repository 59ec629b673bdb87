"""From counters to flows; values that counters lack are None, with a note."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...analyzer.measures.paths.tapsets import LISTED_FLOWS, SPRAYED_WIDTH
from ...analyzer.measures.series import DEFAULT_WINDOW_NS
from ...analyzer.measures.spraying import imbalance_of
from ...analyzer.results.flow import (
    Congestion,
    Flow,
    IdleGaps,
    Latency,
    Messages,
    Recovery,
)
from ...analyzer.results.paths import Imbalance, Spraying
from ...analyzer.statistics.shares import Carried, jain, path_shares, width
from ...analyzer.wire.opcodes import CNP, RC, TRANSPORT_NAMES, UC, XRC
from ...kernels.kernel import Array, Ints
from .counters import Reading
from .layout import IS_IPV6, address_text, together

_ORDERED = (RC, UC, XRC)
_MODE = (
    "counted in the kernel: opcodes, DSCPs, latencies, retransmission, rewinds and the times of"
    " messages need the headers (capture without --counters)"
)


_NO_PORT = 1 << 16
"""Replaces the port of control packets, which count as a path only if there are no others."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counts of one flow."""

    name: tuple[str, str, int]
    total: Any
    """COUNTERS."""
    transport: int
    paths: list[tuple[int, Carried]]
    """Per UDP source port of the flow's representative packets, the largest first."""
    control: Carried | None
    """All other packets."""
    taps: dict[str, int]


def flows_of(reading: Reading, taps: Sequence[str]) -> tuple[list[Flow], list[Imbalance]]:
    """The flows in order of their first packet, and the imbalance over their source ports."""
    counted = _counted(reading, taps)
    flows = [_flow(number, flow) for number, flow in enumerate(counted)]
    sprayed = [
        (-int(entry.total["wire_bytes"]), i)
        for i, entry in enumerate(counted)
        if flows[i].spraying_width >= SPRAYED_WIDTH
    ]
    imbalances = [_imbalance(counted[i]) for _, i in sorted(sprayed)[:LISTED_FLOWS]]
    return flows, [imbalance for imbalance in imbalances if imbalance is not None]


def _imbalance(counted: _Counted) -> Imbalance | None:
    src, dst, qp = counted.name
    labels = [str(port) for port, _ in counted.paths]
    carried = [path for _, path in counted.paths]
    name = f"entropy values of {src} > {dst} QP 0x{qp:06x}"
    return imbalance_of(name, "entropy", True, labels, carried, 1)


def _counted(reading: Reading, taps: Sequence[str]) -> list[_Counted]:
    entries, offset_ns = reading.entries, reading.clock_offset_ns
    names, of = _numbered(entries)
    totals = together(entries, of, len(names))
    transports = entries["key"]["flags"] >> 1 & 7
    # Data packets represent a flow; without data its ACKs do, and without ACKs its CNPs.
    rank = np.where(entries["requests"] + entries["responses"] > 0, 0, 1 + (transports == CNP))
    best = np.full(len(names), 2)
    np.minimum.at(best, of, rank)
    transport = np.full(len(names), RC)
    transport[of[transports != CNP]] = transports[transports != CNP]
    port = np.where(rank == best[of], entries["key"]["sport"].astype(np.int64), _NO_PORT)
    paths: list[list[tuple[int, Carried]]] = [[] for _ in names]
    keys, group = np.unique(of << 17 | port, return_inverse=True)
    sums = together(entries, group, len(keys))
    counts = zip(
        *(sums[f].tolist() for f in ("packets", "wire_bytes", "late", "ecn_marked")), strict=True
    )
    first = (sums["created_ns"].astype(np.int64) + offset_ns).tolist()
    last = (sums["last_ns"].astype(np.int64) + offset_ns).tolist()
    for i, (packets, wire_bytes, late, marked) in enumerate(counts):
        carried = Carried(packets, wire_bytes, late, marked, first[i], last[i])
        paths[keys[i] >> 17].append((int(keys[i]) & 0x1FFFF, carried))
    seen_at: list[dict[str, int]] = [{} for _ in names]
    for flow, tap, packets in zip(
        of.tolist(), entries["key"]["tap"].tolist(), entries["packets"].tolist(), strict=True
    ):
        seen_at[flow][taps[tap]] = seen_at[flow].get(taps[tap], 0) + packets
    totals["created_ns"] += np.uint64(offset_ns)
    totals["last_ns"] += np.uint64(offset_ns)
    order = np.argsort(totals["created_ns"], kind="stable").tolist()
    return [
        _Counted(
            name=names[f],
            total=totals[f],
            transport=int(transport[f]),
            paths=sorted(
                (path for path in paths[f] if path[0] != _NO_PORT),
                key=lambda path: (-path[1].wire_bytes, -path[1].packets, path[0]),
            ),
            control=next((part for number, part in paths[f] if number == _NO_PORT), None),
            taps=seen_at[f],
        )
        for f in order
    ]


def _numbered(entries: Array) -> tuple[list[tuple[str, str, int]], Ints]:
    """The flows by source, destination and queue pair, and the flow number of each entry."""
    numbers: dict[tuple[str, str, int], int] = {}
    of = np.zeros(len(entries), np.int64)
    keys = entries["key"]
    is_ipv6 = (keys["flags"] & IS_IPV6 != 0).tolist()
    qps = keys["dest_qp"].tolist()
    for i, (src, dst) in enumerate(zip(keys["src"].tolist(), keys["dst"].tolist(), strict=True)):
        flow = (address_text(src, is_ipv6[i]), address_text(dst, is_ipv6[i]), qps[i])
        of[i] = numbers.setdefault(flow, len(numbers))
    return list(numbers), of


def _flow(number: int, counted: _Counted) -> Flow:
    total = counted.total
    has_order = bool(counted.transport in _ORDERED and total["requests"] + total["responses"])
    late, missing, notes = _order(total, has_order)
    if len(counted.taps) > 1:
        notes.append(
            f"seen at {len(counted.taps)} taps: copies cannot be distinguished from other"
            " packets, so all are counted"
        )
    spraying = _spraying(counted)
    src, dst, dest_qp = counted.name
    over_10us, over_50us, over_100us, over_500us = total["idle"].tolist()
    return Flow(
        id=number,
        src=src,
        dst=dst,
        dest_qp=dest_qp,
        transport=TRANSPORT_NAMES[counted.transport],
        connection=None,
        first_time_ns=int(total["created_ns"]),
        last_time_ns=int(total["last_ns"]),
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
        recovery=Recovery({}, None, None, None, None, None, None, None),
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
        taps=counted.taps,
        notes=notes,
    )


def _order(total: Any, has_order: bool) -> tuple[int | None, int | None, list[str]]:
    """Late packets, missing PSNs, and what limits both."""
    notes = [_MODE]
    if not has_order:
        notes.append("datagrams, ACKs and CNPs have no PSN order: no packet can be late or missing")
        return None, None, notes
    passed = int(total["gap_psns"])
    late: int | None = int(total["late"])
    missing: int | None = passed
    if late:
        notes.append(
            f"{late} packets arrived after higher PSNs, including retransmissions, which"
            " counters cannot distinguish"
        )
    if passed and late:
        missing = None
        notes.append(
            f"{passed} PSNs were skipped in {int(total['gaps'])} gaps; at most {late} of them"
            " arrived later"
        )
    if total["jumps"]:
        notes.append(
            f"{int(total['jumps'])} times the PSN skipped values after a READ request or between"
            " responses: the valid distance is unknown, so no PSN counts as missing there"
        )
    if total["restarts"]:
        missing = None
        notes.append(
            f"{int(total['restarts'])} times the PSN jumped far: the queue pair restarted or many"
            " packets were not seen"
        )
    if total["unordered"]:
        late = missing = None
        notes.append(
            f"{int(total['unordered'])} packets were counted but their order is unknown: several"
            " processors handled this flow at the same time"
        )
    return late, missing, notes


def _spraying(counted: _Counted) -> Spraying:
    """The UDP source ports of a flow: those of its data packets, if it has any."""
    weights = np.array([path.wire_bytes for _, path in counted.paths], np.int64)
    lines = [(str(port), path) for port, path in counted.paths]
    if counted.control is not None:
        lines.append(("control packets", counted.control))
    return Spraying(
        path_by="entropy",
        inferred=True,
        paths_seen=len(weights),
        width=width(weights),
        jain=jain(weights),
        switches=None,
        switches_per_second=None,
        path_lifetime_ns=None,
        paths=path_shares(lines),
    )
