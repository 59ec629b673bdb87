"""Paths by tap: each flow's share of the first parallel links that it crosses.

A packet passes several taps in series, which are no alternatives of each other. The paths of a flow
are the taps of one set of parallel links, used or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ....kernels.kernel import Bools, Ints
from .columns import LEVELS, TAP_BITS, widths
from .snapshot import PathColumns

_LEAST_SHARE = 0.5
"""A place counts if it saw at least this share of the bytes that the flow has at its fullest place.
"""


def at_one_place(raw: PathColumns, sets: Iterable[Sequence[int]] | None) -> PathColumns:
    """One place per flow of columns whose keys are those of `columns.level_and_tap`.

    sets: taps of parallel links; None while they are not known, when all taps at one level are one
    place. Of the places with most of the flow's bytes, the widest counts; among equals one of
    parallel links, and the nearest to the sender.
    """
    flows = len(raw.starts) - 1
    flow = np.repeat(np.arange(flows), raw.seen())
    level, tap = raw.key >> TAP_BITS, raw.key & (1 << TAP_BITS) - 1
    taps = int(tap.max(initial=0)) + 1
    parallel = [list(members) for members in sets or ()]
    taps = max(taps, *(max(members) + 1 for members in parallel)) if parallel else taps
    place_of = np.zeros(taps, np.int64) if sets is None else np.arange(taps)
    for members in parallel:
        place_of[members] = members[0]
    places, group = np.unique((flow * LEVELS + level) * taps + place_of[tap], return_inverse=True)
    wide, weight = widths(group, raw.wire_bytes.astype(np.float64), len(places))
    of, at = places // (LEVELS * taps), places % taps
    most = np.zeros(flows)
    np.maximum.at(most, of, weight)
    lone = np.ones(taps, np.bool_)
    for members in parallel:
        lone[members[0]] = False
    far = _distance(flow, level, flows)[of, places // taps % LEVELS]
    order = np.lexsort((far, lone[at], -np.round(wide, 1), weight < _LEAST_SHARE * most[of], of))
    chosen = np.zeros(len(places), np.bool_)
    chosen[order[np.unique(of[order], return_index=True)[1]]] = True
    mine = chosen[group]
    used = flow[mine] * taps + tap[mine]
    could = [used]
    for members in parallel:
        placed = of[chosen & (at == members[0])]
        could.append(np.repeat(placed, len(members)) * taps + np.tile(members, len(placed)))
    code, where = np.unique(np.concatenate(could), return_inverse=True)
    where = where[: len(used)]
    owner = code // taps

    def summed(counted: Ints) -> Ints:
        return np.bincount(where, counted[mine], len(code)).astype(np.int64)

    wire_bytes = summed(raw.wire_bytes)
    return PathColumns(
        by=raw.by,
        name=raw.name,
        starts=np.searchsorted(owner, np.arange(flows + 1)),
        key=code % taps,
        packets=summed(raw.packets),
        wire_bytes=wire_bytes,
        late=summed(raw.late),
        marked=summed(raw.marked),
        width=widths(owner, wire_bytes.astype(np.float64), flows)[0],
        fair=None if sets is None else np.ones(len(code)),
    )


def _distance(flow: Ints, level: Ints, flows: int) -> Ints:
    """int64[flows, LEVELS]: how far from its sender a flow has each level.

    Levels count down from hop to hop, modulo 8: the flow begins below the widest gap.
    """
    present: Bools = np.zeros((flows, LEVELS), np.bool_)
    present[flow, level] = True
    alone, gap = present.copy(), np.where(present, 0, -1)
    for up in range(1, LEVELS):
        alone &= ~np.roll(present, -up, axis=1)
        gap += alone
    start = np.argmax(gap, axis=1)
    distance: Ints = (start[:, None] - np.arange(LEVELS)[None, :]) % LEVELS
    return distance


def known_sets(names: Sequence[str], sets: Iterable[Sequence[str]]) -> list[list[int]]:
    """Sets of taps by number, as far as there are such taps."""
    number = {name: n for n, name in enumerate(names)}
    numbers = ([number[name] for name in taps if name in number] for taps in sets)
    return [members for members in numbers if len(members) > 1]
