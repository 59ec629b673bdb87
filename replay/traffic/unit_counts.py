"""Packets of a capture counted per unit: one entropy value of one flow."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...analyzer.track.batch import MIRROR_DUPLICATE, TAP_COPY, Rows, TrackedBatch
from ...analyzer.wire.opcodes import CARRIES_DATA
from ...kernels.kernel import Int, Int32s, Ints, Records, kernel, subkernel
from .traffic import Windows
from .window_cells import WindowCells

UNIT = np.dtype(
    [
        ("flow", "i4"),
        ("sport", "u2"),
        ("dport", "u2"),
        ("flow_label", "u4"),
        ("packets", "i8"),
        ("wire_bytes", "i8"),
        ("first_ns", "i8"),
        ("last_ns", "i8"),
        ("has_data", "u1"),
        ("dscp", "u1"),
    ]
)


class UnitCounter:
    """Counts packets of tables with the flow and verdict of each row.

    Memory is bounded by units (and windows, see WindowCells).
    """

    def __init__(self, window_ns: int | None = None) -> None:
        self._units = np.zeros(1024, UNIT)
        self._slots = np.full(4096, -1, np.int32)
        self._used = np.zeros(1, np.int64)
        self._cells = WindowCells(window_ns) if window_ns else None

    @property
    def units(self) -> Records:
        """UNIT records in order of appearance, a view."""
        return self._units[: int(self._used[0])]

    def update(self, batch: TrackedBatch) -> Int32s:
        """Count the rows that are not copies of a packet at another tap.

        Returns the unit of each row, -1 for copies.
        """
        unit = np.empty(len(batch), np.int32)
        row: Int = 0
        while row < len(batch):
            row = _count(batch.rows, row, unit, self._units, self._slots, self._used)
            if row < len(batch):
                self._grow()
        if self._cells is not None:
            kept, table = unit >= 0, batch.table
            self._cells.add(unit[kept], table.time_ns[kept], table.wire_bytes[kept])
        return unit

    def windows(self) -> Windows | None:
        """Bytes per unit and window; None without windows."""
        return None if self._cells is None else self._cells.windows()

    def _grow(self) -> None:
        units = np.zeros(2 * len(self._units), UNIT)
        units[: len(self._units)] = self._units
        self._units = units
        self._slots = np.full(4 * len(units), -1, np.int32)
        _rehash(self._units, self._slots, self._used)


@subkernel
def _slot(flow: Int, sport: Int, dport: Int, label: Int, units: Records, slots: Int32s) -> Int:
    """The slot of a unit: used by it, or free."""
    h = np.uint64(flow) * np.uint64(0x9E3779B97F4A7C15)
    h ^= np.uint64(sport) << np.uint64(40) | np.uint64(dport) << np.uint64(20) | np.uint64(label)
    h ^= h >> np.uint64(31)
    h *= np.uint64(0xD6E8FEB86659FD93)
    h ^= h >> np.uint64(32)
    mask = np.uint64(len(slots) - 1)
    at = h & mask
    while slots[at] >= 0:
        unit = units[slots[at]]
        if (
            unit.flow == flow
            and unit.sport == sport
            and unit.dport == dport
            and unit.flow_label == label
        ):
            return at
        at = (at + np.uint64(1)) & mask
    return at


@subkernel
def _count(
    rows: Rows, row: Int, unit_of_row: Int32s, units: Records, slots: Int32s, used: Ints
) -> Int:
    """Count rows from `row` on; returns the first row that may not have room."""
    while row < len(rows.flow):
        if used[0] >= len(units):
            return row
        if rows.verdict[row] == TAP_COPY or rows.verdict[row] == MIRROR_DUPLICATE:
            unit_of_row[row] = -1
            row += 1
            continue
        slot = _slot(
            rows.flow[row],
            rows.udp_sport[row],
            rows.udp_dport[row],
            rows.flow_label[row],
            units,
            slots,
        )
        time = rows.time_ns[row]
        if slots[slot] < 0:
            slots[slot] = used[0]
            unit: Any = units[used[0]]
            used[0] += 1
            unit.flow = rows.flow[row]
            unit.sport = rows.udp_sport[row]
            unit.dport = rows.udp_dport[row]
            unit.flow_label = rows.flow_label[row]
            unit.first_ns = time
            unit.last_ns = time
            unit.dscp = rows.traffic_class[row] >> np.uint8(2)
        unit = units[slots[slot]]
        unit.packets += 1
        if CARRIES_DATA[rows.opcode[row]] and not unit.has_data:  # ACKs may have another DSCP
            unit.has_data = 1
            unit.dscp = rows.traffic_class[row] >> np.uint8(2)
        unit.wire_bytes += np.int64(rows.wire_bytes[row])
        unit.first_ns = min(unit.first_ns, time)
        unit.last_ns = max(unit.last_ns, time)
        unit_of_row[row] = slots[slot]
        row += 1
    return row


@kernel
def _rehash(units: Records, slots: Int32s, used: Ints) -> None:
    for i in range(used[0]):
        unit = units[i]
        slots[_slot(unit.flow, unit.sport, unit.dport, unit.flow_label, units, slots)] = i
