"""From a hash value to a member of a group: modulo, range, or hash-threshold.

Groups of a fabric are packed into flat arrays, so that one kernel serves units
that meet different groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int32s, Ints, NamedTuple, UInt16s, UInt32s, UInt64s, inlined, kernel
from .settings import Group, Reduction

MAX_SLOTS = 65_535
"""Members of a group, or buckets, or the sum of the weights of a modulo or range group."""

_MODULO, _RANGE, _THRESHOLD = range(3)
_KINDS: dict[Reduction, int] = {"modulo": _MODULO, "range": _RANGE, "threshold": _THRESHOLD}
_FRACTION_BITS = np.uint64(48)
_FRACTION_MASK = np.uint64((1 << 48) - 1)
_GUESS_BITS = 10


class PackedGroups(NamedTuple):
    """Groups as the kernels see them."""

    kind: Ints
    """int64[g]: modulo, range or threshold."""
    slots: UInt64s
    """uint64[g]: number of slots."""
    reciprocal: UInt64s
    """uint64[g]: ceil(2**48 / slots), for a modulo without a division."""
    start: Ints
    """int64[g]: start of the slots of the group in `members` and `bounds`."""
    members: UInt16s
    """uint16[all slots]: member in each slot."""
    bounds: Ints
    """int64[all slots]: highest value of each slot of a threshold group, ascending."""
    guess: UInt16s
    """uint16[g, 1024]: first slot that values with these high bits can have (threshold)."""
    bits: int
    """Width of the hash values."""


def pack_groups(groups: Sequence[Group], reduction: Reduction, bits: int) -> PackedGroups:
    """Groups for hash values of `bits` bits. UsageError for an invalid group."""
    kinds, slots, members, bounds, guesses = [], [], [], [], []
    for group in groups:
        _check(group)
        threshold = group.buckets is None and reduction == "threshold"
        # A resilient group is a table indexed by the remainder, as in Linux.
        kinds.append(_MODULO if group.buckets is not None else _KINDS[reduction])
        member = _members(group, threshold)
        limit = _bounds(group.weights, bits) if threshold else np.zeros(len(member), np.int64)
        slots.append(len(member))
        members.append(member)
        bounds.append(limit)
        lowest = np.arange(1 << _GUESS_BITS, dtype=np.int64) << bits >> _GUESS_BITS
        guesses.append(np.searchsorted(limit, lowest) if threshold else np.zeros(len(lowest)))
    count = np.array(slots, np.uint64)
    return PackedGroups(
        np.array(kinds, np.int64),
        count,
        -(-(1 << 48) // count.astype(np.int64)).astype(np.uint64),
        np.cumsum([0, *slots[:-1]]).astype(np.int64),
        np.concatenate(members).astype(np.uint16),
        np.concatenate(bounds),
        np.array(guesses).astype(np.uint16),
        bits,
    )


def _check(group: Group) -> None:
    if len(group.weights) == 0 or len(group.weights) > MAX_SLOTS:
        raise UsageError(f"a group has 1 to {MAX_SLOTS} next hops, not {len(group.weights)}")
    if (group.weights < 0).any() or (group.buckets is None and not group.weights.any()):
        raise UsageError("weights must be 0 (down) or more, and at least one next hop must be up")
    if group.buckets is not None:
        if not 0 < len(group.buckets) <= MAX_SLOTS:
            raise UsageError(f"a resilient group has 1 to {MAX_SLOTS} buckets")
        if (group.buckets >= len(group.weights)).any():
            raise UsageError("a bucket names a next hop that is not in the group")


def _members(group: Group, threshold: bool) -> Ints:
    """Member of every slot: weight w takes w neighbouring slots, w divided by the gcd."""
    if group.buckets is not None:
        return group.buckets.astype(np.int64)
    numbers = np.arange(len(group.weights), dtype=np.int64)
    if threshold:
        return numbers
    weights = group.weights // gcd(*group.weights.tolist())
    if weights.sum() > MAX_SLOTS:
        raise UsageError(f"the weights of a group add up to more than {MAX_SLOTS} slots")
    return np.repeat(numbers, weights)


def _bounds(weights: Ints, bits: int) -> Ints:
    """Highest value of every member: round(2**bits * cumulative / total) - 1, halves up."""
    total = int(weights.sum())
    cumulative = np.cumsum(weights).tolist()
    return np.array([((c << bits) + total // 2) // total - 1 for c in cumulative], np.int64)


@inlined
def _member(value: np.uint32, g: np.int64, groups: PackedGroups) -> np.uint16:
    h = np.uint64(value)
    start = groups.start[g]
    if groups.kind[g] == _MODULO:
        # h < 2**32 and slots < 2**16, so 48 bits of fraction make the remainder exact.
        fraction = (groups.reciprocal[g] * h) & _FRACTION_MASK
        slot = np.int64((fraction * groups.slots[g]) >> _FRACTION_BITS)
        return np.uint16(groups.members[start + slot])
    if groups.kind[g] == _RANGE:
        slot = np.int64((h * groups.slots[g]) >> np.uint64(groups.bits))
        return np.uint16(groups.members[start + slot])
    slot = np.int64(groups.guess[g, np.int64(h) << _GUESS_BITS >> groups.bits])
    # The last bound is the highest value there is, so the search ends inside the group.
    while np.int64(h) > groups.bounds[start + slot]:
        slot += 1
    return np.uint16(groups.members[start + slot])


@kernel
def choose_one_group(values: UInt32s, groups: PackedGroups, g: np.int64, out: UInt16s) -> None:
    """out[r, i] = member of group `g` for values[r, i], all values below 2**groups.bits."""
    start = groups.start[g]
    bits = np.uint64(groups.bits)
    slots = groups.slots[g]
    reciprocal = groups.reciprocal[g]
    kind = groups.kind[g]
    for r in range(values.shape[0]):
        if kind == _MODULO:
            for i in range(values.shape[1]):
                fraction = (reciprocal * np.uint64(values[r, i])) & _FRACTION_MASK
                out[r, i] = groups.members[start + np.int64((fraction * slots) >> _FRACTION_BITS)]
        elif kind == _RANGE:
            for i in range(values.shape[1]):
                slot = (np.uint64(values[r, i]) * slots) >> bits
                out[r, i] = groups.members[start + np.int64(slot)]
        else:
            for i in range(values.shape[1]):
                out[r, i] = _member(values[r, i], g, groups)


@kernel
def choose_by_unit(values: UInt32s, groups: PackedGroups, group_of: Int32s, out: UInt16s) -> None:
    """out[r, i] = member of group group_of[r, i]; 0 where that is negative (no group)."""
    count = len(groups.kind)
    for r in range(values.shape[0]):
        for i in range(values.shape[1]):
            g = np.int64(group_of[r, i])
            out[r, i] = _member(values[r, i], g, groups) if 0 <= g < count else np.uint16(0)
