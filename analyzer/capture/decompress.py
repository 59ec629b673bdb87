"""Compressed captures, decompressed in small chunks by a thread ahead of the reader.

Output is bounded by one small chunk of input, so a decompression bomb costs no memory, and by a
multiple of all input, so it costs little time. A
truncated or damaged stream yields all data before the damage.
"""

from __future__ import annotations

import lzma
import queue
import threading
import zlib
from collections.abc import Iterator
from typing import Protocol

import lz4.frame
import zstandard

from ..errors import StoreError
from .bytestream import Compression, RawStream
from .bytestream import compression as compression_of

_PIECE_BYTES = 1 << 18
_ZSTD_PIECE_BYTES = 1 << 10
"""Small, because a zstd block of 4 bytes may expand to 128 KiB and the output cannot be limited."""
_CHUNK_BYTES = 1 << 20
"""Approximate size of a decompressed chunk."""
_CHUNKS_AHEAD = 6
_FREE_BYTES = 1 << 24
_MOST_EXPANSION = 1100
"""Decompressed bytes per byte of input, after the first _FREE_BYTES; gzip has at most 1,032."""
_XZ_MEMORY_BYTES = 1 << 28
_ZSTD_WINDOW_BYTES = 1 << 27


class _Member(Protocol):
    """Decompressor of one gzip member, zstd or lz4 frame, or xz stream."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """zlib with the interface of lzma and lz4."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        pending = self._inflate.unconsumed_tail
        return self._inflate.decompress(pending + data if pending else data, max_length)


class _Zstd:
    """zstandard with the same interface; ignores `max_length`."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    def decompress(self, data: bytes, _max_length: int, /) -> bytes:
        return self._frame.decompress(data) if data else b""


def _member(kind: Compression) -> _Member:
    if kind == "gzip":
        return _Gzip()
    if kind == "zstd":
        return _Zstd()
    if kind == "xz":
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
    frame: _Member = lz4.frame.LZ4FrameDecompressor()
    return frame


_ERRORS = (zlib.error, zstandard.ZstdError, lzma.LZMAError, RuntimeError, EOFError)


class DecompressedStream:
    """A ByteStream of the decompressed bytes of `raw`.

    A thread decompresses a few MiB ahead; the decompressors release the GIL.
    """

    live = False

    def __init__(self, raw: RawStream, kind: Compression) -> None:
        self._raw = raw
        self._kind = kind
        self._stop = threading.Event()
        self._chunks: queue.Queue[memoryview] = queue.Queue(_CHUNKS_AHEAD)
        self._rest = memoryview(b"")
        self._ended = False
        self._error: StoreError | None = None
        self.damage: str | None = None
        """Why the stream ended early, if it did."""
        self.ignored_bytes = False
        """Whether other bytes follow the last compressed member."""
        self._thread = threading.Thread(target=self._run, name="decompress", daemon=True)
        self._thread.start()

    def read_into(self, view: memoryview) -> int:
        """See ByteStream."""
        if not self._rest:
            if self._ended:
                return 0
            self._rest = self._chunks.get()
            if not self._rest:
                self._ended = True
                if self._error is not None:
                    raise self._error
                return 0
        got = min(len(view), len(self._rest))
        view[:got] = self._rest[:got]
        self._rest = self._rest[got:]
        return got

    def silent(self) -> bool:
        """See ByteStream."""
        return False

    def close(self) -> None:
        """See ByteStream."""
        self._stop.set()
        self._thread.join()
        self._raw.close()

    def _run(self) -> None:
        """Thread: pass on chunks, then always an empty chunk for the end."""
        try:
            for chunk in self._gathered():
                for start in range(0, len(chunk), _CHUNK_BYTES):
                    if not self._put(memoryview(chunk)[start : start + _CHUNK_BYTES]):
                        return
        except MemoryError:
            self.damage = "not enough memory to decompress it"
        except StoreError as error:  # of the stream below
            self._error = error
        finally:
            self._put(memoryview(b""))

    def _put(self, chunk: memoryview) -> bool:
        while not self._stop.is_set():
            try:
                self._chunks.put(chunk, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def _gathered(self) -> Iterator[bytes]:
        parts: list[bytes] = []
        size = 0
        for part in self._parts():
            parts.append(part)
            size += len(part)
            if size >= _CHUNK_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
        if size:
            yield b"".join(parts)

    def _parts(self) -> Iterator[bytes]:
        """Decompressed chunks, never empty; sets `damage` when they end early."""
        piece_bytes = _ZSTD_PIECE_BYTES if self._kind == "zstd" else _PIECE_BYTES
        member = _member(self._kind)
        piece = self._raw.read(piece_bytes)
        made = 0
        while not self._stop.is_set():
            try:
                part = member.decompress(piece, _CHUNK_BYTES)
            except _ERRORS as error:
                why = " ".join(str(error).split()) or type(error).__name__
                self.damage = f"damaged {self._kind} data ({why})"
                return
            if part:
                yield part
            made += len(part)
            if made > _FREE_BYTES + _MOST_EXPANSION * self._raw.position:
                self.damage = f"its {self._kind} data expands more than {_MOST_EXPANSION} times"
                return
            if member.eof:
                piece = self._next_member(member.unused_data or b"")
                if not piece:
                    return
                member = _member(self._kind)
            elif _hungry(member, part):
                piece = self._raw.read(piece_bytes)
                if not piece and not part:
                    self.damage = self._raw.failure or f"cut short inside its {self._kind} data"
                    return
            else:
                piece = b""

    def _next_member(self, unused: bytes) -> bytes:
        """The beginning of the next member, zero padding skipped; empty when there is none."""
        while True:
            unused = unused.lstrip(b"\x00")
            if len(unused) < 6:
                more = self._raw.read(_ZSTD_PIECE_BYTES)
                if more:
                    unused += more
                    continue
            break
        if unused and compression_of(unused) != self._kind:
            self.ignored_bytes = True
            return b""
        return unused


def _hungry(member: _Member, part: bytes) -> bool:
    """Whether `member` needs input to continue."""
    if isinstance(member, _Gzip):
        return len(part) < _CHUNK_BYTES
    return bool(getattr(member, "needs_input", True))
