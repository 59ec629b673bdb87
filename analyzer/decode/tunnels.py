"""The walk through the outer headers of mirrors and tunnels to the inner frame."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...kernels.kernel import Int, inlined, subkernel
from ..wire import packets
from ..wire.packets import I64, LINKTYPE_ETHERNET, LINKTYPE_IPV4, LINKTYPE_IPV6, U8
from ..wire.registry import IPV4_MAPPED
from . import headers, outcomes
from . import sessions as ses
from .headers import be16, be32, be64, byte, ipv4, ipv6, link_layer
from .outcomes import BAD_ERSPAN, BAD_GENEVE, BAD_GRE, BAD_MPLS, BAD_TIMESTAMP, TRUNCATED_TUNNEL

# Headers of mirrors, tunnels and tags: GRE, ERSPAN, VXLAN, Geneve, MPLS, NSH, GTP-U, tags of port
# extenders, Arista's timestamps.
#
# Each function takes the position of its header and the end of the captured bytes of the outer
# packet. It returns first the position of the payload, or minus an outcome (outcomes.py), or
# NOT_OURS if the header has another use.
#
# Sources: RFC 2784, 2890 (GRE), draft-foschiano-erspan-03, RFC 7348, draft-ietf-nvo3-vxlan-gpe,
# RFC 8926, RFC 3032, 4385, 7510 (MPLS), RFC 8300 (NSH), 3GPP TS 29.281 (GTP-U), RFC 6325 (TRILL),
# 802.1BR, 802.1CB, 802.1ah; VN-Tag, FabricPath and Cisco metadata as tshark reads them. Where the
# mirrors of switches deviate, several offsets are tried.

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
    headers.ETHERTYPE_IPV4,
    headers.ETHERTYPE_IPV6,
    headers.ETHERTYPE_ROCE_V1,
    headers.ETHERTYPE_MAC_CONTROL,
    headers.ETHERTYPE_MPLS,
    headers.ETHERTYPE_MPLS_UPSTREAM,
    headers.ETHERTYPE_TIMESTAMP,
    headers.ETHERTYPE_VLAN,
    headers.ETHERTYPE_QINQ,
    headers.ETHERTYPE_QINQ_OLD,
    headers.ETHERTYPE_QINQ_OLD_2,
    headers.ETHERTYPE_QINQ_OLD_3,
)
"""`looks_like_a_frame` rejects all other types."""


@subkernel
def looks_like_a_frame(data: U8, at: Int, end: Int) -> bool:
    """Whether an Ethernet frame with an EtherType of RoCE networks can begin here."""
    ethertype, ip, _, _ = link_layer(data, at, end, LINKTYPE_ETHERNET)
    if ethertype == headers.ETHERTYPE_IPV4:
        return _looks_like_ipv4(data, ip, end)
    if ethertype == headers.ETHERTYPE_IPV6 or ethertype == headers.ETHERTYPE_ROCE_V1:
        return bool(end - ip >= 1 and byte(data, ip) >> 4 == 6)
    if ethertype == headers.ETHERTYPE_MAC_CONTROL:
        return bool(be32(data, at) == 0x0180C200)
    return bool(
        ethertype == headers.ETHERTYPE_MPLS
        or ethertype == headers.ETHERTYPE_MPLS_UPSTREAM
        or ethertype == headers.ETHERTYPE_TIMESTAMP
    )


@inlined
def _looks_like_ipv4(data: U8, at: Int, end: Int) -> bool:
    if end - at < 20:
        return False
    protocol, _, _, _ = ipv4(data, at, end, at)
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
def looks_like_vxlan(data: U8, at: Int, end: Int) -> bool:
    """Whether the payload of a datagram to any port is VXLAN around an IP packet.

    Linux, and with it flannel, uses port 8472 unless told otherwise.
    """
    if end - at < 8 + 14 + 20 or byte(data, at) & 0x0F != 0x08 or byte(data, at + 7) != 0:
        return False
    ethertype, ip, _, _ = link_layer(data, at + 8, end, LINKTYPE_ETHERNET)
    if ethertype == headers.ETHERTYPE_IPV4:
        return _looks_like_ipv4(data, ip, end)
    return bool(ethertype == headers.ETHERTYPE_IPV6 and end - ip >= 1 and byte(data, ip) >> 4 == 6)


@inlined
def vxlan_gpe(data: U8, at: Int, end: Int) -> tuple[Int, Int, Int]:
    """(position of the payload, its EtherType, VNI)."""
    if end - at < 8:
        return -TRUNCATED_TUNNEL, 0, 0
    flags = byte(data, at)
    if flags & 0x09 != 0x08:
        return NOT_OURS, 0, 0  # no VNI, or a packet of operations
    protocol: Int = TYPE_BRIDGED
    if flags & 0x04:
        protocol = next_protocol(byte(data, at + 3), headers.ETHERTYPE_NSH, 5)
    return at + 8, protocol, be32(data, at + 4) >> 8


@inlined
def next_protocol(number: Int, fourth: Int, mpls: Int) -> Int:
    """The EtherType of a protocol number of VXLAN-GPE or NSH, -1 for others.

    fourth: what number 4 stands for; mpls: the number of MPLS.
    """
    if number == 1:
        return headers.ETHERTYPE_IPV4
    if number == 2:
        return headers.ETHERTYPE_IPV6
    if number == 3:
        return TYPE_BRIDGED
    if number == 4:
        return fourth
    return headers.ETHERTYPE_MPLS if number == mpls else -1


@inlined
def nsh(data: U8, at: Int, end: Int) -> tuple[Int, Int]:
    """(position of the payload, its EtherType)."""
    if end - at < 8:
        return -TRUNCATED_TUNNEL, 0
    head = be16(data, at)
    length = (head & 0x3F) * 4
    if head >> 14 != 0 or length < 8:
        return NOT_OURS, 0
    if length > end - at:
        return -TRUNCATED_TUNNEL, 0
    return at + length, next_protocol(byte(data, at + 3), -1, 5)


@inlined
def gtp(data: U8, at: Int, end: Int) -> tuple[Int, Int]:
    """(position of the user's IP packet, its link type)."""
    if end - at < 8:
        return -TRUNCATED_TUNNEL, 0
    flags = byte(data, at)
    if flags & 0xF0 != 0x30 or byte(data, at + 1) != 0xFF:
        return NOT_OURS, 0  # another version, or signalling
    inner = at + 8
    if flags & 0x07:
        inner += 4
        kind: Int = 0
        if flags & 0x04 and inner <= end:
            kind = byte(data, inner - 1)
        while kind != 0 and inner < end:
            length = byte(data, inner) * 4
            if length == 0:
                return NOT_OURS, 0
            inner += length
            kind = byte(data, inner - 1) if inner <= end else 0
    if inner >= end:
        return -TRUNCATED_TUNNEL, 0
    nibble = byte(data, inner) >> 4
    if nibble == 4:
        return inner, LINKTYPE_IPV4
    return (inner, LINKTYPE_IPV6) if nibble == 6 else (NOT_OURS, 0)


@inlined
def tag(data: U8, ethertype: Int, at: Int, end: Int) -> tuple[Int, Int]:
    """(position of the EtherType after a tag, kind of the tag); `at` is after the tag's own."""
    kind: Int = ses.REDUNDANCY_TAG
    size: Int = 4
    if ethertype == headers.ETHERTYPE_VN_TAG:
        kind = ses.VN_TAG
    elif ethertype == headers.ETHERTYPE_E_TAG:
        kind, size = ses.E_TAG, 6
    elif ethertype == headers.ETHERTYPE_CISCO_METADATA:
        kind, size = ses.CISCO_METADATA, 6
    if end - at < size + 2:
        return -TRUNCATED_TUNNEL, kind
    if kind == ses.CISCO_METADATA and be16(data, at) != 0x0101:
        return NOT_OURS, kind  # another version, or more than one option
    return at + size, kind


@inlined
def backbone(data: U8, ethertype: Int, at: Int, end: Int) -> Int:
    """Position of the frame after the header of FabricPath, TRILL or 802.1ah."""
    if ethertype == headers.ETHERTYPE_FABRICPATH:
        return at + 2
    if ethertype == headers.ETHERTYPE_PBB:
        return at + 4
    if end - at < 6:
        return -TRUNCATED_TUNNEL
    head = be16(data, at)
    return NOT_OURS if head >> 14 != 0 else at + 6 + ((head >> 6) & 0x1F) * 4


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
    if protocol == headers.ETHERTYPE_IPV4:
        return np.int64(LINKTYPE_IPV4)
    if protocol == headers.ETHERTYPE_IPV6:
        return np.int64(LINKTYPE_IPV6)
    return np.int64(-1)


# Walks through the outer headers of a frame: nested mirrors and tunnels.
#
# It records a trail of these headers, from which tunnel_patterns.py makes a pattern.

MAX_DEPTH = 8
"""Nested encapsulations; real networks have two or three."""

# State of the walk over a frame, int64[N_FIELDS].
(
    BEGIN,  # position of the innermost frame or packet
    END,  # end of its captured bytes
    STOP,  # its end on the wire, as far as the outer headers show
    LINK,  # its link type
    FRAME,  # position of the innermost Ethernet frame: what crossed the observed wire
    VLAN,  # TCI of that frame if `LINK` is IP
    VLAN_AT,  # position of that TCI, -1 for none
    OUTER_IPV6,  # outermost IPv6 header of that frame that carries a packet; -1 for none
    KIND,  # of the session, 0 for none; see sessions.py
    DIRECTION,
    NUMBER,
    SOURCE_HIGH,
    SOURCE_LOW,
    SOURCE_AT,  # position of the IP header with the source of the session
    SESSION_AT,  # position of the header that names the session
    CUT,  # the mirror marks the frame as cut
    STAMP,  # position of the header with a hardware timestamp, -1 for none
    DEPTH,  # encapsulations so far
    AT,  # position of the UDP header of a datagram identified by its port
    SEEN,  # bits of the kinds of encapsulations
    RATE,  # one frame in N is sampled, 0 for all
    ETHERNET,  # position of the Ethernet header on the observed wire, -1 for none
    STEPS,  # headers passed
    TRAIL,  # the first of them: kind << STEP_SHIFT | position
) = range(24)
N_FIELDS = TRAIL + 5 * (MAX_DEPTH + 1)  # link layer, IP, its payload, payload of GRE, of NSH
STEP_SHIFT = 56

# Headers of the trail. UDP is part of the protocol of its port. PROBED: the payload of GRE, where a
# frame was searched for.
ETHERNET_STEP, SLL_STEP, SLL2_STEP, IP_LINK_STEP, IPV4_STEP, IPV6_STEP, MPLS_STEP = range(7)
TIMESTAMP_STEP, GRE_STEP, ERSPAN_2_STEP, ERSPAN_3_STEP, PROBED_STEP = range(7, 12)
VXLAN_STEP, GENEVE_STEP, ROCE_STEP, OTHER_STEP = range(12, 16)
VXLAN_LIKE_STEP, VXLAN_GPE_STEP, UDP_STEP, GTP_STEP, NSH_STEP = range(16, 21)
TAG_STEP, E_TAG_STEP, CISCO_METADATA_STEP, BACKBONE_STEP = range(21, 25)

STEPPED, SFLOW_DATAGRAM, UET_PACKET, END_OF_WALK = 1, 2, 3, 4
"""Result of a step or of the whole walk; below 0: minus the outcome."""
ERSPAN_3_STAMP, ARISTA_STAMP = 0, 1 << 62
"""Added to STAMP: the kind of header."""


@inlined
def begin_walk(w: I64, at: Int, end: Int, stop: Int, link_type: Int) -> None:
    w[BEGIN] = at
    w[END] = end
    w[STOP] = stop
    w[LINK] = link_type
    w[FRAME] = at
    w[VLAN] = 0
    w[VLAN_AT] = -1
    w[OUTER_IPV6] = -1
    w[KIND] = 0
    w[CUT] = 0
    w[STAMP] = -1
    w[DEPTH] = 0
    w[SEEN] = 0
    w[RATE] = 0
    w[ETHERNET] = at if link_type == LINKTYPE_ETHERNET else -1
    w[STEPS] = 0


@inlined
def _met(w: I64, kind: Int, at: Int) -> None:
    """Append a header to the trail."""
    w[np.uint64(TRAIL + w[STEPS])] = (kind << STEP_SHIFT) | at
    w[STEPS] += 1


@inlined
def _link_step(link_type: Int) -> Int:
    if link_type == packets.LINKTYPE_ETHERNET:
        return ETHERNET_STEP
    if link_type == packets.LINKTYPE_LINUX_SLL:
        return SLL_STEP
    return SLL2_STEP if link_type == packets.LINKTYPE_LINUX_SLL2 else IP_LINK_STEP


@inlined
def _network_step(ethertype: Int) -> Int:
    if ethertype == headers.ETHERTYPE_IPV4:
        return IPV4_STEP
    if ethertype == headers.ETHERTYPE_IPV6:
        return IPV6_STEP
    if ethertype == headers.ETHERTYPE_TIMESTAMP:
        return TIMESTAMP_STEP
    if ethertype == headers.ETHERTYPE_MPLS or ethertype == headers.ETHERTYPE_MPLS_UPSTREAM:
        return MPLS_STEP
    if is_tag(ethertype):
        if ethertype == headers.ETHERTYPE_E_TAG:
            return E_TAG_STEP
        return CISCO_METADATA_STEP if ethertype == headers.ETHERTYPE_CISCO_METADATA else TAG_STEP
    return BACKBONE_STEP if is_backbone(ethertype) else OTHER_STEP


@inlined
def is_tag(ethertype: Int) -> bool:
    return bool(
        ethertype == headers.ETHERTYPE_VN_TAG
        or ethertype == headers.ETHERTYPE_E_TAG
        or ethertype == headers.ETHERTYPE_CISCO_METADATA
        or ethertype == headers.ETHERTYPE_HSR
        or ethertype == headers.ETHERTYPE_R_TAG
    )


@inlined
def is_backbone(ethertype: Int) -> bool:
    return bool(
        ethertype == headers.ETHERTYPE_FABRICPATH
        or ethertype == headers.ETHERTYPE_TRILL
        or ethertype == headers.ETHERTYPE_PBB
    )


@inlined
def _transport_step(data: U8, at: Int, end: Int, protocol: Int, port: Int) -> Int:
    if protocol == headers.PROTOCOL_GRE:
        return GRE_STEP
    if protocol == headers.PROTOCOL_MPLS:
        return MPLS_STEP
    if port == headers.VXLAN_PORT:
        return VXLAN_STEP
    if port == headers.GENEVE_PORT:
        return GENEVE_STEP
    if port == headers.VXLAN_GPE_PORT:
        return VXLAN_GPE_STEP
    if port == headers.MPLS_PORT:
        return UDP_STEP
    if port == headers.GTP_PORT:
        return GTP_STEP
    if port == 0 or port == headers.SFLOW_PORT or port == headers.UET_PORT:
        return OTHER_STEP
    vxlan_like = looks_like_vxlan(data, at + headers.UDP_BYTES, end)
    return VXLAN_LIKE_STEP if vxlan_like else OTHER_STEP


@inlined
def _session(
    w: I64, data: U8, ip: Int, version: Int, kind: Int, direction: Int, n: Int, at: Int
) -> None:
    """The innermost mirror names the session, else the outermost tunnel.

    at: position of the header with the number `n`.
    """
    w[SEEN] |= 1 << kind
    if kind >= ses.FIRST_WEAK and w[KIND] != 0:
        return
    w[SOURCE_AT] = ip
    w[SESSION_AT] = at
    w[KIND] = kind
    w[DIRECTION] = direction
    w[NUMBER] = n
    if version == 4:
        w[SOURCE_HIGH] = 0
        w[SOURCE_LOW] = IPV4_MAPPED | be32(data, ip + 12)
    else:
        w[SOURCE_HIGH] = np.int64(be64(data, ip + 8))
        w[SOURCE_LOW] = np.int64(be64(data, ip + 16))


@inlined
def _enter(w: I64, at: Int, link_type: Int, mirrored: Int) -> None:
    """Continue with the frame or packet at `at`; mirrored: it is a frame of another wire."""
    w[BEGIN] = at
    w[LINK] = link_type
    if mirrored:
        w[FRAME] = at
        w[VLAN] = 0
        w[VLAN_AT] = -1
        w[OUTER_IPV6] = -1


@subkernel
def _payload(w: I64, data: U8, at: Int, protocol: Int) -> tuple[Int, Int]:
    """(position, link type) of what a tunnel names by its EtherType; first as in `gre`."""
    if protocol == headers.ETHERTYPE_NSH:
        _met(w, NSH_STEP, at)
        at, protocol = nsh(data, at, w[END])
        if at <= 0:
            return at, np.int64(0)
        w[SEEN] |= 1 << ses.NSH
    if protocol == headers.ETHERTYPE_MPLS or protocol == headers.ETHERTYPE_MPLS_UPSTREAM:
        _met(w, MPLS_STEP, at)
        return mpls(data, at, w[END])
    link_type = link_type_of(protocol)
    return (NOT_OURS if link_type < 0 else at), link_type


@inlined
def _through_gre(w: I64, data: U8, at: Int, ip: Int, version: Int) -> Int:
    end = w[END]
    inner: Int
    inner, protocol, flags, key = gre(data, at, end)
    if inner <= 0:
        return inner
    keyed = ses.WITH_KEY if flags & GRE_KEY else 0
    if protocol == TYPE_ERSPAN or protocol == TYPE_ERSPAN_3 or protocol == TYPE_NVIDIA:
        frame, kind, number, cut, header, is_ip, direction = erspan(
            data, inner, end, protocol, flags
        )
        if frame <= 0:
            return frame
        if kind == 0:
            _session(w, data, ip, version, ses.GRE_MIRROR, keyed, key, at)
        else:
            way = ses.NO_DIRECTION
            if kind == 3:
                way = ses.INGRESS + direction
            _session(w, data, ip, version, kind, way, number, inner)
        met = PROBED_STEP
        if kind == 2:
            met = ERSPAN_2_STEP
        elif kind == 3:
            met = ERSPAN_3_STEP
        _met(w, met, inner)
        w[CUT] = cut
        if header > 0:
            w[STAMP] = ERSPAN_3_STAMP | header
        link_type: Int = packets.LINKTYPE_ETHERNET
        if is_ip:
            link_type = packets.LINKTYPE_RAW
        _enter(w, frame, link_type, 1)
        w[ETHERNET] = frame if link_type == LINKTYPE_ETHERNET else -1
        return STEPPED
    inner, link_type = _payload(w, data, inner, protocol)
    if inner <= 0:
        return inner
    mirrored = 1
    if link_type != packets.LINKTYPE_ETHERNET:
        mirrored = 0
    kind = ses.GRE_MIRROR if protocol == TYPE_BRIDGED else ses.GRE_TUNNEL
    _session(w, data, ip, version, kind, keyed, key, at)
    _enter(w, inner, link_type, mirrored)
    if kind == ses.GRE_MIRROR:
        w[ETHERNET] = inner
    return STEPPED


@inlined
def _through_udp(w: I64, data: U8, at: Int, ip: Int, version: Int, step: Int) -> Int:
    payload, end = at + headers.UDP_BYTES, w[END]
    inner: Int
    link_type: Int
    protocol: Int
    if step == VXLAN_STEP or step == VXLAN_LIKE_STEP:
        inner, number = vxlan(data, payload, end)
        if inner <= 0:
            return inner
        _session(w, data, ip, version, ses.VXLAN, ses.NO_DIRECTION, number, payload)
        _enter(w, inner, packets.LINKTYPE_ETHERNET, 1)
        return STEPPED
    if step == UDP_STEP or step == GTP_STEP:
        kind = ses.MPLS
        if step == UDP_STEP:
            _met(w, MPLS_STEP, payload)
            inner, link_type = mpls(data, payload, end)
        else:
            kind = ses.GTP
            inner, link_type = gtp(data, payload, end)
        if inner <= 0:
            return inner
        w[SEEN] |= 1 << kind
        _enter(w, inner, link_type, 0)
        return STEPPED
    kind = ses.GENEVE
    if step == GENEVE_STEP:
        inner, protocol, number = geneve(data, payload, end)
    else:
        kind = ses.VXLAN
        inner, protocol, number = vxlan_gpe(data, payload, end)
    if inner <= 0:
        return inner
    inner, link_type = _payload(w, data, inner, protocol)
    if inner <= 0:
        return inner
    _session(w, data, ip, version, kind, ses.NO_DIRECTION, number, payload)
    mirrored = 0
    if link_type == packets.LINKTYPE_ETHERNET:
        mirrored = 1
    _enter(w, inner, link_type, mirrored)
    return STEPPED


@inlined
def _through_ip(
    w: I64, data: U8, ip: Int, at: Int, stop: Int, version: Int, protocol: Int, ports: U8
) -> Int:
    """One step into an IP packet: STEPPED, or how the walk ends (NOT_OURS: here)."""
    w[END] = min(w[END], stop)
    w[STOP] = min(w[STOP], stop)
    port: Int = 0
    if protocol == headers.PROTOCOL_UDP and w[END] - at >= headers.UDP_BYTES:
        port = be16(data, at + 2)
    roce = ports[np.uint64(port)] != 0
    met: Int = ROCE_STEP
    if not roce:
        met = _transport_step(data, at, w[END], protocol, port)
    _met(w, met, at)
    if protocol == headers.PROTOCOL_GRE:
        return _through_gre(w, data, at, ip, version)
    if (
        protocol == headers.PROTOCOL_IPV4
        or protocol == headers.PROTOCOL_IPV6
        or protocol == headers.PROTOCOL_ETHERNET
        or protocol == headers.PROTOCOL_MPLS
    ):
        link_type: Int = packets.LINKTYPE_ETHERNET
        inner: Int = at
        if protocol == headers.PROTOCOL_IPV4:
            link_type = packets.LINKTYPE_IPV4
        elif protocol == headers.PROTOCOL_IPV6:
            link_type = packets.LINKTYPE_IPV6
        elif protocol == headers.PROTOCOL_MPLS:
            inner, link_type = mpls(data, at, w[END])
            if inner <= 0:
                return inner
        w[SEEN] |= 1 << ses.IP_IN_IP
        if version == 6 and w[OUTER_IPV6] < 0:
            w[OUTER_IPV6] = ip
        _enter(w, inner, link_type, 0)
        return STEPPED
    if roce:
        return NOT_OURS
    if met != OTHER_STEP:
        return _through_udp(w, data, at, ip, version, met)
    w[AT] = at
    if port == headers.SFLOW_PORT:
        return SFLOW_DATAGRAM
    if port == headers.UET_PORT:
        return UET_PACKET
    return NOT_OURS


@subkernel
def walk(data: U8, w: I64, ports: U8) -> Int:
    """Walk from `w[BEGIN]` to the innermost frame or packet; END_OF_WALK etc., or an outcome.

    It judges only the headers of encapsulations. The decoder judges the innermost frame like any
    other.
    """
    while True:
        ethertype, ip, vlan, tags = link_layer(data, w[BEGIN], w[END], w[LINK])
        if ethertype < 0:
            return END_OF_WALK
        if w[LINK] == packets.LINKTYPE_ETHERNET:
            w[VLAN] = vlan
            w[VLAN_AT] = ip - 4 if tags > 0 else -1
        _met(w, _link_step(w[LINK]), w[BEGIN])
        if ethertype != headers.ETHERTYPE_NSH:
            _met(w, _network_step(ethertype), ip)
        step: Int = NOT_OURS
        stop = w[END]
        if ethertype == headers.ETHERTYPE_IPV4 or ethertype == headers.ETHERTYPE_IPV6:
            version = 4
            if ethertype == headers.ETHERTYPE_IPV4:
                protocol, at, stop, fragment = ipv4(data, ip, w[END], max(w[END], w[STOP]))
            else:
                version = 6
                protocol, at, stop, fragment = ipv6(data, ip, w[END], max(w[END], w[STOP]))
            if protocol < 0:
                stop = w[END]
            elif fragment != headers.LATER:
                step = _through_ip(w, data, ip, at, stop, version, protocol, ports)
        elif ethertype == headers.ETHERTYPE_MPLS or ethertype == headers.ETHERTYPE_MPLS_UPSTREAM:
            inner, link_type = mpls(data, ip, w[END])
            step = inner
            if inner > 0:
                step = STEPPED
                w[SEEN] |= 1 << ses.MPLS
                _enter(w, inner, link_type, 0)
        elif ethertype == headers.ETHERTYPE_NSH:
            step, link_type = _payload(w, data, ip, ethertype)
            if step > 0:
                _enter(w, step, link_type, 0)
                step = STEPPED
        elif is_backbone(ethertype):
            step = backbone(data, ethertype, ip, w[END])
            if step > 0:
                w[SEEN] |= 1 << ses.BACKBONE
                _enter(w, step, packets.LINKTYPE_ETHERNET, 0)
                step = STEPPED
        elif is_tag(ethertype):
            inner, kind = tag(data, ethertype, ip, w[END])
            step = inner
            if inner > 0:
                step = STEPPED
                w[SEEN] |= 1 << kind
                link_type = link_type_of(be16(data, inner))
                if link_type >= 0 and link_type != LINKTYPE_ETHERNET:
                    _enter(w, inner + 2, link_type, 0)
                else:  # as after a timestamp; the frame, with the tag, begins where it did
                    _enter(w, inner - 12, packets.LINKTYPE_ETHERNET, 0)
        elif ethertype == headers.ETHERTYPE_TIMESTAMP:
            inner, _, _ = arista_timestamp(data, ip, w[END])
            step = inner
            if inner > 0:
                step = STEPPED
                w[SEEN] |= 1 << ses.TIMESTAMP
                w[STAMP] = ARISTA_STAMP | ip
                # The twelve bytes before the frame's own EtherType take the place of its addresses.
                w[BEGIN] = inner - 12
                w[LINK] = packets.LINKTYPE_ETHERNET
                w[FRAME] = inner - 12
        if step == NOT_OURS:
            if w[CUT]:
                w[STOP] = max(w[STOP], w[END], stop)
            return END_OF_WALK
        if step != STEPPED:
            return step
        w[DEPTH] += 1
        if w[DEPTH] > MAX_DEPTH:
            return -outcomes.TOO_DEEP
