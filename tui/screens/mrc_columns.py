"""Cells of the columns of screen 2 that only MRC has."""

from __future__ import annotations

from collections.abc import Callable

from ...kernels.kernel import Ints
from ...report.words import human
from ..flow_columns import MRC_COLUMNS
from ..session.snapshots.snapshot import UNKNOWN, MrcColumns
from ..widgets.grid_columns import Cell

MRC_VALUES: dict[str, Callable[[MrcColumns], Ints]] = {
    "evs": lambda m: m.values,
    "out": lambda m: m.fell_out,
    "planes": lambda m: m.planes,
    "rtx": lambda m: m.resends,
    "nacks": lambda m: m.nacks,
    "trim": lambda m: m.trimmed,
    "skip": lambda m: m.skips,
    "depth": lambda m: m.depth,
}
OTHERS = ("resent", "naks", "cnps")
"""Columns of other transports: hidden when all data is MRC."""
_SHOULD_BE_0 = {"out", "rtx", "nacks", "trim", "skip"}


def mrc_cells(mrc: MrcColumns, f: int) -> list[Cell]:
    """Cells of one flow, in the order of MRC_COLUMNS; empty without MRC data."""
    if mrc.values[f] == UNKNOWN:
        return [("·", "dim")] * len(MRC_COLUMNS)
    return [_cell(key, int(values(mrc)[f])) for key, values in MRC_VALUES.items()]


def _cell(key: str, value: int) -> Cell:
    if value == UNKNOWN:
        return (human.UNKNOWN, "dim")
    text = human.count(value)
    if key not in _SHOULD_BE_0:
        return text
    return (text, "bad" if value else "dim")
