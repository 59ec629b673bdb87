"""What an analysis is told about the mirrors its captures come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from .decode.duplicates import Duplicates
from .decode.hardware_clock import HardwareClock
from .decode.lumina import OTHER_EVENT, LuminaMirror, mirror_checks
from .errors import RocescopeError
from .frames import FrameBatch, Taps
from .packets import I64, PacketTable
from .results import Analysis
from .time_order import OrderCounts, in_time_order

Clock = Literal["capture", "hardware"]
MirrorFormat = Literal["lumina"]


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """How mirrored packets are to be read."""

    clock: Clock = "capture"
    """Where times come from; hardware: the stamps of the switches."""
    format: MirrorFormat | None = None
    """A mirror that writes into the packets' own headers."""
    drop_duplicates_ns: int | None = None
    """Drop packets that repeat one of so short a time before."""


class Mirrors:
    """Applies the options to the tables of one capture."""

    def __init__(self, options: MirrorOptions, taps: Taps) -> None:
        self.clock = HardwareClock(taps) if options.clock == "hardware" else None
        self.lumina = LuminaMirror() if options.format == "lumina" else None
        self.duplicates = (
            None if options.drop_duplicates_ns is None else Duplicates(options.drop_duplicates_ns)
        )
        self.order = OrderCounts()

    def restored(self, frames: FrameBatch, stamp: I64, table: PacketTable) -> PacketTable:
        """The table as it was before the mirror: stamp is that of the walk, -1 for none."""
        if self.clock is not None:
            self.clock.set_times(frames.data, stamp, table)
        if self.lumina is not None:
            self.lumina.restore(frames.data, frames.base_offset, table)
        return table if self.duplicates is None else self.duplicates.without(table)

    def ordered(self, tables: Iterator[PacketTable]) -> Iterator[PacketTable]:
        """In order of time, where times are not those of the capture."""
        if self.clock is None and self.lumina is None:
            return tables
        return in_time_order(tables, self.order)

    def warnings(self, name: str) -> list[str]:
        """What limits the trust in the restored packets; RocescopeError without any stamp."""
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
                f"{name}: {self.order.late_rows} packets came more than 10 ms too late to be"
                " sorted by their timestamps"
            )
        if self.duplicates is not None:
            lines.append(
                f"{name}: {self.duplicates.dropped} packets repeat one of at most"
                f" {self.duplicates.within_ns / 1000:g} us before: dropped"
            )
        return lines


def with_checks(analysis: Analysis, mirrors: Sequence[Mirrors | None]) -> Analysis:
    """The result with the integrity of a numbering mirror, whose losses are told first."""
    numbered = [m.lumina for m in mirrors if m is not None and m.lumina is not None]
    if not numbered:
        return analysis
    checks = mirror_checks(numbered)
    lines = []
    if checks.lost_packets:
        lines.append(
            f"the mirror lost {checks.lost_packets} of {checks.packets + checks.lost_packets}"
            f" packets (gaps in its numbers: {checks.gaps}): losses below may be its own"
        )
    if checks.times_backwards:
        lines.append(f"the mirror's clock goes back {checks.times_backwards} times by over 50 ns")
    if checks.direction_times_backwards:
        lines.append(
            f"the mirror's clock goes back {checks.direction_times_backwards} times between packets"
            " of one sender"
        )
    unknown = checks.injected.get(OTHER_EVENT, 0)
    if unknown:
        lines.append(
            f"{unknown} packets have a TTL that Lumina does not write: is this one of its mirrors?"
        )
    return structs.replace(analysis, mirror_checks=checks, warnings=[*lines, *analysis.warnings])
