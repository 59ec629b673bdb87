"""The fields of the filter language: their columns and when they are present.

Names are those of Wireshark where it has the field (`infiniband.bth.psn`), plus short names. As in
Wireshark, a comparison with an absent field is false, and the bare name of a field tests whether it
is present.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..decode.grants import GRANT_COLUMN, GrantColumn
from ..decode.mrc import CC_STATE, METH, NETH, SETH
from ..wire import bth, packets
from ..wire.packets import PacketTable

Mask: TypeAlias = NDArray[np.bool_]
Values: TypeAlias = Callable[[PacketTable], NDArray[Any]]
Presence: TypeAlias = Callable[[PacketTable], Mask]


class Kind(Enum):
    """How the values of a field are written and compared."""

    NUMBER = auto()
    ADDRESS = auto()
    TIME = auto()
    OPCODE = auto()
    NAMED = auto()
    TAP = auto()
    FLAG = auto()
    RANK = auto()
    COMM = auto()


OF_JOBS = (Kind.RANK, Kind.COMM)
"""Kinds of fields that `Ranks` gives, not the packet."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the filter language."""

    name: str
    kind: Kind
    values: tuple[Values, ...]
    """Columns or values computed from them; two for fields that occur twice, such as `ip.addr`."""
    present: Presence
    meaning: str
    bits: int = 0
    """Width of a NUMBER."""
    names: tuple[str, ...] = ()
    """Names of the values of a NAMED field, by value."""
    of_job: tuple[str, ...] = ()
    """Columns of `Ranks` of a RANK or COMM field, which has no `values`."""


def _always(table: PacketTable) -> Mask:
    return np.ones(len(table), np.bool_)


def _equal(values: NDArray[Any], wanted: int) -> Mask:
    mask: Mask = values == wanted
    return mask


def _flag(bit: int) -> Presence:
    return lambda table: _equal(table.decode_flags & bit, bit)


def _not_flag(bit: int) -> Presence:
    return lambda table: _equal(table.decode_flags & bit, 0)


def _is_ipv6(table: PacketTable) -> Mask:
    return _equal(table.decode_flags & (packets.IPV6 | packets.ROCE_V1), packets.IPV6)


def _is_ipv4(table: PacketTable) -> Mask:
    return _equal(table.decode_flags & (packets.IPV6 | packets.ROCE_V1), 0)


def _tagged(table: PacketTable) -> Mask:
    return ~_equal(table.vlan, 0)


def _column(name: str, shift: int = 0, mask: int | None = None) -> Values:
    def values(table: PacketTable) -> NDArray[Any]:
        column: NDArray[Any] = getattr(table, name)
        if shift:
            column = column >> column.dtype.type(shift)
        return column if mask is None else column & column.dtype.type(mask)

    return values


def _bit(mask: int) -> Values:
    return lambda table: ((table.bth_flags & mask) != 0).astype(np.uint8)


def _acknowledges(kind: int) -> Presence:
    has_syndrome = _has_syndrome(kind)

    def present(table: PacketTable) -> Mask:
        carries = (bth.OPCODE_CLASS[table.opcode] & bth.ACKNOWLEDGE) != 0
        mask: Mask = has_syndrome(table) & carries
        return mask

    return present


def _has_syndrome(kind: int) -> Presence:
    def present(table: PacketTable) -> Mask:
        has_aeth = (table.decode_flags & packets.HAS_AETH) != 0
        return has_aeth & _equal((table.aeth >> 24) & bth.SYNDROME_KIND_MASK, kind)

    return present


def _syndrome(bits: int, at: int) -> Values:
    return _column("aeth", 24 + at, (1 << bits) - 1)


def _udp_protocol(table: PacketTable) -> NDArray[Any]:
    return np.full(len(table), 17, np.uint8)


def _is_cnp(table: PacketTable) -> Mask:
    return _equal(table.opcode >> 5, bth.CNP)


def _transport(table: PacketTable) -> NDArray[Any]:
    kinds: NDArray[Any] = bth.TRANSPORT_OF[table.opcode]
    return kinds


def _is_mrc(table: PacketTable) -> Mask:
    return _equal(_transport(table), bth.MRC)


def _of_records(side: str, name: str) -> Values:
    """A field of the rows with a record `side` of the table, 0 of all others."""

    def values(table: PacketTable) -> NDArray[Any]:
        column = np.zeros(len(table), np.int64)
        records = getattr(table, side)
        if records is not None:
            column[records["row"]] = records[name]
        return column

    return values


def _has_record(side: str, tells: Callable[[NDArray[Any]], Any]) -> Presence:
    """The rows whose record `side` tells something."""

    def present(table: PacketTable) -> Mask:
        column = np.zeros(len(table), np.bool_)
        records = getattr(table, side)
        if records is not None:
            column[records["row"]] = tells(records)
        return column

    return present


def _of_mrc(name: str) -> Values:
    return _of_records("mrc", name)


def _has_mrc(headers: int) -> Presence:
    """Whether one of these MRC headers was decoded; 0: every MRC packet."""
    return _has_record("mrc", lambda mrc: mrc["present"] & headers != 0 if headers else True)


def _grant(name: str, bits: int, column: GrantColumn, meaning: str) -> Field:
    values = _of_records("grants", column.name)
    present = _has_record("grants", lambda grants: grants[column.name] != column.unknown)
    return _number(name, bits, values, f"NCCL's grant: {meaning}", present)


def _number(
    name: str, bits: int, values: Values | tuple[Values, ...], meaning: str, present: Presence
) -> Field:
    several = values if isinstance(values, tuple) else (values,)
    return Field(name, Kind.NUMBER, several, present, meaning, bits)


def _addresses(name: str, which: str, meaning: str, present: Presence) -> Field:
    columns = {"src": ("src",), "dst": ("dst",), "addr": ("src", "dst")}[which]
    return Field(name, Kind.ADDRESS, tuple(map(_column, columns)), present, meaning)


def _presence(name: str, present: Presence, meaning: str) -> Field:
    values: Values = lambda table: present(table).astype(np.uint8)  # noqa: E731
    return Field(name, Kind.FLAG, (values,), present, meaning)


def _of_job(name: str, kind: Kind, columns: tuple[str, ...], meaning: str) -> Field:
    return Field(name, kind, (), _always, meaning, bits=31, of_job=columns)


_SPORT, _DPORT = _column("udp_sport"), _column("udp_dport")
_DSCP, _ECN = _column("traffic_class", 2), _column("traffic_class", mask=3)
_UDP = _not_flag(packets.ROCE_V1)

TRANSPORTS = bth.TRANSPORT_NAMES
ICRC_STATES = ("unchecked", "good", "bad", "truncated")

_WIRESHARK = (
    _number(
        "frame.number", 63, _column("frame_number"), "frame number in the capture, from 1", _always
    ),
    _number("frame.len", 32, _column("wire_bytes"), "bytes on the wire", _always),
    _number("frame.cap_len", 32, _column("captured_bytes"), "bytes captured", _always),
    Field("frame.time_epoch", Kind.TIME, (_column("time_ns"),), _always, "seconds since 1970"),
    _presence("vlan", _tagged, "has a VLAN tag"),
    _number("vlan.id", 12, _column("vlan", mask=0xFFF), "innermost VLAN", _tagged),
    _number("vlan.priority", 3, _column("vlan", 13), "priority of the innermost VLAN tag", _tagged),
    _presence("ip", _is_ipv4, "IPv4"),
    _number("ip.proto", 8, _udp_protocol, "IPv4 protocol: always 17, UDP", _is_ipv4),
    _addresses("ip.src", "src", "IPv4 source", _is_ipv4),
    _addresses("ip.dst", "dst", "IPv4 destination", _is_ipv4),
    _addresses("ip.addr", "addr", "IPv4 source or destination", _is_ipv4),
    _number("ip.ttl", 8, _column("hop_limit"), "IPv4 time to live", _is_ipv4),
    _number("ip.id", 16, _column("ip_id"), "IPv4 identification", _is_ipv4),
    _number("ip.dsfield", 8, _column("traffic_class"), "IPv4 DSCP and ECN", _is_ipv4),
    _number("ip.dsfield.dscp", 6, _DSCP, "IPv4 DSCP", _is_ipv4),
    _number("ip.dsfield.ecn", 2, _ECN, "IPv4 ECN: 1 ECT(1), 2 ECT(0), 3 CE", _is_ipv4),
    _presence("ipv6", _is_ipv6, "IPv6"),
    _addresses("ipv6.src", "src", "IPv6 source", _is_ipv6),
    _addresses("ipv6.dst", "dst", "IPv6 destination", _is_ipv6),
    _addresses("ipv6.addr", "addr", "IPv6 source or destination", _is_ipv6),
    _number("ipv6.hlim", 8, _column("hop_limit"), "IPv6 hop limit", _is_ipv6),
    _number("ipv6.flow", 20, _column("flow_label"), "IPv6 flow label", _is_ipv6),
    _number("ipv6.tclass", 8, _column("traffic_class"), "IPv6 traffic class", _is_ipv6),
    _number("ipv6.tclass.dscp", 6, _DSCP, "IPv6 DSCP", _is_ipv6),
    _number("ipv6.tclass.ecn", 2, _ECN, "IPv6 ECN", _is_ipv6),
    _presence("udp", _UDP, "UDP: not RoCEv1"),
    _number("udp.srcport", 16, _SPORT, "UDP source port: the entropy value", _UDP),
    _number("udp.dstport", 16, _DPORT, "UDP destination port", _UDP),
    _number("udp.port", 16, (_SPORT, _DPORT), "either UDP port", _UDP),
    _presence("infiniband.bth", _always, "has a BTH: every packet of the table"),
    Field("infiniband.bth.opcode", Kind.OPCODE, (_column("opcode"),), _always, "number or name", 8),
    _number("infiniband.bth.se", 1, _bit(packets.SOLICITED_EVENT), "solicited event", _always),
    _number("infiniband.bth.m", 1, _bit(packets.MIGRATION), "migration state", _always),
    _number(
        "infiniband.bth.padcnt",
        2,
        _column("bth_flags", packets.PAD_COUNT_SHIFT, packets.PAD_COUNT_MASK),
        "pad bytes",
        _always,
    ),
    _number(
        "infiniband.bth.tver",
        4,
        _column("bth_flags", mask=packets.VERSION_MASK),
        "BTH version",
        _always,
    ),
    _number("infiniband.bth.p_key", 16, _column("partition_key"), "partition key", _always),
    _number("infiniband.bth.destqp", 24, _column("dest_qp"), "destination QP", _always),
    _number("infiniband.bth.a", 1, _bit(packets.ACK_REQUEST), "acknowledge request", _always),
    _number("infiniband.bth.psn", 24, _column("psn"), "packet sequence number", _always),
    _presence("infiniband.aeth", _flag(packets.HAS_AETH), "has an AETH"),
    _number(
        "infiniband.aeth.syndrome",
        8,
        _column("aeth", 24),
        "AETH syndrome byte",
        _flag(packets.HAS_AETH),
    ),
    *(
        _number(f"infiniband.aeth.syndrome.{name}", bits, _syndrome(bits, at), meaning, present)
        for name, bits, at, meaning, present in (
            ("opcode", 2, 5, "0 ACK, 1 RNR NAK, 3 NAK", _flag(packets.HAS_AETH)),
            ("credit_count", 5, 0, "credits of an ACK", _has_syndrome(0x00)),
            ("timer", 5, 0, "timer of an RNR NAK", _has_syndrome(bth.SYNDROME_RNR_NAK)),
            (
                "error_code",
                5,
                0,
                "reason of a NAK, 0: PSN sequence",
                _has_syndrome(bth.SYNDROME_NAK),
            ),
        )
    ),
    _number(
        "infiniband.aeth.msn",
        24,
        _column("aeth", mask=0xFFFFFF),
        "message sequence number",
        _flag(packets.HAS_AETH),
    ),
    _presence("infiniband.reth", _flag(packets.HAS_RETH), "has a RETH"),
    _number(
        "infiniband.reth.dmalen",
        32,
        _column("dma_length"),
        "size of the message",
        _flag(packets.HAS_RETH),
    ),
    _presence("infiniband.deth", _flag(packets.HAS_DETH), "has a DETH"),
    _number("infiniband.deth.srcqp", 24, _column("src_qp"), "source QP", _flag(packets.HAS_DETH)),
)

_OWN = (
    _addresses("src", "src", "source address, IPv4 or IPv6", _always),
    _addresses("dst", "dst", "destination address, IPv4 or IPv6", _always),
    _addresses("addr", "addr", "either address, IPv4 or IPv6", _always),
    Field("opcode", Kind.OPCODE, (_column("opcode"),), _always, "BTH opcode: number or name", 8),
    Field("transport", Kind.NAMED, (_transport,), _always, "transport", names=TRANSPORTS),
    _number("qp", 24, _column("dest_qp"), "destination QP", _always),
    _number("psn", 24, _column("psn"), "packet sequence number", _always),
    _number("sport", 16, _SPORT, "UDP source port", _UDP),
    _number("dport", 16, _DPORT, "UDP destination port", _UDP),
    _number("dscp", 6, _DSCP, "DSCP, IPv4 or IPv6", _always),
    _number("ecn", 2, _ECN, "ECN, IPv4 or IPv6: 3 is CE", _always),
    _number("ttl", 8, _column("hop_limit"), "TTL or hop limit", _always),
    _number("payload", 32, _column("payload_bytes"), "payload bytes", _always),
    _number("len", 32, _column("wire_bytes"), "bytes on the wire", _always),
    Field("tap", Kind.TAP, (_column("tap"),), _always, "name or number of the vantage point", 16),
    Field("icrc", Kind.NAMED, (_column("icrc_state"),), _always, "ICRC check", names=ICRC_STATES),
    _presence("ack", _acknowledges(0x00), "a positive acknowledgement"),
    _presence("nak", _acknowledges(bth.SYNDROME_NAK), "a NAK, but not an RNR NAK"),
    _presence("rnr", _acknowledges(bth.SYNDROME_RNR_NAK), "an RNR NAK"),
    _presence("cnp", _is_cnp, "a congestion notification packet"),
    _presence("mrc", _is_mrc, "a packet of MRC"),
    _presence(
        "mrc.rtx",
        lambda t: _is_mrc(t) & (t.bth_flags & packets.RTX != 0),
        "MRC: retransmission (RTX bit)",
    ),
    _presence("mrc.trimmed", lambda t: _of_mrc("trimmed")(t) != 0, "MRC: payload trimmed off"),
    _number(
        "mrc.ev", 32, _of_mrc("ev"), "MRC: entropy value, flow label << 16 | port", _has_mrc(0)
    ),
    _number("mrc.msn", 16, _of_mrc("msn"), "MRC: message sequence number", _has_mrc(METH)),
    _number("mrc.entropy", 32, _of_mrc("entropy"), "MRC: reflected entropy", _has_mrc(SETH | NETH)),
    _number("mrc.skip", 2, _of_mrc("feedback"), "MRC: 1 SKIP_ONCE, 2 ALWAYS_SKIP", _has_mrc(SETH)),
    _number("mrc.nack", 8, _of_mrc("reason"), "MRC: reason of a NACK", _has_mrc(NETH)),
    _number(
        "mrc.ooo",
        15,
        _of_mrc("ooo_count"),
        "MRC: packets received out of order",
        _has_mrc(CC_STATE),
    ),
    _presence(
        "nccl.grant",
        _has_record("grants", lambda grants: True),
        "a grant (clear-to-send) of NCCL",
    ),
    *(
        _grant(f"nccl.{name}", bits, GRANT_COLUMN[column], meaning)
        for name, bits, column, meaning in (
            ("rank", 20, "rank", "rank that shall send, of the destination"),
            ("slot", 40, "slot_bytes", "size of the buffer"),
            ("number", 40, "number", "number of the message, from 1"),
            ("entries", 4, "entries", "buffers of a grouped receive"),
        )
    ),
    _presence("fecn", lambda t: (t.bth_flags & packets.FECN) != 0, "FECN bit of the BTH"),
    _presence("becn", lambda t: (t.bth_flags & packets.BECN) != 0, "BECN bit of the BTH"),
    _presence("fragment", _flag(packets.FIRST_FRAGMENT), "the first IP fragment"),
    _presence("snapped", _flag(packets.SNAPPED), "headers truncated by the capture"),
    _presence("rocev1", _flag(packets.ROCE_V1), "RoCEv1"),
    _of_job("rank", Kind.RANK, ("sender", "receiver"), "rank that sends or receives the packet"),
    _of_job(
        "peer_rank", Kind.RANK, ("sender", "receiver"), "as rank, for rank == 11 and peer_rank == 3"
    ),
    _of_job("src_rank", Kind.RANK, ("sender",), "rank that sends the packet"),
    _of_job("dst_rank", Kind.RANK, ("receiver",), "rank that receives the packet"),
    _of_job("comm", Kind.COMM, ("comm",), "communicator, as in comm == 0xabc123"),
)

FIELDS: dict[str, Field] = {field.name: field for field in (*_WIRESHARK, *_OWN)}
"""Every field by name, Wireshark's first."""

WIRESHARKS = ("arp", "eth", "frame", "icmp", "infiniband", "ip", "ipv6", "tcp", "udp", "vlan")
"""First words of Wireshark's names of other fields: they are no mistake, but unknown here."""
