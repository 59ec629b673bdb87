"""Ultra Ethernet: recognised by its UDP port and counted, not tracked.

Source: Ultra Ethernet specification 1.0, packet delivery sublayer (PDS): a prologue of
16 bits begins with the type; requests, ACKs and NACKs of the reliable modes have a 32-bit PSN after
the first four bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Int, inlined
from ....kernels.named import NamedTuple
from ...wire.packets import I64, U8
from .load import be16, be32, byte

TYPE_NAMES: Final = {
    1: "TSS",
    2: "RUD request",
    3: "ROD request",
    4: "RUDI request",
    5: "RUDI response",
    6: "UUD request",
    7: "ACK",
    8: "ACK_CC",
    9: "ACK_CCX",
    10: "NACK",
    11: "control",
    12: "NACK_CCX",
    13: "RUD_CC request",
    14: "ROD_CC request",
}
_REQUESTS = 1 << 2 | 1 << 3 | 1 << 13 | 1 << 14
"""Types with the PSN of the packet itself."""


class UetArrays(NamedTuple):
    """Counters of the Ultra Ethernet packets of a capture."""

    types: I64
    """int64[32]: packets by PDS type."""
    sports: I64
    """int64[65536]: packets by UDP source port, the entropy value."""
    psns: I64
    """int64[2]: lowest and highest PSN of requests; lowest > highest without requests."""
    wire_bytes: I64
    """int64[1]"""


def no_packets() -> UetArrays:
    """Counters at zero."""
    return UetArrays(
        np.zeros(32, np.int64),
        np.zeros(65536, np.int64),
        np.array([1 << 32, -1], np.int64),
        np.zeros(1, np.int64),
    )


@inlined
def count_uet(data: U8, udp: Int, end: Int, wire_bytes: Int, counts: UetArrays) -> bool:
    """Count the packet with its UDP header at `udp`; False when it is truncated."""
    at = udp + 8
    if end - at < 8:
        return False
    kind = byte(data, at) >> 3
    counts.types[kind] += 1
    counts.sports[np.uint64(be16(data, udp))] += 1
    counts.wire_bytes[0] += wire_bytes
    if (_REQUESTS >> kind) & 1:
        psn = be32(data, at + 4)
        counts.psns[0] = min(counts.psns[0], psn)
        counts.psns[1] = max(counts.psns[1], psn)
    return True
