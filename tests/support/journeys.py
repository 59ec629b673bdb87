"""Rows of packets that pass taps in series, for tests of hops."""

from __future__ import annotations

from tracked_batches import START_NS

WRITE_ONLY = 0x0A


def hop(time, tap, psn=0, limit=None, **more):
    """One sighting, `time` ns after the start; hop limits fall by one from tap to tap."""
    return {
        "flow": 0, "time_ns": START_NS + time, "tap": tap, "psn": psn, "ip_id": psn % 65_535 + 1,
        "hop_limit": 64 - tap if limit is None else limit, "opcode": WRITE_ONLY,
        "wire_bytes": 100, "frame_number": 1,
    } | more  # fmt: skip


def edge(measure, near, far, flow=-1):
    """The EDGE record of a hop; None without packets."""
    found = [
        e for e in measure.edges if (e["flow"], e["from_tap"], e["to_tap"]) == (flow, near, far)
    ]
    return found[0] if found else None
