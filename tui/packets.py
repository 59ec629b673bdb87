"""The packets of one flow, found by another pass over the captures; bounded in number."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analyzer.capture.merge import merge_tables
from ..analyzer.capture.source import Capture, open_capture
from ..analyzer.decode.decoder import Decoder
from ..analyzer.endpoints import Endpoints
from ..analyzer.frames import Taps
from ..analyzer.packets import PacketTable
from ..analyzer.track import batch as verdicts
from ..analyzer.track.tracker import FlowTracker
from . import human
from .snapshot import FlowKey

LIMIT = 5_000
"""Packets shown at once."""
_PSN = 0xFFFFFF
_HALF = 1 << 23
_NORMAL = np.array([verdicts.NOT_SEQUENCED, verdicts.IN_ORDER, verdicts.TAP_COPY], np.uint8)
_NEW = (verdicts.IN_ORDER, verdicts.AHEAD, verdicts.RESTARTED)


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets of one flow, in the order of time."""

    key: FlowKey
    table: PacketTable
    verdict: NDArray[np.uint8]
    expected: NDArray[np.int64]
    """The PSN that was due; -1 where there is none."""
    notes: list[str]
    taps: Taps
    files: dict[int, str]
    """By tap: the capture its frames can be read from."""
    stored: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Frames of compressed captures, by tap and frame number."""
    more: bool = False
    """There are more packets than these."""

    def __len__(self) -> int:
        return len(self.table)

    def frame(self, row: int) -> bytes:
        """The captured bytes of a packet. OSError when the capture is gone."""
        tap = int(self.table.tap[row])
        stored = self.stored.get((tap, int(self.table.frame_number[row])))
        if stored is not None:
            return stored
        with open(self.files[tap], "rb") as file:
            return os.pread(
                file.fileno(), int(self.table.captured_bytes[row]), int(self.table.file_offset[row])
            )

    def link_type(self, row: int) -> int:
        """LINKTYPE_ of a packet's frame."""
        return self.taps[int(self.table.tap[row])].link_type

    def is_odd(self) -> NDArray[np.bool_]:
        """Per packet: not simply the next one."""
        return ~np.isin(self.verdict, _NORMAL)

    def row_of(self, frame_number: int) -> int:
        """The row of a frame, or of the first one after it."""
        later = np.flatnonzero(self.table.frame_number >= frame_number)
        return int(later[0]) if len(later) else max(0, len(self) - 1)


class PacketScan:
    """One pass; `stop` ends it early from another thread."""

    def __init__(
        self,
        paths: Sequence[str],
        key: FlowKey,
        *,
        around: int | None = None,
        odd_only: bool = False,
        window: tuple[int, int] | None = None,
        limit: int = LIMIT,
    ) -> None:
        self._paths, self._key = paths, key
        self._around, self._odd_only = around, odd_only
        self._window, self._limit = window, limit
        self._stopped = threading.Event()
        self._stored: dict[tuple[int, int], bytes] = {}
        self.progress = 0.0
        """0 to 1, by bytes read."""

    def stop(self) -> None:
        """Let `run` return what it has."""
        self._stopped.set()

    def run(self) -> Packets:
        """Read until enough packets are found. RocescopeError as when opening captures."""
        endpoints, taps = Endpoints(), Taps()
        src, dst = endpoints.add(self._key.src), endpoints.add(self._key.dst)
        tracker = FlowTracker()
        chunks: list[tuple[PacketTable, NDArray[np.uint8], NDArray[np.int64]]] = []
        kept, reached, more = 0, self._around is None, False
        expected = _Expected()
        with ExitStack() as stack:
            captures = [stack.enter_context(open_capture(p, taps)) for p in self._paths]
            sources = [self._tables(c, Decoder(endpoints, taps), src, dst) for c in captures]
            files = {}
            for table in merge_tables(sources):
                if self._stopped.is_set():
                    break
                read = sum(c.bytes_read for c in captures)
                self.progress = read / max(1, sum(c.total_bytes or 0 for c in captures))
                verdict = tracker.update(table).verdict
                mine = np.flatnonzero((table.src == src) & (table.dest_qp == self._key.qp))
                if not len(mine):
                    continue
                rows, verdict = table.take(mine), verdict[mine]
                due = expected.of(rows.psn, verdict)
                keep = ~np.isin(verdict, _NORMAL) if self._odd_only else np.ones(len(rows), bool)
                if self._window is not None:
                    keep &= (rows.time_ns >= self._window[0]) & (rows.time_ns <= self._window[1])
                self._forget(rows, keep)
                if not keep.any():
                    continue
                chunks.append((rows.take(keep), verdict[keep], due[keep]))
                kept += int(keep.sum())
                reached = reached or bool((rows.frame_number >= (self._around or 0)).any())
                if reached and kept >= self._limit:
                    more = True
                    break
                while kept - len(chunks[0][0]) > self._limit // 2 and not reached:
                    self._forget(chunks[0][0], np.zeros(len(chunks[0][0]), bool))
                    kept -= len(chunks[0][0])
                    del chunks[0]
                    more = True
            for capture in captures:
                for tap in range(len(taps)):
                    if capture.compression is None and taps[tap].name.startswith(capture.name):
                        files[tap] = capture.path
        table, verdict, due = _joined(chunks)
        if len(table) > self._limit:
            more = True
            span = self._span(table.frame_number)
            outside = np.ones(len(table), np.bool_)
            outside[span] = False
            self._forget(table, ~outside)
            table, verdict, due = table.slice(span.start, span.stop), verdict[span], due[span]
        return Packets(
            key=self._key,
            table=table,
            verdict=verdict,
            expected=due,
            notes=_notes(table, verdict, due, taps),
            taps=taps,
            files=files,
            stored=self._stored,
            more=more,
        )

    def _span(self, numbers: NDArray[np.int64]) -> slice:
        """The rows to show: the first ones, or those around the wanted frame."""
        begin = 0
        if self._around is not None:
            wanted = int(np.argmax(numbers >= self._around))
            begin = max(0, min(wanted - self._limit // 2, len(numbers) - self._limit))
        return slice(begin, begin + self._limit)

    def _tables(
        self, capture: Capture, decoder: Decoder, src: int, dst: int
    ) -> Iterator[PacketTable]:
        """Both directions between the two hosts; the frames of compressed captures are stored."""
        for frames in capture.batches():
            table = decoder.decode(frames)
            forth = (table.src == src) & (table.dst == dst)
            if capture.compression is not None:
                for i in np.flatnonzero(forth & (table.dest_qp == self._key.qp)).tolist():
                    number = int(table.frame_number[i])
                    at = number - frames.first_frame_number
                    begin = int(frames.offset[at])
                    end = begin + int(frames.captured[at])
                    self._stored[int(table.tap[i]), number] = frames.data[begin:end].tobytes()
            yield table.take(forth | ((table.src == dst) & (table.dst == src)))

    def _forget(self, rows: PacketTable, keep: NDArray[np.bool_]) -> None:
        for tap, number in zip(
            rows.tap[~keep].tolist(), rows.frame_number[~keep].tolist(), strict=True
        ):
            self._stored.pop((tap, number), None)


class _Expected:
    """The PSN that is due before each packet: one more than the highest so far."""

    def __init__(self) -> None:
        self._next = -1

    def of(self, psn: NDArray[np.uint32], verdict: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Per packet; -1 where the packet has no place in the order."""
        due = np.full(len(psn), -1, np.int64)
        for i, (number, kind) in enumerate(zip(psn.tolist(), verdict.tolist(), strict=True)):
            if kind in (verdicts.NOT_SEQUENCED, verdicts.TAP_COPY):
                continue
            due[i] = number if kind == verdicts.IN_ORDER or self._next < 0 else self._next
            if kind in _NEW:
                self._next = (number + 1) & _PSN
        return due


def _joined(
    chunks: list[tuple[PacketTable, NDArray[np.uint8], NDArray[np.int64]]],
) -> tuple[PacketTable, NDArray[np.uint8], NDArray[np.int64]]:
    if not chunks:
        return PacketTable.zeros(0), np.zeros(0, np.uint8), np.zeros(0, np.int64)
    tables, verdict, due = zip(*chunks, strict=True)
    return PacketTable.concatenate(list(tables)), np.concatenate(verdict), np.concatenate(due)


def _notes(
    table: PacketTable, verdict: NDArray[np.uint8], due: NDArray[np.int64], taps: Taps
) -> list[str]:
    """What is odd about each packet, in words."""
    notes = []
    jumps: list[tuple[int, int, int]] = []  # first and last PSN jumped over, when
    columns: Any = zip(
        table.psn.tolist(),
        verdict.tolist(),
        due.tolist(),
        table.time_ns.tolist(),
        table.tap.tolist(),
        strict=True,
    )
    for psn, kind, wanted, time, tap in columns:
        note = ""
        distance = (psn - wanted + _HALF & _PSN) - _HALF
        if kind == verdicts.AHEAD:
            note = f"gap: {distance} missing" if wanted >= 0 else "gap"
            jumps = [*jumps[-63:], (wanted, distance, time)]
        elif kind == verdicts.REORDERED:
            note = f"late by {-distance}"
            for first, length, since in reversed(jumps):
                if (psn - first) & _PSN < length:
                    note += f", {human.duration(time - since)}"
                    break
        elif kind == verdicts.RECOVERED:
            note = "sent again, the first was lost"
        elif kind == verdicts.RETRANSMITTED:
            note = "sent again, was here before"
        elif kind in (verdicts.DUPLICATE, verdicts.MIRROR_DUPLICATE):
            note = "doubled by the " + ("network" if kind == verdicts.DUPLICATE else "mirror")
        elif kind == verdicts.TAP_COPY:
            note = f"copy at {taps[tap].name}"
        elif kind == verdicts.RESTARTED:
            note = "the sequence begins anew"
        notes.append(note)
    return notes
