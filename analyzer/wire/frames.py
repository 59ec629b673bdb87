"""Batches of frames from a capture source for the decoder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...kernels.kernel import Bytes, Ints, UInt16s, UInt32s
from ...kernels.records import NamedTuple

# Link types (https://www.tcpdump.org/linktypes.html) the decoder understands.
LINKTYPE_ETHERNET = 1
LINKTYPE_RAW = 101
LINKTYPE_LINUX_SLL = 113
LINKTYPE_IPV4 = 228
LINKTYPE_IPV6 = 229
LINKTYPE_LINUX_SLL2 = 276
SUPPORTED_LINK_TYPES = frozenset(
    (
        LINKTYPE_ETHERNET,
        LINKTYPE_RAW,
        LINKTYPE_LINUX_SLL,
        LINKTYPE_IPV4,
        LINKTYPE_IPV6,
        LINKTYPE_LINUX_SLL2,
    )
)


class FrameColumns(NamedTuple):
    """The columns of a `FrameBatch` as one argument of a kernel."""

    offset: Ints
    captured: UInt32s
    wire: UInt32s
    time_ns: Ints
    tap: UInt16s
    link_type: UInt16s


def empty_columns(rows: int) -> FrameColumns:
    """Uninitialised rows for a kernel to fill."""
    types = (np.int64, np.uint32, np.uint32, np.int64, np.uint16, np.uint16)
    return FrameColumns._make(np.empty(rows, t) for t in types)


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Frames in one byte buffer, in capture order.

    Every `offset[i] + captured[i]` is inside `data`; the source of the batch has checked this, and
    the decoder relies on it.
    """

    data: Bytes
    """The buffer: a mapped file, a decompressed window, a ring buffer."""
    offset: Ints
    """Offset of each frame in `data`, bytes."""
    captured: UInt32s
    """Bytes of each frame that `data` holds."""
    wire: UInt32s
    """Bytes of each frame on the wire, as the capture states them."""
    time_ns: Ints
    """Capture time, nanoseconds since the Unix epoch."""
    tap: UInt16s
    """Vantage point of each frame: index into `Taps`."""
    link_type: UInt16s
    """LINKTYPE_ value of each frame."""
    first_frame_number: int
    """Number of the first frame in its capture, from 1; the rest follow."""
    base_offset: int
    """Position of `data[0]` in the uncompressed capture, bytes."""

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def columns(self) -> FrameColumns:
        """Offsets to link types, for kernels."""
        return FrameColumns._make(getattr(self, name) for name in FrameColumns._fields)
