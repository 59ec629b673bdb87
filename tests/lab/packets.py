"""What the captures of a run hold, read without the product: the source of the truth."""

from __future__ import annotations

import socket
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .topology import HOSTS, LINKS

DELAYED_NS = 5_000_000
"""Far above what a router of the lab takes."""


class Flow(NamedTuple):
    src: str
    dst: str
    dest_qp: int


class Packet(NamedTuple):
    """One captured packet; `same` is equal for all copies of a packet on its way."""

    time_ns: int
    flow: Flow
    source: int
    """Number of the host."""
    target: int
    same: tuple[int, ...]
    tos: int


@dataclass
class Hop:
    """The way through one device: all taps before it and all after it."""

    device: str
    before: list[str]
    after: list[str]
    """Empty: the packets end there."""
    sources: list[int]
    targets: list[int]
    to_tap: str | None = None
    """Where the packets that a fault hits would be seen; None: at any of `after`."""


@dataclass
class Hits:
    """The packets that a fault hit on a hop."""

    packets: int = 0
    of_packets: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    flows: Counter[Flow] = field(default_factory=Counter)

    def add(self, packet: Packet, number: int = 1) -> None:
        self.packets += number
        self.flows[packet.flow] += number
        first, last = self.first_ns, self.last_ns
        self.first_ns = packet.time_ns if first is None else min(first, packet.time_ns)
        self.last_ns = packet.time_ns if last is None else max(last, packet.time_ns)


def read(path: Path) -> list[Packet]:
    """All RoCE packets of a capture with nanoseconds."""
    data = path.read_bytes()
    assert struct.unpack_from("<I", data)[0] == 0xA1B23C4D, f"{path} has no nanoseconds"
    packets, at = [], 24
    while at < len(data):
        seconds, nanoseconds, kept, _ = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + kept]
        at += 16 + kept
        packets.append(_packet(frame, seconds * 10**9 + nanoseconds))
    return packets


def _packet(frame: bytes, time_ns: int) -> Packet:
    if frame[12:14] == b"\x08\x00":
        src, dst = socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])
        source, target, udp, tos = frame[28], frame[32], 34, frame[15]
        ip_id = int.from_bytes(frame[18:20], "big")
    else:
        src = socket.inet_ntop(socket.AF_INET6, frame[22:38])
        dst = socket.inet_ntop(socket.AF_INET6, frame[38:54])
        source, target, udp, ip_id = frame[27], frame[43], 54, 0
        tos = (frame[14] << 4 | frame[15] >> 4) & 0xFF
    sport, _, length = struct.unpack_from(">HHH", frame, udp)
    qp, psn = struct.unpack_from(">II", frame, udp + 12)
    aeth = int.from_bytes(frame[udp + 20 : udp + 24], "big") if frame[udp + 8] == 0x11 else 0
    same = (source, target, sport, length, frame[udp + 8], qp & 0xFFFFFF, psn, ip_id, aeth)
    return Packet(time_ns, Flow(src, dst, qp & 0xFFFFFF), source, target, same, tos)


class Captured:
    """All captures of a run."""

    def __init__(self, folder: Path) -> None:
        self.by_link = {link: read(folder / f"{link}.pcap") for link in LINKS}

    def at(self, taps: Iterable[str], hop: Hop) -> list[Packet]:
        """Packets of the hop's direction at these taps."""
        sources, targets = set(hop.sources), set(hop.targets)
        return [
            packet
            for tap in taps
            for packet in self.by_link[tap]
            if packet.source in sources and packet.target in targets
        ]

    def lost(self, hop: Hop) -> Hits:
        """Packets before the hop that are not after it."""
        after = Counter(packet.same for packet in self.at(hop.after, hop))
        return self._more(self.at(hop.before, hop), after)

    def copied(self, hop: Hop) -> Hits:
        """Packets that are more often after the hop than before it."""
        before = Counter(packet.same for packet in self.at(hop.before, hop))
        return self._more(self.at(hop.after, hop), before)

    @staticmethod
    def _more(packets: list[Packet], elsewhere: Counter[tuple[int, ...]]) -> Hits:
        hits = Hits(of_packets=len(packets))
        for packet in packets:
            if elsewhere[packet.same]:
                elsewhere[packet.same] -= 1
            else:
                hits.add(packet)
        return hits

    def changed(self, hop: Hop) -> Hits:
        """Packets whose traffic class differs before and after the hop."""
        both = self._both(hop)
        hits = Hits(of_packets=len(both))
        for start, end in both:
            if start.tos != end.tos:
                hits.add(end)
        return hits

    def delayed(self, hop: Hop) -> Hits:
        """Packets that took DELAYED_NS longer than the fastest."""
        taken = [(end.time_ns - start.time_ns, start) for start, end in self._both(hop)]
        least = min((delay for delay, _ in taken), default=0)
        hits = Hits(of_packets=len(taken))
        for delay, packet in taken:
            if delay > least + DELAYED_NS:
                hits.add(packet)
        return hits

    def overtaken(self, hop: Hop) -> Hits:
        """Packets that come after a packet of their flow that was sent after them."""
        order = sorted(self._both(hop), key=lambda pair: pair[1].time_ns)
        latest: defaultdict[Flow, int] = defaultdict(int)
        hits = Hits(of_packets=len(order))
        for start, end in order:
            if start.time_ns < latest[start.flow]:
                hits.add(end)
            latest[start.flow] = max(latest[start.flow], start.time_ns)
        return hits

    def moved(self, hop: Hop) -> Hits:
        """Packets that leave by another tap than the first packet of their flow."""
        hits, first = Hits(), dict[Flow, str]()
        leaving = [(packet, tap) for tap in hop.after for packet in self.at([tap], hop)]
        for packet, tap in sorted(leaving, key=lambda each: each[0].time_ns):
            hits.of_packets += 1
            if first.setdefault(packet.flow, tap) != tap:
                hits.add(packet)
        return hits

    def _both(self, hop: Hop) -> list[tuple[Packet, Packet]]:
        """Packets that passed the hop: before it and after it."""
        before: defaultdict[tuple[int, ...], list[Packet]] = defaultdict(list)
        for packet in self.at(hop.before, hop):
            before[packet.same].append(packet)
        return [
            (before[packet.same].pop(0), packet)
            for packet in self.at(hop.after, hop)
            if before[packet.same]
        ]


def hosts_of(leaf: int) -> list[int]:
    return [host for host, at in HOSTS.items() if at == leaf]


def links_of(leaf: int, kind: str) -> list[str]:
    """The links of a leaf to its hosts (`H`) or to the spines (`spine`)."""
    return [link for link in LINKS if f"leaf{leaf}" in link and kind in link]
