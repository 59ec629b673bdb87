"""Logs that grow while a job runs: what is new in them, again and again."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from ..errors import RocescopeError
from .files import LONGEST_LINE_BYTES, lines, oldest_first
from .job import Job

_PIECE_BYTES = 1 << 20
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"\x04\x22\x4d\x18", b"BZh")


_MOST_OPEN = 256
"""Files that stay open: what is written to them before and after they are renamed is still read."""
_QUIET_ROUNDS = 3
"""A file without a name that matches is closed when it has not grown for this many updates."""
_TAIL_BYTES = 64

_Key: TypeAlias = tuple[int, int]
"""Device and inode: a file that is renamed stays the same."""


@dataclass(slots=True)
class _Place:
    """Where reading a file continues."""

    position: int = 0
    within_long_line: bool = False
    tail: bytes = b""
    """The last bytes before the position: a file that was emptied and grew again has others."""
    kept: BinaryIO | None = None
    quiet: int = 0


class FollowedLogs:
    """The logs of a running job. Files may appear, grow, be rotated and become unreadable."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.job = Job()
        self._patterns = tuple(patterns)
        self._places: dict[_Key, _Place] = {}
        self._unreadable: dict[str, str] = {}
        self.update()

    def update(self) -> bool:
        """Read what is new; whether there was anything."""
        changed = False
        self._unreadable = {}
        seen: set[_Key] = set()
        for pattern in self._patterns:
            for path in oldest_first(glob.glob(pattern, recursive=True)) or [pattern]:
                try:
                    changed = self._read(path, seen) or changed
                except (OSError, RocescopeError) as error:
                    self._unreadable[path] = getattr(error, "strerror", None) or str(error)
        for key, place in self._places.items():
            if key not in seen and place.kept is not None:
                changed = self._read_renamed(place) or changed
        return changed

    def notes(self) -> list[str]:
        """What cannot be read now, in one line."""
        if not self._unreadable:
            return []
        path, why = next(iter(self._unreadable.items()))
        more = len(self._unreadable) - 1
        return [f"job logs: {path}: {why}" + (f", and {more:,} more files" if more else "")]

    def _read(self, path: str, seen: set[_Key]) -> bool:
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode):
            return False
        key = (state.st_dev, state.st_ino)
        seen.add(key)
        place = self._places.get(key)
        if place is not None and state.st_size == place.position:
            return False
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            key = (state.st_dev, state.st_ino)
            seen.add(key)
            known = key in self._places
            place = self._places.setdefault(key, _Place())
            if file.read(8).startswith(_COMPRESSED):
                place.position = state.st_size  # as a whole, and again if it grows
                self.job.read(lines(path), known)
                return True
            _begin_anew_if_emptied(file, place, state.st_size)
            if place.kept is None and sum(p.kept is not None for p in self._places.values()) < (
                _MOST_OPEN
            ):
                place.kept = open(os.dup(file.fileno()), "rb")
            before = place.position
            self.job.read(_new_lines(file, place), known)
            return place.position > before

    def _read_renamed(self, place: _Place) -> bool:
        """What is new in a file that no pattern names any longer."""
        file = place.kept
        assert file is not None
        before = place.position
        self.job.read(_new_lines(file, place), known=True)
        place.quiet = 0 if place.position > before else place.quiet + 1
        if place.quiet > _QUIET_ROUNDS:
            file.close()
            place.kept = None
        return place.position > before


def _begin_anew_if_emptied(file: BinaryIO, place: _Place, size: int) -> None:
    """Begin anew when the file is not the one that was read up to the place."""
    begin = place.position - len(place.tail)
    file.seek(begin)
    if size < place.position or file.read(len(place.tail)) != place.tail:
        place.position, place.within_long_line, place.tail = 0, False, b""


def _new_lines(file: BinaryIO, place: _Place) -> Iterator[bytes]:
    """Complete lines after the place, as `files.lines`; an incomplete one is read later."""
    file.seek(place.position)
    while piece := file.read(_PIECE_BYTES):
        end = piece.rfind(b"\n") + 1
        if not end:
            if len(piece) <= LONGEST_LINE_BYTES:
                return
            _go_on(place, piece)
            place.within_long_line = True
            continue
        _go_on(place, piece[:end])
        file.seek(place.position)
        complete = piece[: end - 1].split(b"\n")
        if place.within_long_line:
            place.within_long_line = False
            complete = complete[1:]
        yield from (line for line in complete if len(line) <= LONGEST_LINE_BYTES)


def _go_on(place: _Place, read: bytes) -> None:
    place.position += len(read)
    place.tail = (place.tail + read)[-_TAIL_BYTES:]
