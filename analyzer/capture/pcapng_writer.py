"""The blocks of a pcapng that is written: sections, interfaces, packets with comments.

Format: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/
Everything is little-endian, time stamps are nanoseconds; only a block written back into a
big-endian section keeps its byte order. Live frames come from rings (`probes/rings.py`),
frames of captures in bulk from `Laid`, single ones from `packet_block`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...kernels.kernel import Bytes, Int, Ints, UInt32s, inlined, kernel
from ..wire.packets import I64
from ..wire.taps import Tap

MARK = "[rocescope "
"""Part of every comment of an export, which the next export replaces."""
SECTION_HEADER = 0x0A0D0D0A
INTERFACE_DESCRIPTION, INTERFACE_STATISTICS = 1, 5
ENHANCED_PACKET, _OBSOLETE_PACKET, _SIMPLE_PACKET = 6, 2, 3
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_NANOSECONDS = 9  # if_tsresol
_COMMENT = 1
_MOST_COMMENT = 65_000
_SHB_OS, _SHB_APPLICATION = 3, 4
_IF_NAME, _IF_SPEED, _IF_TSRESOL, _IF_FILTER = 2, 8, 9, 11
_ISB_START, _ISB_END, _ISB_RECEIVED, _ISB_DROPPED, _ISB_ACCEPTED, _ISB_DELIVERED = 2, 3, 4, 5, 6, 8
_NUMBERS = (2, 4, 5, 6)
"""Options of packets that are integers: flags, dropped frames, packet id, queue."""
_HEAD, _TAIL = 28, 4
"""Bytes of an enhanced packet block before its frame and after its options."""
_MARK = np.frombuffer(MARK.encode(), np.uint8)


@dataclass(frozen=True, slots=True)
class InterfaceStatistics:
    """The contents of an interface statistics block, since the start of the section."""

    start_ns: int
    end_ns: int
    received: int
    """Frames that passed the hook."""
    accepted: int
    """Frames that passed the filter."""
    dropped: int
    """Of these, frames dropped because a ring was full."""
    delivered: int
    """Of these, frames in the file."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Packet blocks in order of time."""

    data: memoryview
    """Their bytes; valid until the next blocks are written."""
    frames: I64
    """Number of blocks of each interface, int64[interfaces]."""

    def split(self, size: int) -> tuple[Blocks, Blocks]:
        """The blocks that begin in the first `size` bytes, and the others."""
        frames, end = np.zeros_like(self.frames), 0
        while end < min(size, len(self.data)):
            block, interface = struct.unpack_from("<4xII", self.data, end)
            end += block
            frames[interface] += 1
        return Blocks(self.data[:end], frames), Blocks(self.data[end:], self.frames - frames)

    def whole(self, size: int) -> Blocks:
        """The whole blocks in the first `size` bytes."""
        frames, end = np.zeros_like(self.frames), 0
        while end + 12 <= size:
            block, interface = struct.unpack_from("<4xII", self.data, end)
            if end + block > size:
                break
            end += block
            frames[interface] += 1
        return Blocks(self.data[:end], frames)


def section_header(application: str, system: str, comments: Iterable[str]) -> bytes:
    """The first block of a file or section."""
    options = [(_SHB_OS, system.encode()), (_SHB_APPLICATION, application.encode())]
    options += [(_COMMENT, comment.encode()) for comment in comments]
    return _block(
        SECTION_HEADER, struct.pack("<IHHq", _BYTE_ORDER_MAGIC, 1, 0, -1) + _options(options)
    )


def interface_description(tap: Tap) -> bytes:
    """The block that describes a tap; the interface number is its rank."""
    options = [(_IF_NAME, tap.name.encode()), (_IF_TSRESOL, bytes([_NANOSECONDS]))]
    if tap.speed_bits_per_second:
        options.append((_IF_SPEED, struct.pack("<Q", tap.speed_bits_per_second)))
    if tap.filter:
        options.append((_IF_FILTER, b"\0" + tap.filter.encode()))
    head = struct.pack("<HHI", tap.link_type, 0, tap.snap_length or 0)
    return _block(INTERFACE_DESCRIPTION, head + _options(options))


def interface_statistics(interface: int, counts: InterfaceStatistics) -> bytes:
    """The block with the counters of one interface."""
    options = [
        (_ISB_START, _time(counts.start_ns)),
        (_ISB_END, _time(counts.end_ns)),
        (_ISB_RECEIVED, struct.pack("<Q", counts.received)),
        (_ISB_DROPPED, struct.pack("<Q", counts.dropped)),
        (_ISB_ACCEPTED, struct.pack("<Q", counts.accepted)),
        (_ISB_DELIVERED, struct.pack("<Q", counts.delivered)),
    ]
    head = struct.pack("<I", interface) + _time(counts.end_ns)
    return _block(INTERFACE_STATISTICS, head + _options(options))


def packet_block(
    interface: int, time_ns: int, frame: bytes, wire_bytes: int, comments: Sequence[str] = ()
) -> bytes:
    """The block of one frame and its comments."""
    # dpkt's block states the captured bytes as bytes on the wire and takes five times as long.
    lengths = struct.pack("<II", len(frame), wire_bytes)
    parts = [struct.pack("<I", interface), _time(time_ns), lengths, frame, bytes(-len(frame) % 4)]
    parts += [comment_option(comment.encode()) for comment in comments]
    if comments:
        parts.append(bytes(4))
    return _block(ENHANCED_PACKET, b"".join(parts))


def _time(time_ns: int) -> bytes:
    return struct.pack("<II", time_ns >> 32, time_ns & 0xFFFFFFFF)


def comment_option(text: bytes, order: str = "<") -> bytes:
    """A comment as an option of a block, padded."""
    return _option(_COMMENT, text[:_MOST_COMMENT], order)


def _option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def _options(options: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(_option(code, value) for code, value in options) + bytes(4)


def _block(kind: int, body: bytes, order: str = "<") -> bytes:
    total = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + total + body + total


# Blocks of frames that a capture holds: single blocks with other comments, and whole batches.


class Block(NamedTuple):
    """The block around a frame, as bytes of its capture."""

    begin: int
    end: int
    """In the data of its batch."""
    order: str
    options: int | None
    """Begin of its options; None for a simple packet block, which cannot have any."""


def block_around(data: Bytes, offset: int) -> Block:
    """The block around the frame at `offset`, whose block the capture reader has checked."""
    for back, kinds in ((_HEAD, (ENHANCED_PACKET, _OBSOLETE_PACKET)), (12, (_SIMPLE_PACKET,))):
        begin = offset - back
        for order in "<>":
            if begin < 0:
                continue
            kind, total = struct.unpack_from(f"{order}II", data.data, begin)
            end = begin + total
            if kind not in kinds or total < back + _TAIL or end > len(data):
                continue
            if struct.unpack_from(f"{order}I", data.data, end - _TAIL)[0] != total:
                continue
            if back == 12:
                return Block(begin, end, order, None)
            (held,) = struct.unpack_from(f"{order}I", data.data, offset - 8)
            options = offset + held + -held % 4
            if options <= end - _TAIL:
                return Block(begin, end, order, options)
    raise ValueError("no packet block surrounds the frame")


def with_comments(data: Bytes, block: Block, texts: Sequence[bytes]) -> bytes:
    """The bytes of a block with these comments in place of those of an earlier export."""
    order, at, last = block.order, block.options, block.end - _TAIL
    assert at is not None
    kept = [data[block.begin + 8 : at].tobytes()]
    while at + 4 <= last:
        code, length = struct.unpack_from(f"{order}HH", data.data, at)
        end = at + 4 + length + -length % 4
        if code == 0 or end > last:
            break
        value = data[at + 4 : at + 4 + length].tobytes()
        if code != _COMMENT or MARK.encode() not in value:
            kept.append(data[at:end].tobytes())
        at = end
    kept += [comment_option(text, order) for text in texts]
    if len(kept) > 1:
        kept.append(bytes(4))
    (kind,) = struct.unpack_from(f"{order}I", data.data, block.begin)
    return _block(kind, b"".join(kept), order)


@inlined
def _load(data: Bytes, at: Int, size: Int, big: Int) -> Int:
    value = np.int64(0)
    for k in range(size):
        value = value << 8 | np.int64(data[at + (k if big else size - 1 - k)])
    return value


@inlined
def _store(out: Bytes, at: Int, value: Int) -> None:
    for k in range(4):
        out[at + k] = (value >> (8 * k)) & 0xFF


@inlined
def _padded(size: Int) -> Int:
    return (size + 3) & ~3


@inlined
def _options_of(data: Bytes, offset: Int, in_blocks: bool) -> tuple[Int, Int, Int, Int]:
    """Captured bytes (-1: not told), begin and end of the options of the frame at `offset`, and
    whether its block is big-endian."""
    if in_blocks and offset >= _HEAD:
        for big in range(2):
            kind = _load(data, offset - 28, 4, big)
            total = _load(data, offset - 24, 4, big)
            held = _load(data, offset - 8, 4, big)
            end = offset - _HEAD + total - _TAIL
            begin = offset + _padded(held)
            if kind != ENHANCED_PACKET and kind != _OBSOLETE_PACKET:
                continue
            if begin <= end and end + _TAIL <= len(data) and _load(data, end, 4, big) == total:
                return held, begin, end, np.int64(big)
    return np.int64(-1), np.int64(0), np.int64(0), np.int64(0)


@inlined
def _is_ours(data: Bytes, begin: Int, size: Int, mark: Bytes) -> bool:
    """Whether a comment is from an earlier export."""
    for at in range(begin, begin + size - len(mark) + 1):
        same = True
        for k in range(len(mark)):
            if data[at + k] != mark[k]:
                same = False
                break
        if same:
            return True
    return False


@kernel
def _measure(
    data: Bytes,
    offset: Ints,
    captured: UInt32s,
    in_blocks: bool,
    added: Ints,
    mark: Bytes,
    held: Ints,
    size: Ints,
    ours: Ints,
) -> None:
    """Captured bytes, size of the new block and number of own comments of each frame."""
    for i in range(len(offset)):
        told, begin, end, big = _options_of(data, offset[i], in_blocks)
        held[i] = told if told >= 0 else np.int64(captured[i])
        options = added[i]
        ours[i] = 0
        while begin + 4 <= end:
            code, length = _load(data, begin, 2, big), _load(data, begin + 2, 2, big)
            if code == 0 or begin + 4 + length > end:
                break
            if code == _COMMENT and _is_ours(data, begin + 4, length, mark):
                ours[i] += 1
            else:
                options += 4 + _padded(length)
            begin += 4 + _padded(length)
        size[i] = _HEAD + _padded(held[i]) + options + (4 if options else 0) + _TAIL


@kernel
def _lay_out(
    data: Bytes,
    offset: Ints,
    wire: UInt32s,
    time_ns: Ints,
    interface: Ints,
    in_blocks: bool,
    comments: Bytes,
    comment_at: Ints,
    added: Ints,
    mark: Bytes,
    held: Ints,
    size: Ints,
    at: Ints,
    out: Bytes,
) -> None:
    """Write the block of each frame to `out[at]`."""
    for i in range(len(offset)):
        if at[i] < 0:
            continue
        o = at[i]
        _store(out, o, np.int64(ENHANCED_PACKET))
        _store(out, o + 4, size[i])
        _store(out, o + 8, interface[i])
        _store(out, o + 12, time_ns[i] >> 32)
        _store(out, o + 16, time_ns[i])
        _store(out, o + 20, held[i])
        _store(out, o + 24, np.int64(wire[i]))
        o += _HEAD
        for k in range(held[i]):
            out[o + k] = data[offset[i] + k]
        for k in range(held[i], _padded(held[i])):
            out[o + k] = 0
        o += _padded(held[i])
        first = o
        _, begin, end, big = _options_of(data, offset[i], in_blocks)
        while begin + 4 <= end:
            code, length = _load(data, begin, 2, big), _load(data, begin + 2, 2, big)
            if code == 0 or begin + 4 + length > end:
                break
            if code != _COMMENT or not _is_ours(data, begin + 4, length, mark):
                _store(out, o, code | length << 16)
                o += 4
                turned = big == 1 and code in _NUMBERS
                for k in range(length):
                    out[o + k] = data[begin + 4 + (length - 1 - k if turned else k)]
                for k in range(length, _padded(length)):
                    out[o + k] = 0
                o += _padded(length)
            begin += 4 + _padded(length)
        for k in range(added[i]):
            out[o + k] = comments[comment_at[i] + k]
        o += added[i]
        if o > first:
            _store(out, o, np.int64(0))
            o += 4
        _store(out, o, size[i])


class Laid:
    """The frames of one part and their new comments; `size` is that of each new block."""

    def __init__(
        self,
        data: Bytes,
        offset: Ints,
        captured: UInt32s,
        wire: UInt32s,
        in_blocks: bool,
        comments: dict[int, bytes],
    ) -> None:
        """in_blocks: packet blocks of a pcapng surround the frames. comments: options
        (`comment_option`) by row of these frames."""
        frames = len(offset)
        self._data, self._offset, self._wire = data.view(), offset, wire
        self._in_blocks = in_blocks
        self._data.flags.writeable = False  # one type for every source, hence one compiled kernel
        self._added = np.zeros(frames, np.int64)
        self._at = np.zeros(frames, np.int64)
        texts, place = [], 0
        for row, text in comments.items():
            self._added[row], self._at[row] = len(text), place
            texts.append(text)
            place += len(text)
        self._comments = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
        self._held = np.zeros(frames, np.int64)
        self.size = np.zeros(frames, np.int64)
        self.ours = np.zeros(frames, np.int64)
        """Comments of an earlier export in each frame."""
        _measure(
            self._data,
            offset,
            captured,
            in_blocks,
            self._added,
            _MARK,
            self._held,
            self.size,
            self.ours,
        )

    def write(self, out: Bytes, at: Ints, time_ns: Ints, interface: Ints) -> None:
        """Write the block of each frame to `out[at]`; -1: leave the frame out."""
        _lay_out(
            self._data,
            self._offset,
            self._wire,
            time_ns,
            interface,
            self._in_blocks,
            self._comments,
            self._at,
            self._added,
            _MARK,
            self._held,
            self.size,
            at,
            out,
        )
