"""The SRv6 segment lists of a capture as results."""

from __future__ import annotations

from collections import Counter

from ..measures.spraying import PathUsage
from ..results.mrc import SegmentList
from ..wire.segments import SegmentLists

MAX_LISTED = 256


def segment_lists(usage: PathUsage, segments: SegmentLists) -> list[SegmentList]:
    """Traffic of the segment lists, largest first."""
    packets: Counter[int] = Counter()
    wire_bytes: Counter[int] = Counter()
    for path in usage.records().paths:
        packets[int(path["key"])] += int(path["packets"])
        wire_bytes[int(path["key"])] += int(path["wire_bytes"])
    found = []
    for number, carried in wire_bytes.most_common(MAX_LISTED):
        known = 0 < number <= len(segments)
        carriers = [segments.usids(s) for s in segments.segments(number)] if known else []
        found.append(
            SegmentList(
                path=segments.name(number) if number >= 0 else "other",
                segments=[usids for _, usids, _ in carriers],
                empty_places=carriers[0][2] if carriers else 0,
                packets=packets[number],
                wire_bytes=carried,
            )
        )
    return found
