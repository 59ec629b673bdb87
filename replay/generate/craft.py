"""Headers of mirrors and tunnels, crafted by scapy, for `generate --mirror`.

The only module that imports scapy, which is GPL-2.0 and an optional package.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Final

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.spec import Options, parse_options
from .outer import NO_FIELD, Outer

_DEFAULTS: Final = {"src": "192.0.2.1", "dst": "192.0.2.2", "session": "1", "vlan": "0"}
_MOST: Final = {
    "gre": (1 << 32) - 1,
    "erspan1": 0,
    "erspan2": 1023,
    "erspan3": 1023,
    "vxlan": (1 << 24) - 1,
    "geneve": (1 << 24) - 1,
}
"""Largest session: GRE key, ERSPAN session or network identifier; type I has none."""


def outer_headers(text: str) -> Outer:
    """The headers of `erspan3:session=7,src=10.9.0.1,dst=10.9.0.2,vlan=100`.

    Kinds: gre, erspan1, erspan2, erspan3, vxlan, geneve; addresses select IPv4 or
    IPv6; vlan is the outer tag, 0 for none. UsageError names the mistake.
    """
    kind, _, rest = text.partition(":")
    if kind not in _MOST:
        raise UsageError(f"--mirror: there is no {kind!r}; there are {', '.join(_MOST)}")
    given = parse_options(rest, "--mirror", len(kind) + 2)
    given.check_known(_DEFAULTS, "--mirror has no option")
    options = given.with_defaults(_DEFAULTS)
    if kind == "erspan1" and "session" in given:
        raise UsageError("--mirror: ERSPAN type I has no session")
    session = options.whole("session", most=_MOST[kind]) if kind != "erspan1" else 0
    return _crafted(kind, session, options)


def _crafted(kind: str, session: int, options: Options) -> Outer:
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Dot1Q, Ether

    try:
        src, dst = ip_address(options["src"]), ip_address(options["dst"])
    except ValueError as error:
        raise UsageError(f"--mirror: {error}") from None
    if src.version != dst.version:
        raise UsageError("--mirror: src and dst must both be IPv4 or both IPv6")
    link = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    vlan = options.whole("vlan", most=4094)
    if vlan:
        link /= Dot1Q(vlan=vlan)
    if src.version == 4:
        network = link / IP(src=str(src), dst=str(dst), ttl=255, flags="DF", id=0)
    else:
        network = link / IPv6(src=str(src), dst=str(dst), hlim=255)
    inside = _inside(kind, session)
    packet = network / inside
    # scapy adds nothing after the last header: the frame follows it.
    data = np.frombuffer(bytes(packet), np.uint8)
    network_at = len(bytes(link))
    payload_at = len(data) - len(bytes(inside))
    return Outer(
        data=data.copy(),
        network_at=network_at,
        ipv6=src.version == 6,
        udp_at=payload_at if UDP in packet else NO_FIELD,
        sequence_at=payload_at + 4 if kind in ("erspan2", "erspan3") else NO_FIELD,
        stamp_at=len(data) - 8 if kind == "erspan3" else NO_FIELD,
    )


def _inside(kind: str, session: int) -> Any:
    """What follows the IP header."""
    from scapy.contrib.erspan import ERSPAN_II, ERSPAN_III
    from scapy.contrib.geneve import GENEVE
    from scapy.layers.inet import UDP
    from scapy.layers.l2 import GRE
    from scapy.layers.vxlan import VXLAN

    if kind == "gre":
        return GRE(proto=0x6558, key_present=1, key=session)
    if kind == "vxlan":
        return UDP(sport=49152, dport=4789, chksum=0) / VXLAN(vni=session, flags="Instance")
    if kind == "geneve":
        return UDP(sport=49152, dport=6081, chksum=0) / GENEVE(vni=session, proto=0x6558)
    if kind == "erspan1":
        return GRE(proto=0x88BE)
    if kind == "erspan2":
        tunnel = GRE(proto=0x88BE, seqnum_present=1, sequence_number=0)
        return tunnel / ERSPAN_II(session_id=session)
    tunnel = GRE(proto=0x22EB, seqnum_present=1, sequence_number=0)
    return tunnel / ERSPAN_III(session_id=session, gra=1)  # stamps of 100 ns
