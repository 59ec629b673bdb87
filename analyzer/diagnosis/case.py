"""What findings are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..measures.hops.ways import Ways
from ..measures.measuring import Measuring
from ..results.captures import CaptureSummary
from ..results.events import Event
from ..results.flow import Connection, Flow
from ..results.hops import CaptureLoss, Hop, TapClock
from ..results.mrc import Mrc
from ..results.paths import Imbalance
from ..wire.registry import Registry


@dataclass(frozen=True, slots=True)
class Case:
    """The results of one analysis, and the state of the measures behind them."""

    measuring: Measuring
    registry: Registry
    captures: Sequence[CaptureSummary]
    flows: Sequence[Flow]
    """Flow i has the id i."""
    connections: Sequence[Connection]
    imbalance: Sequence[Imbalance]
    ways: Ways | None
    """The packets behind `hops`, which has the same order; None with one tap."""
    hops: Sequence[Hop]
    capture_losses: Sequence[CaptureLoss]
    clocks: Sequence[TapClock]
    events: Sequence[Event]
    mrc: Mrc | None
    complete: bool
    """False when the analysis was interrupted."""
    filtered: bool
    """True when a filter dropped packets before tracking."""

    @property
    def first_ns(self) -> int:
        """Time of the first RoCE packet; 0 without packets."""
        return min((flow.first_time_ns for flow in self.flows), default=0)

    @property
    def last_ns(self) -> int:
        """Time of the last RoCE packet; 0 without packets."""
        return max((flow.last_time_ns for flow in self.flows), default=0)
