"""The diagnosis of one analysis: causes before effects, worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..results.diagnosis import SEVERITIES, Diagnosis, Finding
from .alike import bounded
from .case import Case
from .finders.ended import losses_of_ended
from .finders.hops.captures import (
    clocks,
    clocks_ahead_ns,
    clocks_set_back,
    clocks_set_forward,
    missed_by_captures,
)
from .finders.hops.delays import hop_queues, overtaking, slow_paths
from .finders.hops.losses import hop_losses
from .finders.hops.marks import hop_faults, hop_trims
from .finders.hops.moves import hop_moves
from .finders.hosts.fatal_nak import fatal_naks
from .finders.hosts.mrc_path import mrc_ports, retired_values
from .finders.hosts.mtu import fragments, mtu_mismatches
from .finders.hosts.receiver_not_ready import receivers_not_ready
from .finders.hosts.retry_storm import retry_storms
from .finders.hosts.stalled import stalled
from .finders.hosts.timeout_recovery import timeout_recoveries
from .finders.hosts.traffic_class import traffic_classes
from .finders.paths.placement import placements
from .finders.paths.spraying import sprays
from .finders.taps.copies import copies_before
from .finders.taps.corruption import corrupt_packets
from .finders.taps.late import late_before
from .finders.taps.loss_after import losses_after
from .finders.taps.loss_before import losses_before
from .finders.taps.marks import (
    marks_before,
    marks_without_notification,
    notifications_without_marks,
)
from .finders.taps.missed import missed_at_one_tap
from .finders.taps.pause import pauses
from .finders.taps.trims import trims
from .healthy import healthy
from .known import Known
from .limits import limits
from .priorities import priorities_of
from .summary import summary

Finder = Callable[[Case, Known], Iterable[Finding]]
"""Finds faults of one kind; `Known` shows which flows a cause already explains."""

FINDERS: tuple[Finder, ...] = (
    missed_by_captures,
    missed_at_one_tap,
    clocks,
    clocks_set_back,
    clocks_set_forward,
    pauses,
    mrc_ports,
    hop_losses,
    overtaking,
    hop_queues,
    hop_moves,
    hop_trims,
    hop_faults,
    slow_paths,
    corrupt_packets,
    fragments,
    fatal_naks,
    receivers_not_ready,
    trims,
    retired_values,
    losses_before,
    losses_of_ended,
    late_before,
    copies_before,
    losses_after,
    stalled,
    timeout_recoveries,
    retry_storms,
    marks_before,
    notifications_without_marks,
    marks_without_notification,
    traffic_classes,
    mtu_mismatches,
    placements,
    sprays,
)
"""In the order of cause and effect."""


def diagnose(case: Case) -> Diagnosis:
    """All findings of `case`, worst first, and what was checked without a finding."""
    known = Known(
        peers={**case.likely_peers, **case.peers},
        clocks_ns=clocks_ahead_ns(case),
        priorities=lambda f: priorities_of(case, case.flows[f]),
    )
    findings: list[Finding] = []
    for finder in FINDERS:
        found = list(finder(case, known))
        findings += found
        for finding in found:
            known.add(finding)
    findings = known.remaining(findings)
    findings.sort(key=lambda f: (SEVERITIES.index(f.severity), -(f.cost_ns or 0), f.from_ns))
    findings = bounded(case, findings)
    passed = healthy(case, findings)
    text = summary(case, findings, passed)
    return Diagnosis(text, findings, passed, limits(case), case.whole)
