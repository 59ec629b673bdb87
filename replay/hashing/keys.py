"""Header fields that a switch may hash, one row per placement unit, and the hash input.

A placement unit is a one-way flow, or one entropy value of a sprayed flow: one hash
value places it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

import numpy as np
from numpy.typing import ArrayLike

from ...analyzer.errors import UsageError
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...kernels.kernel import Array, Bools, Bytes, Ints, NamedTuple, UInt16s, UInt32s

_UDP = 17
_MAPPED = bytes(10) + b"\xff\xff"


class PacketKeys(NamedTuple):
    """Equally long columns, one row per placement unit."""

    src: Bytes
    """uint8[n, 16]: source address, IPv4 as ::ffff:a.b.c.d."""
    dst: Bytes
    """uint8[n, 16]: destination address."""
    ipv6: Bools
    """bool[n]: the packets are IPv6."""
    protocol: Bytes
    """uint8[n]: IP protocol or IPv6 next header, 17 for RoCEv2."""
    sport: UInt16s
    """uint16[n]: UDP source port."""
    dport: UInt16s
    """uint16[n]: UDP destination port."""
    flow_label: UInt32s
    """uint32[n]: IPv6 flow label, 0 for IPv4."""
    dest_qp: UInt32s
    """uint32[n]: BTH destination queue pair number."""

    @property
    def units(self) -> int:
        """Number of placement units (len() of a tuple is its number of columns)."""
        return len(self.sport)

    def take(self, rows: Array) -> PacketKeys:
        """The chosen rows (indices or a mask)."""
        return PacketKeys._make(column[rows] for column in self)


def packet_keys(
    src: Sequence[str],
    dst: Sequence[str],
    sport: ArrayLike,
    dport: ArrayLike = ROCE_UDP_PORT,
    flow_label: ArrayLike = 0,
    dest_qp: ArrayLike = 0,
    protocol: ArrayLike = _UDP,
) -> PacketKeys:
    """Keys of addresses as text; a number stands for a whole column.

    UsageError for an invalid address or a pair of different address families.
    """
    n = len(src)
    sources, destinations = addresses(src), addresses(dst)
    ipv6 = _is_ipv6(sources)
    if (ipv6 != _is_ipv6(destinations)).any():
        row = int(np.flatnonzero(ipv6 != _is_ipv6(destinations))[0])
        raise UsageError(f"{src[row]} and {dst[row]} are not of the same address family")

    def column(values: ArrayLike, dtype: type[np.generic]) -> Array:
        return np.broadcast_to(np.asarray(values, dtype), (n,)).copy()

    return PacketKeys(
        sources,
        destinations,
        ipv6,
        column(protocol, np.uint8),
        column(sport, np.uint16),
        column(dport, np.uint16),
        column(flow_label, np.uint32),
        column(dest_qp, np.uint32),
    )


def addresses(texts: Sequence[str]) -> Bytes:
    """uint8[n, 16] of addresses as text, IPv4 as ::ffff:a.b.c.d."""
    packed = bytearray()
    for text in texts:
        try:
            address = ip_address(text)
        except ValueError:
            raise UsageError(f"{text} is not an IP address") from None
        packed += address.packed if isinstance(address, IPv6Address) else _MAPPED + address.packed
    return np.frombuffer(bytes(packed), np.uint8).reshape(-1, 16)


def address_of(packed: Bytes) -> IPv4Address | IPv6Address:
    """One row of `addresses`."""
    address = IPv6Address(packed.tobytes())
    return address.ipv4_mapped or address


def address_text(packed: Bytes) -> str:
    """The text of one row of `addresses`."""
    return str(address_of(packed))


def _is_ipv6(packed: Bytes) -> Bools:
    mapped = np.frombuffer(_MAPPED, np.uint8)
    different: Bools = (packed[:, :12] != mapped).any(axis=1)
    return different


def symmetric(keys: PacketKeys) -> PacketKeys:
    """Keys that are equal for both directions of a flow.

    The lower address goes first and, independently, the lower port, both
    compared in network byte order.
    """
    unequal = keys.src != keys.dst
    first = np.argmax(unequal, axis=1)[:, None]
    swap = np.take_along_axis(keys.src, first, 1) > np.take_along_axis(keys.dst, first, 1)
    return keys._replace(
        src=np.where(swap, keys.dst, keys.src),
        dst=np.where(swap, keys.src, keys.dst),
        sport=np.minimum(keys.sport, keys.dport),
        dport=np.maximum(keys.sport, keys.dport),
    )


FIELD_SETS = {
    "3-tuple": ("src", "dst", "protocol"),
    "4-tuple": ("src", "dst", "sport", "dport"),
    "5-tuple": ("src", "dst", "protocol", "sport", "dport"),
}
"""Named field sets, in the order their bytes are hashed. RSS hashes the 4-tuple."""

FIELDS = ("src", "dst", "protocol", "sport", "dport", "flow-label", "ingress", "qpn")
"""Single fields of a field set, in addition to `udp[offset:length]`."""

_UDP_BYTES = re.compile(r"udp\[(\d+):(\d+)\]")
_KNOWN_UDP_BYTES = {0: ("sport", 0), 1: ("sport", 1), 2: ("dport", 0), 3: ("dport", 1)} | {
    13 + i: ("qpn", i) for i in range(3)
}


def parse_field_set(text: str) -> tuple[str, ...]:
    """The fields of a set such as "5-tuple+qpn" or "src+dst+udp[13:3]".

    `udp[offset:length]` counts from the UDP header, as switches configure
    user-defined fields (udp[13:3] is the destination QPN). UsageError names
    an unknown field.
    """
    fields: list[str] = []
    for part in re.split(r"\s*[+,]\s*", text.strip()):
        if part in FIELD_SETS:
            fields += FIELD_SETS[part]
        elif part in FIELDS:
            fields.append(part)
        elif match := _UDP_BYTES.fullmatch(part):
            _check_udp_bytes(part, int(match[1]), int(match[2]))
            fields.append(part)
        else:
            known = ", ".join([*FIELD_SETS, *FIELDS])
            raise UsageError(f"unknown hash field {part!r}: use {known} or udp[offset:length]")
    return tuple(fields)


def _check_udp_bytes(part: str, offset: int, length: int) -> None:
    if not length or any(i not in _KNOWN_UDP_BYTES for i in range(offset, offset + length)):
        raise UsageError(
            f"{part} contains bytes that differ between packets of a flow: "
            "only udp[0:4] (ports) and udp[13:3] (destination QPN) can be hashed"
        )


class KeyBytes(NamedTuple):
    """The input of a hash."""

    data: Bytes
    """uint8[n, L]: the fields in network byte order, zero after the length of the row."""
    lengths: Ints
    """int64[n]: bytes of each row; IPv4 and IPv6 rows differ."""


def fields_matrix(
    keys: PacketKeys, field_set: str, ingress_port: ArrayLike | None = None
) -> KeyBytes:
    """The byte string of every unit: IPv4 addresses have 4 bytes, IPv6 ones 16.

    `flow-label` has 3 bytes, `qpn` 3, `ingress` 2 (big-endian). `ingress_port`
    is one number for all units or one per unit. UsageError if the field set
    contains the ingress port and none is given.
    """
    fields = parse_field_set(field_set)
    if "ingress" in fields and ingress_port is None:
        raise UsageError("the field set hashes the ingress port, which is not known here")
    rows_of = [np.flatnonzero(~keys.ipv6), np.flatnonzero(keys.ipv6)]
    ports = np.asarray(0 if ingress_port is None else ingress_port, np.uint16)
    ingress = np.broadcast_to(ports, (keys.units,))
    parts = [
        np.concatenate([_field(keys.take(rows), f, ingress[rows], family) for f in fields], axis=1)
        for family, rows in enumerate(rows_of)
    ]
    longest = max(
        (p.shape[1] for p, rows in zip(parts, rows_of, strict=True) if len(rows)), default=0
    )
    data = np.zeros((keys.units, longest), np.uint8)
    lengths = np.zeros(keys.units, np.int64)
    for part, rows in zip(parts, rows_of, strict=True):
        if len(rows):
            data[rows, : part.shape[1]] = part
            lengths[rows] = part.shape[1]
    return KeyBytes(data, lengths)


def _field(keys: PacketKeys, name: str, ingress: UInt16s, family: int) -> Bytes:
    """uint8[n, bytes] of one field."""
    if match := _UDP_BYTES.fullmatch(name):
        wanted = range(int(match[1]), int(match[1]) + int(match[2]))
        columns = [
            _field(keys, field, ingress, family)[:, byte]
            for field, byte in (_KNOWN_UDP_BYTES[i] for i in wanted)
        ]
        return np.stack(columns, axis=1)
    if name in ("src", "dst"):
        address = keys.src if name == "src" else keys.dst
        return address if family else address[:, 12:]
    values, size = {
        "protocol": (keys.protocol, 1),
        "sport": (keys.sport, 2),
        "dport": (keys.dport, 2),
        "flow-label": (keys.flow_label, 3),
        "ingress": (ingress, 2),
        "qpn": (keys.dest_qp, 3),
    }[name]
    big_endian = np.ascontiguousarray(values, ">u4").view(np.uint8).reshape(-1, 4)
    return big_endian[:, 4 - size :]
