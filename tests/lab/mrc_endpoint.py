"""The MRC queue pairs of one host: senders that spray over four planes, and receivers.

As `endpoint.py`: a line of JSON configures it, a second line is the time to start, and it ends with
its counters as JSON. The planes are the spines: the two lowest bits of the UDP source port choose
one. Senders stop using an entropy value after a loss or when the receiver asks for it, probe it,
and use it again when a probe is answered (docs/mrc.md). Timers are those of the lab.
"""

from __future__ import annotations

import ipaddress
import json
import os
import random
import select
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from rocescope.replay.generate import mrc as frames
from rocescope.replay.generate.mrc import Format, Way

PLANES = 4
VALUES = 32
PER_MESSAGE = 32
FIRST_SPORT = 0xC000
REVERSE_SPORT = 0xF000
WINDOW = 1024
SACK_EVERY = 4
BITMAP = 64
LOST_S = 0.06
"""A packet without a SACK for this time is lost: far above what a busy machine delays it."""
PROBE_S = 0.25
SACK_S = 0.01
ALWAYS_SKIP = 2
DATA_DSCP, CONTROL_DSCP = 4, 46
PSNS = 1 << 24
BURST = 4
TICK_S = 0.002
SO_RCVBUFFORCE = 33


@dataclass
class Value:
    """An entropy value of a sender."""

    sport: int
    label: int
    is_bad: bool = False
    probe_at: float = 0.0

    @property
    def plane(self) -> int:
        return self.sport % PLANES


@dataclass
class Pair:
    """One queue pair: a sender here and a receiver there, or the other way round."""

    number: int
    peer_number: int
    peer: str
    payload_bytes: int
    first_psn: int
    requester: bool
    values: list[Value] = field(default_factory=list)
    turn: int = 0
    next: int = 0
    cumulative: int = -1
    in_flight: dict[int, tuple[Value, float]] = field(default_factory=dict)
    retransmitted: int = 0
    closed: set[int] = field(default_factory=set)
    """Planes whose port is down here or at the peer."""

    received: set[int] = field(default_factory=set)
    """After the cumulative packet, of a receiver."""
    highest: int = -1
    unanswered: int = 0
    since: float = 0.0
    last: tuple[int, int, int] = (0, 0, 0)
    """Source port, number and timestamp of the packet that came last."""
    skipped: bool = False


class Endpoint:
    """All queue pairs of one host, driven by one loop."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        ipv6 = config["family"] == 6
        self.form = Format(ipv6=ipv6, srv6=False, snap=0)
        self.link = bytes.fromhex((config["to_mac"] + config["mac"]).replace(":", ""))
        self.counters = {"sent": 0, "received": 0, "unsent": 0, "received_again": 0}
        self.chance = random.Random(config["address"])
        names = ("number", "peer_number", "peer", "payload_bytes", "first_psn", "requester")
        self.pairs = [Pair(**{name: pair[name] for name in names}) for pair in config["pairs"]]
        self.by_number = {pair.number: pair for pair in self.pairs}
        self.senders = [pair for pair in self.pairs if pair.requester]
        for pair in self.senders:
            pair.values = [Value(FIRST_SPORT + i, i + 1) for i in range(VALUES)]
            self.chance.shuffle(pair.values)
        self.told_down = False
        kind = 0x86DD if ipv6 else 0x0800
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind))
        self.socket.bind(("eth0", kind))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        self.socket.setblocking(False)

    def _send(
        self, peer: str, sport: int, label: int, dscp: int, transport: bytes, size: int = 0
    ) -> None:
        way = Way(_packed(self.config["address"]), _packed(peer), sport, label, b"", dscp)
        data, _ = frames.frame(way, self.form, transport, size)
        try:
            self.socket.send(self.link + data[12:])
            self.counters["sent"] += 1
        except (BlockingIOError, OSError):
            self.counters["unsent"] += 1

    def _back(self, pair: Pair, transport: bytes) -> None:
        """An answer, on the plane of the packet that came last unless it is closed."""
        plane = pair.last[0] % PLANES
        if plane in pair.closed:
            plane = next(p for p in range(PLANES) if p not in pair.closed)
        self._send(pair.peer, REVERSE_SPORT + plane, plane + 1, CONTROL_DSCP, transport)

    # Sender.

    def _select(self, pair: Pair, avoid: Value | None = None) -> Value:
        """The next entropy value in turn that is good and whose plane is open."""
        for _ in pair.values:
            pair.turn = (pair.turn + 1) % len(pair.values)
            value = pair.values[pair.turn]
            if not value.is_bad and value is not avoid and value.plane not in pair.closed:
                return value
        return next(value for value in pair.values if value.plane not in pair.closed)

    def _transmit(self, pair: Pair, number: int, value: Value, now: float, again: bool) -> None:
        message, position = divmod(number, PER_MESSAGE)
        last = position == PER_MESSAGE - 1
        opcode = frames.WRITE_FIRST if position == 0 else frames.WRITE_MIDDLE
        opcode = frames.WRITE_LAST if last else opcode
        flags = frames.TS | (frames.RTX if again else 0) | (frames.ACK_REQUEST if last else 0)
        size = pair.payload_bytes
        transport = frames.bth(opcode, pair.peer_number, pair.first_psn + number, flags)
        transport += frames.write_headers(
            message,
            int(now * 1e9) // frames.TIMESTAMP_NS,
            0x7F0000000000 + number * size,
            PER_MESSAGE * size,
        )
        pair.in_flight[number] = value, now
        self._send(pair.peer, value.sport, value.label, DATA_DSCP, transport, size)

    def _look(self, pair: Pair, now: float) -> None:
        """Retransmit what is lost; probe bad entropy values."""
        for number, (value, sent) in list(pair.in_flight.items()):
            if now - sent > LOST_S:
                if value.plane not in pair.closed:
                    self._retire(value, now)
                pair.retransmitted += 1
                self._transmit(pair, number, self._select(pair, value), now, True)
        for value in pair.values:
            if value.is_bad and value.probe_at < now and value.plane not in pair.closed:
                value.probe_at = now + PROBE_S
                stamp = int(now * 1e9) // frames.TIMESTAMP_NS
                probe = frames.bth(frames.PROBE, pair.peer_number, pair.first_psn)
                probe += frames.probe_headers(value.sport, stamp)
                self._send(pair.peer, value.sport, value.label, DATA_DSCP, probe)

    def _retire(self, value: Value, now: float) -> None:
        if not value.is_bad:
            value.is_bad, value.probe_at = True, now + PROBE_S

    def _hear(self, pair: Pair, sack: bytes, now: float) -> None:
        feedback, is_probe = sack[1] >> 5, sack[1] >> 1 & 1
        sport = int.from_bytes(sack[6:8])
        value = next((each for each in pair.values if each.sport == sport), None)
        if value is not None and feedback == ALWAYS_SKIP:
            self._retire(value, now)
            value.probe_at = float("inf")  # the receiver forbids it permanently
        elif value is not None and is_probe:
            value.is_bad = False
        told = (int.from_bytes(sack[12:16]) - pair.first_psn) % PSNS
        cumulative = -1 if told == PSNS - 1 else told
        pair.cumulative = max(pair.cumulative, cumulative)
        base, bitmap = cumulative + int.from_bytes(sack[18:20]), int.from_bytes(sack[20:28])
        for number in list(pair.in_flight):
            at = number - base
            if number <= cumulative or (0 <= at < BITMAP and bitmap >> at & 1):
                del pair.in_flight[number]

    # Receiver.

    def _receive(self, pair: Pair, psn: int, sport: int, again: bool, stamp: int) -> None:
        number = (psn - pair.first_psn) % PSNS
        pair.last = sport, number, stamp
        if number <= pair.cumulative or number in pair.received:
            self.counters["received_again"] += 1
        else:
            pair.received.add(number)
            pair.highest = max(pair.highest, number)
        while pair.cumulative + 1 in pair.received:
            pair.cumulative += 1
            pair.received.discard(pair.cumulative)
            if (pair.cumulative + 1) % PER_MESSAGE == 0:
                done = (pair.cumulative + 1) // PER_MESSAGE
                ack = frames.bth(frames.ACK, pair.peer_number, pair.first_psn + pair.cumulative)
                self._back(pair, ack + (0x1F << 24 | done & 0xFFFFFF).to_bytes(4))
        pair.unanswered += 1
        forbid = not pair.skipped and self._fault("skip", pair.number)
        pair.skipped |= forbid
        if forbid or again or pair.unanswered >= SACK_EVERY:
            self._sack(pair, ALWAYS_SKIP if forbid else 0)
        else:
            pair.since = time.monotonic()

    def _sack(self, pair: Pair, feedback: int = 0, probe: tuple[int, int] | None = None) -> None:
        """Answer the packet that came last, or a probe: its source port and timestamp."""
        sport, number, stamp = pair.last
        if probe is None:
            pair.unanswered = 0
        else:
            sport, stamp = probe
        base = max(pair.highest - BITMAP + 1, pair.cumulative + 1)
        bitmap = sum(1 << i for i in range(BITMAP) if base + i in pair.received)
        label = sport - FIRST_SPORT + 1 if self.form.ipv6 else 0
        psn = pair.first_psn + pair.cumulative
        transport = frames.bth(frames.SACK, pair.peer_number, psn) + frames.sack_headers(
            feedback=feedback,
            probe_id=None if probe is None else sport,
            offset=number - pair.cumulative,
            entropy=label << 16 | sport,
            cumulative=psn,
            mpr=WINDOW // 128,
            base_offset=base - pair.cumulative,
            bitmap=bitmap,
            timestamp=stamp,
            held=len(pair.received),
            received=(pair.cumulative + 1 + len(pair.received)) * pair.payload_bytes // 256,
        )
        self._back(pair, transport)

    # Ports.

    def _tell_ports(self, plane: int, is_up: bool) -> None:
        """The port of a plane failed or recovered: peers are told over another one."""
        mask = (1 << PLANES) - 1 - (0 if is_up else 1 << plane)
        for pair in self.pairs:
            (pair.closed.discard if is_up else pair.closed.add)(plane)
        stamp = int(time.monotonic() * 1e9) // frames.TIMESTAMP_NS
        for peer in sorted({pair.peer for pair in self.pairs}):
            request = frames.bth(frames.ENDPOINT_REQUEST, frames.ENDPOINT_QP, plane)
            request += frames.port_status_headers(mask, stamp)
            over = (plane + 1) % PLANES
            self._send(peer, REVERSE_SPORT + over, over + 1, CONTROL_DSCP, request)

    def _learn_ports(self, peer: str, psn: int, header: bytes) -> None:
        mask = int.from_bytes(header[4:8])
        down = {plane for plane in range(PLANES) if not mask >> plane & 1}
        for pair in self.pairs:
            if pair.peer == peer:
                pair.closed = down
        over = next(plane for plane in range(PLANES) if plane not in down)
        response = frames.bth(frames.ENDPOINT_RESPONSE, frames.ENDPOINT_QP, psn)
        response += frames.endpoint_response_headers(int.from_bytes(header[12:14]))
        self._send(peer, REVERSE_SPORT + over, over + 1, CONTROL_DSCP, response)

    def _fault(self, kind: str, number: int | None = None) -> bool:
        running = time.monotonic() - self.start
        return any(
            fault["kind"] == kind
            and fault["from_s"] <= running < fault["until_s"]
            and (number is None or number in fault["numbers"])
            for fault in self.config["faults"]
        )

    def _ports(self) -> None:
        for fault in self.config["faults"]:
            if fault["kind"] != "port":
                continue
            is_down = self._fault("port")
            if is_down != self.told_down:
                self.told_down = is_down
                self._tell_ports(fault["numbers"][0], not is_down)

    # The loop.

    def _take(self, now: float) -> None:
        network = 34 if self.config["family"] == 4 else 54
        while True:
            try:
                frame = self.socket.recv(9000)
            except BlockingIOError:
                return
            if len(frame) < network + 20 or frame[network + 2 : network + 4] != b"\x12\xb7":
                continue
            self.counters["received"] += 1
            sport = int.from_bytes(frame[network : network + 2])
            bth, rest = frame[network + 8 : network + 20], frame[network + 20 :]
            opcode, number = bth[0], int.from_bytes(bth[5:8])
            psn = int.from_bytes(bth[9:12])
            if opcode == frames.ENDPOINT_REQUEST:
                packed = frame[26:30] if network == 34 else frame[22:38]
                self._learn_ports(str(ipaddress.ip_address(packed)), psn, rest)
            pair = self.by_number.get(number)
            if pair is None:
                continue
            if opcode == frames.SACK:
                self._hear(pair, rest, now)
            elif opcode == frames.PROBE:
                stamp = int.from_bytes(rest[12:14])
                self._sack(pair, probe=(int.from_bytes(rest[4:6]), stamp))
            elif opcode in (frames.WRITE_FIRST, frames.WRITE_MIDDLE, frames.WRITE_LAST):
                again = bool(bth[8] & frames.RTX)
                self._receive(pair, psn, sport, again, int.from_bytes(rest[4:6]))

    def run(self, start: float) -> None:
        """Send from `start`, a monotonic time, as long as configured; answer a while longer."""
        stop, rate = start + self.config["seconds"], self.config["rate"]
        self.start = start
        allowed, before, turn = 0.0, start, 0
        while (now := time.monotonic()) < stop + self.config["linger_s"]:
            select.select([self.socket], [], [], TICK_S)
            now = time.monotonic()
            self._take(now)
            for pair in self.pairs:
                if pair.unanswered and now - pair.since > SACK_S:
                    self._sack(pair)
            if now < start:
                continue
            self._ports()
            for pair in self.senders:
                self._look(pair, now)
            if now >= stop:
                continue
            allowed = min(allowed + (now - before) * rate, rate * 0.05 + BURST)
            before = now
            while allowed >= BURST:
                pair = self.senders[turn % len(self.senders)]
                turn += 1
                allowed -= BURST
                for _ in range(BURST):
                    if pair.next - pair.cumulative < WINDOW:
                        self._transmit(pair, pair.next, self._select(pair), now, False)
                        pair.next += 1

    def result(self) -> dict[str, Any]:
        senders = [
            {
                "number": pair.number,
                "peer": pair.peer,
                "peer_number": pair.peer_number,
                "packets": pair.next,
                "acknowledged": pair.next - len(pair.in_flight),
                "retransmitted": pair.retransmitted,
                "bad_values": sum(value.is_bad for value in pair.values),
            }
            for pair in self.senders
        ]
        return {"counters": self.counters, "requesters": senders}


def _packed(address: str) -> bytes:
    """An address, 16 bytes; IPv4 in the last four."""
    return ipaddress.ip_address(address).packed.rjust(16, b"\0")


def main() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # as in endpoint.py
    endpoint = Endpoint(json.loads(sys.stdin.readline()))
    print("ready", flush=True)
    endpoint.run(float(sys.stdin.readline()))
    json.dump(endpoint.result(), sys.stdout)


if __name__ == "__main__":
    main()
