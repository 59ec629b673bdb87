"""Classic pcap: micro- and nanosecond, both byte orders, and the "modified" kind.

Format: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/
"""

from __future__ import annotations

import struct

from ...kernels.kernel import Bytes, NamedTuple, inlined, kernel
from ..wire.packets import I64, FrameColumns
from ..wire.taps import Tap, Taps
from . import framing
from .bytestream import Window
from .erf import open_record
from .framing import Framing, load32, note_disorder

HEADER_BYTES = 24
DAY_SECONDS = 86_400

# Magic number in native byte order: (bytes of a record header, nanoseconds of a time unit).
_MAGICS = {
    0xA1B2C3D4: (16, 1_000),
    0xA1B23C4D: (16, 1),
    0xA1B2CD34: (24, 1_000),  # Kuznetzov's patched libpcap: 8 more bytes per record
}


_JOINTS_NAMED = 8
_OTHER_FILE = framing.DAMAGED + 1
"""Why the kernel stopped, beside the reasons in framing.py: at the file header of another pcap."""


class Header(NamedTuple):
    """The file header of a classic pcap."""

    swapped: bool
    record_header_bytes: int
    tick_ns: int
    snap_length: int
    link_type: int
    most_bytes: int
    """Most captured bytes of a record."""


def parse_header(head: bytes) -> Header:
    """The header at the start of `head`: at least HEADER_BYTES bytes that satisfy `is_pcap`."""
    swapped = int.from_bytes(head[:4], "little") not in _MAGICS
    magic, _major, _minor, _zone, _digits, snap_length, network = struct.unpack_from(
        ">IHHiIII" if swapped else "<IHHiIII", head
    )
    # The upper half of `network` describes a frame check sequence.
    link_type = framing.canonical(network & 0xFFFF)
    most = max(framing.MAX_CAPTURED_BYTES, min(snap_length, framing.MAX_LARGE_BYTES))
    return Header(swapped, *_MAGICS[magic], snap_length, link_type, most)


def is_pcap(magic: bytes) -> bool:
    """Whether these four bytes begin a classic pcap."""
    return any(int.from_bytes(magic, order) in _MAGICS for order in ("little", "big"))


@inlined
def begins_file(data: Bytes, at: int) -> bool:
    """Whether the eight bytes at `at` are the magic number and the version of a pcap.

    Files that were joined with `cat` have a file header between two records.
    """
    for swapped in (False, True):
        magic = load32(data, at, swapped)
        if magic == 0xA1B2C3D4 or magic == 0xA1B23C4D or magic == 0xA1B2CD34:
            version = load32(data, at + 4, swapped)
            return version == (2 << 16 | 4 if swapped else 4 << 16 | 2)
    return False


@kernel
def walk_records(
    data: Bytes, end: int, header: Header, tap_index: int, columns: FrameColumns, state: I64
) -> int:
    """Write one row per record of `data[state[POSITION]:end]`; returns the reason it stopped."""
    swapped, header_bytes, tick_ns, _, link, most = header
    position = state[framing.POSITION]
    rows = state[framing.FRAMES]
    last = state[framing.LAST_TIME]
    snapped = 0
    reason = framing.BATCH_FULL
    while rows < len(columns.offset):
        left = end - position
        if left < header_bytes:
            state[framing.NEED] = header_bytes
            reason = framing.NEED_BYTES
            break
        seconds = load32(data, position, swapped)
        fraction = load32(data, position + 4, swapped)
        held = load32(data, position + 8, swapped)
        length = load32(data, position + 12, swapped)
        if length == 0 and begins_file(data, position):  # its last two fields before are 0
            reason = _OTHER_FILE
            break
        if held > most or length > framing.MAX_WIRE_BYTES:
            reason = framing.DAMAGED
            break
        if length == 0 and held == 0 and seconds == 0 and fraction == 0:
            reason = framing.DAMAGED
            break
        if left < header_bytes + held:
            state[framing.NEED] = header_bytes + held
            reason = framing.NEED_BYTES
            break
        time = seconds * 1_000_000_000 + fraction * tick_ns
        if time < last:
            note_disorder(state, last - time)
        last = time
        if held < length:
            snapped += 1
        elif length == 0 and held > 0:
            length = held
            state[framing.UNSIZED] += 1
        position += header_bytes
        columns.offset[rows] = position
        columns.captured[rows] = held
        columns.wire[rows] = length
        columns.time_ns[rows] = time
        columns.tap[rows] = tap_index
        columns.link_type[rows] = link
        if link == framing.LINKTYPE_ERF:
            open_record(data, columns, rows, state)
        rows += 1
        position += held
    state[framing.POSITION] = position
    state[framing.FRAMES] = rows
    state[framing.LAST_TIME] = last
    state[framing.SNAPPED] += snapped
    return reason


@inlined
def plausible_length(data: Bytes, at: int, header: Header, earliest: int, unsized: bool) -> int:
    """Captured bytes of a plausible record header at `at`, 0 when it is not plausible.

    Plausible: not empty, not longer than on the wire, a fraction below one second, not before the
    second `earliest`. unsized: 0 as the length on the wire is plausible too.
    """
    swapped, ticks_per_second = header.swapped, 1_000_000_000 // header.tick_ns
    held = load32(data, at + 8, swapped)
    length = load32(data, at + 12, swapped)
    if (
        held == 0
        or held > header.most_bytes
        or (held > length and not (unsized and length == 0))
        or length > framing.MAX_WIRE_BYTES
    ):
        return 0
    if load32(data, at + 4, swapped) >= ticks_per_second:
        return 0
    if load32(data, at, swapped) < earliest:
        return 0
    return held


@kernel
def find_record(
    data: Bytes,
    start: int,
    end: int,
    at_end: bool,
    header: Header,
    earliest: int,
    unsized: bool,
) -> tuple[bool, int]:
    """The first place from `start` with two consecutive plausible records, or with a file header.

    Their times differ by less than a day. The second may be the end of the capture instead
    (`at_end`: the capture ends at `data[end]`). Returns (False, place) when every place before
    `place` is ruled out and `place` needs more bytes to judge.
    """
    swapped, header_bytes = header.swapped, header.record_header_bytes
    for place in range(start, end):
        if end - place < header_bytes:
            return False, end if at_end else place
        if begins_file(data, place):
            return True, place
        held = plausible_length(data, place, header, earliest, unsized)
        if held == 0:
            continue
        following = place + header_bytes + held
        if at_end and following == end:
            return True, place
        if end - following < header_bytes:
            if at_end:
                continue
            return False, place
        if begins_file(data, following):
            return True, place
        if plausible_length(data, following, header, earliest, unsized) == 0:
            continue
        apart = load32(data, following, swapped) - load32(data, place, swapped)
        if abs(apart) <= DAY_SECONDS:
            return True, place
    return False, end


class PcapFraming(Framing):
    """Records of a classic pcap; the window stands at the first record."""

    def __init__(
        self, window: Window, name: str, batch_frames: int, header: Header, taps: Taps, tap: int
    ) -> None:
        super().__init__(window, name, batch_frames)
        self._header = header
        self._tap_index = tap
        self._tap = taps[tap]
        self._joined = 0
        """File headers after the first."""
        self._lost = 0

    def _walk(self, columns: FrameColumns) -> int:
        window = self._window
        while True:
            reason = walk_records(
                window.data, window.end, self._header, self._tap_index, columns, self._state
            )
            if reason != _OTHER_FILE:
                return reason
            at = int(self._state[framing.POSITION])
            if window.end - at < HEADER_BYTES:
                self._state[framing.NEED] = HEADER_BYTES
                return framing.NEED_BYTES
            self._header = parse_header(window.data[at : at + HEADER_BYTES].tobytes())
            self._state[framing.POSITION] = at + HEADER_BYTES
            self._joined += 1
            if self._joined <= _JOINTS_NAMED:
                self.counts.warnings.append(
                    f"{self._name}: another capture begins at byte {window.base_offset + at}:"
                    " captures were joined; its file header is skipped"
                )

    def _find(self, start: int) -> tuple[bool, int]:
        window = self._window
        earliest = max(0, (self._first_time_ns or 0) // 1_000_000_000 - DAY_SECONDS)
        unsized = bool(self._state[framing.UNSIZED])
        return find_record(
            window.data, start, window.end, window.at_end, self._header, earliest, unsized
        )

    def _count(self, rows: int) -> None:
        self._tap.frames += rows
        self._tap.clock_steps += self._new_clock_steps
        if self._tap.first_time_ns is None:
            self._tap.first_time_ns = self._first_time_ns
        lost = int(self._state[framing.ERF_LOST])
        if lost:  # 0 is also written by programs that do not count
            self._tap.dropped = (self._tap.dropped or 0) + lost - self._lost
            self._lost = lost

    def _conclude(self) -> None:
        super()._conclude()
        if self._joined > _JOINTS_NAMED:
            self.counts.warnings.append(
                f"{self._name}: {self._joined - _JOINTS_NAMED} more captures were joined"
            )


def tap_of(header: Header, name: str) -> Tap:
    """The tap of a classic pcap."""
    link_type = framing.link_type_of_tap(header.link_type)
    return Tap(name, link_type, snap_length=header.snap_length or None)
