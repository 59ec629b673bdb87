"""Packet blocks of a pcapng with comments, from the frames of any capture.

Format: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/
Blocks are little-endian, their times nanoseconds. Options of a frame stay, except comments of an
earlier export.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...kernels.kernel import Bytes, Int, Ints, UInt32s, inlined, kernel
from .comments import MARK

_MARK = np.frombuffer(MARK.encode(), np.uint8)
_ENHANCED_PACKET, _OBSOLETE_PACKET, _SIMPLE_PACKET = 6, 2, 3
_HEAD, _TAIL = 28, 4
_COMMENT = 1
_NUMBERS = (2, 4, 5, 6)
"""Options of packets that are integers: flags, dropped frames, packet id, queue."""
_MOST_COMMENT = 65_000


def comment_option(text: bytes, order: str = "<") -> bytes:
    """A comment as an option of a block, padded."""
    text = text[:_MOST_COMMENT]
    return struct.pack(f"{order}HH", _COMMENT, len(text)) + text + bytes(-len(text) % 4)


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
    for back, kinds in ((_HEAD, (_ENHANCED_PACKET, _OBSOLETE_PACKET)), (12, (_SIMPLE_PACKET,))):
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
    body = b"".join(kept)
    kind = data[block.begin : block.begin + 4].tobytes()
    total = struct.pack(f"{order}I", len(body) + 12)
    return kind + total + body + total


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
            if kind != _ENHANCED_PACKET and kind != _OBSOLETE_PACKET:
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
        _store(out, o, np.int64(_ENHANCED_PACKET))
        _store(out, o + 4, size[i])
        _store(out, o + 8, interface[i])
        _store(out, o + 12, time_ns[i] >> 32)
        _store(out, o + 16, time_ns[i])
        _store(out, o + 20, held[i])
        _store(out, o + 24, np.int64(wire[i]))
        o += _HEAD
        out[o : o + held[i]] = data[offset[i] : offset[i] + held[i]]
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
        out[o : o + added[i]] = comments[comment_at[i] : comment_at[i] + added[i]]
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
