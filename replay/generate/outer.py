"""Outer headers of a frame, and the offsets of fields that differ from frame to frame."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...kernels.kernel import Bytes

NO_FIELD: Final = -1


class Outer(NamedTuple):
    """Outer headers, and the offsets of fields that differ from frame to frame."""

    data: Bytes
    network_at: int
    ipv6: bool
    udp_at: int
    """Offset of a UDP header whose length is set per frame, or NO_FIELD."""
    sequence_at: int
    """Offset of a 32-bit frame number, or NO_FIELD."""
    stamp_at: int
    """Offset of a 32-bit time in units of 100 ns, or NO_FIELD."""
