"""The load of flows, host pairs and hosts on each path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ...kernels.kernel import Bools, Floats, Ints
from ...report import human
from .columns import LEVELS, TAP_BITS, widths
from .snapshot import PathColumns, Snapshot

# Paths by tap: each flow's share of the first parallel links that it crosses.
#
# A packet passes several taps in series, which are no alternatives of each other. The paths of a
# flow are the taps of one set of parallel links, used or not.

_LEAST_SHARE = 0.5
"""A place counts if it saw at least this share of the bytes that the flow has at its busiest place.
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


Rows = Literal["QP", "pair", "host"]
Measure = Literal["bytes", "packets", "CE", "late"]
ROWS: tuple[Rows, ...] = ("QP", "pair", "host")
MEASURES: tuple[Measure, ...] = ("bytes", "packets", "CE", "late")
_COLUMN = {"bytes": "wire_bytes", "packets": "packets", "CE": "marked", "late": "late"}


class Matrix(NamedTuple):
    """Loads of rows and paths."""

    name: Callable[[int], str]
    """The name of a row."""
    first_flow: Ints
    """Per row: the flow with the most bytes."""
    labels: list[str]
    """Names of the paths."""
    loads: Floats
    """[rows, paths] in the chosen measure."""
    fair: Floats
    """[rows, paths]: the fair shares of each row's load, 0 for paths it cannot take."""
    by_place: bool
    """Columns are ranks in the order of keys, because flows have few paths in common."""


def path_matrix(
    snapshot: Snapshot, paths: PathColumns, flows: Ints, rows: Rows, measure: Measure, room: int
) -> Matrix:
    """The loads of these flows, the largest row first, in at most `room` columns.

    Columns are the paths themselves if they fit; else equal parts of each flow's own
    list of paths, so that all columns have the same fair share.
    """
    count, seen = len(snapshot.flows), paths.seen()
    shown = np.zeros(count, np.bool_)
    shown[flows] = True
    flow = np.repeat(np.arange(count), seen)
    mine = shown[flow]
    flow, key = flow[mine], paths.key[mine]
    keys = np.unique(key)
    by_place = len(keys) > room
    if by_place:
        column = (np.arange(len(paths.key)) - np.repeat(paths.starts[:-1], seen))[mine]
        most = int(column.max()) + 1
        width = -(-most // -(-most // room))  # so that parts have equal lengths if possible
        column = np.where(seen[flow] > width, column * width // np.maximum(seen[flow], 1), column)
        labels = [str(i + 1) for i in range(width)]
    else:
        column = np.searchsorted(keys, key)
        labels = [paths.name(int(k)) for k in keys]
    group, names_of = _groups(snapshot, rows)
    used, row = np.unique(group[flow], return_inverse=True)
    cells = len(used) * len(labels)
    amounts = getattr(paths, _COLUMN[measure])[mine]
    place = row * len(labels) + column
    loads = np.bincount(place, amounts, cells).astype(np.float64).reshape(len(used), len(labels))
    heaviest = np.zeros(len(used), np.int64)
    ascending = flows[np.argsort(snapshot.flows.wire_bytes[flows], kind="stable")]
    ascending = ascending[seen[ascending] > 0]
    heaviest[np.searchsorted(used, group[ascending])] = ascending  # keeps the last one
    order = np.argsort(-loads.sum(axis=1), kind="stable")
    first = heaviest[order]
    fair = np.repeat(loads.sum(axis=1, keepdims=True) / max(1, len(labels)), len(labels), axis=1)
    if paths.fair is not None:  # by flow, so that rows of several flows are sums
        share, totals = paths.fair[mine], np.bincount(flow, paths.fair[mine], count)
        even = np.bincount(flow, amounts, count)[flow] * share / np.maximum(totals[flow], 1)
        fair = np.bincount(place, even, cells).astype(np.float64).reshape(loads.shape)
    return Matrix(
        lambda i: names_of(int(first[i])), first, labels, loads[order], fair[order], by_place
    )


def _groups(snapshot: Snapshot, rows: Rows) -> tuple[Ints, Callable[[int], str]]:
    """Number of each flow's row, and the name of the row of a flow."""
    flows, text = snapshot.flows, snapshot.addresses
    if rows == "QP":
        return (
            np.arange(len(flows)),
            lambda f: (
                f"{text[flows.src[f]]} > {text[flows.dst[f]]} {human.queue_pair(int(flows.qp[f]))}"
            ),
        )
    if rows == "pair":
        pair = flows.src.astype(np.int64) * len(text) + flows.dst
        return pair, lambda f: f"{text[flows.src[f]]} > {text[flows.dst[f]]}"
    return flows.src.astype(np.int64), lambda f: text[flows.src[f]]


LEGEND = ((0, "<1/4"), (0.5, "<3/4"), (1, "fair"), (1.5, ">5/4"), (3, "≥2"), (5, "≥4"))
"""For each glyph of `heat`: an example share and its meaning."""
SMALL_CELL, NUMBER_CELL, LARGE_CELL = 3, 9, 14
"""Widths of a cell of the map: glyph, glyph and number, widest useful."""


def heat_cell(ratio: float, width: int) -> tuple[str, str]:
    """A share over its fair share in `width` columns: the number if it fits, and the glyph."""
    glyph, style = heat(ratio)
    if width < NUMBER_CELL:
        return f"{glyph:>{width - 1}} ", style
    number = f"{ratio:.2f}" if ratio else "0"
    return f"{number} {glyph.strip():<2}".rjust(width - 1) + " ", style


def cell_width(cells: int, room: int, longest: int) -> int:
    """How wide that many cells may be; `longest`: of the names above them."""
    wide = min(room // max(1, cells), LARGE_CELL)
    if wide < NUMBER_CELL:
        return max(SMALL_CELL, min(wide, longest + 1))
    return min(wide, max(NUMBER_CELL, longest + 1))


def heat(ratio: float) -> tuple[str, str]:
    """Glyph and style of a share over its fair share."""
    if ratio < 0.25:
        return "--", "cold2"
    if ratio < 0.75:
        return " -", "cold1"
    if ratio <= 1.25:
        return " .", "fair"
    if ratio < 2:
        return " +", "hot1"
    if ratio < 4:
        return "++", "hot2"
    return "##", "hot3"
