"""Options of result records, and the names of endpoints, taps and flows in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from ..errors import UsageError
from ..results.flow import Flow
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


# Options of the result records.

PathBy: TypeAlias = Literal["auto", "entropy", "tap", "link", "srv6"]
"""Path key of flows. auto: taps where some are parallel, else entropy; the links of a capture with
several are taps."""
FlowOrder: TypeAlias = Callable[[list[Flow]], list[Flow]]
"""Reorders the flows of a result."""


class PlaneBy(NamedTuple):
    """Key of the MRC planes."""

    kind: Literal["auto", "segment", "tap", "ev"] = "auto"
    number: int = 1
    """segment: which uSID, from 1; ev: the lowest bit."""
    bits: int = 0

    def __str__(self) -> str:
        if self.kind == "segment":
            return f"segment:{self.number}"
        return f"ev:{self.number}:{self.bits}" if self.kind == "ev" else self.kind


def parse_plane_by(text: str) -> PlaneBy:
    """`auto`, `tap`, `segment:N` or `ev:SHIFT:BITS`; UsageError otherwise."""
    kind, *rest = text.split(":")
    if all(part.isdecimal() for part in rest):
        numbers = [int(part) for part in rest]
        if kind == "auto" and not rest:
            return PlaneBy()
        if kind == "tap" and not rest:
            return PlaneBy("tap")
        if kind == "segment" and len(rest) == 1 and 1 <= numbers[0] <= 15:
            return PlaneBy("segment", numbers[0])
        if kind == "ev" and len(rest) == 2 and numbers[1] and sum(numbers) <= 32:
            return PlaneBy("ev", *numbers)
    raise UsageError(
        f"--plane-by is auto, tap, segment:N (a uSID, from 1) or ev:SHIFT:BITS, not {text!r}"
    )
