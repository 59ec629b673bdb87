"""The ring files of one tap, read as one capture: what is not there is named, the rest is read."""

from __future__ import annotations

import os
import re
from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np

from ...kernels.named import NamedTuple
from ..errors import NotACapture, UnreadableInput, UsageError
from ..wire.frames import FrameBatch
from ..wire.taps import Gap, Taps
from ..words import duration, printable
from .bytestream import RawStream
from .concat import ConcatenatedCapture, SeriesFile, check_files, look
from .source import Capture

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
    files.sort(key=lambda file: (file.first_time_ns, _natural(file.path)))
    return RingCapture(files, unread, name, taps, batch_frames)


def check_twice(paths: Sequence[str]) -> None:
    """UsageError if two files are one, or begin alike and have the same size, or one is none."""
    check_files(paths, "--tap with an expression")
    known: dict[tuple[int, bytes], str] = {}
    for path in sorted(paths, key=_natural):
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
    read = sorted(paths, key=_natural)
    wraps = read != list(paths)
    for path in sorted(unread, key=_natural):
        why = "is not a capture" if isinstance(unread[path], NotACapture) else "cannot be read"
        reason = f"{printable(os.path.basename(path))} {why}"
        place = bisect(read, _natural(path), key=_natural)
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


def _natural(path: str) -> list[tuple[int, str]]:
    """Key of names with numbers: 9 before 10."""
    parts = re.split(r"(\d+)", path)
    return [
        (int(part[:_LONGEST_NUMBER]), part) if part.isdecimal() else (-1, part) for part in parts
    ]
