"""MRC between hosts with several planes, packet by packet, with its ground truth.

A simple model to test an analyzer, not to predict a network: each host writes to the next
over its own queue pairs; packets use entropy values in turn; losses, trims and marks are
random. Values that the specification leaves open (timers, numbers of probes, trim size) are
arbitrary.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import asdict
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np

from ..schedule import START_NS
from . import frames as frames
from .frames import Format, Way
from .pair import Captured, Entropy, Pair, Sent, Settings

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
        stamp = (now // frames.TIMESTAMP_NS) if self.form.timestamps else 0
        content = frames.bth(frames.PROBE, pair.qp, 0) + frames.probe_headers(probe_id, stamp)
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
                stamp = now // frames.TIMESTAMP_NS
                request = frames.bth(frames.ENDPOINT_REQUEST, frames.ENDPOINT_QP, probe_id)
                request += frames.port_status_headers(mask, stamp)
                way = self._forward(pair, ev, CONTROL_DSCP)
                self._capture(now, way, request, True)
                response = frames.bth(frames.ENDPOINT_RESPONSE, frames.ENDPOINT_QP, probe_id)
                response += frames.endpoint_response_headers(stamp)
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
            self._capture_data(now, pair, sent, frames.CE if marked else frames.ECT0, False)
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
            self._capture_data(now, pair, sent, frames.ECT0, True)
        pair.truth.nacks += 1
        pair.of(sent.ev).nacks += 1
        way = self._forward(pair, sent.ev, 0)
        stamp = self._reflected(now, pair, sent.ev, sent.time_ns)
        content = frames.bth(frames.NACK, pair.back_qp, 0) + frames.nack_headers(
            TRIMMED, frames.entropy(way, self.form), pair.first_psn + sent.psn, stamp
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
        content = frames.bth(frames.ACK, pair.back_qp, pair.first_psn + pair.cumulative)
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
        content = frames.bth(frames.SACK, pair.back_qp, cumulative) + frames.sack_headers(
            feedback=feedback,
            probe_id=probe_id,
            offset=psn - pair.cumulative,
            entropy=frames.entropy(self._forward(pair, ev, 0), self.form),
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
        stamp = asked_ns // frames.TIMESTAMP_NS & 0xFFFF
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
        opcode = frames.WRITE_MIDDLE
        if pair.per_message == 1:
            opcode = frames.WRITE_ONLY
        elif position == 0:
            opcode = frames.WRITE_FIRST
        elif last:
            opcode = frames.WRITE_LAST
        flags = frames.RTX if sent.resent else 0
        flags |= frames.TS if self.form.timestamps else 0
        flags |= frames.ACK_REQUEST if last else 0
        payload = self._payload(pair, sent.psn)
        pad = -payload & 3
        content = frames.bth(opcode, pair.qp, pair.first_psn + sent.psn, flags, pad)
        content += frames.write_headers(
            message,
            sent.time_ns // frames.TIMESTAMP_NS if self.form.timestamps else None,
            0x7F00_0000_0000 + message * s.message_bytes + position * s.path_mtu,
            s.message_bytes,
        )
        way = self._forward(pair, sent.ev, TRIMMED_DSCP if trimmed else DATA_DSCP)
        if ecn:
            way = Way(way.src, way.dst, way.sport, way.label, way.carrier, way.dscp, ecn)
        data, wire = frames.frame(way, self.form, content, payload + pad, trimmed)
        value = pair.passed(sent.ev, START_NS + now, wire, sent.resent)
        value.trimmed_packets += trimmed
        value.ecn_marked_packets += ecn == frames.CE
        self.frames.append(Captured(START_NS + now, data, wire))

    def _capture(self, now: int, way: Way, content: bytes, forward: bool) -> None:
        """The time at the tap of a control packet sent `now`."""
        at_other_end = forward == self.settings.at_receiver
        passes = now + (self.settings.round_trip_ns // 2 if at_other_end else 0)
        data, wire = frames.frame(way, self.form, content, 0)
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
