"""The bytes of a capture as they arrive, and a sliding window over them."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
import threading
import time
import weakref
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UnreadableInput
from .stored import StoredObject, is_stored

POLL_SECONDS = 0.2
"""Poll interval of a growing file; longest silence of a pipe before its bytes are passed on."""


class ByteStream(Protocol):
    """The source of bytes of a window."""

    live: bool
    """More bytes may arrive later: available bytes are passed on after a short wait."""

    def read_into(self, view: memoryview) -> int:
        """Fill the start of `view`; returns the number of bytes, 0 only at the end. May block."""

    def silent(self) -> bool:
        """Whether no bytes are available now (always False when not live)."""

    def close(self) -> None:
        """Release the file and end reading."""


class RawStream:
    """The raw bytes of a file or of an object in a store, with a peek at the first ones.

    Reads with read() into a reused buffer, not by a mapping: equally fast from the page cache, no
    bus error when the file shrinks, and resident memory independent of the file size.
    """

    def __init__(self, path: str, follow: bool = False) -> None:
        """Open `path`, "-" for standard input.

        Raises UnreadableInput for a missing file, a directory, or denied permission, and StoreError
        as `StoredObject`.
        """
        self.path = path
        self.position = 0
        """Bytes read so far."""
        self.failure: str | None = None
        """Why reading ended early, if it did."""
        self._stop = threading.Event()
        self._head = b""
        self._follow = self._pollable = self.live = False
        if is_stored(path):
            self._file: io.RawIOBase = (stored := StoredObject(path))
            self.size: int | None = stored.size
            """Bytes of the file when it was opened; None for pipes and standard input."""
            return
        self._file = _open(path)
        mode = os.fstat(self._file.fileno()).st_mode
        regular = stat.S_ISREG(mode)
        self._follow = follow and regular
        self._pollable = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)
        self.live = self._follow or self._pollable
        self.size = os.fstat(self._file.fileno()).st_size if regular and path != "-" else None

    def peek(self, count: int) -> bytes:
        """The next `count` bytes, fewer at the end, without consuming them."""
        while len(self._head) < count:
            piece = bytearray(count - len(self._head))
            got = self._read(memoryview(piece))
            if not got:
                break
            self._head += piece[:got]
        return self._head[:count]

    def read_into(self, view: memoryview) -> int:
        """See ByteStream."""
        if self._head:
            got = min(len(self._head), len(view))
            view[:got] = self._head[:got]
            self._head = self._head[got:]
        else:
            got = self._read(view)
        self.position += got
        return got

    def read(self, count: int) -> bytes:
        """At most `count` bytes; empty only at the end."""
        piece = bytearray(count)
        got = self.read_into(memoryview(piece))
        return bytes(piece[:got])

    def _read(self, view: memoryview) -> int:
        try:
            got = self._file.readinto(view)
            while not got and self._follow and not self._file.closed:
                ended = self._stop.wait(POLL_SECONDS)
                change = self._change()
                got = self._file.readinto(view)  # also reads bytes written just before the end
                if not got and change is not None:
                    self.failure = change
                    break
                if ended:
                    break
        except OSError as error:
            self.failure = error.strerror or str(error)
            return 0
        except ValueError:  # closed while waiting for more
            return 0
        return got or 0

    def _change(self) -> str | None:
        """What happened to a followed file that will not grow any longer; None: nothing."""
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            return "the file was truncated"
        try:
            there = os.stat(self.path)
        except OSError:
            return "the file was removed"
        same = os.path.samestat(there, os.fstat(self._file.fileno()))
        return None if same else "another file has replaced it"

    def silent(self) -> bool:
        """See ByteStream."""
        if self._stop.is_set():
            return True
        if self._pollable:
            return not select.select([self._file], [], [], POLL_SECONDS)[0]
        if self._follow:
            return os.fstat(self._file.fileno()).st_size <= self._file.tell()
        return False

    def stop(self) -> None:
        """End a followed file at its present end."""
        self._stop.set()

    def close(self) -> None:
        """See ByteStream."""
        self._stop.set()
        self._file.close()


def _open(path: str) -> io.FileIO:
    if path == "-":
        if sys.stdin is None or sys.stdin.closed:
            raise UnreadableInput("standard input is closed: pipe a capture into it or name a file")
        if sys.stdin.isatty():
            raise UnreadableInput(
                "standard input is a terminal: pipe a capture into it or name a file"
            )
        return io.FileIO(0, closefd=False)
    try:
        return io.FileIO(path)
    except FileNotFoundError:
        raise UnreadableInput(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise UnreadableInput(f"{path} is a directory: name the capture files in it") from None
    except PermissionError:
        raise UnreadableInput(
            f"{path}: permission denied; run as a user who may read it or change its mode"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnreadableInput(f"{path} cannot be opened: {reason}") from None


# A sliding window over a byte stream, in buffers that are reused when no view refers to them.

MIN_WINDOW_BYTES = 1 << 20
"""Larger than every plausible record or packet block."""
MAX_WINDOW_BYTES = 1 << 22
"""Two windows and the decoded columns fit the last-level cache; larger windows are slower."""
MAX_WAIT_SECONDS = 0.5
"""Longest time that bytes of a live stream are collected before they are passed on."""


class _Buffer:
    """Memory lent out as arrays; detects whether an array is still alive."""

    def __init__(self, capacity: int) -> None:
        self.memory = np.empty(capacity, np.uint8)
        self._lent: weakref.ref[NDArray[np.uint8]] | None = None

    def lend(self) -> NDArray[np.uint8]:
        """An array of the whole memory; slices of it refer to this array and keep it alive."""
        lent: NDArray[np.uint8] = np.frombuffer(self.memory.data, np.uint8)
        self._lent = weakref.ref(lent)
        return lent

    def free(self) -> bool:
        """Whether no array refers to the memory any longer."""
        return self._lent is None or self._lent() is None


class Window:
    """The part of a stream in memory: `data[start:end]` is not consumed yet."""

    def __init__(self, stream: ByteStream, capacity: int) -> None:
        self._stream = stream
        self.capacity = max(capacity, MIN_WINDOW_BYTES)
        self._buffer = _Buffer(self.capacity)
        self._other: _Buffer | None = None
        self.data = self._buffer.lend()
        self.start = 0
        self.end = 0
        self.base_offset = 0
        """Position of `data[0]` in the stream."""
        self.at_end = False
        """The stream has ended at `data[end]`."""

    @property
    def position(self) -> int:
        """Position of the first unconsumed byte in the stream."""
        return self.base_offset + self.start

    def ensure(self, count: int) -> bool:
        """Provide `count` unconsumed bytes, at most the capacity; False when the stream ends.

        Earlier views of `data` stay valid, but offsets change: `data` may be another buffer.
        """
        while self.end - self.start < count:
            if self.at_end:
                return False
            self._slide()
            self._fill()
        return True

    def refill(self) -> None:
        """Slide and read more when less than half of the window is left, unless that may block."""
        if not self._stream.live and not self.at_end:
            if self.end - self.start < self.capacity // 2:
                self._slide()
                self._fill()

    def skip(self, count: int) -> bool:
        """Consume any number of bytes; False when the stream ends before."""
        while count > self.end - self.start:
            count -= self.end - self.start
            self.start = self.end
            if not self.ensure(1):
                return False
        self.start += count
        return True

    def _slide(self) -> None:
        """Move the unconsumed bytes to the front, in another buffer if this one is in use."""
        if self.start == 0:
            return
        rest = self._buffer.memory[self.start : self.end]
        del self.data
        if not self._buffer.free():
            spare = self._other
            self._other = self._buffer
            self._buffer = spare if spare and spare.free() else _Buffer(self.capacity)
        self._buffer.memory[: len(rest)] = rest
        self.data = self._buffer.lend()
        self.base_offset += self.start
        self.end -= self.start
        self.start = 0

    def _fill(self) -> None:
        view = self._buffer.memory.data
        began = time.monotonic()
        while self.end < self.capacity:
            got = self._stream.read_into(view[self.end :])
            if not got:
                self.at_end = True
                return
            self.end += got
            if self._stream.live and (
                self._stream.silent() or time.monotonic() - began > MAX_WAIT_SECONDS
            ):
                return


# Identifies a byte stream by its first bytes, never by a file name.

Compression = Literal["gzip", "zstd", "xz", "lz4"]

_COMPRESSIONS: tuple[tuple[bytes, Compression], ...] = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x04\x22\x4d\x18", "lz4"),
)
MAGIC_BYTES = 6
"""Number of bytes that identify a compression."""

_CONVERT = "convert it with `editcap -F pcapng IN OUT`"

_OTHER: tuple[tuple[bytes, str], ...] = (
    (b"snoop\x00\x00\x00", f"a snoop capture: {_CONVERT}"),
    (b"RTSS", f"a Microsoft Network Monitor 1 capture: {_CONVERT}"),
    (b"GMBU", f"a Microsoft Network Monitor 2 capture: {_CONVERT}"),
    (b"TRSNIFF data    \x1a", f"a Sniffer capture: {_CONVERT}"),
    (b"XCP\x00", f"a NetXRay capture: {_CONVERT}"),
    (b"iptrace", f"an AIX iptrace capture: {_CONVERT}"),
    (b"btsnoop\x00", "a Bluetooth capture: it holds no RoCE"),
    (b"\xab\x01\x00\x1c", f"an Ixia capture: {_CONVERT}"),
    (b"\xac\x01\x00\x1c", f"an Ixia capture: {_CONVERT}"),
    (b"\x34\xcd\xb2\xa1IX", f"an Ixia capture: {_CONVERT}"),
    (b"BZh", "bzip2 compressed: decompress it with bunzip2"),
    (b"PK\x03\x04", "a ZIP archive: unpack it and name the captures in it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it and name the captures in it"),
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a Windows program"),
    (b"\x89PNG", "a PNG picture"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"SQLite format 3", "a SQLite database"),
)


def compression(head: bytes) -> Compression | None:
    """The compression of the stream that begins with `head`."""
    for magic, name in _COMPRESSIONS:
        if head.startswith(magic):
            return name
    # A zstd stream may begin with a skippable frame: magics 184D2A50 to 184D2A5F.
    if head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:
        return "zstd"
    return None


def describe(head: bytes) -> str:
    """Description of a stream that is not a capture, for an error message.

    `head`: its first few hundred bytes.
    """
    for magic, what in _OTHER:
        if head.startswith(magic):
            return what
    if len(head) > 262 and head[257:262] == b"ustar":
        return "a tar archive: unpack it and name the captures in it"
    if not head.strip(b"\x00"):
        return "only zero bytes"
    nested = compression(head)
    if nested:
        return f"{nested} compressed a second time: decompress it once"
    return _describe_text(head)


def _describe_text(head: bytes) -> str:
    if any(byte < 9 or 13 < byte < 27 for byte in head):
        return "binary data of an unknown kind"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    lowered = start[:15].lower()
    if lowered.startswith((b"<!doctype html", b"<html")):
        return "an HTML page (was a login page downloaded in place of the capture?)"
    if start.startswith(b"<"):
        return "XML text"
    if start.startswith((b"{", b"[")):
        return "JSON text"
    return "text"
