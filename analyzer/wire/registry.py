"""The meaning of the indices in packet tables, as one argument for every layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...kernels.named import NamedTuple
from .endpoints import Endpoints
from .packets import U16, U32
from .segments import SegmentLists
from .taps import Taps


class NumberMaps(NamedTuple):
    """Index maps between registries: index i of a part is index `map[i]` of the whole."""

    endpoints: U32
    taps: U16
    segments: U32


@dataclass(frozen=True, slots=True)
class Registry:
    """The addresses, vantage points and segment lists of an analysis.

    Columns `src`, `dst`, `tap` and `path_evidence` of its packet tables are numbers of these.
    """

    endpoints: Endpoints = field(default_factory=Endpoints)
    taps: Taps = field(default_factory=Taps)
    segments: SegmentLists = field(default_factory=SegmentLists)

    def joined(self, part: Registry) -> NumberMaps:
        """Add the entries of a part of the same analysis."""
        return NumberMaps(
            self.endpoints.joined(part.endpoints),
            self.taps.joined(part.taps),
            self.segments.joined(part.segments),
        )

    @property
    def tap_names(self) -> list[str]:
        return [tap.name for tap in self.taps.items]
