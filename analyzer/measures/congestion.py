"""ECN marks, congestion notification packets (CNPs) and DSCPs per flow; deviating DSCPs."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np

from ...kernels.kernel import Int, Ints, NamedTuple, UInt32s, subkernel
from ..results.flow import Congestion
from ..statistics.histogram import HistogramPool, Histograms, observe
from ..statistics.per_flow import CodeArrays, CodeCounts, PerFlow
from ..statistics.per_flow import Rows as FlowRows
from ..track.batch import TAP_COPY, Rows, TrackedBatch

_ECN_FIELDS, _DSCPS = 4, 64
_FEW_DSCPS = 2
_UNTAGGED = 8
_ECT_AND_CE = slice(1, 4)
_CE = 3

_CNP_OPCODE = 0x81
_CNPS, _FIRST_CNP_NS, _LAST_CNP_NS = range(3)
_SPACING = 0  # the only kind of histogram

_AGREEMENT = 0.75
"""Least share of flows with the same DSCP for the others to count as deviating."""


class CongestionArrays(NamedTuple):
    """Arrays of the kernel."""

    tags: Ints
    """int64[flows]: bits of the priorities in VLAN tags at all taps; bit 8: no tag."""
    ecn: Ints
    """int64[flows, ECN fields]: all packets."""
    cnps: Ints
    """int64[flows, 3]: their number, the times of the first and of the latest."""


@subkernel
def _count_rows(
    start: Int,
    rows: Rows,
    arrays: CongestionArrays,
    dscps: CodeArrays,
    spacing: Histograms,
) -> Int:
    """Count rows from `start`; returns their number, or a row whose DSCP has no column."""
    tags, ecn, cnps = arrays
    packets, column = dscps
    for i in range(start, len(rows.flow)):
        f = int(rows.flow[i])
        tag = np.int64(rows.vlan[i])
        tags[f] |= np.int64(1) << (tag >> 13 if tag else _UNTAGGED)
        if rows.verdict[i] == TAP_COPY:
            continue
        if rows.opcode[i] != _CNP_OPCODE:
            at = np.int64(column[rows.traffic_class[i] >> 2])
            if at < 0:
                return i
            packets[f, at] += 1
            ecn[f, np.int64(rows.traffic_class[i] & 3)] += 1
            continue
        ecn[f, np.int64(rows.traffic_class[i] & 3)] += 1
        if cnps[f, _CNPS]:
            observe(spacing, f, _SPACING, rows.time_ns[i] - cnps[f, _LAST_CNP_NS])
        else:
            cnps[f, _FIRST_CNP_NS] = rows.time_ns[i]
        cnps[f, _CNPS] += 1
        cnps[f, _LAST_CNP_NS] = rows.time_ns[i]
    return len(rows.flow)


class CongestionMeasure(PerFlow[CongestionArrays]):
    """CE marks on each flow's packets and CNPs that the flow carries."""

    layout: ClassVar = {"tags": FlowRows(), "ecn": FlowRows(), "cnps": FlowRows()}

    def __init__(self) -> None:
        super().__init__(
            CongestionArrays(
                np.zeros(0, np.int64),
                np.zeros((0, _ECN_FIELDS), np.int64),
                np.zeros((0, 3), np.int64),
            )
        )
        self._dscps = CodeCounts(_DSCPS, _FEW_DSCPS)
        """Packets per DSCP without CNPs, which often use another class."""
        self._spacing = HistogramPool(1)

    def update(self, batch: TrackedBatch) -> None:
        """Count the rows of one batch."""
        self.grow(batch.n_flows)
        row: Int = 0
        while True:
            row = _count_rows(
                row, batch.rows, self.arrays, self._dscps.arrays, self._spacing.arrays
            )
            if row == len(batch):
                return
            self._dscps.see(int(batch.table.traffic_class[row]) >> 2)

    def congestion(self, flow: int, marked_later: int = 0) -> Congestion:
        """ECN, CNPs and DSCPs of one flow; `marked_later`: packets marked after their first tap.

        CE-marked packets count as ECN-capable: only ECT packets can be marked.
        """
        if flow >= self.known_flows:
            return Congestion(0, 0, 0, None, {})
        ecn, dscps = self.arrays.ecn[flow], self._dscps.of(flow)
        return Congestion(
            ecn_capable_packets=int(ecn[_ECT_AND_CE].sum()),
            ecn_marked_packets=int(ecn[_CE]) + marked_later,
            cnps=int(self.arrays.cnps[flow, _CNPS]),
            cnp_spacing_ns=self._spacing.quantiles(flow, _SPACING),
            dscp={int(d): int(dscps[d]) for d in np.flatnonzero(dscps)},
        )

    def usual_dscp(self, flow: int) -> int | None:
        """The most frequent DSCP of the flow (the lowest of equals); None without packets."""
        if flow >= self.known_flows or not (dscps := self._dscps.of(flow)).any():
            return None
        return int(np.argmax(dscps))

    def tags(self, flow: int) -> tuple[set[int], bool]:
        """Priorities (PCP) of the VLAN tags of the flow's packets at all taps, and whether packets
        have no tag at a tap."""
        if flow >= self.known_flows:
            return set(), False
        seen = int(self.arrays.tags[flow])
        return {pcp for pcp in range(_UNTAGGED) if seen >> pcp & 1}, bool(seen >> _UNTAGGED)


class DscpFinding(NamedTuple):
    """Comparable flows in different traffic classes."""

    hosts: tuple[int, int] | None
    """Endpoint indices of the host pair, the lower first; None for the whole capture."""
    usual: int
    """Most frequent DSCP of the flows (the highest of equals, since 0 is the default)."""
    flows: dict[int, list[int]]
    """The flows with another DSCP, by DSCP."""
    of: int
    """Number of flows compared."""

    def text(self, src: str = "", dst: str = "") -> str:
        """One sentence; `src` and `dst` name the hosts."""
        odd = ", ".join(
            f"{len(f)} {'flow' if len(f) == 1 else 'flows'} on DSCP {d}"
            for d, f in sorted(self.flows.items())
        )
        where = f"between {src} and {dst}" if self.hosts else "in this capture"
        return f"{odd}, while {self.usual} is usual {where} ({self.of} flows): another class"


def dscp_outliers(usual_dscp: dict[int, int], src: UInt32s, dst: UInt32s) -> list[DscpFinding]:
    """Flows whose DSCP differs from that of their peers.

    `usual_dscp`: DSCP of each flow that carries data (without flows of ACKs only, which some hosts
    send in another class on purpose); `src`, `dst`: endpoints of all flows. Host pairs with
    different DSCPs come first; then, if at least three quarters of all flows agree, one finding
    lists the remaining flows.

    A job with some queue pairs in the default class is slow without a visible error (seen with
    NCCL's QPs of one communicator).
    """
    pairs: dict[tuple[int, int], list[int]] = {}
    for flow in sorted(usual_dscp):
        a, b = int(src[flow]), int(dst[flow])
        pairs.setdefault((min(a, b), max(a, b)), []).append(flow)
    findings = []
    named: set[int] = set()
    for hosts, flows in pairs.items():
        finding = _odd_ones({f: usual_dscp[f] for f in flows}, hosts)
        if finding.flows:
            findings.append(finding)
            named.update(f for odd in finding.flows.values() for f in odd)
    overall = _odd_ones(usual_dscp, None)
    odd = {d: [f for f in fs if f not in named] for d, fs in overall.flows.items()}
    odd = {d: fs for d, fs in odd.items() if fs}
    agreeing = overall.of - sum(map(len, overall.flows.values()))
    if odd and agreeing >= _AGREEMENT * overall.of:
        findings.append(overall._replace(flows=odd))
    return findings


def _odd_ones(dscp: dict[int, int], hosts: tuple[int, int] | None) -> DscpFinding:
    flows_with = Counter(dscp.values())
    usual = max(flows_with, key=lambda d: (flows_with[d], d), default=0)
    odd: dict[int, list[int]] = {}
    for flow, d in dscp.items():
        if d != usual:
            odd.setdefault(d, []).append(flow)
    return DscpFinding(hosts, usual, odd, len(dscp))
