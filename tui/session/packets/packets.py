"""The packets of one flow for the screen, from a pass over the captures; limited in number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....analyzer.analysis.options import AnalyzeOptions
from ....analyzer.track import batch as verdicts
from ....analyzer.wire.packets import PacketTable
from ....analyzer.wire.taps import Taps
from ....kernels.kernel import Bools, Bytes, Ints
from ....report.words import human
from ..snapshots.snapshot import FlowKey
from . import flow_pass
from .flow_pass import Chunk, FlowPass, FrameBytes, Wanted, link_type

LIMIT = 5_000
"""Packets shown at once."""
_HALF = 1 << 23


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

    def row_of(self, frame_number: int) -> int:
        """The row of a frame, or of the first later frame."""
        later = np.flatnonzero(self.table.frame_number >= frame_number)
        return int(later[0]) if len(later) else max(0, len(self) - 1)


class PacketScan:
    """Finds the first wanted packets, or those around a frame."""

    def __init__(
        self,
        paths: Sequence[str],
        key: FlowKey,
        wanted: Wanted = flow_pass.EVERY,
        options: AnalyzeOptions | None = None,
        *,
        around: int | None = None,
        limit: int = LIMIT,
    ) -> None:
        self._key, self._around, self._limit = key, around, limit
        self._pass = FlowPass(paths, [key], wanted, options)

    def stop(self) -> None:
        """End `run`, which returns the packets so far; from any thread."""
        self._pass.stop()

    @property
    def progress(self) -> float:
        """0 to 1, by bytes read."""
        return self._pass.progress

    def run(self) -> Packets:
        """Read until enough packets are found. RocescopeError as when opening captures."""
        chunks: list[Chunk] = []
        kept, reached, more = 0, self._around is None, False
        with self._pass as found:
            for chunk in found.chunks():
                chunks.append(chunk)
                kept += len(chunk.table)
                reached = reached or bool((chunk.table.frame_number >= (self._around or 0)).any())
                if reached and kept >= self._limit:
                    more = True
                    break
                while kept - len(chunks[0].table) > self._limit // 2 and not reached:
                    gone = chunks.pop(0).table
                    found.frames.forget(gone, np.ones(len(gone), np.bool_))
                    kept -= len(gone)
                    more = True
        table, verdict, judged = _joined(chunks)
        if len(table) > self._limit:
            more = True
            span = self._span(table.frame_number)
            outside = np.ones(len(table), np.bool_)
            outside[span] = False
            found.frames.forget(table, outside)
            table, verdict, judged = table.slice(span.start, span.stop), verdict[span], judged[span]
        return Packets(
            key=self._key,
            table=table,
            verdict=verdict,
            expected=judged["due"],
            extent=judged["extent"],
            notes=notes_of(Chunk(table, verdict, judged), found.registry.taps),
            taps=found.registry.taps,
            frames=found.frames,
            more=more,
        )

    def _span(self, numbers: Ints) -> slice:
        """The rows to show: the first ones, or those around the wanted frame."""
        begin = 0
        if self._around is not None:
            wanted = int(np.argmax(numbers >= self._around))
            begin = max(0, min(wanted - self._limit // 2, len(numbers) - self._limit))
        return slice(begin, begin + self._limit)


def _joined(chunks: list[Chunk]) -> Chunk:
    if not chunks:
        return Chunk(PacketTable.zeros(0), np.zeros(0, np.uint8), np.zeros(0, flow_pass.JUDGED))
    tables, verdict, judged = zip(*chunks, strict=True)
    return Chunk(
        PacketTable.concatenate(list(tables)), np.concatenate(verdict), np.concatenate(judged)
    )


def notes_of(chunk: Chunk, taps: Taps) -> list[str]:
    """A note on the PSN order of each packet; empty for the expected PSN."""
    notes = []
    table, verdict, judged = chunk
    columns: Any = zip(
        table.psn.tolist(), verdict.tolist(), judged.tolist(), table.tap.tolist(), strict=True
    )
    for psn, kind, (wanted, extent, late_ns), tap in columns:
        note = ""
        distance = (psn - wanted + _HALF & flow_pass.PSN_MASK) - _HALF
        if kind == verdicts.AHEAD:
            note = f"gap: {distance} missing" if wanted >= 0 else "gap"
        elif kind == verdicts.REORDERED:
            note = f"late by {-distance}"
            if extent >= 0:
                note += f", extent {extent}, {human.duration(late_ns)}"
        elif kind == verdicts.RECOVERED:
            note = "retransmitted, first copy lost"
        elif kind == verdicts.RETRANSMITTED:
            note = "retransmitted, first copy seen"
        elif kind in (verdicts.DUPLICATE, verdicts.MIRROR_DUPLICATE):
            note = "duplicated by the " + ("network" if kind == verdicts.DUPLICATE else "mirror")
        elif kind == verdicts.OVERTAKEN:
            note = "first copy, late: already retransmitted"
        elif kind == verdicts.TAP_COPY:
            note = f"copy at {taps[tap].name}"
        elif kind == verdicts.RESTARTED:
            note = "PSN sequence restarts"
        notes.append(note)
    return notes
