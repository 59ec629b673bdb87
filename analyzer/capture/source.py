"""Opens a capture: detects compression and format by the first bytes, and reads the frames."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self

from ..errors import NotACapture, UnreadableInput, UsageError
from ..wire.packets import FrameBatch
from ..wire.taps import Tap, Taps
from . import framing as linktypes
from . import pcap, pcapng
from .bytestream import (
    MAGIC_BYTES,
    MAX_WINDOW_BYTES,
    ByteStream,
    Compression,
    RawStream,
    Window,
    compression,
    describe,
)
from .framing import Framing
from .pcapng import SharedTaps
from .stored import is_stored

if TYPE_CHECKING:
    from .decompress import DecompressedStream


_HEAD_BYTES = 512
"""Enough to identify a file that is not a capture."""
_TYPICAL_RECORD_BYTES = 128


class Capture:
    """An open capture: its frames once, in order, with counters and warnings."""

    def __init__(
        self,
        name: str,
        raw: RawStream,
        stream: RawStream | DecompressedStream,
        kind: Compression | None,
        framing: Framing,
    ) -> None:
        self.name = name
        """Base name of the file, "stdin" for standard input."""
        self.path = raw.path
        self.compression = kind
        self.format: Literal["pcap", "pcapng"] = (
            "pcap" if isinstance(framing, pcap.PcapFraming) else "pcapng"
        )
        self._raw = raw
        self._stream = stream
        self._framing = framing

    def batches(self) -> Iterator[FrameBatch]:
        """All frames in capture order; iterate once.

        Raises UnreadableInput at the end when no frame has a supported link type.
        Damage is skipped where possible and reported in `warnings`.
        """
        yield from self._framing.batches()
        self._tell_stream_damage()

    def _tell_stream_damage(self) -> None:
        stream = self._stream
        if not isinstance(stream, RawStream) and stream.damage:
            self.warnings.append(f"{self.name}: {stream.damage}: everything before it is reported")
        elif self._raw.failure:
            self.warnings.append(
                f"{self.name}: reading failed at byte {self._raw.position} ({self._raw.failure}):"
                " everything before it is reported"
            )
        elif not isinstance(stream, RawStream) and stream.ignored_bytes:
            self.warnings.append(
                f"{self.name}: bytes after the {self.compression} data are ignored"
            )

    def stop(self) -> None:
        """End a followed capture: `batches` ends at the present end of the file."""
        self._raw.stop()

    def close(self) -> None:
        """Release the file and the thread that decompresses it."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def warnings(self) -> list[str]:
        """Warnings about this capture, one line each; grows while reading."""
        return self._framing.counts.warnings

    @property
    def owner_comments(self) -> list[str]:
        """Comments that name owners of queue pairs, see analyzer/pipeline/owners.py."""
        return self._framing.counts.owner_comments

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, as stored (compressed)."""
        return self._raw.position

    @property
    def total_bytes(self) -> int | None:
        """Size as stored when opened; None for pipes and standard input."""
        return self._raw.size

    @property
    def frames(self) -> int:
        """Frames read so far, skipped frames included."""
        return self._framing.counts.frames

    @property
    def out_of_order_frames(self) -> int:
        """Frames with a capture time below that of the previous frame."""
        return self._framing.counts.out_of_order_frames

    @property
    def truncated_frames(self) -> int:
        """Truncated frames: fewer bytes captured than on the wire."""
        return self._framing.counts.truncated_frames

    @property
    def damaged_places(self) -> int:
        """Places where the capture was unreadable, a truncated end included."""
        counts = self._framing.counts
        return counts.damaged_places + (counts.cut_short or _failure(self._stream) is not None)


def open_capture(
    path: str,
    taps: Taps,
    *,
    batch_frames: int = 1 << 17,
    follow: bool = False,
    shared: SharedTaps | None = None,
    tap_name: str | None = None,
    one_name: bool = False,
) -> Capture:
    """Open a capture file, "-" for standard input; its taps are added to `taps`.

    Batches have at most `batch_frames` frames. `follow`: wait for more data at the end of a growing
    file. `tap_name`: the name of the tap, default that of the file. With `shared` several files are
    one tap: pass the same dictionary for each (as `concatenated` does); `one_name`: an only
    interface has the name of the tap then, too.

    Raises UnreadableInput for a file that cannot be opened or is not a capture, UsageError for
    `follow` with a compressed file, StoreError as `StoredObject`.
    """
    if follow and is_stored(path):
        raise UsageError(f"{path}: an object does not grow: --follow needs a file")
    raw = RawStream(path, follow)
    shown = "standard input" if path == "-" else path
    stream: RawStream | DecompressedStream = raw
    try:
        kind = compression(raw.peek(MAGIC_BYTES))
        if kind and follow and raw.size is not None:
            raise UsageError(
                f"{path} is {kind} compressed: --follow cannot be combined with compressed files"
            )
        if kind:
            from .decompress import DecompressedStream  # its libraries load slowly

            stream = DecompressedStream(raw, kind)
        capacity = min(batch_frames * _TYPICAL_RECORD_BYTES, MAX_WINDOW_BYTES)
        window = Window(stream, capacity)
        name = "stdin" if path == "-" else _unicode(os.path.basename(path))
        label = name if tap_name else _unused_name(name, _unicode(path), taps)
        one_name = one_name or (tap_name is not None and shared is None)
        tap_name, shared = tap_name or label, {} if shared is None else shared
        framing = _framing(
            shown, window, kind, stream, label, tap_name, one_name, taps, shared, batch_frames
        )
    except BaseException:
        with suppress(OSError):
            stream.close()
        raise
    return Capture(name, raw, stream, kind, framing)


def _unicode(name: str) -> str:
    """A file name as results hold it: bytes other than UTF-8 become replacement characters."""
    return os.fsencode(name).decode("utf-8", "replace")


def _unused_name(name: str, path: str, taps: Taps) -> str:
    """`name`, or the whole path when another tap already has that name."""
    taken = any(tap.name == name or tap.name.startswith(f"{name}:") for tap in taps.items)
    return path if taken and path != "-" else name


def _framing(
    path: str,
    window: Window,
    kind: Compression | None,
    stream: RawStream | DecompressedStream,
    name: str,
    tap_name: str,
    one_name: bool,
    taps: Taps,
    shared: SharedTaps,
    batch_frames: int,
) -> Framing:
    """The reader for the format identified by the window's first bytes; `name` is for warnings."""
    window.ensure(pcap.HEADER_BYTES)
    head = window.data[: min(window.end, _HEAD_BYTES)].tobytes()
    if head.startswith(pcapng.MAGIC) and (len(head) < 12 or pcapng.section_order(head)):
        if len(head) < 28:
            raise UnreadableInput(_cut_short(path, stream, len(head)))
        return pcapng.PcapngFraming(
            window, name, tap_name, batch_frames, taps, shared, one_name=one_name
        )
    if len(head) >= 4 and pcap.is_pcap(head[:4]):
        if len(head) < pcap.HEADER_BYTES:
            raise UnreadableInput(_cut_short(path, stream, len(head)))
        header = pcap.parse_header(head)
        if not linktypes.supported(header.link_type):
            raise UnreadableInput(f"{path}: {linktypes.why_unsupported(header.link_type)}")
        window.start = pcap.HEADER_BYTES
        key = ("", header.link_type, 0)
        if key not in shared:
            shared[key] = _add(taps, pcap.tap_of(header, tap_name), path)
        return pcap.PcapFraming(window, name, batch_frames, header, taps, shared[key])
    if not head:
        raise UnreadableInput(_nothing(path, kind, stream))
    packed = f"{kind} compressed, and inside " if kind else ""
    raise NotACapture(f"{path} is not a pcap or pcapng capture: it is {packed}{describe(head)}")


def _add(taps: Taps, tap: Tap, path: str) -> int:
    try:
        return taps.add(tap)
    except ValueError as error:
        raise UnreadableInput(f"{path}: {error}; analyse fewer files at once") from None


def _cut_short(path: str, stream: RawStream | DecompressedStream, size: int) -> str:
    reason = _failure(stream)
    why = f" ({reason})" if reason else ""
    return (
        f"{path} ends after {size} bytes inside its file header{why}:"
        " copy or capture it again, nothing can be read from it"
    )


def _nothing(path: str, kind: Compression | None, stream: RawStream | DecompressedStream) -> str:
    reason = _failure(stream)
    if reason:
        return f"{path}: nothing can be read from it ({reason}): copy or capture it again"
    if kind:
        return f"{path} is empty inside its {kind} compression: capture it again"
    return f"{path} is empty (0 bytes): capture it again"


def _failure(stream: RawStream | DecompressedStream) -> str | None:
    return stream.failure if isinstance(stream, RawStream) else stream.damage


# The bytes of a capture file as its reader sees them: decompressed, from the beginning.


def unpacked(path: str) -> ByteStream:
    """The bytes of a file, decompressed where needed. UnreadableInput if it cannot be opened."""
    raw = RawStream(path)
    kind = compression(raw.peek(MAGIC_BYTES))
    if kind is None:
        return raw
    from .decompress import DecompressedStream  # its libraries load slowly

    return DecompressedStream(raw, kind)
