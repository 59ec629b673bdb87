"""The diagnosis of a session as screens need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...analyzer.jobs.join import NOTE
from ...analyzer.measures.hops.vantage import FabricLinks
from ...analyzer.results.analysis import Analysis, CaptureLoss, Hop, Ranks, TapClock
from ...analyzer.results.base import Imbalance
from ...analyzer.results.diagnosis import SEVERITIES, Diagnosis, Finding
from ...analyzer.results.jobs import TrainingJob
from ...report.overview import Overview, overview

STALLED = "STALLED"
STATES = {
    "stalled": STALLED,
    "selective-loss": "loss",
    "rate-limit": "limited",
    "ecn-marking": "marked",
    "polarisation": "polarised",
    "reordering": "reordered",
    "duplication": "copied",
    "corruption": "corrupt",
    "receiver-not-ready": "RNR",
    "fatal-nak": "dead",
    "timeout-recovery": "timeouts",
    "retry-storm": "retries",
    "dscp-mismatch": "DSCP",
    "mtu-mismatch": "MTU",
    "pause": "paused",
    "mrc-path": "path out",
    "cnp-without-mark": "CNP",
    "mark-without-cnp": "no CNP",
    "delay-step": "delayed",
    "capture-loss": "capture",
}
"""What a finding makes of a flow, in few letters; other kinds are short themselves."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The latest diagnosis of a session."""

    diagnosis: Diagnosis | None = None
    """None: there is none yet, or none is possible; `why` tells."""
    why: str = "The diagnosis is not ready yet."
    final: bool = False
    """Whether it covers all packets."""
    end_ns: int = 0
    """Time of the last packet that it covers."""
    numbering: int = 0
    """`Measuring.numbering` of the flow numbers in it."""
    hops: Sequence[Hop] = ()
    capture_losses: Sequence[CaptureLoss] = ()
    clocks: Sequence[TapClock] = ()
    parallel_taps: Sequence[Sequence[str]] | None = None
    """Sets of taps on parallel links; None while they are not known."""
    jobs: Sequence[TrainingJob] = ()
    """Training jobs that the packets show."""
    job_ranks: Ranks | None = None
    """What the logs of the job tell about ranks; None without any."""
    job_notes: Sequence[str] = ()
    """What of the logs could not be joined."""
    overview: Overview | None = None
    """The fabric and the axis of time; None in a folder of results."""
    states: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By flow: how bad its worst finding is (larger is worse), and its name."""
    lost: dict[int, int] = field(default_factory=dict)
    """By flow: packets that were lost between taps."""
    late: dict[int, int] = field(default_factory=dict)
    """By flow: packets that were overtaken between taps."""
    marked: dict[int, int] = field(default_factory=dict)
    """By flow: packets that were marked CE before or between taps."""
    last_seen: frozenset[tuple[str, int]] = frozenset()
    """Tap and frame number of packets that no later tap saw, as far as the hops list them."""

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        final: bool,
        numbering: int = 0,
        fabric: FabricLinks | None = None,
    ) -> Judged:
        """The diagnosis of an analysis. fabric: the links of a fabric file."""
        flows = analysis.flows
        return cls.of_results(
            analysis.diagnosis,
            _answered(analysis),
            analysis.hops,
            final=final,
            end_ns=max((flow.last_time_ns for flow in flows), default=0),
            numbering=numbering,
            capture_losses=analysis.capture_losses,
            clocks=analysis.clocks,
            parallel_taps=_parallel(analysis.imbalance),
            jobs=analysis.jobs,
            overview=overview(analysis, fabric),
            job_ranks=analysis.ranks if isinstance(analysis.ranks, Ranks) else None,
            job_notes=[line for line in analysis.warnings if line.startswith(NOTE)],
            lost={flow.id: lost for flow in flows if (lost := flow.lost_between_taps)},
            late={flow.id: late for flow in flows if (late := flow.reordered_between_taps)},
            marked={flow.id: flow.ecn_marked_packets for flow in flows if flow.ecn_marked_packets},
        )

    @classmethod
    def of_results(
        cls,
        diagnosis: Diagnosis,
        answered: dict[int, int],
        hops: Sequence[Hop],
        *,
        final: bool = True,
        **more: Any,
    ) -> Judged:
        """The diagnosis in a folder of results. answered: by flow of ACKs only, the flow that waits
        for them. more: further fields."""
        return cls(
            diagnosis=diagnosis,
            why="",
            final=final,
            states=_states(diagnosis.findings, answered),
            hops=hops,
            last_seen=frozenset((hop.from_tap, frame) for hop in hops for frame in hop.lost_frames),
            **more,
        )

    @property
    def findings(self) -> Sequence[Finding]:
        """All findings, worst first."""
        return () if self.diagnosis is None else self.diagnosis.findings

    def ranks(self, flows: int) -> NDArray[np.int64]:
        """Per flow: how bad its worst finding is; 0 without one."""
        ranks = np.zeros(flows, np.int64)
        for flow, (rank, _) in self.states.items():
            if flow < flows:
                ranks[flow] = rank
        return ranks


def _parallel(imbalances: Sequence[Imbalance]) -> list[tuple[str, ...]]:
    """The sets of parallel taps, once for both directions."""
    sets = (
        tuple(sorted(share.path for share in imbalance.shares))
        for imbalance in imbalances
        if imbalance.path_by == "tap"
    )
    return list(dict.fromkeys(sets))


def _answered(analysis: Analysis) -> dict[int, int]:
    """By flow of ACKs only: the flow that waits for them."""
    both = [tuple(each.flows) for each in analysis.connections if len(each.flows) == 2]
    peers = {flow: peer for a, b in both for flow, peer in ((a, b), (b, a))}
    return {
        flow.id: peers[flow.id]
        for flow in analysis.flows
        if flow.id in peers and not flow.data_packets
    }


def _states(findings: Sequence[Finding], answered: dict[int, int]) -> dict[int, tuple[int, str]]:
    """By flow; the loss of ACKs is a trouble of the flow that waits for them too."""
    states: dict[int, tuple[int, str]] = {}
    for finding in findings:
        name = STATES.get(finding.kind, finding.kind)
        rank = len(SEVERITIES) - SEVERITIES.index(finding.severity)
        if name == STALLED:
            rank = len(SEVERITIES) + 1
        hit = [] if finding.severity == "note" else finding.flows
        waiting = [answered[flow] for flow in hit if flow in answered]
        for flow in (*finding.flows, *waiting):
            if rank > states.get(flow, (0, ""))[0]:
                states[flow] = rank, name
    return states
