"""The queue pairs of one host: RC requesters and responders of WRITE, SEND and READ.

`endpoint.py`, inside the host's namespace: a line of JSON configures it, it says that it is ready,
a second line is the time to start, and it ends with its counters as JSON. Standard library only,
so that it starts quickly. Go-back-N as Linux's rxe does it: one ACK for every
packet that asks for one, one NAK for a gap, retransmission from the PSN of the NAK, a timeout
when nothing is acknowledged, a READ requested again from the first missing response, DF, TTL 64
and an IP ID that increments per pair of addresses.

All frames pass a packet socket bound to IPv4 or IPv6: it sees what the kernel's rules let pass,
and a frame that it sends carries no hash of a socket.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

OPCODES = {"write": (0x06, 0x07, 0x08, 0x0A), "send": (0x00, 0x01, 0x02, 0x04)}
"""First, middle, last and only packet of a message."""
BEGINS, ENDS = (0x06, 0x0A, 0x00, 0x04), (0x08, 0x0A, 0x02, 0x04)
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 0x0C, 0x0D, 0x0E, 0x0F, 0x10
ACKNOWLEDGE, CNP = 0x11, 0x81
ACK, RNR_NAK, PSN_NAK, ACCESS_NAK = 0x1F, 0x2E, 0x60, 0x62
PSNS = 1 << 24
ACK_EVERY = 64
"""A longer message asks for an ACK on every packet of this number."""
MAX_UNACKED = 128
BURST = 8
TICK_S = 0.002
RNR_WAIT_S = 0.02
CNP_EVERY_S = 0.001
SO_RCVBUFFORCE = 33


@dataclass
class Pair:
    """One queue pair: a requester here and a responder there, or the other way round."""

    number: int
    """Its QPN at this host."""
    peer_number: int
    peer: str
    sport: int
    tos: int
    payload_bytes: int
    first_psn: int
    requester: bool
    operation: str
    """write, send or read."""
    messages: list[int] = field(default_factory=list)
    """Packets of each message, of a requester."""
    payload: bytes = b""
    head: bytes = b""
    checksum: int = 0

    # Requester. Sequence numbers are not reduced: packet n has PSN first_psn + n.
    ends: list[tuple[int, int]] = field(default_factory=list)
    next: int = 0
    unacked: int = 0
    highest: int = 0
    message: int = 0
    """Index of the message that `next` is in."""
    asked: int = -1
    """The last packet that asked for an ACK."""
    timer: float | None = None
    wait: float = 0.0
    dead: bool = False
    retransmitted: int = 0
    timeouts: int = 0
    tries: int = 0
    """Timeouts since the last progress."""

    # Responder.
    expected: int = 0
    received: int = 0
    """Whole messages."""
    nak_sent: bool = False
    """Of a READ requester: it has asked for missing responses."""
    last_cnp: float = 0.0


def icrc_of(head: bytes, rest: bytes) -> bytes:
    """The invariant CRC of a packet from its Ethernet and IP headers and all from the UDP header on
    (InfiniBand Architecture Specification, volume 1, A17.3.3): fields that routers change are ones.
    """
    if head[12] == 8:
        ip = b"%c\xff%b\xff%c\xff\xff%b" % (head[14], head[16:22], head[23], head[26:34])
    else:
        ip = b"\x6f\xff\xff\xff%b\xff%b" % (head[18:21], head[22:54])
    udp = b"%b\xff\xff%b\xff%b" % (rest[:6], rest[8:12], rest[13:])
    return zlib.crc32(b"\xff" * 8 + ip + udp).to_bytes(4, "little")


class Endpoint:
    """All queue pairs of one host, driven by one loop."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.family: int = config["family"]
        self.start = 0.0
        self.ip_ids: dict[str, int] = {}
        self.counters = {"sent": 0, "received": 0, "naks": 0, "rnr_naks": 0, "cnps": 0, "unsent": 0}
        self.counters["corrupt"] = 0
        self.pairs = [Pair(**pair) for pair in config["pairs"]]
        self.by_number = {pair.number: pair for pair in self.pairs}
        for pair in self.pairs:
            self._prepare(pair)
        self.requesters = [pair for pair in self.pairs if pair.requester]
        kind = 0x0800 if self.family == 4 else 0x86DD
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind))
        self.socket.bind(("eth0", kind))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        self.socket.setblocking(False)

    def _prepare(self, pair: Pair) -> None:
        pair.payload = bytes(pair.payload_bytes)
        start = 0
        for length in pair.messages:
            pair.ends.append((start, start + length))
            start += length
        source = self.config["address"]
        mac = bytes.fromhex((self.config["to_mac"] + self.config["mac"]).replace(":", ""))
        if self.family == 4:
            addresses = socket.inet_aton(source) + socket.inet_aton(pair.peer)
            flags = 0x4000 if self.config["dont_fragment"] else 0
            head = struct.pack(">BBHHHBBH", 0x45, pair.tos, 0, 0, flags, 64, 17, 0)
            pair.head = mac + b"\x08\x00" + head + addresses
            pair.checksum = sum(struct.unpack(">10H", head + addresses))
        else:
            addresses = socket.inet_pton(socket.AF_INET6, source)
            addresses += socket.inet_pton(socket.AF_INET6, pair.peer)
            head = struct.pack(">IHBB", 6 << 28 | pair.tos << 20, 0, 17, 64)
            pair.head = mac + b"\x86\xdd" + head + addresses

    def _send(self, pair: Pair, opcode: int, psn: int, ask: bool, rest: bytes) -> None:
        """One packet; `rest` is what follows the BTH but the ICRC."""
        length = 8 + 12 + len(rest) + 4
        if self.family == 4:
            self.ip_ids[pair.peer] = ip_id = (self.ip_ids.get(pair.peer, 0) + 1) & 0xFFFF
            total = pair.checksum + 20 + length + ip_id
            total = (total & 0xFFFF) + (total >> 16)
            total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
            head = pair.head
            head = (
                head[:16]
                + struct.pack(">HH", 20 + length, ip_id)
                + head[20:24]
                + struct.pack(">H", total)
                + head[26:]
            )
        else:
            head = pair.head[:18] + struct.pack(">H", length) + pair.head[20:]
        bth = struct.pack(
            ">HHHHBBHII",
            pair.sport, 4791, length, 0,
            opcode, 0x40, 0xFFFF, pair.peer_number, ask << 31 | psn % PSNS,
        )  # fmt: skip
        try:
            icrc = icrc_of(head, bth + rest) if self.config["icrc"] else b"ICRC"
            self.socket.send(head + bth + rest + icrc)
            self.counters["sent"] += 1
        except (BlockingIOError, OSError):
            self.counters["unsent"] += 1

    # Requester.

    def _can_send(self, pair: Pair, now: float) -> bool:
        return (
            not pair.dead
            and now >= pair.wait
            and pair.next - pair.unacked < (1 if pair.operation == "read" else MAX_UNACKED)
            and pair.message < len(pair.ends)
        )

    def _send_next(self, pair: Pair, now: float) -> int:
        """Send a request; how many packets of payload it moves."""
        start, end = pair.ends[pair.message]
        at = pair.next
        whole = pair.operation == "read"
        first, last = at == start, at == end - 1
        ask = last or whole or (at - start) % ACK_EVERY == ACK_EVERY - 1
        remote = 0x7F0000000000 + (pair.number << 20)
        size = pair.payload_bytes
        if whole:
            opcode, next_at = READ_REQUEST, end
            rest = struct.pack(">QII", remote, 0x1000 + pair.number, (end - at) * size)
        else:
            begin, middle, final, only = OPCODES[pair.operation]
            opcode = (only if last else begin) if first else final if last else middle
            rest, next_at = pair.payload, at + 1
            if first and pair.operation == "write":
                reth = struct.pack(">QII", remote, 0x1000 + pair.number, (end - start) * size)
                rest = reth + rest
        self._send(pair, opcode, pair.first_psn + at, ask, rest)
        pair.retransmitted += at < pair.highest
        pair.next = next_at
        pair.highest = max(pair.highest, pair.next)
        if next_at == end:
            pair.message += 1
        if ask:
            pair.asked = next_at - 1
            pair.timer = now + self.config["timeout_s"]
        return next_at - at

    def _take_response(self, pair: Pair, psn: int, now: float) -> None:
        """A READ response: the next one, or one after a gap."""
        at = pair.unacked + (psn - pair.first_psn - pair.unacked + PSNS // 2) % PSNS - PSNS // 2
        if at == pair.unacked < pair.highest:
            pair.unacked, pair.tries, pair.nak_sent = at + 1, 0, False
            pair.next = max(pair.next, at + 1)
            waits = pair.unacked < pair.next
            pair.timer = now + self.config["timeout_s"] if waits else None
        elif pair.unacked < at < pair.highest and not pair.nak_sent:
            pair.nak_sent = True
            self._go_back(pair, pair.unacked)

    def _go_back(self, pair: Pair, to: int) -> None:
        pair.next = to
        while pair.message and pair.ends[pair.message - 1][1] > to:
            pair.message -= 1

    def _hear(self, pair: Pair, psn: int, syndrome: int, now: float) -> None:
        at = pair.unacked + (psn - pair.first_psn - pair.unacked + PSNS // 2) % PSNS - PSNS // 2
        if not pair.unacked - 1 <= at < pair.highest:
            return
        kind = syndrome >> 5
        acked = at + 1 if kind == 0 else at
        if acked > pair.unacked:
            pair.unacked, pair.tries = acked, 0
            waits = pair.asked >= acked
            pair.timer = now + self.config["timeout_s"] if waits else None
            if pair.next < acked:  # an ACK of the first copies arrives during the retransmission
                pair.next = acked
                while pair.message < len(pair.ends) and pair.ends[pair.message][1] <= acked:
                    pair.message += 1
        if kind == 3 and syndrome != PSN_NAK:
            pair.dead = True
        elif kind in (1, 3) and at >= pair.unacked:
            self._go_back(pair, at)
            if kind == 1:
                pair.wait = now + RNR_WAIT_S
                pair.timer = None

    def _time_out(self, now: float) -> None:
        for pair in self.requesters:
            if pair.timer is not None and now > pair.timer and not pair.dead:
                pair.timeouts += 1
                pair.tries += 1
                pair.timer = None
                pair.dead = 0 < self.config["retry_cnt"] < pair.tries
                self._go_back(pair, pair.unacked)

    # Responder.

    def _receive(self, pair: Pair, opcode: int, psn: int, ask: bool, now: float) -> None:
        at = pair.expected + (psn - pair.first_psn - pair.expected + PSNS // 2) % PSNS - PSNS // 2
        fault = self._fault(pair, now)
        if fault == "dead":
            return
        if at > pair.expected:
            if not pair.nak_sent:
                pair.nak_sent = True
                self.counters["naks"] += 1
                self._answer(pair, pair.expected, PSN_NAK)
            return
        if fault == "nags" and at == pair.expected:
            pair.nak_sent = False  # the next packet is refused again
            return
        if at < pair.expected:
            if ask:
                self._answer(pair, pair.expected - 1, ACK)
            return
        if fault == "loses":
            return
        if fault is not None and opcode in BEGINS:
            name, syndrome = ("rnr_naks", RNR_NAK) if fault == "rnr" else ("naks", ACCESS_NAK)
            self.counters[name] += 1
            self._answer(pair, at, syndrome)
            pair.nak_sent = True
            return
        pair.expected, pair.nak_sent = at + 1, False
        pair.received += opcode in ENDS
        if ask:
            self._answer(pair, at, ACK)

    def _receive_read(self, pair: Pair, psn: int, size: int, now: float) -> None:
        """A READ request: its responses at once, also if they were sent before."""
        at = pair.expected + (psn - pair.first_psn - pair.expected + PSNS // 2) % PSNS - PSNS // 2
        if self._fault(pair, now) == "dead":
            return
        if at > pair.expected:
            if not pair.nak_sent:
                pair.nak_sent = True
                self.counters["naks"] += 1
                self._answer(pair, pair.expected, PSN_NAK)
            return
        packets = size // pair.payload_bytes
        if at == pair.expected:
            pair.received += 1
            pair.nak_sent = False
        pair.expected = max(pair.expected, at + packets)
        aeth = struct.pack(">I", ACK << 24 | pair.received & 0xFFFFFF)
        for n in range(packets):
            first, last = n == 0, n == packets - 1
            opcode = (
                (READ_ONLY if last else READ_FIRST) if first else READ_LAST if last else READ_MIDDLE
            )
            head = aeth if first or last else b""
            self._send(pair, opcode, pair.first_psn + at + n, False, head + pair.payload)

    def _fault(self, pair: Pair, now: float) -> str | None:
        """What this responder does wrong now: dead, loses, rnr or access."""
        for fault in self.config["faults"]:
            running = now - self.start
            if pair.number in fault["numbers"] and fault["from_s"] <= running < fault["until_s"]:
                return fault["kind"]
        return None

    def _answer(self, pair: Pair, at: int, syndrome: int) -> None:
        aeth = struct.pack(">I", syndrome << 24 | pair.received & 0xFFFFFF)
        self._send(pair, ACKNOWLEDGE, pair.first_psn + at, False, aeth)

    # The loop.

    def _take(self, now: float) -> None:
        network = 34 if self.family == 4 else 54
        while True:
            try:
                frame = self.socket.recv(9000 if self.config["icrc"] else 256)
            except BlockingIOError:
                return
            if len(frame) < network + 20 or frame[network + 2 : network + 4] != b"\x12\xb7":
                continue
            if self.family == 4 and frame[20] & 0x3F:
                continue  # NICs do not reassemble fragments
            self.counters["received"] += 1
            if self.config["icrc"] and frame[-4:] != icrc_of(frame[:network], frame[network:-4]):
                self.counters["corrupt"] += 1
                continue
            opcode = frame[network + 8]
            word, sequence = struct.unpack_from(">II", frame, network + 12)
            pair = self.by_number.get(word & 0xFFFFFF)
            if pair is None or opcode == CNP:
                continue
            psn = sequence & 0xFFFFFF
            if opcode == ACKNOWLEDGE:
                if pair.requester:
                    self._hear(pair, psn, frame[network + 20], now)
                continue
            tos = frame[15] if self.family == 4 else (frame[15] >> 4)
            notify = self.config["cnp"] == "always" or (self.config["cnp"] and tos & 3 == 3)
            if notify and now > pair.last_cnp + CNP_EVERY_S:
                pair.last_cnp = now
                self.counters["cnps"] += 1
                self._send(pair, CNP, 0, False, bytes(16))
            if opcode == READ_REQUEST:
                (size,) = struct.unpack_from(">I", frame, network + 32)
                self._receive_read(pair, psn, size, now)
            elif READ_FIRST <= opcode <= READ_ONLY:
                self._take_response(pair, psn, now)
            else:
                self._receive(pair, opcode, psn, sequence >> 31 == 1, now)

    def run(self, start: float) -> None:
        """Send from `start`, a monotonic time, as long as configured; answer a while longer."""
        stop, rate = start + self.config["seconds"], self.config["rate"]
        self.start = start
        allowed, before, turn = 0.0, start, 0
        while (now := time.monotonic()) < stop + self.config["linger_s"]:
            select.select([self.socket], [], [], TICK_S)
            now = time.monotonic()
            self._take(now)
            if not start <= now < stop:
                continue
            self._time_out(now)
            allowed = min(allowed + (now - before) * rate, rate * 0.05 + BURST)
            before = now
            tried = 0
            while allowed >= BURST and tried < len(self.requesters):
                pair = self.requesters[turn % len(self.requesters)]
                turn += 1
                tried += 1
                sent = 0
                while sent < BURST and self._can_send(pair, now):
                    sent += self._send_next(pair, now)
                if sent:
                    tried = 0
                allowed -= sent

    def result(self) -> dict[str, Any]:
        pairs = [
            {
                "number": pair.number,
                "peer": pair.peer,
                "peer_number": pair.peer_number,
                "packets": pair.highest,
                "acknowledged": pair.unacked,
                "retransmitted": pair.retransmitted,
                "timeouts": pair.timeouts,
                "dead": pair.dead,
            }
            for pair in self.requesters
        ]
        return {"counters": self.counters, "requesters": pairs}


def main() -> None:
    # All hosts on one CPU, which forwards their packets too: on another one the kernel would hand
    # packets over out of order.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    endpoint = Endpoint(json.loads(sys.stdin.readline()))
    print("ready", flush=True)
    endpoint.run(float(sys.stdin.readline()))
    json.dump(endpoint.result(), sys.stdout)


if __name__ == "__main__":
    main()
