"""What both capture formats share: the walk that yields frame batches, and link types.

A compiled kernel walks the records of the window and writes one row per frame. It stops when the
batch is full, when it needs more bytes, at a block for Python, or at an impossible record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ...kernels.kernel import Bytes, inlined
from ..errors import UnreadableInput
from ..wire.packets import (
    I64,
    LINKTYPE_ETHERNET,
    LINKTYPE_RAW,
    SUPPORTED_LINK_TYPES,
    FrameBatch,
    FrameColumns,
    empty_columns,
)
from .bytestream import Window

# Names of link types, for messages about captures that cannot be decoded.

LINKTYPE_ERF = 197
LINKTYPE_INFINIBAND = 247

# The common ones of https://www.tcpdump.org/linktypes.html.
NAMES: dict[int, str] = {
    0: "NULL",
    1: "ETHERNET",
    6: "IEEE802_5",
    8: "SLIP",
    9: "PPP",
    10: "FDDI",
    50: "PPP_HDLC",
    51: "PPP_ETHER",
    101: "RAW",
    104: "C_HDLC",
    105: "IEEE802_11",
    107: "FRELAY",
    108: "LOOP",
    113: "LINUX_SLL",
    117: "PFLOG",
    119: "IEEE802_11_PRISM",
    122: "IP_OVER_FC",
    127: "IEEE802_11_RADIOTAP",
    140: "MTP2",
    143: "DOCSIS",
    147: "USER0",
    163: "IEEE802_11_AVS",
    187: "BLUETOOTH_HCI_H4",
    189: "USB_LINUX",
    192: "PPI",
    195: "IEEE802_15_4_WITHFCS",
    197: "ERF",
    201: "BLUETOOTH_HCI_H4_WITH_PHDR",
    220: "USB_LINUX_MMAPPED",
    224: "FC_2",
    225: "FC_2_WITH_FRAME_DELIMS",
    226: "IPNET",
    227: "CAN_SOCKETCAN",
    228: "IPV4",
    229: "IPV6",
    230: "IEEE802_15_4_NOFCS",
    231: "DBUS",
    239: "NFLOG",
    240: "NETANALYZER",
    247: "INFINIBAND",
    248: "SCTP",
    249: "USBPCAP",
    252: "WIRESHARK_UPPER_PDU",
    253: "NETLINK",
    256: "BLUETOOTH_LE_LL_WITH_PHDR",
    258: "PKTAP",
    271: "VSOCK",
    272: "NORDIC_BLE",
    274: "ETHERNET_MPACKET",
    276: "LINUX_SLL2",
}

# Values of DLT_RAW that some systems write instead of LINKTYPE_RAW.
_ALIASES = {12: LINKTYPE_RAW, 14: LINKTYPE_RAW}


def canonical(link_type: int) -> int:
    """`link_type` with platform dependent values replaced by the LINKTYPE_ value."""
    return _ALIASES.get(link_type, link_type)


def supported(link_type: int) -> bool:
    """Whether frames of this (canonical) link type can be decoded, or found in its records."""
    return link_type in SUPPORTED_LINK_TYPES or link_type == LINKTYPE_ERF


def link_type_of_tap(link_type: int) -> int:
    """The link type of a tap's frames: Ethernet for ERF, whose records hold them."""
    return LINKTYPE_ETHERNET if link_type == LINKTYPE_ERF else link_type


def label(link_type: int) -> str:
    """Name and number: "LINKTYPE_IEEE802_11 (105)"."""
    return f"LINKTYPE_{NAMES.get(link_type, 'unknown')} ({link_type})"


def why_unsupported(link_type: int) -> str:
    """Why frames of this link type cannot be analysed, with a remedy."""
    if link_type in (LINKTYPE_ERF, LINKTYPE_INFINIBAND):
        return (
            f"link type {label(link_type)} is a native InfiniBand capture, not RoCE over Ethernet:"
            " capture on the Ethernet port of the NIC or switch instead"
        )
    known = ", ".join(label(t) for t in sorted(SUPPORTED_LINK_TYPES))
    return f"link type {label(link_type)} is not supported: capture with one of {known}"


MAX_CAPTURED_BYTES = 1 << 18
"""A longer record is damaged (same limit as libpcap and Wireshark), unless the capture states a
longer snap length: the kernel passes on TCP of 512 KiB before it is segmented."""
MAX_LARGE_BYTES = (1 << 20) - 64
"""Limit for any snap length: two headers and the bytes between fit the smallest window."""
MAX_WIRE_BYTES = 1 << 24
CLOCK_STEP_NS = 1_000_000_000
"""A larger backward step of time is a clock step, not disorder."""
_DAMAGES_NAMED = 8

# Slots of the state that a kernel reads and writes (int64).
POSITION = 0  # of the next record in the window
FRAMES = 1  # rows written
LAST_TIME = 2  # capture time of the last frame, ns
DISORDER = 3  # frames whose time is below the previous one's
CLOCK_STEPS = 4
SNAPPED = 5  # truncated frames
NEED = 6  # bytes needed from POSITION to continue
UNTIMED = 7  # frames of blocks without a time
UNSIZED = 8  # frames whose length on the wire the capture states as 0
INFINIBAND = 9  # ERF records of native InfiniBand
FRAMELESS = 10  # ERF records of other kinds that hold no frame
ERF_LOST = 11  # frames that the loss counters of ERF records count
STATE_SLOTS = 12
NO_TIME = -(1 << 63)

# Why a kernel stopped.
BATCH_FULL, NEED_BYTES, DAMAGED = range(3)


@inlined
def load32(data: Bytes, at: int, swapped: bool) -> int:
    """The u32 at `data[at:at + 4]`, little endian, or big endian if `swapped`.

    The index is unsigned so that numba emits no test for negative indices and LLVM merges the four
    loads.
    """
    i = np.uint64(at)
    a, b = np.int64(data[i]), np.int64(data[i + np.uint64(1)])
    c, d = np.int64(data[i + np.uint64(2)]), np.int64(data[i + np.uint64(3)])
    if swapped:
        return int(a << 24 | b << 16 | c << 8 | d)
    return int(d << 24 | c << 16 | b << 8 | a)


@inlined
def note_disorder(state: I64, backwards_ns: int) -> None:
    """Count a frame with a time `backwards_ns` below that of the previous frame."""
    state[DISORDER] += 1
    if backwards_ns > CLOCK_STEP_NS:
        state[CLOCK_STEPS] += 1


@dataclass(slots=True)
class Counts:
    """Counters of one capture, updated with every batch."""

    frames: int = 0
    out_of_order_frames: int = 0
    clock_steps: int = 0
    """Out-of-order frames more than one second back: the clock was set."""
    truncated_frames: int = 0
    skipped_frames: int = 0
    """Frames of interfaces with an unsupported link type."""
    damaged_places: int = 0
    """Number of impossible records."""
    cut_short: bool = False
    """The capture ends inside a record."""
    warnings: list[str] = field(default_factory=list)
    owner_comments: list[str] = field(default_factory=list)
    """Comments that name owners of queue pairs."""


class Framing(ABC):
    """Reads the records in a window as frame batches."""

    record = "record"
    """Name of a record in this format, for warnings."""

    def __init__(self, window: Window, name: str, batch_frames: int) -> None:
        self.counts = Counts()
        self._window = window
        self._name = name
        self._batch_frames = batch_frames
        self._state = np.zeros(STATE_SLOTS, np.int64)
        self._state[LAST_TIME] = NO_TIME
        self._first_time_ns: int | None = None

    @abstractmethod
    def _walk(self, columns: FrameColumns) -> int:
        """Read records from state[POSITION] and state[FRAMES] on; returns the reason it stopped."""

    @abstractmethod
    def _find(self, start: int) -> tuple[bool, int]:
        """Search the window from `start` for a place where valid records continue.

        Returns (True, place), or (False, first place that needs more bytes to judge).
        """

    @abstractmethod
    def _count(self, rows: int) -> None:
        """Add the `rows` frames just walked to the counts of their taps."""

    def _require_supported(self) -> None:
        """Raise UnreadableInput if there were frames and none has a supported link type."""
        if self.counts.frames and self.counts.skipped_frames == self.counts.frames:
            raise UnreadableInput(f"{self._name}: {self._why_skipped()}")

    def _why_skipped(self) -> str:
        """Why frames were skipped, with a remedy."""
        if self._state[INFINIBAND]:
            return why_unsupported(LINKTYPE_ERF)
        return (
            "its ERF records hold no Ethernet frame and no IP packet: capture on an Ethernet port"
        )

    def batches(self) -> Iterator[FrameBatch]:
        """All frames up to the end of the stream or to damage that cannot be skipped."""
        try:
            yield from self._walked()
        finally:  # also if the consumer stops early
            self._conclude()
        self._require_supported()

    def _walked(self) -> Iterator[FrameBatch]:
        going = True
        while going:
            self._window.refill()
            columns = empty_columns(self._batch_frames)
            reason = self._run(columns)
            if self._state[FRAMES]:
                yield self._batch(columns)
            del columns
            if reason == NEED_BYTES:
                going = self._advance(int(self._state[NEED]))
            elif reason == DAMAGED:
                going = self._recover(cut=False)

    def _run(self, columns: FrameColumns) -> int:
        """Fill `columns` from the window; moves its start to the next record."""
        state = self._state
        state[POSITION] = self._window.start
        state[FRAMES] = 0
        reason = self._walk(columns)
        self._window.start = int(state[POSITION])
        return reason

    @property
    def _new_clock_steps(self) -> int:
        """Clock steps of the frames just walked."""
        return int(self._state[CLOCK_STEPS]) - self.counts.clock_steps

    def _batch(self, columns: FrameColumns) -> FrameBatch:
        rows = int(self._state[FRAMES])
        counts = self.counts
        if self._first_time_ns is None:
            self._first_time_ns = int(columns.time_ns[0])
        self._count(rows)
        batch = FrameBatch(
            data=self._window.data[: self._window.end],
            **{name: column[:rows] for name, column in columns._asdict().items()},
            first_frame_number=counts.frames + 1,
            base_offset=self._window.base_offset,
        )
        counts.frames += rows
        counts.out_of_order_frames = int(self._state[DISORDER])
        counts.clock_steps = int(self._state[CLOCK_STEPS])
        counts.truncated_frames = int(self._state[SNAPPED])
        counts.skipped_frames = int(self._state[INFINIBAND] + self._state[FRAMELESS])
        return batch

    def _advance(self, need: int) -> bool:
        """Get `need` bytes from the window's start; False at the end of the capture."""
        window = self._window
        if need > window.capacity:  # a block of an unknown type
            place = window.position
            if not window.skip(need):
                self._cut(place)
                return False
            return True
        if window.ensure(need):
            return True
        return window.start < window.end and self._recover(cut=True)

    def _recover(self, cut: bool) -> bool:
        """Search for records after the unreadable one at the window's start.

        `cut`: the stream ends inside that record. False when none was found.
        """
        window = self._window
        bad = window.position
        window.start += 1
        while True:
            everything = window.at_end
            resumed, window.start = self._find(window.start)
            if resumed or everything:
                break
            window.ensure(window.end - window.start + 1)
        if resumed:
            self._damage(bad, f"{window.position - bad} bytes skipped")
        elif cut:
            self._cut(bad)
        else:
            self._damage(bad, f"no {self.record} found after it, reading ended there")
        return resumed

    def _cut(self, place: int) -> None:
        self.counts.cut_short = True
        self.counts.warnings.append(
            f"{self._name} ends inside the {self.record} at byte {place} (cut short):"
            " everything before it is reported"
        )

    def _damage(self, place: int, outcome: str) -> None:
        self.counts.damaged_places += 1
        if self.counts.damaged_places <= _DAMAGES_NAMED:
            self.counts.warnings.append(
                f"{self._name} is damaged: impossible {self.record} at byte {place}; {outcome}"
            )

    def _conclude(self) -> None:
        """Warnings that need the whole capture."""
        warnings = self.counts.warnings
        unnamed = self.counts.damaged_places - _DAMAGES_NAMED
        if unnamed > 0:
            warnings.append(f"{self._name} is damaged in {unnamed} more places")
        if unsized := int(self._state[UNSIZED]):
            warnings.append(
                f"{self._name}: {unsized} frames have 0 as their length on the wire; the captured"
                " length is used"
            )
        for slot, what in (
            (INFINIBAND, "of native InfiniBand"),
            (FRAMELESS, "without an Ethernet frame or IP packet"),
        ):
            if records := int(self._state[slot]):
                warnings.append(f"{self._name}: {records} ERF records {what} skipped")
