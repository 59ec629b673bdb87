"""The diagnosis of a session as screens need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ....analyzer.results.analysis import Analysis
from ....analyzer.results.diagnosis import SEVERITIES, Diagnosis, Finding
from ....analyzer.results.hops import CaptureLoss, Hop, TapClock

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
    "capture-loss": "capture",
}
"""What a finding makes of a flow, in few letters; other kinds are short themselves."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The latest diagnosis of a session."""

    diagnosis: Diagnosis | None = None
    """None: there is none yet, or none is possible; `why` tells."""
    why: str = "The session is not diagnosed yet."
    final: bool = False
    """Whether it covers all packets."""
    end_ns: int = 0
    """Time of the last packet that it covers."""
    numbering: int = 0
    """`Measuring.numbering` of the flow numbers in it."""
    hops: Sequence[Hop] = ()
    capture_losses: Sequence[CaptureLoss] = ()
    clocks: Sequence[TapClock] = ()
    states: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By flow: how bad its worst finding is (larger is worse), and its name."""

    @classmethod
    def of(cls, analysis: Analysis, final: bool, numbering: int = 0) -> Judged:
        """The diagnosis of an analysis."""
        diagnosis = analysis.diagnosis
        end = max((flow.last_time_ns for flow in analysis.flows), default=0)
        return cls(
            diagnosis=diagnosis,
            why="",
            final=final,
            end_ns=end,
            numbering=numbering,
            hops=analysis.hops,
            capture_losses=analysis.capture_losses,
            clocks=analysis.clocks,
            states=_states(diagnosis.findings),
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


def _states(findings: Sequence[Finding]) -> dict[int, tuple[int, str]]:
    states: dict[int, tuple[int, str]] = {}
    for finding in findings:
        name = STATES.get(finding.kind, finding.kind)
        rank = len(SEVERITIES) - SEVERITIES.index(finding.severity)
        if name == STALLED:
            rank = len(SEVERITIES) + 1
        for flow in finding.flows:
            if rank > states.get(flow, (0, ""))[0]:
                states[flow] = rank, name
    return states
