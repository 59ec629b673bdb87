"""Walks through the outer headers of a frame: nested mirrors and tunnels.

It records a trail of these headers, from which learning.py makes a pattern.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ...wire import frames
from ...wire.endpoints import IPV4_MAPPED
from ...wire.packets import I64, U8
from .. import outcomes
from .. import sessions as ses
from ..headers import link_and_ip
from ..headers.link_and_ip import ipv4, ipv6, link_layer
from ..headers.load import be16, be32, be64
from . import headers
from .headers import arista_timestamp, erspan, geneve, gre, link_type_of, mpls, vxlan

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
    STEPS,  # headers passed
    TRAIL,  # the first of them: kind << STEP_SHIFT | position
) = range(23)
N_FIELDS = TRAIL + 4 * (MAX_DEPTH + 1)  # link layer, IP, its payload, payload of GRE
STEP_SHIFT = 56

# Headers of the trail. UDP is part of the protocol of its port. PROBED: the payload of GRE, where a
# frame was searched for.
ETHERNET_STEP, SLL_STEP, SLL2_STEP, IP_LINK_STEP, IPV4_STEP, IPV6_STEP, MPLS_STEP = range(7)
TIMESTAMP_STEP, GRE_STEP, ERSPAN_2_STEP, ERSPAN_3_STEP, PROBED_STEP = range(7, 12)
VXLAN_STEP, GENEVE_STEP, ROCE_STEP, OTHER_STEP = range(12, 16)

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
    w[STEPS] = 0


@inlined
def _met(w: I64, kind: Int, at: Int) -> None:
    """Append a header to the trail."""
    w[np.uint64(TRAIL + w[STEPS])] = (kind << STEP_SHIFT) | at
    w[STEPS] += 1


@inlined
def _link_step(link_type: Int) -> Int:
    if link_type == frames.LINKTYPE_ETHERNET:
        return ETHERNET_STEP
    if link_type == frames.LINKTYPE_LINUX_SLL:
        return SLL_STEP
    return SLL2_STEP if link_type == frames.LINKTYPE_LINUX_SLL2 else IP_LINK_STEP


@inlined
def _network_step(ethertype: Int) -> Int:
    if ethertype == link_and_ip.ETHERTYPE_IPV4:
        return IPV4_STEP
    if ethertype == link_and_ip.ETHERTYPE_IPV6:
        return IPV6_STEP
    return TIMESTAMP_STEP if ethertype == link_and_ip.ETHERTYPE_TIMESTAMP else MPLS_STEP


@inlined
def _transport_step(protocol: Int, port: Int) -> Int:
    if protocol == link_and_ip.PROTOCOL_GRE:
        return GRE_STEP
    if protocol == link_and_ip.PROTOCOL_MPLS:
        return MPLS_STEP
    if port == link_and_ip.VXLAN_PORT:
        return VXLAN_STEP
    return GENEVE_STEP if port == link_and_ip.GENEVE_PORT else OTHER_STEP


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


@inlined
def _through_gre(w: I64, data: U8, at: Int, ip: Int, version: Int) -> Int:
    end = w[END]
    inner: Int
    inner, protocol, flags, key = gre(data, at, end)
    if inner <= 0:
        return inner
    keyed = ses.WITH_KEY if flags & headers.GRE_KEY else 0
    if (
        protocol == headers.TYPE_ERSPAN
        or protocol == headers.TYPE_ERSPAN_3
        or protocol == headers.TYPE_NVIDIA
    ):
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
        link_type: Int = frames.LINKTYPE_ETHERNET
        if is_ip:
            link_type = frames.LINKTYPE_RAW
        _enter(w, frame, link_type, 1)
        return STEPPED
    link_type = link_type_of(protocol)
    mirrored = 1
    if protocol == link_and_ip.ETHERTYPE_MPLS or protocol == link_and_ip.ETHERTYPE_MPLS_UPSTREAM:
        _met(w, MPLS_STEP, inner)
        inner, link_type = mpls(data, inner, end)
        if inner <= 0:
            return inner
    elif link_type < 0:
        return headers.NOT_OURS
    if link_type != frames.LINKTYPE_ETHERNET:
        mirrored = 0
    kind = ses.GRE_MIRROR if protocol == headers.TYPE_BRIDGED else ses.GRE_TUNNEL
    _session(w, data, ip, version, kind, keyed, key, at)
    _enter(w, inner, link_type, mirrored)
    return STEPPED


@inlined
def _through_udp(w: I64, data: U8, at: Int, ip: Int, version: Int, port: Int) -> Int:
    payload, end = at + link_and_ip.UDP_BYTES, w[END]
    if port == link_and_ip.VXLAN_PORT:
        inner, number = vxlan(data, payload, end)
        if inner <= 0:
            return inner
        _session(w, data, ip, version, ses.VXLAN, ses.NO_DIRECTION, number, payload)
        _enter(w, inner, frames.LINKTYPE_ETHERNET, 1)
        return STEPPED
    inner, protocol, number = geneve(data, payload, end)
    if inner <= 0:
        return inner
    link_type = link_type_of(protocol)
    if link_type < 0:
        return headers.NOT_OURS
    _session(w, data, ip, version, ses.GENEVE, ses.NO_DIRECTION, number, payload)
    mirrored = 0
    if link_type == frames.LINKTYPE_ETHERNET:
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
    if protocol == link_and_ip.PROTOCOL_UDP and w[END] - at >= link_and_ip.UDP_BYTES:
        port = be16(data, at + 2)
    roce = ports[np.uint64(port)] != 0
    _met(w, ROCE_STEP if roce else _transport_step(protocol, port), at)
    if protocol == link_and_ip.PROTOCOL_GRE:
        return _through_gre(w, data, at, ip, version)
    if (
        protocol == link_and_ip.PROTOCOL_IPV4
        or protocol == link_and_ip.PROTOCOL_IPV6
        or protocol == link_and_ip.PROTOCOL_ETHERNET
        or protocol == link_and_ip.PROTOCOL_MPLS
    ):
        link_type: Int = frames.LINKTYPE_ETHERNET
        inner: Int = at
        if protocol == link_and_ip.PROTOCOL_IPV4:
            link_type = frames.LINKTYPE_IPV4
        elif protocol == link_and_ip.PROTOCOL_IPV6:
            link_type = frames.LINKTYPE_IPV6
        elif protocol == link_and_ip.PROTOCOL_MPLS:
            inner, link_type = mpls(data, at, w[END])
            if inner <= 0:
                return inner
        w[SEEN] |= 1 << ses.IP_IN_IP
        if version == 6 and w[OUTER_IPV6] < 0:
            w[OUTER_IPV6] = ip
        _enter(w, inner, link_type, 0)
        return STEPPED
    if roce:
        return headers.NOT_OURS
    if port == link_and_ip.VXLAN_PORT or port == link_and_ip.GENEVE_PORT:
        return _through_udp(w, data, at, ip, version, port)
    w[AT] = at
    if port == link_and_ip.SFLOW_PORT:
        return SFLOW_DATAGRAM
    if port == link_and_ip.UET_PORT:
        return UET_PACKET
    return headers.NOT_OURS


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
        if w[LINK] == frames.LINKTYPE_ETHERNET:
            w[VLAN] = vlan
            w[VLAN_AT] = ip - 4 if tags > 0 else -1
        _met(w, _link_step(w[LINK]), w[BEGIN])
        _met(w, _network_step(ethertype), ip)
        step: Int = headers.NOT_OURS
        stop = w[END]
        if ethertype == link_and_ip.ETHERTYPE_IPV4 or ethertype == link_and_ip.ETHERTYPE_IPV6:
            version = 4
            if ethertype == link_and_ip.ETHERTYPE_IPV4:
                protocol, at, stop, fragment = ipv4(data, ip, w[END])
            else:
                version = 6
                protocol, at, stop, fragment = ipv6(data, ip, w[END])
            if protocol < 0:
                stop = w[END]
            elif fragment != link_and_ip.LATER:
                step = _through_ip(w, data, ip, at, stop, version, protocol, ports)
        elif (
            ethertype == link_and_ip.ETHERTYPE_MPLS
            or ethertype == link_and_ip.ETHERTYPE_MPLS_UPSTREAM
        ):
            inner, link_type = mpls(data, ip, w[END])
            step = inner
            if inner > 0:
                step = STEPPED
                w[SEEN] |= 1 << ses.MPLS
                _enter(w, inner, link_type, 0)
        elif ethertype == link_and_ip.ETHERTYPE_TIMESTAMP:
            inner, _, _ = arista_timestamp(data, ip, w[END])
            step = inner
            if inner > 0:
                step = STEPPED
                w[SEEN] |= 1 << ses.TIMESTAMP
                w[STAMP] = ARISTA_STAMP | ip
                # The twelve bytes before the frame's own EtherType take the place of its addresses.
                w[BEGIN] = inner - 12
                w[LINK] = frames.LINKTYPE_ETHERNET
                w[FRAME] = inner - 12
        if step == headers.NOT_OURS:
            if w[CUT]:
                w[STOP] = max(w[STOP], w[END], stop)
            return END_OF_WALK
        if step != STEPPED:
            return step
        w[DEPTH] += 1
        if w[DEPTH] > MAX_DEPTH:
            return -outcomes.TOO_DEEP
