"""Opens a capture: detects compression and format by the first bytes, and reads the frames."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self

from ..errors import NotACapture, UnreadableInput, UsageError
from ..wire.frames import FrameBatch
from ..wire.taps import Tap, Taps
from . import framing as linktypes
from . import pcap, pcapng
from .bytestream import MAX_WINDOW_BYTES, ByteStream, RawStream, Window
from .framing import Framing
from .pcapng import SharedTaps
from .stored import is_stored

if TYPE_CHECKING:
    from .decompress import DecompressedStream


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
