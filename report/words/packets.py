"""Notes on single packets: what the tracker found, in words."""

from __future__ import annotations

from typing import NamedTuple

from ...analyzer.track import batch as verdicts
from ...analyzer.wire.psn import PSN_HALF, PSN_MASK
from . import human


class Sight(NamedTuple):
    """One record of `analyzer.track.references.REFERENCE`."""

    due: int
    extent: int
    late_ns: int
    gap: int
    other: int
    since_ns: int
    hop: int


def psn_steps(psn: int, due: int) -> int:
    """How far a PSN is ahead of the expected one; negative if it is behind."""
    return ((psn - due + PSN_HALF) & PSN_MASK) - PSN_HALF


def psn_note(kind: int, psn: int, sight: Sight, tap: str) -> str:
    """A note on the PSN order of a packet; empty for the expected PSN. tap: printable."""
    if kind == verdicts.AHEAD:
        return f"gap: {psn_steps(psn, sight.due)} missing" if sight.due >= 0 else "gap"
    if kind == verdicts.REORDERED:
        note = f"late by {-psn_steps(psn, sight.due)}" if sight.due >= 0 else "late"
        if sight.extent >= 0:
            note += f", extent {sight.extent}, {human.duration(sight.late_ns)}"
        return note
    if kind == verdicts.TAP_COPY:
        return f"copy at {tap}"
    return _NOTES.get(kind, "")


_NOTES = {
    verdicts.RECOVERED: "retransmitted, first copy lost",
    verdicts.RETRANSMITTED: "retransmitted, first copy seen",
    verdicts.DUPLICATE: "duplicated by the network",
    verdicts.MIRROR_DUPLICATE: "duplicated by the mirror",
    verdicts.OVERTAKEN: "first copy, late: already retransmitted",
    verdicts.RESTARTED: "PSN sequence restarts",
}
