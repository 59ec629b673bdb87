"""One MRC queue pair of generated traffic: entropy values, receiver, ground truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..schedule import START_NS


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
        found = self.of(ev)
        found.packets += 1
        found.wire_bytes += wire
        found.retransmissions += resent
        found.first_ns = time_ns if found.first_ns is None else found.first_ns
        found.last_ns = time_ns
        entry = self.bad_since.get(id(ev))
        if entry and entry["returned_ns"] and entry["used_again_ns"] is None:
            entry["used_again_ns"] = time_ns
        return found

    def timed(self, ev: Entropy, elapsed_ns: int) -> None:
        """Record a round trip, from a packet at the tap to its answer at the tap."""
        found = self.of(ev)
        found.round_trips += 1
        found.round_trip_sum_ns += elapsed_ns
        found.round_trip_min_ns = min(found.round_trip_min_ns or elapsed_ns, elapsed_ns)
        found.round_trip_max_ns = max(found.round_trip_max_ns or elapsed_ns, elapsed_ns)

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
