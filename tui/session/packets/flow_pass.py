"""One pass over the captures for the packets of some flows, in memory of one batch.

Verdicts are those of the analysis: the pass reads with the same options and filters packets
before they are tracked.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from ....analyzer.capture.concat import ConcatenatedCapture, Part
from ....analyzer.capture.source import Capture
from ....analyzer.decode.merge import merge_tables
from ....analyzer.decode.sources import Source
from ....analyzer.filtering.compiler import Filter
from ....analyzer.pipeline.captures import open_sources
from ....analyzer.pipeline.options import AnalyzeOptions
from ....analyzer.track import batch as verdicts
from ....analyzer.track.references import References
from ....analyzer.track.tracker import FlowTracker
from ....analyzer.wire.frames import LINKTYPE_ETHERNET, LINKTYPE_IPV4, LINKTYPE_IPV6
from ....analyzer.wire.packets import IPV6, PacketTable
from ....analyzer.wire.registry import Registry
from ....analyzer.wire.taps import Taps
from ....kernels.kernel import Bools, Bytes, Records
from ..snapshots.snapshot import FlowKey

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
        self.registry, self.frames = Registry(), FrameBytes()
        self._paths, self._wanted = paths, wanted
        self._options = replace(options or AnalyzeOptions(), follow=False)
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
