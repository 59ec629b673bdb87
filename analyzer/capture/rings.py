"""Several capture files of one tap, read as one capture: rotated series and ring files."""

from __future__ import annotations

import os
import re
from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, Self, TypeVar

import numpy as np

from ...kernels.kernel import NamedTuple
from ..errors import NotACapture, UnreadableInput, UsageError
from ..wire.packets import FrameBatch
from ..wire.taps import Gap, Taps
from ..words import duration, printable
from .bytestream import RawStream
from .pcapng import SharedTaps
from .source import Capture, open_capture

# A rotated series of capture files, read as one capture.


class Part(NamedTuple):
    """One file of a series."""

    path: str
    first_frame_number: int
    """Number of the file's first frame in the series."""


class SeriesFile(NamedTuple):
    """One file of a series before it is read."""

    path: str
    format: str
    compression: str | None
    first_time_ns: int
    """Below all times when the file has no frame."""
    bytes: int
    """As stored."""


class ConcatenatedCapture:
    """The files of a series in sequence, as one `Capture`.

    Frame numbers continue from file to file, so that a tap and a frame number identify one frame.
    `parts` gives its file; offsets count within that file. Interfaces with the same name and link
    type are one tap.
    """

    _one_name = False
    """See `open_capture`."""

    def __init__(self, files: Sequence[SeriesFile], taps: Taps, batch_frames: int) -> None:
        self.paths = [file.path for file in files]
        self.format = _common([file.format for file in files])
        """The format of the files, "mixed" if they differ."""
        self.compression = _common([file.compression for file in files])
        """Their compression, None for none, "mixed" if they differ."""
        names = [os.path.basename(path) for path in self.paths]
        self.tap_name = names[0] if names else ""
        self.name = f"{names[0]} to {names[-1]}" if len(names) > 1 else self.tap_name
        self.total_bytes: int | None = sum(file.bytes for file in files)
        """Sizes of all files as stored."""
        self.parts: list[Part] = []
        """The files read so far."""
        self._taps = taps
        self._batch_frames = batch_frames
        self._shared: SharedTaps = {}
        self._captures: list[Capture] = []
        self._out_of_order_between = 0
        self._stopped = False

    def batches(self) -> Iterator[FrameBatch]:
        """Every frame of the series; to be iterated once. See `Capture.batches`."""
        last_ns: int | None = None
        for path in self.paths:
            if self._stopped:
                return
            before = self.frames
            self.parts.append(Part(path, before + 1))
            with self._open(path) as capture:
                self._captures.append(capture)
                for batch in self._frames_of(capture):
                    if last_ns is not None and batch.time_ns[0] < last_ns:
                        if batch.first_frame_number == 1:
                            self._out_of_order_between += 1
                    last_ns = int(batch.time_ns[-1])
                    yield replace(batch, first_frame_number=batch.first_frame_number + before)

    def _open(self, path: str) -> Capture:
        return open_capture(
            path,
            self._taps,
            batch_frames=self._batch_frames,
            shared=self._shared,
            tap_name=self.tap_name,
            one_name=self._one_name,
        )

    def _frames_of(self, capture: Capture) -> Iterator[FrameBatch]:
        return capture.batches()

    def stop(self) -> None:
        """End after the current file."""
        self._stopped = True

    def close(self) -> None:
        """Release the current file."""
        if self._captures:
            self._captures[-1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def warnings(self) -> list[str]:
        """The warnings of all files read so far."""
        return [line for capture in self._captures for line in capture.warnings]

    @property
    def owner_comments(self) -> list[str]:
        """Comments of all files read so far that name owners of queue pairs."""
        return [line for capture in self._captures for line in capture.owner_comments]

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, as stored."""
        return sum(capture.bytes_read for capture in self._captures)

    @property
    def frames(self) -> int:
        """Frames read so far."""
        return sum(capture.frames for capture in self._captures)

    @property
    def out_of_order_frames(self) -> int:
        """Frames with a capture time below that of the previous frame, also across files."""
        within = sum(capture.out_of_order_frames for capture in self._captures)
        return within + self._out_of_order_between

    @property
    def truncated_frames(self) -> int:
        """See `Capture.truncated_frames`."""
        return sum(capture.truncated_frames for capture in self._captures)

    @property
    def damaged_places(self) -> int:
        """See `Capture.damaged_places`."""
        return sum(capture.damaged_places for capture in self._captures)


def concatenated(
    paths: Sequence[str], taps: Taps, *, batch_frames: int = 1 << 17
) -> ConcatenatedCapture:
    """The files of a rotated series as one capture, in the order of their first frames.

    Files that begin at the same time keep their order, files without frames come first.
    Raises UnreadableInput if one of them cannot be read, UsageError for standard input, a pipe
    or no file.
    """
    check_files(paths, "--concat")
    files = sorted((look(path) for path in paths), key=lambda file: file.first_time_ns)
    return ConcatenatedCapture(files, taps, batch_frames)


def check_files(paths: Sequence[str], option: str) -> None:
    """UsageError for standard input, a pipe or no file: the files of a series are opened twice."""
    if not paths or "-" in paths:
        raise UsageError(f"{option} joins files and cannot read standard input: name the files")
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            raise UsageError(f"{option} joins files and cannot read the pipe {path}: name files")


def look(path: str) -> SeriesFile:
    """What its beginning tells; UnreadableInput if it cannot be read."""
    with open_capture(path, Taps(), batch_frames=1) as capture:
        first = next(capture.batches(), None)
        time_ns = -(1 << 63) if first is None else int(first.time_ns[0])
        bytes = capture.total_bytes or 0
        return SeriesFile(path, capture.format, capture.compression, time_ns, bytes)


Value = TypeVar("Value", bound=str | None)


def _common(values: Sequence[Value]) -> Value | Literal["mixed"]:
    return values[0] if len(set(values)) == 1 else "mixed"


# The ring files of one tap, read as one capture: what is not there is named, the rest is read.

SILENT_NS = 1_000_000_000
SILENT_TIMES = 10
"""Between two files a gap is longer than a second, and this many times the longest time without
a frame inside the files."""
_NUMBER = re.compile(r"\d+")
_LONGEST_NUMBER = 18
_DUMPCAP = re.compile(r"(?<=_)\d{5}_\d{14}(?!\d)")
"""A number and a date, as dumpcap -b names its files."""
_LARGEST_COUNTER = 99_999
"""A larger number may be a time."""
_HEAD_BYTES = 1 << 16


class _Change(NamedTuple):
    """From one file to the next, where nothing is known to be missing."""

    last_ns: int
    first_ns: int
    before: str
    after: str


class RingCapture(ConcatenatedCapture):
    """The files of one tap in time order. `gaps`, of all its taps, grow while it is read.

    A gap follows a file that is cut or damaged, or stands for one that cannot be read, for a number
    that the names skip, and for a long time without frames between two files. The last kind is told
    when all files are read, the others before the first frame after them.
    """

    _one_name = True

    def __init__(
        self,
        files: Sequence[SeriesFile],
        unread: Mapping[str, UnreadableInput],
        name: str,
        taps: Taps,
        batch_frames: int,
    ) -> None:
        """unread: why, by the path of each file that cannot be read."""
        super().__init__(files, taps, batch_frames)
        count = len(files) + len(unread)
        self.tap_name = name
        self.name = f"{printable(name)} ({count} {'file' if count == 1 else 'files'})"
        self.gaps: list[Gap] = []
        self._unread = dict(unread)
        self._notes = [f"{printable(str(why))}: left out" for why in unread.values()]
        self._changes: list[_Change] = []
        self._reasons: list[str] = []
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._silent_ns = 0
        self._after = ""
        self._dated = False
        """Whether a frame of the present file was seen."""
        self._hidden = _hidden_between(self.paths, self._unread)
        # Its tap is known from the beginning, as that of one file.
        self._next = super()._open(self.paths[0]) if files else None

    def _open(self, path: str) -> Capture:
        capture, self._next = self._next or super()._open(path), None
        return capture

    def batches(self) -> Iterator[FrameBatch]:
        """Every frame of the files that can be read; to be iterated once."""
        yield from super().batches()
        if self._first_ns is None and self._hidden.first:
            self._add(None, None, self._hidden.first)
        for change in self._changes:
            if change.first_ns - change.last_ns > max(SILENT_NS, SILENT_TIMES * self._silent_ns):
                names = f"between {change.before} and {change.after}"
                self._add(change.last_ns, change.first_ns, [f"no frame {names}"])
        if (late := self._reasons + self._hidden.last) and not self._stopped:
            self._add(self._last_ns, None, late)
        self._tell()

    def _frames_of(self, capture: Capture) -> Iterator[FrameBatch]:
        """The frames of one file; one that breaks off ends there."""
        shown = printable(capture.name)
        self._dated = False
        self._reasons += self._hidden.before.get(capture.path, [])
        damages = 0
        try:
            for batch in capture.batches():
                if len(batch):
                    damages = self._watch(batch, capture, shown, damages)
                yield batch
        except UnreadableInput as error:
            self._notes.append(f"{printable(str(error))}: left out")
            self._reasons.append(f"{shown} cannot be read")
            return
        if capture.damaged_places > damages:
            self._reasons.append(f"{shown} is cut short or damaged")

    def _watch(self, batch: FrameBatch, capture: Capture, shown: str, damages: int) -> int:
        """Note the times of a batch; returns the damaged places so far."""
        first, last = int(batch.time_ns.min()), int(batch.time_ns.max())
        within = [int(np.diff(batch.time_ns).max())] if len(batch) > 1 else []
        if self._first_ns is None:
            self._first_ns = first
            if before := self._hidden.first + self._reasons:
                self._add(None, first, before)
            self._reasons = []
        elif not self._dated and self._last_ns is not None:
            if self._reasons:
                self._add(self._last_ns, first, self._reasons)
            else:
                self._changes.append(_Change(self._last_ns, first, self._after, shown))
            self._reasons = []
        elif self._last_ns is not None:
            within.append(first - self._last_ns)
        self._dated, self._after = True, shown
        self._silent_ns = max(self._silent_ns, *within, 0)
        places = capture.damaged_places
        if places > damages:
            begin = first if self._last_ns is None else min(self._last_ns, first)
            self._add(begin, last, [f"{shown} is damaged"])
        self._last_ns = max(last, self._last_ns or last)
        self._tell()
        return places

    def _add(self, from_ns: int | None, until_ns: int | None, reasons: Sequence[str]) -> None:
        self.gaps.append(Gap(from_ns, until_ns, ", ".join(reasons)))

    def _tell(self) -> None:
        """Every tap of the files, new ones as well, has the gaps so far."""
        for tap in set(self._shared.values()):
            self._taps[tap].gaps = self.gaps

    def close(self) -> None:
        """Release the current file."""
        if self._next is not None:
            self._next.close()
        super().close()

    @property
    def warnings(self) -> list[str]:
        """The warnings of all files read so far, and the gaps."""
        name = printable(self.tap_name)
        gaps = [f"{name}: {gap_text(gap, self._first_ns)}" for gap in self.gaps]
        return [*super().warnings, *self._notes, *gaps]

    @property
    def damaged_places(self) -> int:
        """See `Capture.damaged_places`; a file that cannot be read is one."""
        return super().damaged_places + len(self._unread)


def gap_text(gap: Gap, since_ns: int | None) -> str:
    """`nothing captured for 1.2 s from 3.4 s on (b.pcap is cut short)`; since: of the capture."""
    if gap.from_ns is None:
        when = "before its first frame"
    elif gap.until_ns is None:
        when = "after its last frame"
    else:
        begin = gap.from_ns - (gap.from_ns if since_ns is None else since_ns)
        when = (
            f"for {duration(gap.until_ns - gap.from_ns)}, {duration(begin)} after its first frame"
        )
    return f"nothing captured {when} ({gap.reason}): losses there are unknown"


def ring(
    paths: Sequence[str], name: str, taps: Taps, *, batch_frames: int = 1 << 17
) -> RingCapture:
    """The ring files of one tap, in the order of their first frames.

    A file that cannot be read is left out and named.
    """
    files, unread = [], {}
    for path in paths:
        try:
            files.append(look(path))
        except UnreadableInput as error:
            unread[path] = error
    # Files without frames say nothing about time.
    files.sort(key=lambda file: (file.first_time_ns, natural(file.path)))
    return RingCapture(files, unread, name, taps, batch_frames)


def check_twice(paths: Sequence[str]) -> None:
    """UsageError if two files are one, or begin alike and have the same size, or one is none."""
    check_files(paths, "--tap with an expression")
    known: dict[tuple[int, bytes], str] = {}
    for path in sorted(paths, key=natural):
        try:
            with closing(RawStream(path)) as file:
                head, size = file.peek(_HEAD_BYTES), file.size or 0
        except UnreadableInput:
            continue  # named when it is opened
        other = known.setdefault((size, head), path)
        if other != path and size > _EMPTY_BYTES:
            raise UsageError(f"{other} and {path} are the same capture: give only one of them")


_EMPTY_BYTES = 512
"""Rings that saw no frame may be equal."""


class _Hidden(NamedTuple):
    """What the names of files show about files that are not read: reasons."""

    first: list[str]
    """Before the first file."""
    before: dict[str, list[str]]
    """Before a file that follows another."""
    last: list[str]


def _hidden_between(paths: Sequence[str], unread: Mapping[str, UnreadableInput]) -> _Hidden:
    """paths: in time order."""
    first: list[str] = []
    last: list[str] = []
    before: dict[str, list[str]] = {}
    after = dict(pairwise(paths))
    read = sorted(paths, key=natural)
    wraps = read != list(paths)
    for path in sorted(unread, key=natural):
        why = "is not a capture" if isinstance(unread[path], NotACapture) else "cannot be read"
        reason = f"{printable(os.path.basename(path))} {why}"
        place = bisect(read, natural(path), key=natural)
        if not read:
            continue
        previous, following = read[place - 1], read[place % len(read)]
        if after.get(previous) == following:
            before.setdefault(following, []).append(reason)
            continue
        if wraps or place == 0:
            first.append(reason)
        if wraps or place == len(read):
            last.append(reason)
    for path, reason in _skipped(paths, unread):
        before.setdefault(path, []).append(reason)
    return _Hidden(first, before, last)


def _skipped(paths: Sequence[str], unread: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(path, reason) of files whose names skip numbers since the file before."""
    names = [os.path.basename(path) for path in paths]
    skeleton = {_NUMBER.sub("0", name) for name in names}
    if len(skeleton) != 1:
        return
    numbers = np.array([_numbers(name) for name in names], object)
    column = _counter(names[0], numbers)
    if column is None:
        return
    others = (os.path.basename(path) for path in unread)
    known = sorted({_numbers(n)[column] for n in others if {_NUMBER.sub("0", n)} == skeleton})
    counted = numbers[:, column].tolist()
    for place, (before, after) in enumerate(pairwise(counted)):
        unread_between = max(0, bisect_left(known, after) - bisect(known, before))
        if (count := after - before - 1 - unread_between) > 0:
            files = "1 file is" if count == 1 else f"{count} files are"
            between = " and ".join(printable(name) for name in names[place : place + 2])
            yield paths[place + 1], f"{files} missing between {between}"


def _counter(name: str, numbers: Any) -> int | None:
    """Which of the numbers in names counts files; None if none does. numbers: int[files, numbers].

    A time is no counter: tcpdump -G writes no file for a time without packets.
    """
    if match := _DUMPCAP.search(name):
        return len(_NUMBER.findall(name[: match.start()]))
    changing = [n for n in range(numbers.shape[1]) if len(set(numbers[:, n].tolist())) > 1]
    if len(changing) != 1 or max(numbers[:, changing[0]]) > _LARGEST_COUNTER:
        return None
    steps = np.diff(numbers[:, changing[0]])
    return changing[0] if 2 * np.count_nonzero(steps == 1) >= len(steps) else None


def _numbers(name: str) -> list[int]:
    return [int(text[:_LONGEST_NUMBER]) for text in _NUMBER.findall(name)]


def natural(path: str) -> list[tuple[int, str]]:
    """Key of names with numbers: 9 before 10."""
    parts = re.split(r"(\d+)", path)
    return [
        (int(part[:_LONGEST_NUMBER]), part) if part.isdecimal() else (-1, part) for part in parts
    ]
