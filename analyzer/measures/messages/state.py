"""State of the message measure per flow; copying, moving and adding flows."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, subkernel
from ....kernels.named import NamedTuple
from ...wire.record import Records
from .awaiting import ENTRY, MOST_ENTRIES, WAITER_FIELDS, forget_all
from .delivered import DELIVERED_FIELDS
from .pieces import ASSEMBLY_FIELDS, PIECE, PIECES, give_up_all

STATE = np.dtype(
    [
        ("messages", np.int64),
        ("seen", np.uint8),  # 1: a packet of this flow was measured
        ("answered", np.uint8),  # 1: a response to this flow was seen
        *ASSEMBLY_FIELDS,
        *WAITER_FIELDS,
        *DELIVERED_FIELDS,
    ],
    align=True,
)


class MessageArrays(NamedTuple):
    """Arrays of the kernel."""

    state: Records
    """STATE[flows]."""
    current: Records
    """PIECE[flows]: the growing piece."""
    shelves: Records
    """PIECE[flows, PIECES]: of flows with disorder, allocated on first use."""
    rings: Records
    """ENTRY[flows * MOST_ENTRIES]: rings of flows with outstanding requests, see `awaiting`."""
    used: Ints
    """int64[2]: shelves, and entries of rings, that were handed out."""


@subkernel
def close(arrays: MessageArrays, f: Int) -> None:
    """The sequence restarted or ended: open messages stay incomplete or unacknowledged."""
    s = arrays.state[f]
    give_up_all(arrays.shelves, s, arrays.current[f])
    forget_all(arrays.rings, s)


def empty(flows: int) -> MessageArrays:
    """Arrays for this many flows without packets."""
    return MessageArrays(
        np.zeros(flows, STATE),
        np.zeros(flows, PIECE),
        np.zeros((flows, PIECES), PIECE),
        np.zeros(flows * MOST_ENTRIES, ENTRY),
        np.zeros(2, np.int64),
    )


def copied(arrays: MessageArrays, flow: int) -> MessageArrays:
    """One flow as flow, shelf and ring 0 of new arrays; empty for an unseen flow."""
    part = empty(1)
    if flow >= len(arrays.state):
        return part
    part.state[0] = arrays.state[flow]
    part.current[0] = arrays.current[flow]
    s = part.state[0]
    if s["shelf"]:
        part.shelves[0] = arrays.shelves[s["shelf"] - 1]
        s["shelf"] = 1
    if s["ring"]:
        size = 1 << int(s["ring_bits"])
        part.rings[:size] = arrays.rings[s["ring"] - 1 : s["ring"] - 1 + size]
        s["ring"] = 1
    return part
