"""The decoder again, in plain Python that slices bytes: slow, simple and independent.

Shares with the product only the names of columns and outcomes.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from rocescope.analyzer.decode import outcomes
from rocescope.analyzer.wire import packets

RC = {
    0x03: ["ImmDt"],
    0x05: ["ImmDt"],
    0x06: ["RETH"],
    0x09: ["ImmDt"],
    0x0A: ["RETH"],
    0x0B: ["RETH", "ImmDt"],
    0x0C: ["RETH"],
    0x0D: ["AETH"],
    0x0F: ["AETH"],
    0x10: ["AETH"],
    0x11: ["AETH"],
    0x12: ["AETH", "AtomicAckETH"],
    0x13: ["AtomicETH"],
    0x14: ["AtomicETH"],
    0x16: ["IETH"],
    0x17: ["IETH"],
    0x1C: ["FETH", "RETH"],
    0x1D: ["RETH"],
} | {op: [] for op in (0x00, 0x01, 0x02, 0x04, 0x07, 0x08, 0x0E)}
SIZES = {
    "RDETH": 4,
    "XRCETH": 4,
    "DETH": 8,
    "RETH": 16,
    "AtomicETH": 28,
    "AETH": 4,
    "AtomicAckETH": 8,
    "ImmDt": 4,
    "IETH": 4,
    "FETH": 4,
    "pad": 16,
    "METH": 4,
    "TSETH": 4,
    "SETH": 28,
    "CC_STATE": 8,
    "NETH": 20,
    "PETH": 16,
    "ERTH": 16,
    "EETH": 36,
}
MRC = {
    0xC6: ["METH", "RETH"],
    0xC7: ["METH", "RETH"],
    0xC8: ["METH", "RETH"],
    0xC9: ["METH", "RETH", "ImmDt"],
    0xCA: ["METH", "RETH"],
    0xCB: ["METH", "RETH", "ImmDt"],
    0xD1: ["AETH"],
    0xD8: ["ERTH"],
    0xD9: ["EETH"],
    0xDC: ["SETH", "CC_STATE"],
    0xDD: ["NETH"],
    0xDE: ["PETH"],
}
MRC_UDP_LENGTHS = {0xD1: 28, 0xD8: 40, 0xD9: 60, 0xDC: 60, 0xDD: 44, 0xDE: 40}


def headers_of(opcode: int) -> list[str] | None:
    """Extension headers of an opcode; None when neither the standard nor MRC has it."""
    if opcode in MRC:
        return MRC[opcode]
    transport, operation = opcode & 0xE0, opcode & 0x1F
    response = 0x0D <= operation <= 0x12
    if transport == 0x00:
        return RC.get(operation)
    if transport == 0x20:
        return RC[operation] if operation <= 0x0B else None
    if transport == 0x40:
        if operation == 0x15:
            return ["RDETH", "DETH"]
        if operation <= 0x14 or operation == 0x1C:
            return (["RDETH"] if response else ["RDETH", "DETH"]) + RC[operation]
    if transport == 0x60:
        return {0x04: ["DETH"], 0x05: ["DETH", "ImmDt"]}.get(operation)
    if opcode == 0x81:
        return ["pad"]
    if transport == 0xA0 and operation in RC:
        return ([] if response else ["XRCETH"]) + RC[operation]
    return None


def looks_like_mrc(udp: bytes) -> bool:
    """Whether a datagram's opcode, version and length are those of MRC."""
    if len(udp) < 20 or udp[9] & 0x0F:
        return False
    opcode, length = udp[8], int.from_bytes(udp[4:6], "big")
    return length == MRC_UDP_LENGTHS.get(opcode) or (0xC6 <= opcode <= 0xCB and length >= 24)


class NotRoce(Exception):
    """The frame ends here, with this outcome."""

    def __init__(self, outcome: int) -> None:
        self.outcome = outcome


@dataclass
class Seen:
    """What the twin makes of a batch."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    outcomes: Counter[int] = field(default_factory=Counter)
    notes: Counter[int] = field(default_factory=Counter)
    ethertypes: Counter[int] = field(default_factory=Counter)
    protocols: Counter[int] = field(default_factory=Counter)
    udp_ports: Counter[int] = field(default_factory=Counter)
    roce_like: Counter[int] = field(default_factory=Counter)
    pause: Counter[tuple[int, str]] = field(default_factory=Counter)


def number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def address(data: bytes) -> str:
    if data.startswith(bytes(10) + b"\xff\xff"):
        data = data[12:]
    return str(IPv4Address(data) if len(data) == 4 else IPv6Address(data))


class Twin:
    def __init__(self, ports: tuple[int, ...] = (4791,), check_icrc: bool = False) -> None:
        self.ports = ports
        self.check_icrc = check_icrc
        self.seen = Seen()

    def frame(self, data: bytes, link_type: int, wire: int) -> None:
        """Take one frame."""
        try:
            row = self.packet(data, link_type, wire)
        except NotRoce as end:
            self.seen.outcomes[end.outcome] += 1
        else:
            self.seen.outcomes[outcomes.ROCE] += 1
            self.seen.rows.append(row)

    def link(self, data: bytes, link_type: int) -> tuple[int, int, int]:
        layouts = {1: (14, 12), 113: (16, 14), 276: (20, 0)}
        if link_type in (101, 228, 229):
            if link_type == 101 and not data:
                raise NotRoce(outcomes.TRUNCATED_IP)
            version = {228: 4, 229: 6}.get(link_type) or data[0] >> 4
            if version not in (4, 6):
                raise NotRoce(outcomes.BAD_IP_HEADER)
            return (0x0800 if version == 4 else 0x86DD), 0, 0
        if link_type not in layouts:
            raise NotRoce(outcomes.UNKNOWN_LINK_TYPE)
        at, where = layouts[link_type]
        if len(data) < at:
            raise NotRoce(outcomes.TRUNCATED_LINK)
        ethertype = number(data[where : where + 2])
        tags: list[int] = []
        try:
            while ethertype in (0x8100, 0x88A8, 0x9100, 0x9200, 0x9300):
                if len(tags) == 4:
                    raise NotRoce(outcomes.BAD_VLAN)
                if len(data) < at + 4:
                    raise NotRoce(outcomes.TRUNCATED_LINK)
                tags.append(number(data[at : at + 2]))
                ethertype = number(data[at + 2 : at + 4])
                at += 4
        finally:
            self.seen.notes[outcomes.VLAN_TAGGED] += bool(tags)
        return ethertype, at, tags[-1] if tags else 0

    def other(self, ethertype: int, content: bytes) -> NotRoce:
        if ethertype == 0x8808:
            if len(content) < 2:
                return NotRoce(outcomes.TRUNCATED_PAUSE)
            opcode = number(content[:2])
            if (opcode == 1 and len(content) < 4) or (opcode == 0x101 and len(content) < 20):
                return NotRoce(outcomes.TRUNCATED_PAUSE)
            timers = {}
            if opcode == 1:
                timers = {8: number(content[2:4])}
            if opcode == 0x101:
                timers = {
                    i: number(content[4 + 2 * i : 6 + 2 * i])
                    for i in range(8)
                    if content[3] >> i & 1
                }
            for priority, quanta in timers.items():
                self.seen.pause[priority, "frames"] += 1
                self.seen.pause[priority, "xon"] += quanta == 0
                self.seen.pause[priority, "quanta"] += quanta
            if opcode in (1, 0x101):
                return NotRoce(outcomes.PAUSE)
        self.seen.ethertypes[ethertype if ethertype >= 0x600 else 0] += 1
        return NotRoce(outcomes.OTHER_ETHERTYPE)

    def ipv4(self, data: bytes, room: int = 0) -> tuple[int, int, int, str]:
        """room: bytes from here to the end of the frame, for packets with 0 as their length."""
        if len(data) < 20:
            raise NotRoce(outcomes.TRUNCATED_IP)
        header, stated = (data[0] & 15) * 4, number(data[2:4])
        total = stated or room
        if data[0] >> 4 != 4 or header < 20 or total < header:
            raise NotRoce(outcomes.BAD_IP_HEADER)
        if len(data) < header:
            raise NotRoce(outcomes.TRUNCATED_IP)
        flags = number(data[6:8])
        whole = "" if stated else "unsized"
        fragment = "later" if flags & 0x1FFF else "first" if flags & 0x2000 else whole
        return data[9], header, total, fragment

    def ipv6(self, data: bytes, room: int = 0) -> tuple[int, int, int, str]:
        if len(data) < 40:
            raise NotRoce(outcomes.TRUNCATED_IP)
        if data[0] >> 4 != 6:
            raise NotRoce(outcomes.BAD_IP_HEADER)
        protocol, at, fragment = data[6], 40, ""
        stop = 40 + number(data[4:6])
        if stop == 40 and protocol in (17, 0x1B):
            return protocol, at, max(stop, room), "unsized"
        for seen in range(9):
            if protocol not in (0, 43, 44, 60):
                break
            if seen == 8:
                raise NotRoce(outcomes.BAD_IP_HEADER)
            if len(data) < at + 8:
                raise NotRoce(outcomes.TRUNCATED_IP)
            size = 8
            if protocol == 44:
                if number(data[at + 2 : at + 4]) >> 3:
                    return data[at], at + 8, stop, "later"
                if data[at + 3] & 1:
                    fragment = "first"
            else:
                size += data[at + 1] * 8
            if len(data) < at + size:
                raise NotRoce(outcomes.TRUNCATED_IP)
            protocol, at = data[at], at + size
        if at > stop:
            raise NotRoce(outcomes.BAD_IP_HEADER)
        return protocol, at, stop, fragment

    def packet(self, data: bytes, link_type: int, wire: int) -> dict[str, Any]:
        ethertype, ip_at, vlan = self.link(data, link_type)
        if ethertype not in (0x0800, 0x86DD, 0x8915):
            raise self.other(ethertype, data[ip_at:])
        ip = data[ip_at:]
        room = max(len(data), wire) - ip_at
        protocol, at, stop, fragment = (self.ipv4 if ethertype == 0x0800 else self.ipv6)(ip, room)
        row: dict[str, Any] = {"vlan": vlan, "captured_bytes": len(data), "path_evidence": 0}
        flags = 0 if ethertype == 0x0800 else packets.IPV6
        length = stop - at
        row["udp_sport"] = row["udp_dport"] = 0
        if ethertype == 0x8915:
            if protocol != 0x1B or at != 40:
                raise self.other(ethertype, b"")
            flags |= packets.ROCE_V1
            if length < 12:
                raise NotRoce(outcomes.BAD_LENGTH)
            packet = ip[at:]
        else:
            if protocol != 17:
                self.seen.protocols[protocol] += 1
                raise NotRoce(outcomes.OTHER_PROTOCOL)
            if fragment == "later":
                raise NotRoce(outcomes.LATER_FRAGMENT)
            udp = ip[at:]
            if len(udp) < 4:
                raise NotRoce(outcomes.TRUNCATED_UDP)
            row["udp_sport"], row["udp_dport"] = number(udp[:2]), number(udp[2:4])
            port = row["udp_dport"]
            if port not in self.ports and not (port == 4971 and looks_like_mrc(udp)):
                self.seen.udp_ports[port] += 1
                opcode = udp[8] if len(udp) >= 20 else 0
                if len(udp) >= 20 and (headers_of(opcode) is not None or opcode in MRC):
                    if not udp[9] & 15 and udp[10] & 0x7F == 0x7F and udp[11] == 0xFF:
                        self.seen.roce_like[port] += 1
                raise NotRoce(outcomes.OTHER_UDP_PORT)
            if length < 20:
                raise NotRoce(outcomes.BAD_LENGTH)
            if len(udp) < 20:
                raise NotRoce(outcomes.TRUNCATED_BTH)
            udp_length = number(udp[4:6])
            if udp_length < 20:
                raise NotRoce(outcomes.BAD_LENGTH)
            if udp_length < length or (udp_length > length and fragment != "first"):
                flags |= packets.LENGTH_MISMATCH
            length = (udp_length if fragment == "first" else min(length, udp_length)) - 8
            packet = udp[8:]
            at += 8
        if len(packet) < 12:
            raise NotRoce(outcomes.TRUNCATED_BTH)
        if flags & packets.ROCE_V1:
            self.seen.notes[outcomes.ROCE_V1_PACKETS] += 1
        if ethertype == 0x0800:
            row |= {"src": address(ip[12:16]), "dst": address(ip[16:20]), "flow_label": 0}
            row |= {"ip_id": number(ip[4:6]), "traffic_class": ip[1], "hop_limit": ip[8]}
        else:
            row |= {"src": address(ip[8:24]), "dst": address(ip[24:40]), "ip_id": 0}
            row |= {"flow_label": number(ip[1:4]) & 0xFFFFF, "hop_limit": ip[7]}
            row["traffic_class"] = number(ip[0:2]) >> 4 & 0xFF
        row |= self.transport(packet, ip, length, stop - at, flags, fragment)
        row["bth_offset"] = ip_at + at
        row["wire_bytes"] = max(wire, ip_at + stop)
        if wire < ip_at + stop:
            row["decode_flags"] |= packets.LENGTH_MISMATCH
        if row["decode_flags"] & packets.LENGTH_MISMATCH:
            self.seen.notes[outcomes.LENGTH_MISMATCHES] += 1
        row["icrc_state"] = self.icrc(ip, at, length, flags, fragment) if self.check_icrc else 0
        self.seen.notes[row["icrc_state"]] += 1
        return row

    def transport(
        self, packet: bytes, ip: bytes, length: int, in_frame: int, flags: int, fragment: str
    ) -> dict[str, Any]:
        opcode = packet[0]
        row: dict[str, Any] = {
            "opcode": opcode,
            "partition_key": number(packet[2:4]),
            "bth_flags": packet[1] | packet[4] << 8 | packet[8] << 16,
            "dest_qp": number(packet[5:8]),
            "psn": number(packet[9:12]),
            "aeth": 0,
            "dma_length": 0,
            "src_qp": 0,
        }
        headers = headers_of(opcode)
        if opcode in MRC:
            self.seen.notes[outcomes.MRC_PACKETS] += 1
            if opcode < 0xD0 and packet[8] & 0x10:
                headers = ["METH", "TSETH", *MRC[opcode][1:]]
        if headers is None:
            self.seen.notes[outcomes.UNKNOWN_OPCODES] += 1
        elif opcode in (0x64, 0x65) and row["dest_qp"] == 1:
            self.seen.notes[outcomes.GENERAL_SERVICES] += 1
        if fragment == "first":
            flags |= packets.FIRST_FRAGMENT
            self.seen.notes[outcomes.FIRST_FRAGMENTS] += 1
        self.seen.notes[outcomes.UNSIZED_PACKETS] += fragment == "unsized"
        readable = packet[: min(in_frame, length)]
        at = 12
        for name in headers or ():
            content = readable[at : at + SIZES[name]]
            at += SIZES[name]
            if len(content) < SIZES[name]:
                continue
            if name == "AETH":
                row["aeth"] = number(content)
                flags |= packets.HAS_AETH
            if name == "RETH":
                row["dma_length"] = number(content[12:])
                flags |= packets.HAS_RETH
            if name == "DETH":
                row["src_qp"] = number(content[5:])
                flags |= packets.HAS_DETH
        if at > len(packet):
            flags |= packets.SNAPPED
            self.seen.notes[outcomes.SNAPPED_HEADERS] += 1
        payload = length - at - (packet[1] >> 4 & 3) - 4
        if payload < 0:
            flags |= packets.LENGTH_MISMATCH
        row |= {"payload_bytes": max(payload, 0), "decode_flags": flags}
        return row

    def icrc(self, ip: bytes, at: int, length: int, flags: int, fragment: str) -> int:
        if fragment == "first" or len(ip) < at + length or length < 16:
            return packets.ICRC_TRUNCATED
        if fragment == "unsized":
            return packets.ICRC_UNCHECKED
        if flags & packets.IPV6 and at > 48:
            return packets.ICRC_UNCHECKED
        masked = bytearray(ip[: at + length - 4])
        ones = [at + 4]
        if not flags & packets.ROCE_V1:
            ones += [at - 2, at - 1]
        ones += [0, 1, 2, 3, 7] if flags & packets.IPV6 else [1, 8, 10, 11]
        for i in ones:
            masked[i] = 0xFF
        if flags & packets.IPV6:
            masked[0] = ip[0] | 0x0F
        crc = zlib.crc32(bytes([0xFF] * 8) + masked).to_bytes(4, "little")
        good = crc == ip[at + length - 4 : at + length]
        return packets.ICRC_OK if good else packets.ICRC_BAD
