"""The end of every analysis, of captures and of live probes: all that was measured as a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from ...version import VERSION
from ..decode.merge import MergeCounts
from ..measures.measuring import Measuring
from ..results.analysis import Analysis, CaptureSummary, Owner
from ..wire.registry import Registry
from .conformance import conformance
from .mrc import PlaneBy
from .summarize import Summary
from .trust import warnings_of

MAX_EVENTS_REPORTED = 1000
MAX_FLOWS = 100_000
"""About 25 KB each with their results: beyond it a report helps nobody."""


def conclude(
    measuring: Measuring,
    registry: Registry,
    captures: Sequence[CaptureSummary],
    *,
    path_by: str,
    complete: bool,
    filtered: bool,
    merge: MergeCounts | None = None,
    owners: Mapping[int, Owner] | None = None,
    plane_by: PlaneBy | None = None,
) -> Analysis:
    """The result; `captures` say what the packets came from and how far they can be trusted.

    filtered: packets were left out before they were tracked. merge: what happened when
    several captures were merged. owners: processes by flow index.
    plane_by: what tells the planes of MRC apart.
    """
    summary = Summary(measuring, registry, path_by, owners, plane_by=plane_by)
    flows = summary.flows()
    checks = measuring.conformance
    events, omitted = summary.events(MAX_EVENTS_REPORTED)
    return Analysis(
        version=VERSION,
        complete=complete,
        captures=list(captures),
        flows=flows,
        connections=summary.connections,
        imbalance=summary.imbalance(),
        hops=summary.hops(),
        events=events,
        events_omitted=omitted,
        series=measuring.totals.series(registry.tap_names),
        warnings=warnings_of(
            captures,
            flows,
            merge or MergeCounts(),
            complete,
            filtered,
            measuring.packets_before_taps if measuring.many_taps else 0,
        ),
        conformance=UNSET if checks is None else conformance(checks, measuring.tracker, registry),
        mrc=UNSET if summary.mrc is None else summary.mrc.whole(),
        segment_lists=summary.segment_lists() or UNSET,
    )
