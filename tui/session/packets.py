"""Packets of the selected flows: rows for the screen, and as a pcapng file with comments."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np

from ...analyzer.capture.pcapng_writer import interface_description, packet_block, section_header
from ...analyzer.capture.rings import ConcatenatedCapture, Part
from ...analyzer.capture.source import Capture
from ...analyzer.decode.decoder import Source
from ...analyzer.decode.merge import merge_tables
from ...analyzer.errors import RocescopeError
from ...analyzer.filtering.compiler import Filter
from ...analyzer.measures.hops.passing import FIRST_HORIZON_NS
from ...analyzer.pipeline.captures import open_sources
from ...analyzer.pipeline.options import AnalyzeOptions
from ...analyzer.track import batch as verdicts
from ...analyzer.track.references import REFERENCE, References
from ...analyzer.track.tracker import FlowTracker
from ...analyzer.wire.bth import (
    ACKNOWLEDGE,
    MARKS_RESENDS,
    OPCODE_CLASS,
    REQUEST,
    RESPONSE_DATA,
)
from ...analyzer.wire.packets import (
    IPV6,
    LINKTYPE_ETHERNET,
    LINKTYPE_IPV4,
    LINKTYPE_IPV6,
    RTX,
    PacketTable,
)
from ...analyzer.wire.registry import Registry, SegmentLists
from ...analyzer.wire.taps import Tap, Taps
from ...kernels.kernel import Bools, Bytes, Ints, Records
from ...report.hops import short_taps
from ...report.notes import Sight, psn_note
from ...version import VERSION
from .session import Session
from .snapshot import FlowKey

# One pass over the captures for the packets of some flows, in memory of one batch.
#
# Verdicts are those of the analysis: the pass reads with the same options and filters packets
# before they are tracked.

NORMAL = np.array([verdicts.NOT_SEQUENCED, verdicts.IN_ORDER, verdicts.TAP_COPY], np.uint8)
"""Verdicts of packets with the expected PSN."""


class Late(NamedTuple):
    """Late packets of one bucket of a histogram: `low` to `high`, both inclusive."""

    measure: str
    """`extent` or `late_ns`."""
    low: int
    high: int

    def holds(self, judged: Records) -> Bools:
        """Which packets are in the bucket."""
        values = judged[self.measure]
        inside: Bools = (values >= self.low) & (values <= self.high) & (values >= 0)
        return inside


class Wanted(NamedTuple):
    """The selection of packets of the flows."""

    odd_only: bool = False
    """Only packets that do not have the expected PSN."""
    late: Late | None = None
    window: tuple[int, int] | None = None
    """Only packets of this time span, ns since the epoch."""


EVERY = Wanted()


class Chunk(NamedTuple):
    """Some packets in order of time."""

    table: PacketTable
    verdict: Bytes
    judged: Records
    """REFERENCE of each packet."""


@dataclass(slots=True)
class FrameBytes:
    """Locations of the captured bytes of packets."""

    stored: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    """Frames of compressed captures: by tap, frame number and file offset."""
    files: dict[int, list[Part]] = field(default_factory=dict)
    """By tap: the files and the number of the first frame in each."""

    def of(self, table: PacketTable, row: int) -> bytes:
        """The captured bytes of a packet. OSError if the capture cannot be read."""
        known = self.stored.get(_place(table, row))
        if known is not None:
            return known
        path, _ = self.file_of(int(table.tap[row]), int(table.frame_number[row]))
        with open(path, "rb") as file:
            return os.pread(
                file.fileno(), int(table.captured_bytes[row]), int(table.file_offset[row])
            )

    def file_of(self, tap: int, frame_number: int) -> tuple[str, int]:
        """The file of a frame, and the frame's number in it. KeyError for an unknown tap."""
        parts = self.files[tap]
        part = [part for part in parts if part.first_frame_number <= frame_number][-1]
        return part.path, frame_number - part.first_frame_number + 1

    def forget(self, table: PacketTable, gone: Bools) -> None:
        """Release the bytes of these packets."""
        for row in np.flatnonzero(gone).tolist() if self.stored else ():
            self.stored.pop(_place(table, row), None)


def _place(table: PacketTable, row: int) -> tuple[int, int, int]:
    return int(table.tap[row]), int(table.frame_number[row]), int(table.file_offset[row])


def link_type(taps: Taps, table: PacketTable, row: int) -> int:
    """LINKTYPE_ of a packet's bytes: IP for those in a tunnel without an Ethernet header.

    Ethernet headers with any number of tags end two bytes after a multiple of four.
    """
    own = taps[int(table.tap[row])].link_type
    if own != LINKTYPE_ETHERNET or table.bth_offset[row] % 4:
        return own
    return LINKTYPE_IPV6 if table.decode_flags[row] & IPV6 else LINKTYPE_IPV4


class FlowPass:
    """A pass as a context manager; `stop` ends it early from another thread."""

    def __init__(
        self,
        paths: Sequence[str],
        keys: Sequence[FlowKey],
        wanted: Wanted = EVERY,
        options: AnalyzeOptions | None = None,
    ) -> None:
        """options: those of the analysis; the filter applies to packets before they are tracked."""
        self._paths, self._wanted = paths, wanted
        self._options = replace(options or AnalyzeOptions(), follow=False)
        self.registry = Registry(ethers=self._options.ethers)
        self.frames = FrameBytes()
        endpoints = self.registry.endpoints
        self._flows = [(endpoints.add(key.src), endpoints.add(key.dst), key.qp) for key in keys]
        self._stack = ExitStack()
        self._sources: list[Source] = []
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        """RocescopeError as when opening captures."""
        self._sources = self._stack.enter_context(
            open_sources(self._paths, self._options, self.registry)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stop(self) -> None:
        """End `chunks`; from any thread."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether it ended before all wanted packets were found."""
        return self._stopped.is_set()

    @property
    def progress(self) -> float:
        """0 to 1, by bytes read."""
        captures = [source.capture for source in self._sources]
        read = sum(capture.bytes_read for capture in captures)
        return read / max(1, sum(capture.total_bytes or 0 for capture in captures))

    def chunks(self) -> Iterator[Chunk]:
        """The wanted packets; their bytes are available until they are released."""
        text = self._options.filter
        keep = Filter(text) if text else None
        tracker, sights = FlowTracker(), References()
        for table in merge_tables([self._tables(source) for source in self._sources]):
            if self._stopped.is_set():
                return
            if keep is not None:
                passing = keep.mask(table, self.registry, self._options.ranks)
                self.frames.forget(table, ~passing)
                table = table.take(passing)
            batch = tracker.update(table)
            verdict, judged = batch.verdict, sights.update(tracker, batch, table.frame_number)
            mine = np.zeros(len(table), np.bool_)
            for flow in self._flows:
                mine |= _of_flow(table, flow)
            mine &= self._is_wanted(table, verdict, judged)
            self.frames.forget(table, ~mine)
            if mine.any():
                yield Chunk(table.take(mine), verdict[mine], judged[mine])

    def _is_wanted(self, table: PacketTable, verdict: Bytes, judged: Records) -> Bools:
        wanted = self._wanted
        found = ~np.isin(verdict, NORMAL) if wanted.odd_only else np.ones(len(table), np.bool_)
        if wanted.late is not None:
            found &= wanted.late.holds(judged)
        if wanted.window is not None:
            found &= (table.time_ns >= wanted.window[0]) & (table.time_ns <= wanted.window[1])
        return found

    def _tables(self, source: Source) -> Iterator[PacketTable]:
        """The packets of a capture in the order of their own clocks."""
        tables, mirrors = self._between_hosts(source), source.decoder.mirrors
        return tables if mirrors is None else mirrors.ordered(tables)

    def _between_hosts(self, source: Source) -> Iterator[PacketTable]:
        """Read both directions of the flows; store the frames of compressed captures."""
        pairs = {(src, dst) for src, dst, _ in self._flows}
        pairs |= {(dst, src) for src, dst in pairs}
        parts = _parts(source.capture)
        for frames in source.capture.batches():
            table = source.decoder.decode(frames)
            between = np.zeros(len(table), np.bool_)
            for src, dst in pairs:
                between |= (table.src == src) & (table.dst == dst)
            if source.capture.compression is not None:
                mine = np.zeros(len(table), np.bool_)
                for flow in self._flows:
                    mine |= _of_flow(table, flow)
                for row in np.flatnonzero(mine).tolist():
                    begin = int(table.file_offset[row]) - frames.base_offset
                    end = begin + int(table.captured_bytes[row])
                    self.frames.stored[_place(table, row)] = frames.data[begin:end].tobytes()
            table = table.take(between)
            for tap in np.unique(table.tap).tolist():
                self.frames.files.setdefault(tap, parts)
            yield table


def _of_flow(table: PacketTable, flow: tuple[int, int, int]) -> Bools:
    src, dst, qp = flow
    own: Bools = (table.src == src) & (table.dst == dst) & (table.dest_qp == qp)
    return own


def _parts(capture: Capture | ConcatenatedCapture) -> list[Part]:
    """The files of a capture; files of a series are added during the read."""
    return capture.parts if isinstance(capture, ConcatenatedCapture) else [Part(capture.path, 1)]


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
        return ~np.isin(self.verdict, NORMAL)

    def with_psn_of(self, row: int) -> Ints:
        """Rows of the packets with the PSN of this one, itself too, int64[n], in order of time.

        These are the sightings of one packet at all taps and its retransmissions, as far as
        they are in this list. Requests, READ responses and ACKs are told apart: the PSNs of
        answers are those of the other side. No row for packets without such a PSN, as CNPs.
        """
        table = self.table
        kind = OPCODE_CLASS[table.opcode] & (REQUEST | RESPONSE_DATA | ACKNOWLEDGE)
        return np.flatnonzero((table.psn == table.psn[row]) & (kind == kind[row]) & (kind > 0))

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
        wanted: Wanted = EVERY,
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


class PacketExport(FlowPass):
    """Writes all packets of some flows while the captures are searched."""

    def __init__(self, session: Session, keys: Sequence[FlowKey], wanted: Wanted) -> None:
        super().__init__(session.paths, keys, wanted, session.packet_options())
        self.packets = 0
        """Written so far."""
        self._session, self._keys = session, keys
        self._interfaces: dict[tuple[int, int], int] = {}
        """Interface numbers so far, by tap and link type."""

    def write(self, file: BinaryIO) -> None:
        """Write findings, marks and comments as packet comments; comments on flows in the header.

        RocescopeError as when opening captures and after `stop`; OSError if a capture cannot be
        read or `file` cannot be written.
        """
        file.write(section_header(f"rocescope {VERSION}", os.uname().sysname, self._about()))
        with self:
            for chunk in self.chunks():
                file.writelines(self._blocks(chunk))
        if self.stopped:
            raise RocescopeError("stopped before all packets were found; nothing saved")

    def _about(self) -> list[str]:
        lines = []
        for key in self._keys:
            lines.append(f"flow {self._session.wireshark_filter(key)}")
            said = self._session.marks.flows.get(key)
            if said is not None:
                lines.append(f"marked: {said}" if said else "marked")
        return lines

    def _blocks(self, chunk: Chunk) -> Iterator[bytes]:
        table, taps = chunk.table, self.registry.taps
        for row, note in enumerate(notes_of(chunk, taps)):
            number, link = int(table.tap[row]), link_type(taps, table, row)
            tap = taps[number]
            interface = self._interfaces.get((number, link))
            if interface is None:
                interface = self._interfaces[number, link] = len(self._interfaces)
                yield interface_description(
                    Tap(tap.name, link, tap.snap_length, tap.speed_bits_per_second, tap.filter)
                )
            said = self._session.marks.packets.get((tap.name, int(table.frame_number[row])))
            yield packet_block(
                interface,
                int(table.time_ns[row]),
                self.frames.of(table, row),
                int(table.wire_bytes[row]),
                [text for text in (note, said) if text],
            )
            self.packets += 1
        self.frames.forget(table, chunk.verdict >= 0)
