"""State of the message measure per flow; copying, moving and adding flows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.kernel import Int, Ints, subkernel
from ....kernels.named import NamedTuple
from ...statistics.keeping import Kept, front_of, move_tables, places_of, rows_of, untouched
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
    shelves_used: Ints
    rings_used: Ints
    """int64[1]: entries handed out."""


@subkernel
def close(arrays: MessageArrays, f: Int) -> None:
    """The sequence restarted or ended: open messages stay incomplete or unacknowledged."""
    s = arrays.state[f]
    give_up_all(arrays.shelves, s, arrays.current[f])
    forget_all(arrays.rings, s)


def empty(flows: int) -> MessageArrays:
    return MessageArrays(
        np.zeros(flows, STATE),
        np.zeros(flows, PIECE),
        np.zeros((flows, PIECES), PIECE),
        np.zeros(flows * MOST_ENTRIES, ENTRY),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
    )


def grown(old: MessageArrays, flows: int) -> MessageArrays:
    """The arrays grown to at least `flows` flows."""
    if flows <= len(old.state):
        return old
    new = empty(max(flows, 2 * len(old.state), 64))
    shelves, rings = int(old.shelves_used[0]), int(old.rings_used[0])
    new.state[: len(old.state)] = old.state
    new.current[: len(old.state)] = old.current
    new.shelves[:shelves] = old.shelves[:shelves]
    new.rings[:rings] = old.rings[:rings]
    return new._replace(shelves_used=old.shelves_used, rings_used=old.rings_used)


def kept_of(old: MessageArrays, kept: Kept) -> MessageArrays:
    """The arrays with the kept flows only."""
    state = rows_of(old.state, kept)
    shelves = places_of(state["shelf"])
    held, rings = np.flatnonzero(state["ring"]), untouched(old.rings)
    bits = state["ring_bits"][held]
    ends = np.cumsum(np.int64(1) << bits.astype(np.int64))
    starts = ends - (np.int64(1) << bits.astype(np.int64))
    move_tables(old.rings, state["ring"][held] - 1, bits, rings, starts)
    state["ring"][held] = starts + 1
    return MessageArrays(
        state,
        rows_of(old.current, kept),
        front_of(old.shelves, shelves),
        rings,
        np.array([len(shelves)], np.int64),
        ends[-1:] if len(ends) else np.zeros(1, np.int64),
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
        part.rings_used[0] = size
        s["ring"] = 1
    return part


def adopt(arrays: MessageArrays, flow: int, part: MessageArrays) -> None:
    """Copy a flow, alone in its arrays, to flow `flow`, which has no state yet."""
    s = part.state[0]
    if s["shelf"]:
        arrays.shelves_used[0] += 1
        s["shelf"] = arrays.shelves_used[0]
        arrays.shelves[s["shelf"] - 1] = part.shelves[0]
    if s["ring"]:
        start, size = int(arrays.rings_used[0]), 1 << int(s["ring_bits"])
        arrays.rings[start : start + size] = part.rings[:size]
        arrays.rings_used[0] += size
        s["ring"] = start + 1
    arrays.state[flow] = s
    arrays.current[flow] = part.current[0]


def add(mine: Any, theirs: Any) -> None:
    """Add the counts of a closed flow to those of another."""
    for name in ("messages", "delivered", "begun", "ended", "untracked"):
        mine[name] += theirs[name]
    mine["max_outstanding"] = max(mine["max_outstanding"], theirs["max_outstanding"])
    for name in ("seen", "answered", "acked"):
        mine[name] |= theirs[name]
    if not theirs["started"]:
        return
    for name in ("pending", "base", "top", "asked", "began_anew"):
        mine[name] = theirs[name]
    first, last = theirs["first_time"], theirs["last_time"]
    mine["first_time"] = min(mine["first_time"], first) if mine["started"] else first
    mine["last_time"] = max(mine["last_time"], last) if mine["started"] else last
    mine["started"] = 1
