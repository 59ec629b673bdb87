"""Headers around a frame, and where in them is what differs from frame to frame."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_FIELD: Final = -1


class Outer(NamedTuple):
    """Outer headers, and where in them is what differs from frame to frame."""

    data: NDArray[np.uint8]
    network_at: int
    ipv6: bool
    udp_at: int
    """Of a UDP header whose length is to be set, or NO_FIELD."""
    sequence_at: int
    """Of a 32-bit number that counts the frames, or NO_FIELD."""
    stamp_at: int
    """Of a 32-bit time in units of 100 ns, or NO_FIELD."""
