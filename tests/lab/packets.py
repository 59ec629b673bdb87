"""What the captures of a run hold, read without the product: the source of the truth."""

from __future__ import annotations

import gzip
import socket
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .endpoint import icrc_of
from .topology import HOSTS, LINKS, address

LEAST_PACKETS = 5
"""Of a fault that captures can show."""
DELAYED_NS = 5_000_000
"""Far above what a router of the lab takes."""


ON_THEIR_WAY_NS = 200_000_000
"""No packet of the lab takes longer, but through a long queue."""
WAITED_NS = 300_000
"""Above what a router of the lab takes on an idle machine."""


class Flow(NamedTuple):
    src: str
    dst: str
    dest_qp: int


class Packet(NamedTuple):
    """One captured packet; `same` is equal for all copies of a packet in flight."""

    time_ns: int
    flow: Flow
    source: int
    """Number of the host."""
    target: int
    same: tuple[int, ...]
    tos: int
    right: bool
    """Whether its ICRC is; False of packets that were not captured in full."""
    whole: bool = True
    """False of the first of its IP fragments."""


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
    sure_packets: int = 0
    """Without those at the end, after the last that passed: they may be in flight."""
    of_packets: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    flows: Counter[Flow] = field(default_factory=Counter)


def frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Time and bytes of every frame of a capture with nanoseconds."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    assert struct.unpack_from("<I", data)[0] == 0xA1B23C4D, f"{path} has no nanoseconds"
    at = 24
    while at < len(data):
        seconds, nanoseconds, kept, _ = struct.unpack_from("<IIII", data, at)
        yield seconds * 10**9 + nanoseconds, data[at + 16 : at + 16 + kept]
        at += 16 + kept


def is_pause(frame: bytes) -> bool:
    return frame[12:14] == b"\x88\x08"


def _is_roce(frame: bytes) -> bool:
    """Whether it is no pause frame and no later IP fragment."""
    later = frame[12:14] == b"\x08\x00" and int.from_bytes(frame[20:22], "big") & 0x1FFF
    return not is_pause(frame) and not later


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
    right = len(frame) == udp + length and frame[-4:] == icrc_of(frame[:udp], frame[udp:-4])
    whole = frame[12:14] != b"\x08\x00" or not frame[20] & 0x20
    flow = Flow(src, dst, qp & 0xFFFFFF)
    return Packet(time_ns, flow, source, target, same, tos, right, whole)


def flows_in(path: Path) -> set[Flow]:
    """The flows of a capture."""
    return {_packet(data, at).flow for at, data in frames(path) if _is_roce(data)}


class Captured:
    """All captures of a run."""

    def __init__(self, folder: Path) -> None:
        self.by_link: dict[str, list[Packet]] = {}
        self.pauses: dict[str, list[int]] = {}
        """Times of the PFC frames that pause something, by link."""
        for link in LINKS:
            found = list(frames(folder / f"{link}.pcap"))
            self.by_link[link] = [_packet(data, at) for at, data in found if _is_roce(data)]
            self.pauses[link] = [at for at, data in found if is_pause(data) and any(data[18:34])]

    def missed(self) -> int:
        """Packets that reached their host unseen at one of the links on their way."""
        seen = {link: {packet.same for packet in packets} for link, packets in self.by_link.items()}
        missed = 0
        for host, leaf in HOSTS.items():
            for packet in self.by_link[f"H{host}-leaf{leaf}"]:
                if packet.target != host:
                    continue
                missed += not all(
                    any(packet.same in seen[link] for link in stage)
                    for stage in stages(packet.flow.src, packet.flow.dst)
                )
        return missed

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
        both, lost, _ = self._matched(hop)
        passed = len(both)
        if hop.to_tap is not None:
            there = set(self.by_link[hop.to_tap])
            both = [(start, end) for start, end in both if end in there]
        end = max(packet.time_ns for packets in self.by_link.values() for packet in packets)
        sure = 0
        for tap in hop.before:
            here = set(self.by_link[tap])
            last = max((start.time_ns for start, _ in both if start in here), default=0)
            last = max(last, end - ON_THEIR_WAY_NS)
            sure += sum(packet in here and packet.time_ns <= last for packet in lost)
        return _hits(lost, passed + len(lost), sure)

    def copied(self, hop: Hop) -> Hits:
        """Packets that are more often after the hop than before it."""
        both, _, copied = self._matched(hop)
        return _hits(copied, len(both) + len(copied))

    def changed(self, hop: Hop) -> Hits:
        """Packets whose traffic class differs before and after the hop."""
        both = self._matched(hop)[0]
        return _hits([end for start, end in both if start.tos != end.tos], len(both))

    def fragmented(self, hop: Hop) -> Hits:
        """Packets that are whole before the hop and in fragments after it."""
        both = self._matched(hop)[0]
        return _hits([start for start, end in both if start.whole and not end.whole], len(both))

    def damaged(self, hop: Hop) -> Hits:
        """Packets whose ICRC is right before the hop and wrong after it."""
        both = self._matched(hop)[0]
        return _hits([end for start, end in both if start.right and not end.right], len(both))

    def delayed(self, hop: Hop) -> Hits:
        """Packets that took DELAYED_NS longer than the fastest."""
        both = self._matched(hop)[0]
        least = min((end.time_ns - start.time_ns for start, end in both), default=0)
        late = [s for s, end in both if end.time_ns - s.time_ns > least + DELAYED_NS]
        return _hits(late, len(both))

    def paused(self, hop: Hop) -> Hits:
        """Frames that pause the link after the hop, where packets waited meanwhile."""
        times, held = self.pauses[hop.to_tap], self.delayed(hop)
        assert not times or held.packets, "packets passed while the link was paused"
        first, last = min(times, default=None), max(times, default=None)
        return Hits(len(times), len(times), len(times), first, last, held.flows)

    def waiting(self, hop: Hop) -> bool:
        """Whether one packet in a hundred waited, for whatever reason this machine had."""
        delays = sorted(end.time_ns - start.time_ns for start, end in self._matched(hop)[0])
        return bool(delays) and delays[len(delays) * 99 // 100] > delays[0] + WAITED_NS

    def overtaken(self, hop: Hop) -> Hits:
        """Packets that come after a packet of their flow that was sent after them."""
        both = self._matched(hop)[0]
        latest: defaultdict[Flow, int] = defaultdict(int)
        late = []
        for start, end in both:
            if start.time_ns < latest[start.flow]:
                late.append(end)
            latest[start.flow] = max(latest[start.flow], start.time_ns)
        return _hits(late, len(both))

    def moved(self, hop: Hop) -> Hits:
        """Packets that leave by another tap than the first packet of their flow."""
        leaving = [(packet, tap) for tap in hop.after for packet in self.at([tap], hop)]
        first: dict[Flow, str] = {}
        moved = [
            packet
            for packet, tap in sorted(leaving, key=lambda each: each[0].time_ns)
            if first.setdefault(packet.flow, tap) != tap
        ]
        return _hits(moved, len(leaving))

    def asked(self, flows: Iterable[Flow], from_ns: int) -> int | None:
        """When all of these flows have asked for an ACK since a time; None: no flows."""
        first: dict[Flow, int] = {}
        for packets in self.by_link.values():
            for packet in packets:
                if packet.same[6] >> 31 and packet.time_ns >= from_ns:
                    at = first.get(packet.flow, packet.time_ns)
                    first[packet.flow] = min(at, packet.time_ns)
        return max((first[flow] for flow in flows if flow in first), default=None)

    def _matched(self, hop: Hop) -> tuple[list[tuple[Packet, Packet]], list[Packet], list[Packet]]:
        """Packets that passed the hop, before and after it, in the order after it; packets that
        are only before it; packets that are only after it.

        IPv6 has no identification: a copy after the hop is the last one that could be it.
        """
        before: defaultdict[tuple[int, ...], list[Packet]] = defaultdict(list)
        for packet in sorted(self.at(hop.before, hop)):
            before[packet.same].append(packet)
        both, more = [], []
        for end in sorted(self.at(hop.after, hop), reverse=True):
            starts = before[end.same]
            found = next(
                (i for i in reversed(range(len(starts))) if starts[i].time_ns <= end.time_ns), None
            )
            if found is None:
                more.append(end)
            else:
                both.append((starts.pop(found), end))
        return both[::-1], sorted(p for left in before.values() for p in left), more[::-1]


def _hits(packets: list[Packet], of_packets: int, sure: int | None = None) -> Hits:
    return Hits(
        len(packets),
        len(packets) if sure is None else sure,
        of_packets,
        min((packet.time_ns for packet in packets), default=None),
        max((packet.time_ns for packet in packets), default=None),
        Counter(packet.flow for packet in packets),
    )


def stages(src: str, dst: str) -> list[list[str]]:
    """The taps on the way between two addresses, those of parallel links together."""
    (one, first), (other, second) = (
        next((h, leaf) for h, leaf in HOSTS.items() if at in (address(h, 4), address(h, 6)))
        for at in (src, dst)
    )
    middle = [] if first == second else [links_of(first, "spine"), links_of(second, "spine")]
    return [[f"H{one}-leaf{first}"], *middle, [f"H{other}-leaf{second}"]]


def hosts_of(leaf: int) -> list[int]:
    return [host for host, at in HOSTS.items() if at == leaf]


def links_of(leaf: int, kind: str) -> list[str]:
    """The links of a leaf to its hosts (`H`) or to the spines (`spine`)."""
    return [link for link in LINKS if f"leaf{leaf}" in link and kind in link]
