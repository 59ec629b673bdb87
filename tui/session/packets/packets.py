"""The packets of one flow for the screen, from a pass over the captures; limited in number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ....analyzer.measures.hops.passing import FIRST_HORIZON_NS
from ....analyzer.pipeline.options import AnalyzeOptions
from ....analyzer.track.references import REFERENCE
from ....analyzer.wire.opcodes import ACKNOWLEDGE, MARKS_RESENDS, OPCODE_CLASS
from ....analyzer.wire.packets import IPV6, RTX, PacketTable
from ....analyzer.wire.segments import SegmentLists
from ....analyzer.wire.taps import Taps
from ....kernels.kernel import Bools, Bytes, Ints
from ....report.words.hops import short_taps
from ....report.words.packets import Sight, psn_note
from ..snapshots.snapshot import FlowKey
from . import flow_pass
from .flow_pass import Chunk, FlowPass, FrameBytes, Wanted, link_type

LIMIT = 5_000
"""Packets shown at once."""


class Point(NamedTuple):
    """A packet by its time, and by its frame if that is known: many packets may share a time."""

    time_ns: int
    tap: str | None = None
    frame_number: int | None = None
    """Each tap numbers its own frames."""

    def at_tap(self, table: PacketTable, taps: Taps) -> Bools:
        """Which packets are from its tap."""
        return np.isin(table.tap, [i for i, tap in enumerate(taps.items) if tap.name == self.tap])

    def row(self, table: PacketTable, taps: Taps) -> int:
        """The row of the packet; without it that of the first one at its time or later."""
        later = table.time_ns >= self.time_ns
        same = table.time_ns == self.time_ns
        same &= self.at_tap(table, taps) & (table.frame_number == (self.frame_number or 0))
        for found in (same, later):
            if found.any():
                return int(np.argmax(found))
        return max(0, len(table) - 1)


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets of one flow, in order of time."""

    key: FlowKey
    table: PacketTable
    verdict: Bytes
    expected: Ints
    """The expected PSN; -1 if there is none."""
    extent: Ints
    """Reordering extent of late packets (RFC 4737), else -1."""
    notes: list[str]
    taps: Taps
    segments: SegmentLists
    frames: FrameBytes
    more: bool = False
    """There are more packets than these."""

    def __len__(self) -> int:
        return len(self.table)

    def frame(self, row: int) -> bytes:
        """The captured bytes of a packet. OSError if the capture cannot be read."""
        return self.frames.of(self.table, row)

    def file_of(self, row: int) -> tuple[str, int] | None:
        """The capture file of a packet, and its frame number there."""
        tap = int(self.table.tap[row])
        if tap not in self.frames.files:
            return None
        return self.frames.file_of(tap, int(self.table.frame_number[row]))

    def link_type(self, row: int) -> int:
        """LINKTYPE_ of the bytes of `frame`."""
        return link_type(self.taps, self.table, row)

    def is_odd(self) -> Bools:
        """Per packet: it does not have the expected PSN."""
        return ~np.isin(self.verdict, flow_pass.NORMAL)

    def way(self, row: int) -> list[str]:
        """Names of the taps that saw this transmission, in order: by hop limit, then by time.

        Transmissions are told apart as `analyzer.measures.hops.passing` does.
        """
        table, opcode = self.table, int(self.table.opcode[row])
        same = (table.psn == table.psn[row]) & (table.opcode == opcode)
        if OPCODE_CLASS[opcode] & MARKS_RESENDS:
            same &= (table.udp_sport == table.udp_sport[row]) & (
                (table.bth_flags ^ table.bth_flags[row]) & RTX == 0
            )
        elif not table.decode_flags[row] & IPV6:
            same &= table.ip_id == table.ip_id[row]
        if OPCODE_CLASS[opcode] & ACKNOWLEDGE:
            same &= table.aeth == table.aeth[row]
        away = np.abs(table.time_ns - table.time_ns[row])
        rows = np.flatnonzero(same & (away <= FIRST_HORIZON_NS))
        rows = rows[np.argsort(away[rows], kind="stable")]  # the nearest sighting of each tap
        rows = rows[np.unique(table.tap[rows], return_index=True)[1]]
        order = np.lexsort((table.time_ns[rows], -table.hop_limit[rows].astype(np.int64)))
        return [self.taps[tap].name for tap in table.tap[rows[order]].tolist()]

    def row_of(self, point: Point) -> int:
        """The row of a packet; without it that of the first one at its time or later."""
        return point.row(self.table, self.taps)


class PacketScan(FlowPass):
    """Finds the first wanted packets, or those around one of them."""

    def __init__(
        self,
        paths: Sequence[str],
        key: FlowKey,
        wanted: Wanted = flow_pass.EVERY,
        options: AnalyzeOptions | None = None,
        *,
        around: Point | None = None,
        limit: int = LIMIT,
    ) -> None:
        super().__init__(paths, [key], wanted, options)
        self._key, self._around, self._limit = key, around, limit
        self._at_tap = False

    def run(self) -> Packets:
        """Read until enough packets are found, or until `stop`. RocescopeError as when opening
        captures."""
        chunks: list[Chunk] = []
        kept, reached, more = 0, self._around is None, False
        with self:
            for chunk in self.chunks():
                chunks.append(chunk)
                kept += len(chunk.table)
                reached = reached or self._reaches(chunk.table, self.registry.taps)
                if reached and kept >= self._limit:
                    more = True
                    break
                while kept - len(chunks[0].table) > self._limit // 2 and not reached:
                    gone = chunks.pop(0).table
                    self.frames.forget(gone, np.ones(len(gone), np.bool_))
                    kept -= len(gone)
                    more = True
        table, verdict, judged = _joined(chunks)
        if len(table) > self._limit:
            more = True
            span = self._span(table, self.registry.taps)
            outside = np.ones(len(table), np.bool_)
            outside[span] = False
            self.frames.forget(table, outside)
            table, verdict, judged = table.slice(span.start, span.stop), verdict[span], judged[span]
        return Packets(
            key=self._key,
            table=table,
            verdict=verdict,
            expected=judged["due"],
            extent=judged["extent"],
            notes=notes_of(Chunk(table, verdict, judged), self.registry.taps),
            taps=self.registry.taps,
            segments=self.registry.segments,
            frames=self.frames,
            more=more,
        )

    def _reaches(self, table: PacketTable, taps: Taps) -> bool:
        """Whether the wanted packet is among these, or before them.

        A wrong time in the future does not count where frame numbers tell.
        """
        if self._around is None:
            return True
        passed = table.time_ns >= self._around.time_ns
        own = self._around.at_tap(table, taps)
        self._at_tap = self._at_tap or bool(own.any())
        if self._at_tap and self._around.frame_number is not None:
            passed &= own & (table.frame_number >= self._around.frame_number)
        return bool(passed.any())

    def _span(self, table: PacketTable, taps: Taps) -> slice:
        """The rows to show: the first ones, or those around the wanted packet."""
        begin = 0
        if self._around is not None:
            wanted = self._around.row(table, taps)
            begin = max(0, min(wanted - self._limit // 2, len(table) - self._limit))
        return slice(begin, begin + self._limit)


def _joined(chunks: list[Chunk]) -> Chunk:
    if not chunks:
        return Chunk(PacketTable.zeros(0), np.zeros(0, np.uint8), np.zeros(0, REFERENCE))
    tables, verdict, judged = zip(*chunks, strict=True)
    return Chunk(
        PacketTable.concatenate(list(tables)), np.concatenate(verdict), np.concatenate(judged)
    )


def notes_of(chunk: Chunk, taps: Taps) -> list[str]:
    """A note on the PSN order of each packet; empty for the expected PSN."""
    short = short_taps(tap.name for tap in taps.items)
    table, verdict, judged = chunk
    columns: Any = zip(
        verdict.tolist(), table.psn.tolist(), judged.tolist(), table.tap.tolist(), strict=True
    )
    return [
        psn_note(kind, psn, Sight(*sight), short[taps[tap].name])
        for kind, psn, sight, tap in columns
    ]
