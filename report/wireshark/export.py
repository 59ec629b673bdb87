"""Writes captures as one pcapng with comments: a first reading to the end, a second that writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from ...analyzer.capture.pcapng_writer import (
    Laid,
    block_around,
    comment_option,
    interface_description,
    section_header,
    with_comments,
)
from ...analyzer.capture.source import unpacked
from ...analyzer.decode.decoder import Source
from ...analyzer.errors import UnreadableInput, UsageError
from ...analyzer.filtering.compiler import Filter
from ...analyzer.jobs.lines import named
from ...analyzer.pipeline.captures import CapturePipeline, find_ranks, open_sources
from ...analyzer.pipeline.options import AnalyzeOptions, Progress
from ...analyzer.wire.registry import Registry
from ...analyzer.words import printable
from ...kernels.kernel import Bools, Ints, UInt16s
from ...version import VERSION
from .comments import Comments
from .reading import Part, Reading, Slice, known_after

Report = Callable[[Progress], None]
_NOT_THERE = -1
_PIECE_BYTES = 1 << 20


class Annotated:
    """The outcome of an export."""

    def __init__(self) -> None:
        self.frames = self.comments = self.damaged_places = 0
        self.warnings: list[str] = []

    @property
    def outcome(self) -> str:
        """The counts in words."""
        return f"{self.comments:,} of {self.frames:,} frames have a comment"


def export_pcapng(
    paths: Sequence[str],
    options: AnalyzeOptions,
    file: BinaryIO,
    report: Report | None = None,
) -> Annotated:
    """Write the frames of captures with comments; of several captures merged by time.

    A single pcapng stays as it is but for its comments. RocescopeError as `analyze`; UsageError for
    standard input, which cannot be read twice.
    """
    for path in paths:
        if path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
            raise UsageError(
                f"--pcapng reads {'standard input' if path == '-' else path} twice: give a file"
            )
    field = Filter(options.filter).of_job if options.filter else None
    if field is not None:
        for path in named(options.job_logs):
            if not os.path.isfile(path):
                raise UsageError(f"--nccl-log: --pcapng reads {path} twice: give a file")
        ranks, _ = find_ranks(paths, options, report, needed_by=field)
        options = replace(options, ranks=ranks)
    with _reading(paths, options, report, "first reading") as reading:
        known = known_after(reading)
    done = Annotated()
    with _reading(paths, replace(options, job_logs=()), report, "writing") as reading:
        comments = Comments(known)
        source = reading.sources[0]
        writer: _Spliced | _Merged
        if len(paths) == 1 and source.capture.format == "pcapng":
            writer = _Spliced(paths[0], file)
        else:
            writer = _Merged(reading.sources, reading.registry, file)
        for part, batch, sights in reading.slices():
            made: dict[int, bytes] = {}
            if batch is not None:
                registry = reading.registry
                texts = registry.endpoints.texts() if known.ranks else []
                made = comments.of(batch, sights, registry.tap_names, texts)
            done.comments += len(made)
            done.frames += part.length
            at: dict[int, list[bytes]] = {}
            for row, text in made.items():
                at.setdefault(int(part.place[row]), []).append(text)
            writer.write(part, at)
        writer.close()
        captures = [source.capture for source in reading.sources]
        roce = sum(source.decoder.counters.roce_packets() for source in reading.sources)
        done.warnings = [line for capture in captures for line in capture.warnings] + known.notes
        if writer.left_out:
            done.warnings.append(
                f"{writer.left_out:,} comments are not written: simple packet blocks cannot "
                "hold comments"
            )
        done.damaged_places = sum(capture.damaged_places for capture in captures)
    if not roce:
        raise UnreadableInput("no RoCE packet was found (RoCE on another UDP port? see --udp-port)")
    return done


@contextmanager
def _reading(
    paths: Sequence[str], options: AnalyzeOptions, report: Report | None, what: str
) -> Iterator[Reading]:
    registry = Registry()
    packet_filter = Filter(options.filter) if options.filter else None
    with open_sources(paths, options, registry) as sources:

        def keep(part: Slice) -> Slice:
            if report is not None:
                report(_progress(sources, what))
            if packet_filter is None:
                return part
            return _kept(part, packet_filter.mask(part.table, registry, options.ranks))

        pipeline = CapturePipeline(paths, sources, registry, packet_filter, options, None)
        yield Reading(pipeline, keep)


def _kept(part: Slice, rows: Bools) -> Slice:
    """The frames of these packets only."""
    wanted = np.zeros(part.length, np.bool_)
    wanted[part.place[rows]] = True
    place = np.where(wanted, np.cumsum(wanted) - 1, _NOT_THERE)
    parts = [one._replace(place=place[one.place]) for one in part.parts]
    return Slice(parts, int(wanted.sum()), part.table.take(rows), place[part.place[rows]])


def _progress(sources: Sequence[Source], what: str) -> Progress:
    captures = [source.capture for source in sources]
    totals = [capture.total_bytes or 0 for capture in captures]
    return Progress(
        f"{captures[0].name} ({what})",
        sum(capture.bytes_read for capture in captures),
        sum(totals),
        sum(capture.frames for capture in captures),
        sum(source.decoder.counters.roce_packets() for source in sources),
    )


def _laid(one: Part, in_blocks: bool, at: dict[int, list[bytes]]) -> Laid:
    """The frames of a part with the comments at their places."""
    frames, span = one.frames, one.rows
    mine = {
        row: b"".join(map(comment_option, at[place]))
        for row, place in enumerate(one.place.tolist() if at else ())
        if place in at
    }
    return Laid(
        frames.data, frames.offset[span], frames.captured[span], frames.wire[span], in_blocks, mine
    )


class _Merged:
    """One section: the taps of all captures are its interfaces, times are nanoseconds."""

    def __init__(self, sources: Sequence[Source], registry: Registry, file: BinaryIO) -> None:
        self._sources, self._taps, self._file = sources, registry.taps, file
        owners = [line for s in sources for line in s.capture.owner_comments]
        file.write(section_header(f"rocescope {VERSION}", os.uname().sysname, owners))
        self._interfaces: dict[tuple[int, int], int] = {}
        self.left_out = 0

    def write(self, part: Slice, at: dict[int, list[bytes]]) -> None:
        """Write the frames of a slice."""
        laid = []
        size = np.zeros(part.length, np.int64)
        for one in part.parts:
            capture = self._sources[one.source].capture
            laid.append(_laid(one, capture.format == "pcapng", at))
            there = one.place >= 0
            size[one.place[there]] = laid[-1].size[there]
        begins = np.cumsum(size) - size
        out = np.zeros(int(size.sum()), np.uint8)
        for one, frames in zip(part.parts, laid, strict=True):
            span = one.rows
            places = np.full(len(one.place), _NOT_THERE, np.int64)
            there = one.place >= 0
            places[there] = begins[one.place[there]]
            interface = self._interface_of(one.frames.tap[span], one.frames.link_type[span])
            frames.write(out, places, one.frames.time_ns[span], interface)
        self._file.write(out.data)

    def close(self) -> None:
        """Nothing follows the last frame."""

    def _interface_of(self, tap: UInt16s, link_type: UInt16s) -> Ints:
        """The interface of each frame; describes new ones."""
        both = tap.astype(np.int64) << 16 | link_type
        kinds, of = np.unique(both, return_inverse=True)
        numbers = []
        for kind in kinds.tolist():
            key = kind >> 16, kind & 0xFFFF
            if key not in self._interfaces:
                self._interfaces[key] = len(self._interfaces)
                said = self._taps[key[0]]
                said = replace(said, name=printable(said.name), link_type=key[1])
                self._file.write(interface_description(said))
            numbers.append(self._interfaces[key])
        return np.array(numbers, np.int64)[of]


class _Spliced:
    """A pcapng with all its blocks as they are; blocks of frames with comments get them."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self._raw, self._file = unpacked(path), file
        self._buffer = memoryview(bytearray(_PIECE_BYTES))
        self._position = 0
        self.left_out = 0
        """Comments without a place: on simple packet blocks."""

    def write(self, part: Slice, at: dict[int, list[bytes]]) -> None:
        """Write the blocks up to the last frame of a slice that changes."""
        for one in part.parts:
            laid = _laid(one, True, at)
            frames = one.frames
            changed = (laid.ours > 0) | (one.place < 0) | np.isin(one.place, list(at))
            for row in np.flatnonzero(changed).tolist():
                block = block_around(frames.data, int(frames.offset[one.rows[row]]))
                place = int(one.place[row])
                if block.options is None and place >= 0:
                    self.left_out += len(at.get(place, ()))
                    continue
                self._copy(frames.base_offset + block.begin - self._position)
                if place >= 0:
                    self._file.write(with_comments(frames.data, block, at.get(place, ())))
                self._copy(block.end - block.begin, drop=True)

    def close(self) -> None:
        """Copy the rest."""
        self._copy(None)
        self._raw.close()

    def _copy(self, count: int | None, drop: bool = False) -> None:
        """Copy the next bytes of the capture, or all; or drop them."""
        while count is None or count > 0:
            got = self._raw.read_into(self._buffer[: _PIECE_BYTES if count is None else count])
            if not got:
                return
            self._position += got
            count = None if count is None else count - got
            if not drop:
                self._file.write(self._buffer[:got])
