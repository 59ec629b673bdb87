"""What an analysis is told about the mirrors its captures come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from .conformance.counter_names import DAMAGED_COUNTERS
from .decode.duplicates import Duplicates
from .decode.hardware_clock import HardwareClock
from .decode.lumina import OTHER_EVENT, LuminaMirror, mirror_checks
from .errors import RocescopeError
from .frames import FrameBatch, Taps
from .packets import I64, PacketTable
from .results import Analysis
from .results_conformance import Conformance
from .results_taps import MirrorChecks
from .switch_counters import SwitchCounters, check_switch
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
    switch_counters: SwitchCounters | None = None
    """What the mirroring switch counted."""


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
        """The table as it was before the mirror: stamp is that of the walk, -1 for none."""
        if self.clock is not None:
            self.clock.set_times(frames.data, stamp, table)
        if self.lumina is not None:
            table = self.lumina.restored(frames.data, frames.base_offset, table)
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


def with_checks(
    analysis: Analysis,
    mirrors: Sequence[Mirrors | None],
    addresses: list[str],
    options: MirrorOptions | None,
) -> Analysis:
    """The result with the integrity of a numbering mirror, whose losses are told first.

    addresses: of the endpoints, by index.
    """
    numbered = [m.lumina for m in mirrors if m is not None and m.lumina is not None]
    if not numbered:
        return analysis
    switch = None
    if options is not None and options.switch_counters is not None:
        captured = sum(mirror.packets for mirror in numbered)
        switch = check_switch(options.switch_counters, captured)
    checks = mirror_checks(numbered, addresses, switch)
    lines = []
    if checks.lost_packets:
        lines.append(
            f"the mirror lost {checks.lost_packets} of {checks.packets + checks.lost_packets}"
            f" packets (gaps in its numbers: {checks.gaps}): losses below may be its own"
        )
    if switch is not None and not switch.agrees:
        lines.append(
            f"the switch received {switch.received_packets} packets, mirrored"
            f" {switch.mirrored_packets}, and {switch.captured_packets} were captured"
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
    found = structs.replace(analysis, mirror_checks=checks, warnings=[*lines, *analysis.warnings])
    if isinstance(found.conformance, Conformance):
        found = structs.replace(found, conformance=_with_damaged(found.conformance, checks))
    return found


def _with_damaged(conformance: Conformance, checks: MirrorChecks) -> Conformance:
    """The counters of packets with a wrong ICRC beside those that the switch damaged."""
    counters = []
    for one in conformance.counters:
        if one.counter in DAMAGED_COUNTERS:
            damaged = sum(u.bit_errors for u in checks.undelivered if u.dst == one.host)
            one = structs.replace(one, captured=damaged, agrees=damaged == one.grew_by, text="")
        counters.append(one)
    return structs.replace(conformance, counters=counters)
