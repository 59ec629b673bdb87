"""One cause is one finding: which effects the causes found so far explain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from ..results.diagnosis import Finding, Kind

CLOCKS_NS = 1_000_000
"""An effect may seem to begin this much before its cause: the clocks of two taps differ."""
AFTERMATH_NS = 5_000_000_000
"""An effect may begin this long after the end of its cause: ACK timeouts and their back-off."""

_LOSSES: Final = (
    "loss", "selective-loss", "blackhole", "outage", "rate-limit", "link-down", "incast",
    "collision", "corruption",
)  # fmt: skip
_DISORDER: Final = ("reordering", "rehash")
_HOST: Final = ("receiver-not-ready", "fatal-nak")

EXPLAINS: Final[dict[Kind, frozenset[str]]] = {
    "loss": frozenset((*_LOSSES, *_DISORDER, *_HOST, "pause")),
    "reordering": frozenset((*_DISORDER, "capture-loss")),
    "stalled": frozenset((*_LOSSES, *_HOST)),
    "timeout-recovery": frozenset((*_LOSSES, *_DISORDER, *_HOST, "stalled", "pause", "queueing")),
    "retry-storm": frozenset(
        (*_LOSSES, *_DISORDER, *_HOST, "stalled", "timeout-recovery", "pause", "queueing")
    ),
    "queueing": frozenset(("incast", "collision", "rate-limit", "pause")),
    "cnp-without-mark": frozenset(("ecn-marking", "incast", "collision")),
    "mark-without-cnp": frozenset(("stalled",)),
}
"""Kinds of causes that explain an effect of this kind in the same flows at the same time."""


class Known:
    """The causes found so far, by flow."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self._by_flow: dict[int, list[Finding]] = defaultdict(list)
        for finding in findings:
            self.add(finding)

    def add(self, finding: Finding) -> None:
        """Let `finding` explain effects from now on; a note explains nothing."""
        if finding.severity != "note":
            for flow in finding.flows:
                self._by_flow[flow].append(finding)

    def explains(self, effect: Kind, flow: int, first_ns: int, last_ns: int) -> bool:
        """Whether a known cause hit `flow` while or shortly before an effect was seen there."""
        causes = EXPLAINS.get(effect, frozenset())
        return any(
            cause.kind in causes
            and last_ns >= cause.from_ns - cause.onset_uncertainty_ns - CLOCKS_NS
            and (cause.until_ns is None or first_ns <= cause.until_ns + AFTERMATH_NS)
            for cause in self._by_flow.get(flow, ())
        )
