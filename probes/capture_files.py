"""Capture files: written block by block, rotated, readable at any time."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ..analyzer.capture.pcapng_writer import Blocks, InterfaceStatistics, interface_statistics
from ..analyzer.errors import RocescopeError
from .rings import Loss

_STATISTICS_EVERY_S = 5.0
_SECTION_EVERY_S = 2.0
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True, slots=True)
class Rotation:
    """When to start a new file, and the number of files to keep."""

    size_bytes: int | None = None
    every_s: float | None = None
    keep: int | None = None
    """Files to keep, the newest; None: all."""

    @property
    def rotates(self) -> bool:
        return self.size_bytes is not None or self.every_s is not None


class Maker(Protocol):
    """Makes files that this process may not make."""

    def create(self, path: Path) -> int:
        """The descriptor of a new file."""

    def remove(self, path: Path) -> None:
        """Remove a file that was created here."""


def names_of_series(path: Path) -> str:
    """A regular expression for the names of a series."""
    return rf"{re.escape(path.stem)}_\d{{5,}}_\d{{14}}{re.escape(path.suffix)}"


class DiskFull(RocescopeError):
    """No space left; the data written before is complete and readable."""


class CaptureFiles:
    """One pcapng, or a series of them.

    path: None writes to `descriptor` (standard output). head: makes the section header with
    comments and the interface descriptions. read_loss: reads the counters of each interface
    since the start of the capture. comments: the comments known at the start. maker: makes and
    removes the files of a series if this process may not. surplus: chooses the files of a series
    to remove, instead of `rotation.keep`; called when a file begins.

    Only whole blocks are written, each batch with one system call, so that the file of a killed
    process is readable up to its last block.
    """

    def __init__(
        self,
        path: Path | None,
        head: Callable[[Sequence[str]], bytes],
        read_loss: Callable[[], list[Loss]],
        rotation: Rotation | None = None,
        comments: Iterable[str] = (),
        descriptor: int = 1,
        maker: Maker | None = None,
        surplus: Callable[[Mapping[Path, int]], Iterable[Path]] | None = None,
    ) -> None:
        self.names: list[Path] = []
        self.sizes: dict[Path, int] = {}
        """Bytes of the complete files of `names`, and 0 of the current one; oldest first."""
        self.written = 0
        """Packets in all files."""
        self._path = path
        self._head = head
        self._read_loss = read_loss
        self._rotation = rotation or Rotation()
        self._fd = descriptor if path is None else -1
        self._maker = maker
        self._surplus = surplus
        self._interfaces = len(read_loss())
        self._comments = list(comments)
        self._unwritten: list[str] = []
        self._before = [Loss()] * self._interfaces
        self._number = 0
        self._size = 0
        self._began = self._stated = self._section_began = time.monotonic()
        self._begin()

    def comment(self, comments: Iterable[str]) -> None:
        """Add a comment to the file: soon in a new section, and in every later file.

        Readers look for comments in section headers. So the file of a killed process has the
        comments that were added during the capture.
        """
        fresh = list(comments)
        self._comments += fresh
        self._unwritten += fresh

    def write(self, blocks: Blocks) -> None:
        """Append packet blocks; DiskFull if there is no space for all of them."""
        limit = self._rotation.size_bytes
        while limit is not None and len(blocks.data) and self._size + len(blocks.data) > limit:
            fitting, blocks = blocks.split(max(limit - self._size, 1))
            self._append(fitting)
            self.tick()
        if len(blocks.data):
            self._append(blocks)
        self.tick()

    def tick(self) -> None:
        """Start a new file or write the counters when due; also without packets."""
        now = time.monotonic()
        if self._is_due(now):
            self._end()
            self._begin()
        elif self._unwritten and now - self._section_began > _SECTION_EVERY_S:
            self._end_section()
            self._begin_section(self._unwritten)
        elif now - self._stated > _STATISTICS_EVERY_S:
            self._write_whole(self._statistics())
            self._stated = now

    def close(self) -> None:
        """Write the final counters and close the file."""
        if self._fd >= 0:
            if self._unwritten:
                self._end_section()
                self._begin_section(self._unwritten)
            self._end()

    def _append(self, blocks: Blocks) -> None:
        done = self._write_some(blocks.data)
        kept = blocks
        if done < len(blocks.data):  # whole blocks, with space for the counters after them
            kept = blocks.whole(done - len(self._statistics()))
            self._take_back(done - len(kept.data))
        self._delivered += kept.frames
        self.written += int(kept.frames.sum())
        if kept is not blocks:
            raise self._disk_full(int(blocks.frames.sum() - kept.frames.sum()))

    def _take_back(self, size: int) -> None:
        """Remove the last bytes written from the file; not possible for a pipe or device."""
        self._size -= size
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)

    def _write_some(self, data: memoryview | bytes) -> int:
        """Write all bytes, or as many as there is space for; returns their number."""
        view, done = memoryview(data), 0
        while done < len(view):
            try:
                done += os.write(self._fd, view[done:])
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    break
                if error.errno == errno.EPIPE:
                    raise
                what = (error.strerror or "").lower()
                raise RocescopeError(f"cannot write {self._name()}: {what}") from None
        self._size += done
        return done

    def _write_whole(self, data: bytes) -> None:
        done = self._write_some(data)
        if done < len(data):
            self._take_back(done)
            raise self._disk_full(0)

    def _disk_full(self, lost: int) -> DiskFull:
        more = f", at least {lost} packets are not in it" if lost else ""
        return DiskFull(f"no space left for {self._name()}: it ends early but is readable{more}")

    def _begin(self) -> None:
        self._number += 1
        self._size = 0
        self._began = time.monotonic()
        if self._path is not None:
            name = self._file_name()
            try:
                if self._maker is None:
                    self._fd = os.open(name, _FLAGS | os.O_NONBLOCK, 0o644)
                    os.set_blocking(self._fd, True)
                else:
                    self._fd = self._maker.create(name)
            except OSError as error:
                what = (error.strerror or "").lower()
                if error.errno == errno.ENXIO:  # a signal would not end the wait for a reader
                    what = "nobody reads from this pipe: start its reader first"
                raise RocescopeError(f"cannot write {name}: {what}") from None
            self.names.append(name)
            self.sizes[name] = 0
            self._drop_oldest()
        self._begin_section(self._comments)

    def _begin_section(self, comments: Sequence[str]) -> None:
        self._delivered = np.zeros(self._interfaces, np.int64)
        self._start_ns = time.time_ns()
        self._stated = self._section_began = time.monotonic()
        head, self._unwritten = self._head(comments), []
        self._write_whole(head)

    def _end_section(self) -> None:
        """The final counters of a section: the base of the next section's counters."""
        self._write_whole(self._statistics())
        self._before = self._read_loss()

    def _end(self) -> None:
        try:
            self._end_section()
        finally:
            if self._path is not None:
                self.sizes[self.names[-1]] = self._size
                os.close(self._fd)
            self._fd = -1 if self._path is not None else self._fd

    def _is_due(self, now: float) -> bool:
        rotation = self._rotation
        if rotation.size_bytes is not None and self._size >= rotation.size_bytes:
            return True
        return rotation.every_s is not None and now - self._began >= rotation.every_s

    def _file_name(self) -> Path:
        """out.pcapng, or out_00001_20260131120000.pcapng in a series, as dumpcap names them."""
        assert self._path is not None
        if not self._rotation.rotates:
            return self._path
        moment = time.strftime("%Y%m%d%H%M%S")
        path = self._path
        return path.with_name(f"{path.stem}_{self._number:05}_{moment}{path.suffix}")

    def _drop_oldest(self) -> None:
        keep = self._rotation.keep
        if self._surplus is not None:
            self.remove(self._surplus(self.sizes))
        elif keep is not None and len(self.names) > keep:
            self.remove(self.names[:-keep])

    def remove(self, names: Iterable[Path]) -> None:
        """Remove files of the series; the current one must not be among them."""
        for name in list(names):
            self.names.remove(name)
            del self.sizes[name]
            with suppress(FileNotFoundError):
                if self._maker is None:
                    name.unlink()
                else:
                    self._maker.remove(name)

    def _statistics(self) -> bytes:
        now = time.time_ns()
        blocks = []
        for interface, loss in enumerate(self._read_loss()):
            since = loss - self._before[interface]
            counts = InterfaceStatistics(
                start_ns=self._start_ns,
                end_ns=now,
                received=since.seen,
                accepted=since.matched - since.filtered - since.sampled_out,
                dropped=since.ring_full,
                delivered=int(self._delivered[interface]),
            )
            blocks.append(interface_statistics(interface, counts))
        return b"".join(blocks)

    def _name(self) -> str:
        return "standard output" if self._path is None else str(self.names[-1])
