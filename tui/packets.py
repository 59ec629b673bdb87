"""The packets of one flow, found by another pass over the captures; bounded in number."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analyzer.capture.merge import merge_tables
from ..analyzer.capture.source import Capture, open_capture
from ..analyzer.decode.decoder import Decoder
from ..analyzer.endpoints import Endpoints
from ..analyzer.frames import LINKTYPE_ETHERNET, LINKTYPE_IPV4, LINKTYPE_IPV6, Taps
from ..analyzer.packets import IPV6, PacketTable
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
_FIRST_COPIES = (
    verdicts.IN_ORDER,
    verdicts.AHEAD,
    verdicts.REORDERED,
    verdicts.OVERTAKEN,
)
_JUMPS = 4096
JUDGED = np.dtype([("due", "i8"), ("extent", "i8"), ("late_ns", "i8")])
"""What the order of PSNs says of a packet; -1 where it says nothing."""


class Late(NamedTuple):
    """Late packets of one bucket of a histogram: `low` to `high`, both inclusive."""

    measure: str
    """`extent` or `late_ns`."""
    low: int
    high: int

    def holds(self, judged: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which packets are in it."""
        values = judged[self.measure]
        inside: NDArray[np.bool_] = (values >= self.low) & (values <= self.high) & (values >= 0)
        return inside


class _Chunk(NamedTuple):
    table: PacketTable
    verdict: NDArray[np.uint8]
    judged: NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets of one flow, in the order of time."""

    key: FlowKey
    table: PacketTable
    verdict: NDArray[np.uint8]
    expected: NDArray[np.int64]
    """The PSN that was due; -1 where there is none."""
    extent: NDArray[np.int64]
    """Reordering extent of late packets (RFC 4737), else -1."""
    notes: list[str]
    taps: Taps
    files: dict[int, str]
    """By tap: the capture its frames can be read from."""
    captures: dict[int, str] = field(default_factory=dict)
    """By tap: its capture, also a compressed one."""
    stored: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Frames of compressed captures, by tap and place in the capture."""
    more: bool = False
    """There are more packets than these."""

    def __len__(self) -> int:
        return len(self.table)

    def frame(self, row: int) -> bytes:
        """The captured bytes of a packet. OSError when the capture is gone."""
        tap = int(self.table.tap[row])
        stored = self.stored.get((tap, int(self.table.file_offset[row])))
        if stored is not None:
            return stored
        with open(self.files[tap], "rb") as file:
            return os.pread(
                file.fileno(), int(self.table.captured_bytes[row]), int(self.table.file_offset[row])
            )

    def capture(self, tap: int) -> str | None:
        """The capture file that a tap's packets came from."""
        return self.captures.get(tap)

    def link_type(self, row: int) -> int:
        """LINKTYPE_ of what `frame` gives: IP for packets in a tunnel without an Ethernet header.

        Ethernet headers with any number of tags end two bytes behind a multiple of four.
        """
        own = self.taps[int(self.table.tap[row])].link_type
        if own != LINKTYPE_ETHERNET or self.table.bth_offset[row] % 4:
            return own
        return LINKTYPE_IPV6 if self.table.decode_flags[row] & IPV6 else LINKTYPE_IPV4

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
        late: Late | None = None,
        window: tuple[int, int] | None = None,
        limit: int = LIMIT,
    ) -> None:
        self._paths, self._key = paths, key
        self._around, self._odd_only, self._late = around, odd_only, late
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
        chunks: list[_Chunk] = []
        kept, reached, more = 0, self._around is None, False
        order = _Order()
        with ExitStack() as stack:
            captures = [stack.enter_context(open_capture(p, taps)) for p in self._paths]
            sources = [self._tables(c, Decoder(endpoints, taps), src, dst) for c in captures]
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
                judged = order.of(rows.psn, rows.time_ns, verdict)
                keep = ~np.isin(verdict, _NORMAL) if self._odd_only else np.ones(len(rows), bool)
                if self._late is not None:
                    keep &= self._late.holds(judged)
                if self._window is not None:
                    keep &= (rows.time_ns >= self._window[0]) & (rows.time_ns <= self._window[1])
                self._forget(rows, keep)
                if not keep.any():
                    continue
                chunks.append(_Chunk(rows.take(keep), verdict[keep], judged[keep]))
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
            origin = {
                tap: capture
                for capture in captures
                for tap in range(len(taps))
                if taps.carrier(tap).name.startswith(capture.name)
            }
            files = {tap: c.path for tap, c in origin.items() if c.compression is None}
        table, verdict, judged = _joined(chunks)
        if len(table) > self._limit:
            more = True
            span = self._span(table.frame_number)
            outside = np.ones(len(table), np.bool_)
            outside[span] = False
            self._forget(table, ~outside)
            table, verdict, judged = table.slice(span.start, span.stop), verdict[span], judged[span]
        return Packets(
            key=self._key,
            table=table,
            verdict=verdict,
            expected=judged["due"],
            extent=judged["extent"],
            notes=_notes(table, verdict, judged, taps),
            taps=taps,
            files=files,
            captures={tap: capture.path for tap, capture in origin.items()},
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
                    place = int(table.file_offset[i])
                    begin = place - frames.base_offset
                    end = begin + int(table.captured_bytes[i])
                    self._stored[int(table.tap[i]), place] = frames.data[begin:end].tobytes()
            yield table.take(forth | ((table.src == dst) & (table.dst == src)))

    def _forget(self, rows: PacketTable, keep: NDArray[np.bool_]) -> None:
        for tap, place in zip(
            rows.tap[~keep].tolist(), rows.file_offset[~keep].tolist(), strict=True
        ):
            self._stored.pop((tap, place), None)


class _Order:
    """Per packet: the PSN that was due, and how late a late one is.

    Extent and late time refer to the first arrival with a higher PSN, the packet that
    jumped over this one (RFC 4737, 4.2 and 4.3); first copies are counted.
    """

    def __init__(self) -> None:
        self._next = -1
        self._arrivals = 0
        self._jumps: deque[tuple[int, int, int, int]] = deque(maxlen=_JUMPS)
        """First PSN jumped over, how many, when as an arrival and as a time."""

    def of(
        self, psn: NDArray[np.uint32], time_ns: NDArray[np.int64], verdict: NDArray[np.uint8]
    ) -> NDArray[np.void]:
        """JUDGED[n]."""
        judged = np.full(len(psn), -1, JUDGED)
        due, extent, late = judged["due"], judged["extent"], judged["late_ns"]
        rows = zip(psn.tolist(), time_ns.tolist(), verdict.tolist(), strict=True)
        for i, (number, time, kind) in enumerate(rows):
            if kind in (verdicts.NOT_SEQUENCED, verdicts.TAP_COPY):
                continue
            due[i] = number if kind == verdicts.IN_ORDER or self._next < 0 else self._next
            if kind == verdicts.AHEAD and self._next >= 0:
                jumped = (number - self._next) & _PSN
                self._jumps.append((self._next, jumped, self._arrivals, time))
            elif kind == verdicts.REORDERED:
                for first, length, arrival, since in reversed(self._jumps):
                    if (number - first) & _PSN < length:
                        extent[i], late[i] = self._arrivals - arrival, time - since
                        break
            if kind in _NEW:
                self._next = (number + 1) & _PSN
            self._arrivals += kind in _FIRST_COPIES
        return judged


def _joined(chunks: list[_Chunk]) -> _Chunk:
    if not chunks:
        return _Chunk(PacketTable.zeros(0), np.zeros(0, np.uint8), np.zeros(0, JUDGED))
    tables, verdict, judged = zip(*chunks, strict=True)
    return _Chunk(
        PacketTable.concatenate(list(tables)), np.concatenate(verdict), np.concatenate(judged)
    )


def _notes(
    table: PacketTable, verdict: NDArray[np.uint8], judged: NDArray[np.void], taps: Taps
) -> list[str]:
    """What is odd about each packet, in words."""
    notes = []
    columns: Any = zip(
        table.psn.tolist(), verdict.tolist(), judged.tolist(), table.tap.tolist(), strict=True
    )
    for psn, kind, (wanted, extent, late_ns), tap in columns:
        note = ""
        distance = (psn - wanted + _HALF & _PSN) - _HALF
        if kind == verdicts.AHEAD:
            note = f"gap: {distance} missing" if wanted >= 0 else "gap"
        elif kind == verdicts.REORDERED:
            note = f"late by {-distance}"
            if extent >= 0:
                note += f", extent {extent}, {human.duration(late_ns)}"
        elif kind == verdicts.RECOVERED:
            note = "sent again, the first was lost"
        elif kind == verdicts.RETRANSMITTED:
            note = "sent again, was here before"
        elif kind in (verdicts.DUPLICATE, verdicts.MIRROR_DUPLICATE):
            note = "doubled by the " + ("network" if kind == verdicts.DUPLICATE else "mirror")
        elif kind == verdicts.OVERTAKEN:
            note = "the first one, late: sent again meanwhile"
        elif kind == verdicts.TAP_COPY:
            note = f"copy at {taps[tap].name}"
        elif kind == verdicts.RESTARTED:
            note = "the sequence begins anew"
        notes.append(note)
    return notes
