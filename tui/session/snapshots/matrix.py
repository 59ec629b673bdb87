"""The numbers of the heat map: the load of each row (flow, host pair or host) on each path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from ....kernels.kernel import Floats, Ints
from ....report.words import human
from .snapshot import PathColumns, Snapshot

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
