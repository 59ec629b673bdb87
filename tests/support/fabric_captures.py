"""Captures of all links of a leaf-spine fabric with one fault, and what the fault hit.

Hosts 1 and 2 at leaf1, 3 and 4 at leaf2, four spines. RC WRITE requesters with go-back-N run in
simulated time; a fault is a function that sees every packet between two taps.
"""

from __future__ import annotations

import heapq
import itertools
import random
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import NamedTuple

from rocescope.analyzer.measures.hops.vantage import FabricLinks
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.diagnosis import Diagnosis, Finding

START_NS = 1_700_000_000_000_000_000
US, MS = 1_000, 1_000_000
DURATION = 400 * MS
GAP = 1600 * US
"""Time between two packets of a requester."""
TIMEOUT = 30 * MS
WINDOW = 64
MESSAGE = 8
BASE, JITTER = 5 * US, 2 * US
"""Delay of every hop."""
FAST = 1e9
"""Bits per second of a queue that drains: packets leave farther apart than the jitter."""
LEAF = {1: 1, 2: 1, 3: 2, 4: 2}
LEAF_OF_HOST = [f"H{host}-leaf{leaf}" for host, leaf in LEAF.items()]
LINKS = [*LEAF_OF_HOST, *(f"leaf{leaf}-spine{spine}" for leaf in (1, 2) for spine in range(1, 5))]
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, ACKNOWLEDGE = 0x06, 0x07, 0x08, 0x11
ACK, NAK = 0x1F, 0x60
ECT, CE = 2, 3


class Packet(NamedTuple):
    """One transmission."""

    src: int
    dst: int
    dest_qp: int
    sport: int
    psn: int
    opcode: int
    ask: bool
    aeth: int
    payload_bytes: int
    ip_id: int
    tos: int


class Sighting(NamedTuple):
    time_ns: int
    hop_limit: int
    packet: Packet


class Hit(NamedTuple):
    """A packet that a fault hit, with the time at the tap before it."""

    time_ns: int
    packet: Packet
    passed: bool


Place = tuple[str | None, str | None, str | None, str | None]
"""(from_tap, to_tap, device, direction)."""
Passing = list[tuple[Packet, int]]
"""What leaves a device instead of one packet: packets with additional delays in ns."""
Fault = Callable[[Packet, str, str, int], Passing | None]
"""(packet, tap before, tap after, time since the start) -> what passes; None: no fault."""
Route = Callable[[Packet, int], int]
"""(packet, time since the start) -> number of the spine."""
Nic = Callable[[Packet, int], bool]
"""(packet, time since the start) -> whether the NIC of the receiver takes it."""


@dataclass
class Pair:
    """A requester and its responder."""

    src: int
    dst: int
    number: int
    sport: int
    payload_bytes: int = 1024
    tail_bytes: int = 1024
    """Payload of the last packet of a message."""
    gap: int = GAP
    start: int = 0
    stop: int = DURATION
    next: int = 0
    unacked: int = 0
    expected: int = 0
    nak_sent: bool = False
    deadline: int | None = None


@dataclass
class Run:
    """All sightings by tap, and what the fault hit."""

    taps: dict[str, list[Sighting]] = field(default_factory=lambda: {link: [] for link in LINKS})
    hits: list[Hit] = field(default_factory=list)

    @property
    def lost(self) -> list[Hit]:
        return [hit for hit in self.hits if not hit.passed]


def by_port(packet: Packet, now: int, salt: int = 0) -> int:
    """ECMP by addresses and UDP source port."""
    return _ecmp(packet.src, packet.dst, packet.sport, salt)


def _ecmp(src: int, dst: int, sport: int, salt: int) -> int:
    return 1 + zlib.crc32(struct.pack("<BBHI", src, dst, sport, salt)) % 4


def no_fault(packet: Packet, near: str, far: str, now: int) -> None:
    return None


def usual_pairs(
    seed: int = 1, per_hosts: int = 2, hosts: Iterable[tuple[int, int]] | None = None, **more: int
) -> list[Pair]:
    """`per_hosts` pairs between any two hosts of different leaves, or from and to these hosts.

    Their requests take all spines in turn: no link idles.
    """
    chance = random.Random(seed)
    if hosts is None:
        hosts = [(a, b) for a in LEAF for b in LEAF if LEAF[a] != LEAF[b]]
    return [
        Pair(a, b, 0x100 + n, _port(a, b, 1 + n % 4, chance), start=chance.randrange(GAP), **more)
        for n, (a, b) in enumerate((a, b) for a, b in hosts for _ in range(per_hosts))
    ]


def _port(src: int, dst: int, spine: int, chance: random.Random) -> int:
    """A UDP source port whose packets take this spine."""
    while True:
        port = chance.randrange(49152, 65536)
        if _ecmp(src, dst, port, 0) == spine:
            return port


class Simulation:
    """Time goes from event to event."""

    def __init__(self, pairs: list[Pair], fault: Fault, route: Route, seed: int, nic: Nic) -> None:
        self.chance = random.Random(seed)
        self.fault, self.route, self.nic, self.pairs = fault, route, nic, pairs
        self.by_number = {pair.number: pair for pair in pairs}
        self.run = Run()
        self.events: list[tuple[int, int, Callable[..., None], tuple]] = []
        self.order = itertools.count()
        self.free: dict[tuple[str, str], int] = {}
        self.ip_ids: defaultdict[tuple[int, int], int] = defaultdict(int)

    def go(self) -> Run:
        for pair in self.pairs:
            self._at(pair.start, self._send, pair)
        while self.events:
            now, _, do, what = heapq.heappop(self.events)
            do(now, *what)
        for sightings in self.run.taps.values():
            sightings.sort()
        return self.run

    def _at(self, time: int, do: Callable[..., None], *what: object) -> None:
        heapq.heappush(self.events, (time, next(self.order), do, what))

    # Hosts.

    def _send(self, now: int, pair: Pair) -> None:
        if now >= pair.stop:
            return
        if pair.deadline is not None and now > pair.deadline:
            pair.next, pair.deadline = pair.unacked, None
        if pair.next - pair.unacked < WINDOW:
            at = pair.next % MESSAGE
            opcode = WRITE_FIRST if not at else WRITE_LAST if at == MESSAGE - 1 else WRITE_MIDDLE
            self._leave(now, pair, pair.next, opcode, 0)
            pair.next += 1
            if opcode == WRITE_LAST:
                pair.deadline = now + TIMEOUT
        self._at(now + round(pair.gap * self.chance.uniform(0.8, 1.2)), self._send, pair)

    def _leave(self, now: int, pair: Pair, number: int, opcode: int, syndrome: int) -> None:
        src, dst, qp = pair.src, pair.dst, pair.number
        if syndrome:
            src, dst, qp = dst, src, qp + 0x1000
        self.ip_ids[src, dst] += 1
        last = opcode == WRITE_LAST
        aeth = syndrome << 24 | pair.expected // MESSAGE
        size = 0 if syndrome else pair.tail_bytes if last else pair.payload_bytes
        packet = Packet(
            src, dst, qp, pair.sport, number & 0xFFFFFF, opcode, last, aeth, size,
            self.ip_ids[src, dst] & 0xFFFF, 26 << 2 | ECT,
        )  # fmt: skip
        self._arrive(now, packet, f"H{src}-leaf{LEAF[src]}", 64)

    def _receive(self, now: int, packet: Packet) -> None:
        pair = self.by_number[packet.dest_qp & 0xFFF]
        number = packet.psn
        if packet.opcode == ACKNOWLEDGE:
            nak = packet.aeth >> 24 == NAK
            acked = number if nak else number + 1
            if acked > pair.unacked:
                pair.unacked, pair.next = acked, max(pair.next, acked)
                waits = pair.next - pair.unacked >= MESSAGE
                pair.deadline = now + TIMEOUT if waits else None
            if nak and number >= pair.unacked:
                pair.next = number
            return
        if number > pair.expected:
            if not pair.nak_sent:
                pair.nak_sent = True
                self._leave(now, pair, pair.expected, ACKNOWLEDGE, NAK)
            return
        if number == pair.expected:
            pair.expected, pair.nak_sent = number + 1, False
        if packet.ask:
            self._leave(now, pair, pair.expected - 1, ACKNOWLEDGE, ACK)

    # Links and devices.

    def _arrive(self, now: int, packet: Packet, tap: str, hop_limit: int) -> None:
        self.run.taps[tap].append(Sighting(START_NS + now, hop_limit, packet))
        after = self._next(packet, tap, now)
        if after is None:
            if self.nic(packet, now):
                self._at(now + BASE, self._receive, packet)
            else:
                self.run.hits.append(Hit(START_NS + now, packet, False))
            return
        passing = self.fault(packet, tap, after, now)
        if passing is not None:
            self.run.hits.append(Hit(START_NS + now, packet, bool(passing)))
        for one, delay in [(packet, 0)] if passing is None else passing:
            time = now + BASE + self.chance.randrange(JITTER)
            time = max(time, self.free.get((tap, after), 0) + 100)
            self.free[tap, after] = time
            self._at(time + delay, self._arrive, one, after, hop_limit - 1)

    def _next(self, packet: Packet, tap: str, now: int) -> str | None:
        """The tap after a tap; None at the link of the destination."""
        first, last = LEAF[packet.src], LEAF[packet.dst]
        end = f"H{packet.dst}-leaf{last}"
        if tap == end:
            return None
        if tap.startswith("H"):
            return end if first == last else f"leaf{first}-spine{self.route(packet, now)}"
        leaf, spine = tap.split("-")
        return f"leaf{last}-{spine}" if leaf == f"leaf{first}" else end


def takes_all(packet: Packet, now: int) -> bool:
    return True


def simulate(
    pairs: list[Pair] | None = None,
    fault: Fault = no_fault,
    route: Route = by_port,
    seed: int = 1,
    nic: Nic = takes_all,
) -> Run:
    """The sightings of a run."""
    return Simulation(usual_pairs() if pairs is None else pairs, fault, route, seed, nic).go()


# Faults.


@cache
def _fits(tap: str, pattern: str) -> bool:
    return fnmatchcase(tap, pattern)


def between(
    near: str,
    far: str,
    make: Callable[[Packet, int], Passing],
    first: int = 0,
    last: int = DURATION,
    which: Callable[[Packet], bool] = lambda packet: True,
) -> Fault:
    """`make` of the packets between taps that fit two patterns, in a span of time."""

    def fault(packet: Packet, before: str, after: str, now: int) -> Passing | None:
        if not (first <= now < last and _fits(before, near) and _fits(after, far)):
            return None
        return make(packet, now) if which(packet) else None

    return fault


def some(share: float, seed: int = 7) -> Callable[[Packet], bool]:
    """A random share of the packets."""
    chance = random.Random(seed)
    return lambda packet: chance.random() < share


def drop(packet: Packet, now: int) -> Passing:
    return []


def delay(ns: int) -> Callable[[Packet, int], Passing]:
    return lambda packet, now: [(packet, ns)]


def duplicate(packet: Packet, now: int) -> Passing:
    return [(packet, 0), (packet, 10 * US)]


def rewrite(tos: int) -> Callable[[Packet, int], Passing]:
    return lambda packet, now: [(packet._replace(tos=tos), 0)]


def queue(
    near: str,
    far: str,
    bits_per_second: float,
    first: int = 0,
    last: int = DURATION,
    room: int = 1 << 30,
) -> Fault:
    """An egress that is slow for a span of time, before a buffer for `room` packets; a FIFO."""
    ends: list[float] = []

    def fault(packet: Packet, before: str, after: str, now: int) -> Passing | None:
        if not (_fits(before, near) and _fits(after, far)):
            return None
        ends[:] = [end for end in ends if end > now]
        if len(ends) >= room:
            return []
        slow = first <= now < last
        if not slow and not ends:
            return None
        rate = bits_per_second if slow else FAST
        end = max([now, *ends]) + 8e9 * wire_bytes(packet) / rate
        ends.append(end)
        return [(packet, round(end) - now)]

    return fault


# Files.


def wire_bytes(packet: Packet, ipv6: bool = False) -> int:
    more = 16 if packet.opcode == WRITE_FIRST else 4 if packet.opcode == ACKNOWLEDGE else 0
    return 14 + (40 if ipv6 else 20) + 8 + 12 + more + packet.payload_bytes + 4


def address(host: int, ipv6: bool = False) -> str:
    return f"fd00::{LEAF[host]}:{host}" if ipv6 else f"10.0.{LEAF[host]}.{host}"


@cache
def _packed(host: int, ipv6: bool) -> bytes:
    return ip_address(address(host, ipv6)).packed


@cache
def _ethernet(tap: str, src: int) -> bytes:
    """Destination and source address: every port of the fabric has its own."""
    first, second = (bytes([2, 0, 0, 0, LINKS.index(tap), end]) for end in (0, 1))
    node = tap.split("-", maxsplit=1)[0]
    goes_up = node in (f"H{src}", f"leaf{LEAF[src]}")
    return second + first if goes_up else first + second


def _frame(packet: Packet, tap: str, hop_limit: int, ipv6: bool) -> bytes:
    """The headers of a packet; its payload is cut off."""
    addresses = _packed(packet.src, ipv6) + _packed(packet.dst, ipv6)
    udp_bytes = wire_bytes(packet, ipv6) - (54 if ipv6 else 34)
    if ipv6:
        ip = struct.pack(">IHBB", 6 << 28 | packet.tos << 20, udp_bytes, 17, hop_limit)
    else:
        ip = struct.pack(
            ">BBHHHBBH", 0x45, packet.tos, 20 + udp_bytes, packet.ip_id, 0x4000, hop_limit, 17, 0
        )
    link = _ethernet(tap, packet.src) + (b"\x86\xdd" if ipv6 else b"\x08\x00")
    bth = struct.pack(
        ">HHHHBBHII",
        packet.sport, 4791, udp_bytes, 0,
        packet.opcode, 0x40, 0xFFFF, packet.dest_qp, packet.ask << 31 | packet.psn,
    )  # fmt: skip
    rest = b""
    if packet.opcode == WRITE_FIRST:
        rest = struct.pack(">QII", 0x7F00_0000_0000, 0x1234, MESSAGE * packet.payload_bytes)
    elif packet.opcode == ACKNOWLEDGE:
        rest = struct.pack(">I", packet.aeth)
    return link + ip + addresses + bth + rest


def write(folder: Path, taps: Mapping[str, Iterable[Sighting]], ipv6: bool = False) -> list[Path]:
    """One pcap with nanoseconds per tap, cut after the headers."""
    paths = []
    for tap, sightings in taps.items():
        parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)]
        for time_ns, hop_limit, packet in sightings:
            frame = _frame(packet, tap, hop_limit, ipv6)
            seconds, rest = divmod(time_ns, 10**9)
            whole = wire_bytes(packet, ipv6)
            parts += [struct.pack("<IIII", seconds, rest, len(frame), whole), frame]
        paths.append(folder / f"{tap}.pcap")
        paths[-1].write_bytes(b"".join(parts))
    return paths


# What the analysis says of them.


def diagnosis(paths: Iterable[Path], fabric: FabricLinks | None = None) -> Diagnosis:
    return analyze([str(path) for path in paths], AnalyzeOptions(fabric=fabric)).diagnosis


def fabric_links() -> FabricLinks:
    """The links of all taps, and the addresses of the hosts."""
    ends = [link.split("-") for link in LINKS]
    return FabricLinks(
        links=[link for a, b in ends for link in ((a, b), (b, a))],
        hosts=frozenset(f"H{host}" for host in LEAF),
        networks={ip_network(address(host)): f"H{host}" for host in LEAF},
    )


def severe(folder: Path, run: Run, ipv6: bool = False) -> list[Finding]:
    """The findings of severity warning or above."""
    return warnings(diagnosis(write(folder, run.taps, ipv6)))


def warnings(found: Diagnosis) -> list[Finding]:
    return [finding for finding in found.findings if finding.severity != "note"]


def place_of(finding: Finding) -> Place:
    """(from_tap, to_tap, device, direction) with taps by their short names."""
    place = finding.place
    return tap_of(place.from_tap), tap_of(place.to_tap), place.device, place.direction


def tap_of(name: str | None) -> str | None:
    return None if name is None else Path(name).name.removesuffix(".pcap")


def flows_of(finding: Finding) -> set[tuple[str, str, int]]:
    return {(each.src, each.dst, each.dest_qp) for each in finding.affected}


def names(
    finding: Finding,
    kind: str,
    place: Place,
    hits: list[Hit],
    ipv6: bool = False,
    least: float = 1.0,
) -> None:
    """Asserts kind and place, the packets and flows hit, and the onset to the nanosecond.

    least: share of the packets hit that must be known; others may be in flight at either end of the
    captures.
    """
    assert (finding.kind, place_of(finding)) == (kind, place)
    assert least * len(hits) <= finding.packets <= len(hits)
    if least < 1:
        return
    assert flows_of(finding) == flows_hit(hits, ipv6)
    assert finding.from_ns == hits[0].time_ns


def flows_hit(hits: Iterable[Hit], ipv6: bool = False) -> set[tuple[str, str, int]]:
    return {
        (address(hit.packet.src, ipv6), address(hit.packet.dst, ipv6), hit.packet.dest_qp)
        for hit in hits
    }
