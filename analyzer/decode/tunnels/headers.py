"""Headers of mirrors and tunnels: GRE, ERSPAN, VXLAN, Geneve, MPLS, Arista's timestamps.

Each function takes the position of its header and the end of the captured bytes of the outer
packet. It returns first the position of the payload, or minus an outcome (outcomes.py), or NOT_OURS
if the header has another use.

Sources: RFC 2784, 2890 (GRE), draft-foschiano-erspan-03, RFC 7348, RFC 8926, RFC 3032, 4385 (MPLS).
Where the mirrors of switches deviate, several offsets are tried.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ...wire.frames import LINKTYPE_ETHERNET, LINKTYPE_IPV4, LINKTYPE_IPV6
from ...wire.packets import U8
from ..headers import link_and_ip
from ..headers.link_and_ip import ipv4, link_layer
from ..headers.load import be16, be32, byte
from ..outcomes import BAD_ERSPAN, BAD_GENEVE, BAD_GRE, BAD_MPLS, BAD_TIMESTAMP, TRUNCATED_TUNNEL

NOT_OURS = 0
"""0 is free: no payload begins at the first byte of a frame."""

GRE_CHECKSUM, GRE_ROUTING, GRE_KEY, GRE_SEQUENCE = 0x8000, 0x4000, 0x2000, 0x1000
GRE_VERSION = 0x0007
TYPE_BRIDGED = 0x6558
TYPE_ERSPAN = 0x88BE
TYPE_ERSPAN_3 = 0x22EB
TYPE_NVIDIA = 0x8949
MAX_LABELS = 16
PROBED_OFFSETS = (0, 4, 8, 12, 20, 22)
"""Offsets of the frame after headers that switches send in place of ERSPAN."""


@inlined
def gre(data: U8, at: Int, end: Int) -> tuple[Int, Int, Int, Int]:
    """(position of the payload, its protocol, flags, key or 0)."""
    if end - at < 4:
        return -TRUNCATED_TUNNEL, 0, 0, 0
    flags = be16(data, at)
    protocol = be16(data, at + 2)
    if flags & GRE_VERSION:
        return NOT_OURS, protocol, flags, 0  # version 1 is PPTP
    if flags & GRE_ROUTING:
        return -BAD_GRE, protocol, flags, 0  # source routes: removed by RFC 2784
    at += 4
    if flags & GRE_CHECKSUM:
        at += 4
    key: Int = 0
    if flags & GRE_KEY:
        if end - at < 4:
            return -TRUNCATED_TUNNEL, protocol, flags, 0
        key = be32(data, at)
        at += 4
    if flags & GRE_SEQUENCE:
        at += 4
    if at > end:
        return -TRUNCATED_TUNNEL, protocol, flags, key
    return at, protocol, flags, key


KNOWN_ETHERTYPES: Final = (
    link_and_ip.ETHERTYPE_IPV4,
    link_and_ip.ETHERTYPE_IPV6,
    link_and_ip.ETHERTYPE_ROCE_V1,
    link_and_ip.ETHERTYPE_MAC_CONTROL,
    link_and_ip.ETHERTYPE_MPLS,
    link_and_ip.ETHERTYPE_MPLS_UPSTREAM,
    link_and_ip.ETHERTYPE_TIMESTAMP,
    link_and_ip.ETHERTYPE_VLAN,
    link_and_ip.ETHERTYPE_QINQ,
    link_and_ip.ETHERTYPE_QINQ_OLD,
)
"""`looks_like_a_frame` rejects all other types."""


@subkernel
def looks_like_a_frame(data: U8, at: Int, end: Int) -> bool:
    """Whether an Ethernet frame with an EtherType of RoCE networks can begin here."""
    ethertype, ip, _, _ = link_layer(data, at, end, LINKTYPE_ETHERNET)
    if ethertype == link_and_ip.ETHERTYPE_IPV4:
        return _looks_like_ipv4(data, ip, end)
    if ethertype == link_and_ip.ETHERTYPE_IPV6 or ethertype == link_and_ip.ETHERTYPE_ROCE_V1:
        return bool(end - ip >= 1 and byte(data, ip) >> 4 == 6)
    if ethertype == link_and_ip.ETHERTYPE_MAC_CONTROL:
        return bool(be32(data, at) == 0x0180C200)
    return bool(
        ethertype == link_and_ip.ETHERTYPE_MPLS
        or ethertype == link_and_ip.ETHERTYPE_MPLS_UPSTREAM
        or ethertype == link_and_ip.ETHERTYPE_TIMESTAMP
    )


@inlined
def _looks_like_ipv4(data: U8, at: Int, end: Int) -> bool:
    if end - at < 20:
        return False
    protocol, _, _, _ = ipv4(data, at, end)
    return bool(protocol >= 0)


@inlined
def erspan(
    data: U8, at: Int, end: Int, protocol: Int, flags: Int
) -> tuple[Int, Int, Int, Int, Int, Int, Int]:
    """ERSPAN of every type, and what switches send under the same protocol numbers.

    (position of the mirrored frame, type 1 to 3 or 0, session, truncated, position of the header of
    type III or 0, frame is IP without Ethernet, direction bit). If the header that GRE announces is
    missing, the known offsets of switches are tried; the first with a plausible frame counts.
    """
    if protocol == TYPE_ERSPAN_3:
        if end - at < 12:
            return -TRUNCATED_TUNNEL, 3, 0, 0, 0, 0, 0
        word, last = be32(data, at), be16(data, at + 10)
        frame_type = (last >> 10) & 0x1F
        inner = at + (20 if last & 1 else 12)
        if word >> 28 == 2 and (frame_type == 0 or frame_type == 2):
            if inner > end:
                return -TRUNCATED_TUNNEL, 3, 0, 0, 0, 0, 0
            cut = (word >> 10) & 1
            return inner, 3, word & 0x3FF, cut, at, frame_type >> 1, (last >> 3) & 1
        return -BAD_ERSPAN, 3, 0, 0, 0, 0, 0
    if protocol == TYPE_ERSPAN and flags & GRE_SEQUENCE:
        if end - at < 8:
            return -TRUNCATED_TUNNEL, 2, 0, 0, 0, 0, 0
        word = be32(data, at)
        if word >> 28 == 1 and (
            looks_like_a_frame(data, at + 8, end) or not looks_like_a_frame(data, at, end)
        ):
            return at + 8, 2, word & 0x3FF, (word >> 10) & 1, 0, 0, 0
    for offset in PROBED_OFFSETS:
        if looks_like_a_frame(data, at + offset, end):
            return at + offset, 1 if protocol == TYPE_ERSPAN else 0, 0, 0, 0, 0, 0
    if protocol == TYPE_ERSPAN and not flags & GRE_SEQUENCE:
        return at, 1, 0, 0, 0, 0, 0  # type I with a frame of another protocol
    if protocol == TYPE_ERSPAN:
        return -BAD_ERSPAN, 2, 0, 0, 0, 0, 0
    return NOT_OURS, 0, 0, 0, 0, 0, 0


@inlined
def vxlan(data: U8, at: Int, end: Int) -> tuple[Int, Int]:
    """(position of the Ethernet frame, VNI)."""
    if end - at < 8:
        return -TRUNCATED_TUNNEL, 0
    if byte(data, at) & 0x08 == 0:
        return NOT_OURS, 0
    return at + 8, be32(data, at + 4) >> 8


@inlined
def geneve(data: U8, at: Int, end: Int) -> tuple[Int, Int, Int]:
    """(position of the payload, its protocol, VNI)."""
    if end - at < 8:
        return -TRUNCATED_TUNNEL, 0, 0
    first = byte(data, at)
    if first >> 6 != 0:
        return NOT_OURS, 0, 0
    inner = at + 8 + (first & 0x3F) * 4
    if byte(data, at + 1) & 0x80:
        return NOT_OURS, 0, 0  # a control message
    if inner > end:
        return -BAD_GENEVE, 0, 0
    return inner, be16(data, at + 2), be32(data, at + 4) >> 8


@inlined
def mpls(data: U8, at: Int, end: Int) -> tuple[Int, Int]:
    """(position of the packet after the label stack, its link type).

    The stack does not name its payload: an IP header, or the Ethernet frame of a pseudowire with or
    without control word (RFC 4928: their first nibbles differ).
    """
    labels = 0
    while True:
        if end - at < 4:
            return -TRUNCATED_TUNNEL, 0
        bottom = byte(data, at + 2) & 1
        at += 4
        labels += 1
        if bottom:
            break
        if labels == MAX_LABELS:
            return -BAD_MPLS, 0
    if end - at < 1:
        return -TRUNCATED_TUNNEL, 0
    nibble = byte(data, at) >> 4
    if nibble == 4 and (end - at < 20 or _looks_like_ipv4(data, at, end)):
        return at, LINKTYPE_IPV4
    if nibble == 0 and looks_like_a_frame(data, at + 4, end):
        return at + 4, LINKTYPE_ETHERNET
    if looks_like_a_frame(data, at, end):
        return at, LINKTYPE_ETHERNET
    if nibble == 6:
        return at, LINKTYPE_IPV6
    return -BAD_MPLS, 0


@inlined
def arista_timestamp(data: U8, at: Int, end: Int) -> tuple[Int, Int, Int]:
    """(position of the frame's own EtherType, seconds, nanoseconds); `at` is after 0xD28B.

    Subtype 1, then version 0x10 (32 bits of seconds) or 0x20 (16 bits of seconds), from the
    vendor's descriptions, not verified on a switch.
    """
    if end - at < 4:
        return -TRUNCATED_TUNNEL, 0, 0
    subtype, version = be16(data, at), be16(data, at + 2)
    if subtype != 1 or (version != 0x10 and version != 0x20):
        return -BAD_TIMESTAMP, 0, 0
    at += 4
    wide = 4 if version == 0x10 else 2
    if end - at < wide + 4 + 2:
        return -TRUNCATED_TUNNEL, 0, 0
    seconds = be32(data, at) if wide == 4 else be16(data, at)
    return at + wide + 4, seconds, be32(data, at + wide)


@inlined
def link_type_of(protocol: Int) -> Int:
    """Link type of an EtherType that a tunnel names; -1 for protocols that are not decoded."""
    if protocol == TYPE_BRIDGED:
        return np.int64(LINKTYPE_ETHERNET)
    if protocol == link_and_ip.ETHERTYPE_IPV4:
        return np.int64(LINKTYPE_IPV4)
    if protocol == link_and_ip.ETHERTYPE_IPV6:
        return np.int64(LINKTYPE_IPV6)
    return np.int64(-1)
