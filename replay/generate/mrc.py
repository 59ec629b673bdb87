"""Generated MRC traffic with its ground truth."""

from __future__ import annotations

import heapq
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple

import numpy as np

from ...analyzer.wire.bth import ROCE_UDP_PORT
from .queue_pairs import START_NS

# Frames of MRC as bytes: Ethernet, optional SRv6, IPv6 or IPv4, UDP, BTH and MRC's headers.
#
# Layouts and their certainty: docs/mrc.md.

WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0xC6, 0xC7, 0xC8, 0xCA
ACK, ENDPOINT_REQUEST, ENDPOINT_RESPONSE, SACK, NACK, PROBE = 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE
ENDPOINT_QP = 2
RTX, TS, ACK_REQUEST = 0x20, 0x10, 0x80
CE, ECT0 = 3, 2
TIMESTAMP_NS = 128
_DEFAULT_TYPE = 1  # ftype of TSETH and of the stamps in PETH and ERTH


@dataclass(frozen=True, slots=True)
class Format:
    """Properties common to all packets of a capture."""

    ipv6: bool = True
    srv6: bool = True
    timestamps: bool = True
    label_high: bool = True
    """The flow label is the high half of an entropy value that SACKs and NACKs reflect."""
    port: int = ROCE_UDP_PORT
    snap: int = 160
    """Bytes kept of every frame, 0 for whole ones."""


@dataclass(frozen=True, slots=True)
class Way:
    """Destination and path of a packet."""

    src: bytes
    """16 bytes; IPv4 in the last four."""
    dst: bytes
    sport: int
    label: int
    """Flow label bits 15..0."""
    carrier: bytes
    """Outer destination address (uSID carrier)."""
    dscp: int
    ecn: int = ECT0


def entropy(way: Way, form: Format) -> int:
    """The entropy value as SACKs and NACKs reflect it."""
    label = way.label if form.ipv6 else 0
    return label << 16 | way.sport if form.label_high else way.sport << 16 | label


def bth(opcode: int, qp: int, psn: int, flags: int = 0, pad: int = 0) -> bytes:
    """The base transport header; `flags` is its byte 8."""
    return struct.pack(">BBHII", opcode, pad << 4, 0xFFFF, qp, flags << 24 | psn & 0xFFFFFF)


def write_headers(
    message: int, timestamp: int | None, address: int, length: int, key: int = 0x1234
) -> bytes:
    """METH, TSETH if there is a timestamp, and RETH."""
    stamp = b"" if timestamp is None else struct.pack(">HH", timestamp & 0xFFFF, _DEFAULT_TYPE)
    return (
        struct.pack(">HH", 0, message & 0xFFFF) + stamp + struct.pack(">QII", address, key, length)
    )


def sack_headers(
    *,
    feedback: int,
    probe_id: int | None,
    offset: int,
    entropy: int,
    cumulative: int,
    mpr: int,
    base_offset: int,
    bitmap: int,
    timestamp: int,
    held: int,
    received: int,
) -> bytes:
    """SETH and CC_STATE; `received` counts units of 256 bytes."""
    third = probe_id if probe_id is not None else offset & 0xFFFF
    first = feedback << 5 | (probe_id is not None) << 1
    seth = struct.pack(
        ">BBHIHHIBBHQ",
        0, first, third, entropy, 0, 0, cumulative & 0xFFFFFF, 0, mpr, base_offset & 0xFFFF, bitmap,
    )  # fmt: skip
    return seth + struct.pack(">HHI", timestamp & 0xFFFF, held & 0x7FFF, received & 0xFFFFFF)


def nack_headers(reason: int, entropy: int, psn: int, timestamp: int) -> bytes:
    """NETH."""
    return struct.pack(
        ">HBBIHHIBBH", 0, reason, 0, entropy, 0, 0, psn & 0xFFFFFF, 0x20, 0, timestamp & 0xFFFF
    )


def probe_headers(probe_id: int, timestamp: int) -> bytes:
    """PETH."""
    return struct.pack(">HBBHHHHHH", 0, 0, 0, probe_id, 0, 0, 0, timestamp & 0xFFFF, _DEFAULT_TYPE)


def port_status_headers(mask: int, timestamp: int) -> bytes:
    """ERTH of a port status update."""
    return struct.pack(">BBBBIIHH", 0, 0, 0, 0, mask, 0, timestamp & 0xFFFF, _DEFAULT_TYPE)


def endpoint_response_headers(timestamp: int) -> bytes:
    """EETH."""
    return bytes(28) + struct.pack(">H", timestamp & 0xFFFF) + bytes(6)


def frame(
    way: Way, form: Format, transport: bytes, payload: int, trimmed: bool = False
) -> tuple[bytes, int]:
    """(captured bytes, bytes on the wire); `transport` is BTH and headers, zeros follow.

    A trimmed packet ends after its headers, with adjusted lengths and without ICRC.
    """
    content = len(transport) + (0 if trimmed else payload + 4)
    udp = struct.pack(">HHHH", way.sport, form.port, 8 + content, 0)
    dsfield = way.dscp << 2 | way.ecn
    if form.ipv6:
        first = 6 << 28 | dsfield << 20 | way.label
        ip = struct.pack(">IHBB", first, 8 + content, 17, 64) + way.src + way.dst
    else:
        ip = _ipv4(way, dsfield, 28 + content)
    outer = b""
    if form.srv6:
        size = len(ip) + 8 + content
        next_header = 41 if form.ipv6 else 4
        first = 6 << 28 | dsfield << 20 | way.label
        outer = struct.pack(">IHBB", first, size, next_header, 63) + way.src + way.carrier
    ethertype = 0x86DD if form.srv6 or form.ipv6 else 0x0800
    ends = way.dst[12:], way.src[12:]
    if form.srv6:  # one link between routers; it sends upwards what hosts with even numbers send
        ends = bytes((0, 0, 0, 1 + way.src[15] % 2)), bytes((0, 0, 0, 2 - way.src[15] % 2))
    link = b"".join(b"\x02\x00" + end for end in ends) + struct.pack(">H", ethertype)
    headers = link + outer + ip + udp + transport
    wire = len(headers) + (0 if trimmed else payload + 4)
    if form.snap and form.snap < wire:
        return (headers + bytes(max(0, form.snap - len(headers))))[: form.snap], wire
    if trimmed:
        return headers, wire
    body = bytes(payload)
    return headers + body + _icrc(ip, udp, transport + body, form.ipv6), wire


def _ipv4(way: Way, dsfield: int, total: int) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, dsfield, total, 0, 0x4000, 64, 17, 0)
    head += way.src[12:] + way.dst[12:]
    words = sum(struct.unpack(">10H", head))
    words = (words & 0xFFFF) + (words >> 16)
    checksum = ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF
    return head[:10] + struct.pack(">H", checksum) + head[12:]


def _icrc(ip: bytes, udp: bytes, content: bytes, ipv6: bool) -> bytes:
    """The ICRC of the inner packet: fields that routers change are ones (RoCEv2, annex A17)."""
    if ipv6:
        masked = b"\x6f\xff\xff\xff" + ip[4:7] + b"\xff" + ip[8:]
    else:
        masked = ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
    masked += udp[:6] + b"\xff\xff" + content[:4] + b"\xff" + content[5:]
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))


# One MRC queue pair of generated traffic: entropy values, receiver, ground truth.


@dataclass(frozen=True, slots=True)
class Settings:
    """Amount of traffic and its impairments."""

    hosts: int = 2
    qps: int = 1
    planes: int = 4
    evs: int = 64
    """Entropy values in use per queue pair, a multiple of the planes."""
    messages: int = 4
    message_bytes: int = 1 << 20
    path_mtu: int = 4096
    rate_bits_per_second: int = 400_000_000_000
    round_trip_ns: int = 10_000
    skew_ns: int = 3_000
    """Maximum additional delay of a path relative to the fastest."""
    loss: float = 0.0
    trim: float = 0.0
    ce: float = 0.0
    always_skip: int = 0
    """Entropy values per queue pair that the receiver declares bad."""
    failed_plane: int | None = None
    """Plane, from 1, that host 0 loses in the middle half of the traffic."""
    timeout_ns: int = 100_000
    at_receiver: bool = False
    """The tap is at the receivers, otherwise at the senders."""
    seed: int = 1


@dataclass(slots=True, eq=False)
class Entropy:
    """One entropy value of a queue pair."""

    sport: int
    label: int
    plane: int
    number: int
    """Its index in the queue pair."""
    state: str = "backup"
    """good, skip, bad or backup."""


@dataclass(slots=True)
class EntropyTruth:
    """Packets of one entropy value at the tap, and their answers."""

    plane: int
    packets: int = 0
    wire_bytes: int = 0
    ecn_marked_packets: int = 0
    retransmissions: int = 0
    lost_packets: int = 0
    """Packets with this entropy value that passed the tap and were retransmitted."""
    trimmed_packets: int = 0
    skip_once: int = 0
    always_skip: int = 0
    nacks: int = 0
    round_trips: int = 0
    round_trip_sum_ns: int = 0
    round_trip_min_ns: int | None = None
    round_trip_max_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass(slots=True)
class Truth:
    """Ground truth of one queue pair."""

    packets: int = 0
    retransmissions: int = 0
    lost: int = 0
    trimmed: int = 0
    ce: int = 0
    sacks: int = 0
    skip_once: int = 0
    always_skip: int = 0
    nacks: int = 0
    acks: int = 0
    values: dict[tuple[int, int], EntropyTruth] = field(default_factory=dict)
    depths: list[int] = field(default_factory=list)
    """PSNs from the cumulative to the highest received PSN, of each SACK."""
    in_flight: list[int] = field(default_factory=list)
    """PSNs sent after the cumulative PSN when each SACK reaches the sender."""
    received_units: list[int] = field(default_factory=list)
    """Counter of received bytes in each SACK, units of 256."""
    plane_packets: Counter[int] = field(default_factory=Counter)
    retired: list[dict[str, Any]] = field(default_factory=list)


class Captured(NamedTuple):
    """A frame that passed the tap."""

    time_ns: int
    data: bytes
    wire: int


class Sent(NamedTuple):
    psn: int
    ev: Entropy
    resent: bool
    time_ns: int


class Pair:
    """One queue pair with its receiver."""

    def __init__(self, s: Settings, rng: np.random.Generator, src: int, number: int) -> None:
        self.src, self.dst = src, (src + 1) % s.hosts
        self.qp = 0x100 + src * s.qps + number
        self.back_qp = 0x10000 + src * s.qps + number
        self.first_psn = int(rng.integers(1 << 24))
        self.per_message = -(-s.message_bytes // s.path_mtu)
        self.total = self.per_message * s.messages
        per_plane = s.evs // s.planes
        spare = max(1, per_plane // 4)
        self.evs = [
            Entropy(int(port), int(label), i % s.planes, i)
            for i, (port, label) in enumerate(
                zip(
                    rng.choice(0x4000, (per_plane + spare) * s.planes, replace=False) + 0xC000,
                    rng.integers(1, 1 << 16, (per_plane + spare) * s.planes),
                    strict=True,
                )
            )
        ]
        for ev in self.evs[: s.evs]:
            ev.state = "good"
        self.reverse = [
            Entropy(int(rng.integers(0xC000, 1 << 16)), int(rng.integers(1, 1 << 16)), plane, plane)
            for plane in range(s.planes)
        ]
        self.order = list(rng.permutation(len(self.evs)))
        self.cursor = 0
        self.next = 0
        self.closed_planes: set[int] = set()
        self.bad_since: dict[int, dict[str, Any]] = {}
        self.doomed = {int(i) for i in rng.choice(s.evs, s.always_skip, replace=False)}
        self.truth = Truth()
        # the receiver
        self.cumulative = -1
        self.received: set[int] = set()
        self.highest = -1
        self.received_bytes = 0
        self.unacknowledged = 0
        self.told_cumulative = -1

    def select(self, avoid: Entropy | None = None) -> Entropy:
        """The next entropy value in turn; at most one leaves the state skip."""
        restored: Entropy | None = None
        for _ in range(2 * len(self.order)):
            ev: Entropy = self.evs[self.order[self.cursor]]
            self.cursor = (self.cursor + 1) % len(self.order)
            if ev.plane in self.closed_planes or ev is avoid:
                continue
            if ev.state == "skip":
                if restored is None:
                    ev.state, restored = "good", ev
                continue
            if ev.state == "good":
                return ev
        return restored or next(ev for ev in self.evs if ev.plane not in self.closed_planes)

    def of(self, ev: Entropy) -> EntropyTruth:
        """The record of an entropy value."""
        return self.truth.values.setdefault((ev.sport, ev.label), EntropyTruth(ev.plane + 1))

    def passed(self, ev: Entropy, time_ns: int, wire: int, resent: bool) -> EntropyTruth:
        """Record a data packet at the tap."""
        slot = self.of(ev)
        slot.packets += 1
        slot.wire_bytes += wire
        slot.retransmissions += resent
        slot.first_ns = time_ns if slot.first_ns is None else slot.first_ns
        slot.last_ns = time_ns
        entry = self.bad_since.get(id(ev))
        if entry and entry["returned_ns"] and entry["used_again_ns"] is None:
            entry["used_again_ns"] = time_ns
        return slot

    def timed(self, ev: Entropy, elapsed_ns: int) -> None:
        """Record a round trip, from a packet at the tap to its answer at the tap."""
        slot = self.of(ev)
        slot.round_trips += 1
        slot.round_trip_sum_ns += elapsed_ns
        slot.round_trip_min_ns = min(slot.round_trip_min_ns or elapsed_ns, elapsed_ns)
        slot.round_trip_max_ns = max(slot.round_trip_max_ns or elapsed_ns, elapsed_ns)

    def retire(self, ev: Entropy, now: int, cause: str) -> None:
        """Replace an entropy value by a backup of its plane, if there is one."""
        if ev.state not in ("good", "skip"):
            return
        spare = next((e for e in self.evs if e.state == "backup" and e.plane == ev.plane), None)
        if spare is None:
            return
        ev.state, spare.state = "bad", "good"
        entry = {
            "sport": ev.sport, "flow_label": ev.label, "plane": ev.plane + 1,
            "last_used_ns": self.of(ev).last_ns, "retired_ns": START_NS + now, "cause": cause,
            "returned_ns": None, "used_again_ns": None,
        }  # fmt: skip
        self.truth.retired.append(entry)
        self.bad_since[id(ev)] = entry


# MRC between hosts with several planes, packet by packet, with its ground truth.
#
# A simple model to test an analyzer, not to predict a network: each host writes to the next
# over its own queue pairs; packets use entropy values in turn; losses, trims and marks are
# random. Values that the specification leaves open (timers, numbers of probes, trim size) are
# arbitrary.

DATA_DSCP, TRIMMED_DSCP, CONTROL_DSCP = 4, 12, 46
SKIP_ONCE, ALWAYS_SKIP = 1, 2
TRIMMED = 1
MPR = 8
_WINDOW = MPR * 128
_SACK_EVERY = 4
_BITMAP = 64
_COUNTS = ("packets", "retransmissions", "lost", "trimmed", "ce", "sacks", "skip_once")


class Traffic:
    """All queue pairs; `captured` runs them."""

    def __init__(self, settings: Settings, form: Format) -> None:
        self.settings = settings
        self.form = form
        self.rng = np.random.default_rng(settings.seed)
        self.events: list[tuple[int, int, Any, tuple[Any, ...]]] = []
        self.serial = 0
        self.addresses = [_packed(host, form.ipv6) for host in range(settings.hosts)]
        self.pairs = [
            Pair(settings, self.rng, src, n)
            for src in range(settings.hosts)
            for n in range(settings.qps)
        ]
        gap = settings.path_mtu * 8e9 / settings.rate_bits_per_second * settings.qps
        self.interval_ns = max(1, round(gap))
        self.skew = self.rng.integers(
            0, settings.skew_ns + 1, (settings.hosts, settings.planes, 64)
        )
        self.outage: tuple[int, int] | None = None
        self.outages: list[dict[str, Any]] = []
        if settings.failed_plane is not None:
            length = self.pairs[0].total * self.interval_ns
            self.outage = (length // 4, 3 * length // 4)
        self.frames: list[Captured] = []

    def at(self, time_ns: int, call: Any, *arguments: Any) -> None:
        """Schedule a call."""
        self.serial += 1
        heapq.heappush(self.events, (time_ns, self.serial, call, arguments))

    def captured(self) -> Iterator[Captured]:
        """The frames in order of time."""
        for pair in self.pairs:
            self.at(int(self.rng.integers(1000)), self._send, pair)
        if self.outage is not None:
            for when, is_up in ((self.outage[0], False), (self.outage[1], True)):
                self.at(when + self.settings.round_trip_ns, self._tell_ports, is_up)
        while self.events:
            now, _, call, arguments = heapq.heappop(self.events)
            call(now, *arguments)
        self.frames.sort(key=lambda frame: frame.time_ns)
        yield from self.frames

    # --- what the sender does -------------------------------------------------------

    def _send(self, now: int, pair: Pair) -> None:
        if pair.next >= pair.total:
            return
        if pair.next - pair.told_cumulative >= _WINDOW:
            self.at(now + self.settings.round_trip_ns, self._send, pair)
            return
        self._transmit(now, pair, pair.next, pair.select(), False)
        pair.next += 1
        self.at(now + self.interval_ns, self._send, pair)

    def _transmit(self, now: int, pair: Pair, number: int, ev: Entropy, resent: bool) -> None:
        s, truth = self.settings, pair.truth
        sent = Sent(number, ev, resent, now)
        truth.plane_packets[ev.plane + 1] += 1
        truth.retransmissions += resent
        truth.packets += not resent
        if not s.at_receiver:
            self._capture_data(now, pair, sent, 0, False)
        chance = self.rng.random()
        arrives = now + s.round_trip_ns // 2 + self._delay(pair.src, ev)
        if self._plane_is_down(pair, ev.plane, now) or chance < s.loss:
            truth.lost += 1
            self.at(now + s.timeout_ns, self._lost, pair, sent)
        elif chance < s.loss + s.trim and not resent:
            truth.trimmed += 1
            self.at(arrives, self._trimmed, pair, sent)
        else:
            self.at(arrives, self._arrive, pair, sent, bool(self.rng.random() < s.ce))

    def _delay(self, host: int, ev: Entropy) -> int:
        return int(self.skew[host, ev.plane, ev.sport % 64])

    def _plane_is_down(self, pair: Pair, plane: int, now: int) -> bool:
        return bool(
            self.outage is not None
            and self.settings.failed_plane == plane + 1
            and 0 in (pair.src, pair.dst)
            and self.outage[0] <= now < self.outage[1]
        )

    def _lost(self, now: int, pair: Pair, sent: Sent) -> None:
        pair.of(sent.ev).lost_packets += not self.settings.at_receiver
        if sent.ev.plane not in pair.closed_planes:
            pair.retire(sent.ev, now, "loss")
            if sent.ev.state == "bad":
                self.at(now + 40 * self.settings.timeout_ns, self._probe, pair, sent.ev)
        self._transmit(now, pair, sent.psn, pair.select(sent.ev), True)

    def _probe(self, now: int, pair: Pair, ev: Entropy) -> None:
        """Send a probe with a retired entropy value; the answer may return it to use."""
        probe_id = self.serial & 0xFFFF
        stamp = (now // TIMESTAMP_NS) if self.form.timestamps else 0
        content = bth(PROBE, pair.qp, 0) + probe_headers(probe_id, stamp)
        self._capture(now, self._forward(pair, ev, DATA_DSCP), content, True)
        if not self._plane_is_down(pair, ev.plane, now):
            self.at(
                now + self.settings.round_trip_ns // 2 + self._delay(pair.src, ev),
                self._answer_probe, pair, ev, probe_id,
            )  # fmt: skip

    def _answer_probe(self, now: int, pair: Pair, ev: Entropy, probe_id: int) -> None:
        asked = now - self.settings.round_trip_ns // 2 - self._delay(pair.src, ev)
        self._sack(now, pair, ev, -1, 0, asked, probe_id=probe_id)
        self.at(now + self.settings.round_trip_ns // 2, self._return, pair, ev)

    def _return(self, now: int, pair: Pair, ev: Entropy) -> None:
        if ev.state == "bad":
            ev.state = "good"
            pair.bad_since[id(ev)]["returned_ns"] = START_NS + now

    def _tell_ports(self, now: int, is_up: bool) -> None:
        """A port of host 0 failed or recovered: it informs its peers over the other ports."""
        s = self.settings
        assert s.failed_plane is not None
        mask = (1 << s.planes) - 1
        if not is_up:
            mask &= ~(1 << s.failed_plane - 1)
            self.outages.append(
                {"host": self._address(0), "port": s.failed_plane, "down_ns": START_NS + now}
            )
        else:
            self.outages[-1]["up_ns"] = START_NS + now
        for pair in self.pairs:
            if pair.src == 0:
                ev = pair.evs[s.failed_plane % s.planes]
                probe_id = self.serial & 0xFFFF
                stamp = now // TIMESTAMP_NS
                request = bth(ENDPOINT_REQUEST, ENDPOINT_QP, probe_id)
                request += port_status_headers(mask, stamp)
                way = self._forward(pair, ev, CONTROL_DSCP)
                self._capture(now, way, request, True)
                response = bth(ENDPOINT_RESPONSE, ENDPOINT_QP, probe_id)
                response += endpoint_response_headers(stamp)
                self._capture(now + s.round_trip_ns, self._backward(pair, 0), response, False)
            if 0 in (pair.src, pair.dst):
                plane = s.failed_plane - 1
                if is_up:
                    pair.closed_planes.discard(plane)
                else:
                    pair.closed_planes.add(plane)

    # --- what the receiver does ------------------------------------------------------

    def _arrive(self, now: int, pair: Pair, sent: Sent, marked: bool) -> None:
        s, truth = self.settings, pair.truth
        if s.at_receiver:
            self._capture_data(now, pair, sent, CE if marked else ECT0, False)
        truth.ce += marked
        if sent.psn > pair.cumulative and sent.psn not in pair.received:
            pair.received.add(sent.psn)
            pair.highest = max(pair.highest, sent.psn)
            pair.received_bytes += self._payload(pair, sent.psn)
        while pair.cumulative + 1 in pair.received:
            pair.cumulative += 1
            pair.received.discard(pair.cumulative)
            if (pair.cumulative + 1) % pair.per_message == 0:
                self._acknowledge(now, pair)
        pair.unacknowledged += 1
        position = sent.ev.number
        feedback = SKIP_ONCE if marked else 0
        if position in pair.doomed:
            pair.doomed.discard(position)
            feedback = ALWAYS_SKIP
            self.at(now + s.round_trip_ns // 2, self._always_skip, pair, sent.ev)
        last = sent.psn == pair.total - 1
        if feedback or sent.resent or last or pair.unacknowledged >= _SACK_EVERY:
            pair.unacknowledged = 0
            self._sack(now, pair, sent.ev, sent.psn, feedback, sent.time_ns)
            if feedback == SKIP_ONCE:
                self.at(now + s.round_trip_ns // 2, self._skip, sent.ev)

    def _skip(self, now: int, ev: Entropy) -> None:
        if ev.state == "good":
            ev.state = "skip"

    def _always_skip(self, now: int, pair: Pair, ev: Entropy) -> None:
        pair.retire(ev, now, "always_skip")

    def _trimmed(self, now: int, pair: Pair, sent: Sent) -> None:
        if self.settings.at_receiver:
            self._capture_data(now, pair, sent, ECT0, True)
        pair.truth.nacks += 1
        pair.of(sent.ev).nacks += 1
        way = self._forward(pair, sent.ev, 0)
        stamp = self._reflected(now, pair, sent.ev, sent.time_ns)
        content = bth(NACK, pair.back_qp, 0) + nack_headers(
            TRIMMED, entropy(way, self.form), pair.first_psn + sent.psn, stamp
        )
        back = self._backward(pair, self._open_plane(pair))
        self._capture(now, back, content, False)
        self.at(now + self.settings.round_trip_ns // 2, self._refused, pair, sent)

    def _refused(self, now: int, pair: Pair, sent: Sent) -> None:
        pair.of(sent.ev).lost_packets += 1
        if sent.ev.state == "good":
            sent.ev.state = "skip"
        self._transmit(now, pair, sent.psn, pair.select(sent.ev), True)

    def _acknowledge(self, now: int, pair: Pair) -> None:
        pair.truth.acks += 1
        content = bth(ACK, pair.back_qp, pair.first_psn + pair.cumulative)
        content += (0x1F << 24 | (pair.cumulative + 1) // pair.per_message & 0xFFFFFF).to_bytes(4)
        self._capture(now, self._backward(pair, self._open_plane(pair)), content, False)

    def _sack(
        self, now: int, pair: Pair, ev: Entropy, psn: int, feedback: int, asked_ns: int,
        probe_id: int | None = None,
    ) -> None:  # fmt: skip
        """Answer a packet or probe that was sent at `asked_ns`."""
        truth, about = pair.truth, pair.of(ev)
        about.skip_once += feedback == SKIP_ONCE
        about.always_skip += feedback == ALWAYS_SKIP
        truth.depths.append(pair.highest - pair.cumulative if pair.received else 0)
        truth.received_units.append(pair.received_bytes // 256)
        truth.sacks += 1
        truth.skip_once += feedback == SKIP_ONCE
        truth.always_skip += feedback == ALWAYS_SKIP
        base = max(pair.highest - _BITMAP + 1, pair.cumulative + 1)
        held = pair.received
        bitmap = sum(1 << i for i in range(_BITMAP) if base + i in held) if held else 0
        cumulative = pair.first_psn + pair.cumulative
        content = bth(SACK, pair.back_qp, cumulative) + sack_headers(
            feedback=feedback,
            probe_id=probe_id,
            offset=psn - pair.cumulative,
            entropy=entropy(self._forward(pair, ev, 0), self.form),
            cumulative=cumulative,
            mpr=MPR,
            base_offset=base - pair.cumulative,
            bitmap=bitmap,
            timestamp=self._reflected(now, pair, ev, asked_ns),
            held=len(pair.received),
            received=pair.received_bytes // 256,
        )
        back = self._backward(pair, self._open_plane(pair))
        self._capture(now, back, content, False)
        self.at(now + self.settings.round_trip_ns // 2, self._hear, pair, pair.cumulative)

    def _reflected(self, now: int, pair: Pair, ev: Entropy, asked_ns: int) -> int:
        """The timestamp that an answer reflects; records the round trip."""
        if not self.form.timestamps:
            return 0
        stamp = asked_ns // TIMESTAMP_NS & 0xFFFF
        if stamp and not self.settings.at_receiver:
            pair.timed(ev, now + self.settings.round_trip_ns // 2 - asked_ns)
        return stamp

    def _hear(self, now: int, pair: Pair, cumulative: int) -> None:
        pair.truth.in_flight.append(pair.next - 1 - cumulative)
        pair.told_cumulative = max(pair.told_cumulative, cumulative)

    def _open_plane(self, pair: Pair) -> int:
        usable = [p for p in range(self.settings.planes) if p not in pair.closed_planes]
        return usable[self.serial % len(usable)]

    # --- packets ----------------------------------------------------------------------

    def _address(self, host: int) -> str:
        packed = self.addresses[host]
        return str(IPv6Address(packed) if self.form.ipv6 else IPv4Address(packed[12:]))

    def _carrier(self, src: int, dst: int, plane: int, spread: int, hops_done: bool) -> bytes:
        """Block fcbb:bb00, T0 and T1 of the plane, T0 and port of the destination."""
        t0 = [0x100 * (plane + 1) + src // 32, 0x100 * (plane + 1) + 0x80 + spread % 8]
        rest = [0x100 * (plane + 1) + dst // 32, 0xD000 | plane << 8 | dst & 0xFF]
        usids = [rest[-1]] if hops_done else t0 + rest
        return b"\xfc\xbb\xbb\x00" + b"".join(u.to_bytes(2) for u in usids).ljust(12, b"\0")

    def _forward(self, pair: Pair, ev: Entropy, dscp: int) -> Way:
        carrier = self._carrier(pair.src, pair.dst, ev.plane, ev.sport, self.settings.at_receiver)
        src, dst = self.addresses[pair.src], self.addresses[pair.dst]
        return Way(src, dst, ev.sport, ev.label, carrier, dscp)

    def _backward(self, pair: Pair, plane: int) -> Way:
        ev = pair.reverse[plane]
        done = not self.settings.at_receiver
        carrier = self._carrier(pair.dst, pair.src, plane, ev.sport, done)
        src, dst = self.addresses[pair.dst], self.addresses[pair.src]
        return Way(src, dst, ev.sport, ev.label, carrier, CONTROL_DSCP)

    def _payload(self, pair: Pair, number: int) -> int:
        s = self.settings
        position = number % pair.per_message
        return min(s.path_mtu, s.message_bytes - position * s.path_mtu)

    def _capture_data(self, now: int, pair: Pair, sent: Sent, ecn: int, trimmed: bool) -> None:
        s = self.settings
        message, position = divmod(sent.psn, pair.per_message)
        last = position == pair.per_message - 1
        opcode = WRITE_MIDDLE
        if pair.per_message == 1:
            opcode = WRITE_ONLY
        elif position == 0:
            opcode = WRITE_FIRST
        elif last:
            opcode = WRITE_LAST
        flags = RTX if sent.resent else 0
        flags |= TS if self.form.timestamps else 0
        flags |= ACK_REQUEST if last else 0
        payload = self._payload(pair, sent.psn)
        pad = -payload & 3
        content = bth(opcode, pair.qp, pair.first_psn + sent.psn, flags, pad)
        content += write_headers(
            message,
            sent.time_ns // TIMESTAMP_NS if self.form.timestamps else None,
            0x7F00_0000_0000 + message * s.message_bytes + position * s.path_mtu,
            s.message_bytes,
        )
        way = self._forward(pair, sent.ev, TRIMMED_DSCP if trimmed else DATA_DSCP)
        if ecn:
            way = Way(way.src, way.dst, way.sport, way.label, way.carrier, way.dscp, ecn)
        data, wire = frame(way, self.form, content, payload + pad, trimmed)
        value = pair.passed(sent.ev, START_NS + now, wire, sent.resent)
        value.trimmed_packets += trimmed
        value.ecn_marked_packets += ecn == CE
        self.frames.append(Captured(START_NS + now, data, wire))

    def _capture(self, now: int, way: Way, content: bytes, forward: bool) -> None:
        """The time at the tap of a control packet sent `now`."""
        at_other_end = forward == self.settings.at_receiver
        passes = now + (self.settings.round_trip_ns // 2 if at_other_end else 0)
        data, wire = frame(way, self.form, content, 0)
        self.frames.append(Captured(START_NS + passes, data, wire))

    def truth(self) -> dict[str, Any]:
        """The ground truth, for comparison with an analysis."""
        return {
            "planes": self.settings.planes,
            "entropy_order": "flow_label_high" if self.form.label_high else "udp_port_high",
            "frames": len(self.frames),
            "outages": self.outages,
            "flows": [
                {
                    "src": self._address(pair.src),
                    "dst": self._address(pair.dst),
                    "dest_qp": pair.qp,
                    **{name: getattr(pair.truth, name) for name in _COUNTS},
                    "always_skip": pair.truth.always_skip,
                    "nacks": {"TRIMMED": pair.truth.nacks} if pair.truth.nacks else {},
                    "acks": pair.truth.acks,
                    "messages": self.settings.messages,
                    "entropy_values": len(pair.truth.values),
                    "max_out_of_order_depth": max(pair.truth.depths, default=0),
                    "max_in_flight_packets": max(pair.truth.in_flight, default=0),
                    "psn_range_packets": _WINDOW,
                    "received_bytes": 256
                    * (max(pair.truth.received_units) - min(pair.truth.received_units))
                    if pair.truth.received_units
                    else 0,
                    "plane_packets": {
                        str(p): n for p, n in sorted(pair.truth.plane_packets.items())
                    },
                    "plane_bytes": {
                        str(plane + 1): sum(
                            value.wire_bytes
                            for value in pair.truth.values.values()
                            if value.plane == plane + 1
                        )
                        for plane in range(self.settings.planes)
                    },
                    "retired": pair.truth.retired,
                    "values": [
                        {"sport": sport, "flow_label": label, **asdict(value)}
                        for (sport, label), value in sorted(pair.truth.values.items())
                    ],
                }
                for pair in self.pairs
            ],
        }


def _packed(host: int, ipv6: bool) -> bytes:
    """The address of a host, 16 bytes; IPv4 in the last four."""
    if ipv6:
        return IPv6Address(f"fd00::a00:{host + 1:x}").packed
    return bytes(12) + IPv4Address(0x0A00_0001 + host).packed
