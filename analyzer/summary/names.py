"""Display names of the endpoints, taps and flows of an analysis."""

from __future__ import annotations

from ..track.tracker import FlowTracker
from ..wire.registry import Registry


class Names:
    """The names in one result."""

    def __init__(self, tracker: FlowTracker, registry: Registry) -> None:
        self._flows = tracker.flows
        self.addresses = registry.endpoints.texts()
        self.taps = registry.tap_names
        self.segments = registry.segments

    def flow(self, f: int) -> str:
        """`10.0.0.1 > 10.0.0.2 QP 0x000011`."""
        flow = self._flows[f]
        hosts = f"{self.addresses[flow['src']]} > {self.addresses[flow['dst']]}"
        return f"{hosts} QP 0x{int(flow['dest_qp']):06x}"

    def tap(self, tap: int) -> str:
        """The name of a tap."""
        return self.taps[tap]
