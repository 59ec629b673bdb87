"""Options for captures from mirrors, and the restoration of their packets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ...errors import RocescopeError
from ...wire.frames import FrameBatch
from ...wire.packets import I64, PacketTable
from ...wire.taps import Taps
from ..time_order import OrderCounts, in_time_order
from .duplicates import Duplicates
from .hardware_clock import HardwareClock
from .lumina import LuminaMirror
from .switch_counters import SwitchCounters

Clock = Literal["capture", "hardware"]
MirrorFormat = Literal["lumina"]


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """How to restore mirrored packets."""

    clock: Clock = "capture"
    """Source of times; hardware: timestamps of the switches."""
    format: MirrorFormat | None = None
    """A mirror that overwrites header fields of the packets."""
    drop_duplicates_ns: int | None = None
    """Drop packets that repeat one within this time, ns."""
    switch_counters: SwitchCounters | None = None
    """Counters of the mirroring switch."""


class Mirrors:
    """Applies the options to the tables of one capture."""

    def __init__(self, options: MirrorOptions, taps: Taps) -> None:
        self.clock = HardwareClock(taps) if options.clock == "hardware" else None
        self.lumina = LuminaMirror(taps) if options.format == "lumina" else None
        self.duplicates = (
            None if options.drop_duplicates_ns is None else Duplicates(options.drop_duplicates_ns)
        )
        self.order = OrderCounts()

    def restored(self, frames: FrameBatch, stamp: I64, table: PacketTable) -> PacketTable:
        """The table before the mirror; stamp: timestamp positions from the walk, -1 for none."""
        if self.clock is not None:
            self.clock.set_times(frames.data, stamp, table)
        if self.lumina is not None:
            table = self.lumina.restored(frames.data, frames.base_offset, table)
        return table if self.duplicates is None else self.duplicates.without(table)

    def ordered(self, tables: Iterator[PacketTable]) -> Iterator[PacketTable]:
        """The tables sorted by time when times are not those of the capture."""
        if self.clock is None and self.lumina is None:
            return tables
        return in_time_order(tables, self.order)

    def warnings(self, name: str) -> list[str]:
        """Warnings about the restored packets; RocescopeError without any timestamp."""
        lines = []
        if self.clock is not None:
            if not self.clock.stamped:
                raise RocescopeError(
                    f"{name}: no packet has a hardware timestamp (ERSPAN III, Arista):"
                    " analyse it without --clock hardware"
                )
            lines += self.clock.warnings()
        if self.order.late_rows:
            lines.append(
                f"{name}: {self.order.late_rows} packets were more than 10 ms too late for"
                " sorting by timestamp"
            )
        if self.duplicates is not None:
            lines.append(
                f"{name}: {self.duplicates.dropped} packets repeat a packet of at most"
                f" {self.duplicates.within_ns / 1000:g} us before: dropped"
            )
        return lines
