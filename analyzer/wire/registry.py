"""The meaning of the indices in packet tables, as one argument for every layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from .endpoints import Endpoints
from .segments import SegmentLists
from .taps import Taps


@dataclass(frozen=True, slots=True)
class Registry:
    """The addresses, vantage points and segment lists of an analysis.

    Columns `src`, `dst`, `tap` and `path_evidence` of its packet tables are numbers of these.
    """

    endpoints: Endpoints = field(default_factory=Endpoints)
    taps: Taps = field(default_factory=Taps)
    segments: SegmentLists = field(default_factory=SegmentLists)

    @property
    def tap_names(self) -> list[str]:
        return [tap.name for tap in self.taps.items]
