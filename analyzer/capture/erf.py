"""ERF: the records of Endace's cards and of ibdump, which hold Ethernet frames or InfiniBand.

A record is a header (timestamp, type, flags, lengths, loss counter), extension headers of eight
bytes, for Ethernet two bytes of padding, and the frame. Source: Endace, "EDM11-01 ERF types";
Wireshark's wiretap/erf.c.
"""

from __future__ import annotations

from ...kernels.kernel import Bytes, subkernel
from ..wire.packets import I64, LINKTYPE_ETHERNET, LINKTYPE_RAW, FrameColumns
from . import framing

HEADER_BYTES = 16
_EXTENSION_BYTES = 8
_MORE = 0x80
"""Bit of a type: an extension header follows."""
_FCS_BYTES = 4

# Types of records. Those of Ethernet differ in what their loss counter holds.
ETHERNET, COLOR_ETHERNET, DSM_COLOR_ETHERNET, COLOR_HASH_ETHERNET = 2, 11, 16, 20
INFINIBAND, IPV4, IPV6, INFINIBAND_LINK = 21, 22, 23, 25


@subkernel
def open_record(data: Bytes, columns: FrameColumns, row: int, state: I64) -> None:
    """Replace the record in this row by its frame; a record without a frame keeps no bytes."""
    at = columns.offset[row]
    held = int(columns.captured[row])
    columns.captured[row] = 0
    if held < HEADER_BYTES:
        state[framing.FRAMELESS] += 1
        return
    kind = data[at + 8] & ~_MORE
    if kind == INFINIBAND or kind == INFINIBAND_LINK:
        state[framing.INFINIBAND] += 1
        return
    ethernet = (
        kind == ETHERNET
        or kind == COLOR_ETHERNET
        or kind == DSM_COLOR_ETHERNET
        or kind == COLOR_HASH_ETHERNET
    )
    if not ethernet and kind != IPV4 and kind != IPV6:
        state[framing.FRAMELESS] += 1
        return
    length = int(data[at + 10]) << 8 | int(data[at + 11])
    on_wire = int(data[at + 14]) << 8 | int(data[at + 15])
    stop = at + min(held, length)
    begin = at + HEADER_BYTES
    more = data[at + 8] & _MORE
    while more and begin + _EXTENSION_BYTES <= stop:
        more = data[begin] & _MORE
        begin += _EXTENSION_BYTES
    begin += 2 if ethernet else 0
    if kind == ETHERNET or kind == IPV4 or kind == IPV6:
        state[framing.ERF_LOST] += int(data[at + 12]) << 8 | int(data[at + 13])
    frame_bytes = min(max(stop - begin, 0), on_wire)
    columns.offset[row] = min(begin, stop)
    columns.captured[row] = frame_bytes
    # The length on the wire counts the frame check sequence, which few records hold.
    columns.wire[row] = max(on_wire - _FCS_BYTES if ethernet else on_wire, frame_bytes)
    columns.link_type[row] = LINKTYPE_ETHERNET if ethernet else LINKTYPE_RAW
