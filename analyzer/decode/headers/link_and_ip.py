"""Decodes the link layer and IP, up to the transport header.

Each function checks the captured length before it reads and returns a tuple; a negative first
member is minus the outcome (outcomes.py) of a frame that cannot be read further.

Sources: IEEE 802.1Q, tcpdump.org/linktypes.html, RFC 791, RFC 8200.
"""

from __future__ import annotations

from ....kernels.kernel import Int, inlined
from ...wire import frames
from ...wire.packets import U8
from ..outcomes import BAD_IP_HEADER, BAD_VLAN, TRUNCATED_IP, TRUNCATED_LINK, UNKNOWN_LINK_TYPE
from .load import be16, byte

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_ROCE_V1 = 0x8915
ETHERTYPE_MAC_CONTROL = 0x8808
ETHERTYPE_MPLS, ETHERTYPE_MPLS_UPSTREAM = 0x8847, 0x8848
ETHERTYPE_TIMESTAMP = 0xD28B  # Arista's, between the addresses and the frame's own EtherType
ETHERTYPE_VLAN = 0x8100
ETHERTYPE_QINQ = 0x88A8
ETHERTYPE_QINQ_OLD = 0x9100  # before 802.1ad, still found on switches
MAX_VLAN_TAGS = 4

PROTOCOL_UDP = 17
PROTOCOL_IB = 0x1B
PROTOCOL_IPV4, PROTOCOL_IPV6, PROTOCOL_GRE = 4, 41, 47
PROTOCOL_MPLS, PROTOCOL_ETHERNET = 137, 143  # RFC 4023, RFC 8986
UDP_BYTES = 8
VXLAN_PORT, GENEVE_PORT, SFLOW_PORT, UET_PORT = 4789, 6081, 6343, 4793
HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS = 0, 43, 44, 60
MAX_EXTENSION_HEADERS = 8

# Fragment states.
WHOLE, FIRST, LATER = 0, 1, 2


@inlined
def may_carry_frames(ethertype: Int, protocol: Int, port: Int) -> bool:
    """Whether a frame other than RoCE may be encapsulated.

    Arguments: EtherType, IP protocol (0 without) and UDP destination port (0 without).
    """
    return bool(
        protocol in (PROTOCOL_GRE, PROTOCOL_IPV4, PROTOCOL_IPV6, PROTOCOL_MPLS, PROTOCOL_ETHERNET)
        or port in (VXLAN_PORT, GENEVE_PORT, SFLOW_PORT, UET_PORT)
        or ethertype in (ETHERTYPE_MPLS, ETHERTYPE_MPLS_UPSTREAM, ETHERTYPE_TIMESTAMP)
    )


@inlined
def link_layer(data: U8, at: Int, end: Int, link_type: Int) -> tuple[Int, Int, Int, Int]:
    """(EtherType, where its payload begins, innermost TCI, VLAN tags) of a frame."""
    if link_type == frames.LINKTYPE_ETHERNET:
        if end - at < 14:
            return -TRUNCATED_LINK, at, 0, 0
        ethertype = be16(data, at + 12)
        at += 14
    elif link_type == frames.LINKTYPE_LINUX_SLL:
        if end - at < 16:
            return -TRUNCATED_LINK, at, 0, 0
        ethertype = be16(data, at + 14)
        at += 16
    elif link_type == frames.LINKTYPE_LINUX_SLL2:
        if end - at < 20:
            return -TRUNCATED_LINK, at, 0, 0
        ethertype = be16(data, at)
        at += 20
    elif link_type == frames.LINKTYPE_IPV4:
        return ETHERTYPE_IPV4, at, 0, 0
    elif link_type == frames.LINKTYPE_IPV6:
        return ETHERTYPE_IPV6, at, 0, 0
    elif link_type == frames.LINKTYPE_RAW:
        if end - at < 1:
            return -TRUNCATED_IP, at, 0, 0
        version = byte(data, at) >> 4
        if version == 4:
            return ETHERTYPE_IPV4, at, 0, 0
        if version == 6:
            return ETHERTYPE_IPV6, at, 0, 0
        return -BAD_IP_HEADER, at, 0, 0
    else:
        return -UNKNOWN_LINK_TYPE, at, 0, 0
    vlan: Int = 0
    tags = 0
    while ethertype in (ETHERTYPE_VLAN, ETHERTYPE_QINQ, ETHERTYPE_QINQ_OLD):
        if tags == MAX_VLAN_TAGS:
            return -BAD_VLAN, at, vlan, tags
        if end - at < 4:
            return -TRUNCATED_LINK, at, vlan, tags
        vlan = be16(data, at)
        ethertype = be16(data, at + 2)
        at += 4
        tags += 1
    return ethertype, at, vlan, tags


@inlined
def ipv4(data: U8, at: Int, end: Int) -> tuple[Int, Int, Int, Int]:
    """(protocol, where its header begins, where the IP packet ends, fragment state)."""
    if end - at < 20:
        return -TRUNCATED_IP, at, at, WHOLE
    version_length = byte(data, at)
    header_bytes = (version_length & 0x0F) * 4
    total_bytes = be16(data, at + 2)
    if version_length >> 4 != 4 or header_bytes < 20 or total_bytes < header_bytes:
        return -BAD_IP_HEADER, at, at, WHOLE
    if end - at < header_bytes:
        return -TRUNCATED_IP, at, at, WHOLE
    fragment = be16(data, at + 6)
    state = WHOLE
    if fragment & 0x1FFF:
        state = LATER
    elif fragment & 0x2000:
        state = FIRST
    return byte(data, at + 9), at + header_bytes, at + total_bytes, state


@inlined
def ipv6(data: U8, at: Int, end: Int) -> tuple[Int, Int, Int, Int]:
    """As `ipv4`; also the GRH of RoCEv1, which has the same layout."""
    if end - at < 40:
        return -TRUNCATED_IP, at, at, WHOLE
    if byte(data, at) >> 4 != 6:
        return -BAD_IP_HEADER, at, at, WHOLE
    stop = at + 40 + be16(data, at + 4)
    protocol = byte(data, at + 6)
    at += 40
    state = WHOLE
    seen = 0
    while (
        protocol == HOP_BY_HOP
        or protocol == ROUTING
        or protocol == DESTINATION_OPTIONS
        or protocol == FRAGMENT
    ):
        if seen == MAX_EXTENSION_HEADERS:
            return -BAD_IP_HEADER, at, stop, state
        if end - at < 8:
            return -TRUNCATED_IP, at, stop, state
        length = 8
        if protocol == FRAGMENT:
            fragment = be16(data, at + 2)
            if fragment & 0xFFF8:
                # The middle of a datagram follows, not a header.
                return byte(data, at), at + 8, stop, LATER
            if fragment & 1:
                state = FIRST
        else:
            length = (byte(data, at + 1) + 1) * 8
        if end - at < length:
            return -TRUNCATED_IP, at, stop, state
        protocol = byte(data, at)
        at += length
        seen += 1
    if at > stop:
        return -BAD_IP_HEADER, at, stop, state
    return protocol, at, stop, state
