"""Concludes an analysis of captures or live probes: builds the Analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from ...version import VERSION
from ..decode.merge import MergeCounts
from ..diagnosis.case import Case
from ..diagnosis.diagnose import diagnose
from ..measures.hops.vantage import FabricLinks
from ..measures.measuring import Measuring
from ..results.analysis import Analysis
from ..results.captures import CaptureSummary, MirrorChecks
from ..results.events import Event
from ..results.flow import Owner
from ..results.live import RdmaPort
from ..summary.conformance import conformance
from ..summary.mirror_checks import mirror_warnings
from ..summary.options import FlowOrder, PathBy, PlaneBy
from ..summary.ranks import ranks_of, with_ranks
from ..summary.summarize import Summary
from ..summary.trust import warnings_of
from ..wire.registry import Registry

MAX_EVENTS_REPORTED = 1000
MAX_FLOWS = 100_000
"""Each flow takes about 25 KB with its results; reports of more flows are not readable."""


def conclude(
    measuring: Measuring,
    registry: Registry,
    captures: Sequence[CaptureSummary],
    *,
    path_by: PathBy,
    complete: bool,
    now_ns: int | None = None,
    ended_by: str | None = None,
    filtered: bool,
    rows_kept: bool = False,
    merge: MergeCounts | None = None,
    owners: Mapping[int, Owner] | None = None,
    plane_by: PlaneBy | None = None,
    outer_labels: bool = False,
    mirror: MirrorChecks | None = None,
    rdma_ports: Sequence[RdmaPort] = (),
    flow_order: FlowOrder | None = None,
    fabric: FabricLinks | None = None,
    dscp_priority: Mapping[int, int] | None = None,
    job_events: Sequence[Event] = (),
    job_notes: Sequence[str] = (),
) -> Analysis:
    """The Analysis; `captures` describe the sources of the packets and their quality.

    now_ns: the present, while the capture runs. ended_by: the limit that ended reading, if one did.
    filtered: packets were dropped by a filter of the analysis before tracking. rows_kept: the
    records of flows that were removed from memory are kept elsewhere. merge: counters of the merge
    of several captures. owners: processes by flow index. plane_by: key of the MRC planes.
    outer_labels: entropy values use the flow label of the outer header. mirror: integrity of a
    mirror that numbers its packets; its losses are the first warnings. rdma_ports: growth of the
    counters of this host's ports. flow_order: order of `flows`; default: by first packet. fabric:
    shows the next taps of lost packets where no other packet does. dscp_priority: priority by DSCP
    in the switches, where known; None: nobody can tell it. job_events, job_notes: errors in the
    logs of the job, and what could not be joined with them.
    """
    summary = Summary(
        measuring, registry, path_by, owners, plane_by=plane_by, fabric=fabric, now_ns=now_ns
    )
    flows = summary.flows()
    checks = measuring.conformance
    events, omitted = summary.events(MAX_EVENTS_REPORTED)
    if job_events:
        events = sorted((*events, *job_events), key=lambda event: event.time_ns)
        omitted += max(0, len(events) - MAX_EVENTS_REPORTED)
        events = events[:MAX_EVENTS_REPORTED]
    filtered = filtered or measuring.captured_in_part
    warnings = [] if mirror is None else mirror_warnings(mirror)
    warnings += warnings_of(
        captures,
        flows,
        merge or MergeCounts(),
        complete,
        filtered,
        measuring.packets_before_taps if measuring.many_taps else 0,
        ended_by,
        measuring.ended,
        rows_kept,
    )
    warnings += job_notes
    mrc = None if summary.mrc is None else summary.mrc.whole(outer_labels)
    imbalance = summary.imbalance()
    hops, losses, clocks = summary.hops()
    case = Case(
        measuring=measuring,
        registry=registry,
        captures=captures,
        flows=flows,
        connections=summary.connections,
        imbalance=imbalance,
        ways=summary.ways,
        hops=hops,
        capture_losses=losses,
        clocks=clocks,
        events=events,
        mrc=mrc,
        complete=complete,
        filtered=filtered or measuring.ended.in_part,
        dscp_priority=dscp_priority,
    )
    return Analysis(
        version=VERSION,
        complete=complete,
        captures=list(captures),
        diagnosis=diagnose(case),
        flows=flows if flow_order is None else flow_order(flows),
        connections=with_ranks(summary.connections, flows),
        imbalance=imbalance,
        hops=hops,
        capture_losses=losses,
        clocks=clocks,
        events=events,
        events_omitted=omitted,
        series=measuring.totals.series(registry.tap_names),
        warnings=warnings,
        ended=measuring.ended or UNSET,
        rdma_ports=list(rdma_ports) or UNSET,
        conformance=UNSET
        if checks is None
        else conformance(checks, measuring.tracker, registry, mirror),
        mrc=UNSET if mrc is None else mrc,
        mirror_checks=UNSET if mirror is None else mirror,
        ranks=ranks_of(flows, measuring.message_times) or UNSET,
        segment_lists=summary.segment_lists() or UNSET,
    )
