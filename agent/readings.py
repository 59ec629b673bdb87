"""The state of the agent: tables of the kernel and of the adapters become sums and findings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from ..analyzer.words import printable
from ..kernels.kernel import Array
from ..probes.counters.counters import CounterSource
from ..probes.counters.program import IS_IPV6, TALLY, address_text
from .adapters import Adapters
from .findings import (
    WINDOW_NS,
    AgentDiagnosis,
    AgentFinding,
    Blind,
    Bypass,
    Findings,
    FlowCounts,
    Flows,
    Now,
    Place,
    QueuePairCounts,
    QueuePairs,
    blind,
    blind_because,
    placed,
)
from .flows import COUNTED, MOST_PEERS, PACKETS, WIRE_BYTES, CountedFlows
from .metrics import Seen, State, Worst

MOST_TOP = 200
MOST_QUEUE_PAIRS = 4096
_TROUBLE = ("late", "gap_psns", "naks", "rnr_naks", "cnps", "ecn_marked")
_C = {name: i for i, name in enumerate(COUNTED)}
_NO_PACKETS = "no packets are seen on {}: {}"
_ALWAYS = (
    "counters in the kernel do not separate retransmitted from other late packets, and have no NAK"
    " codes, message times or latencies: analyse a capture for these"
)


class Recorded(Protocol):
    """What was recorded of findings."""

    error: str
    count: int

    def files_of(self, finding: AgentFinding) -> list[str]: ...


class Readings:
    """What is known, read at intervals by one thread; `source` None: no probes.

    interfaces: names of all interfaces, as the user gave them. notes: what `trouble` says too.
    namespace: network namespace of interfaces that do not name their own.
    """

    def __init__(
        self,
        interfaces: Sequence[str],
        source: CounterSource | None,
        adapters: Adapters,
        peers: int = MOST_PEERS,
        recorder: Recorded | None = None,
        notes: Sequence[str] = (),
        namespace: str | None = None,
    ) -> None:
        named = [placed(text, namespace) for text in interfaces]
        if source is not None:
            named = [(port.name, port.namespace) for port in source.interfaces]
        self._of = {
            f"{where}:{name}" if where else name: adapters.of_interface(name, where)
            for name, where in named
        }
        self._interfaces = list(self._of)
        self._source, self._adapters, self._recorder = source, adapters, recorder
        self._notes = list(notes)
        self.slow = ""
        """That readings are far apart; empty if they are not."""
        taps = [] if source is None else source.taps
        self.places = [Place(interface.label, direction) for interface, direction in taps]
        """The taps of the probes."""
        inbound = np.array([place.direction == "in" for place in self.places], bool)
        self._flows = CountedFlows(inbound, 0 if source is None else source.slots, peers)
        self._findings = Findings(self.places)
        self._dropped = np.zeros(len(taps), np.int64)
        self._left_out = np.zeros(len(taps), np.int64)
        self._worst: list[dict[str, Worst]] = [{} for _ in taps]
        self._bypass = {name: Bypass() for name in self._interfaces}
        self._gone: set[str] = set()
        self._read_at = time.monotonic_ns()
        self._interval_ns = 0
        self.state: State
        self.read()

    @property
    def all_gone(self) -> bool:
        """Whether the probes of every interface are gone."""
        return bool(self.places) and len(self._gone) == len({p.interface for p in self.places})

    def read(self) -> list[AgentFinding]:
        """Read everything; returns the critical findings that are new."""
        now = time.monotonic_ns()
        self._interval_ns, self._read_at = now - self._read_at, now
        looked = self._adapters.look()
        tally: Array = np.zeros((0, 0), TALLY)
        complete: list[bool] = []
        if self._source is not None:
            self._gone |= {interface.label for interface in self._source.gone()}
            tally = self._source.read_tally()  # first: counts of entries are then not behind it
            self._flows.take(*self._source.entries(), now)
            evicted = tally["evicted_packets"].sum(axis=1).astype(np.int64)
            known = self._flows.evicted_known.astype(np.int64)
            self._dropped = np.maximum(self._dropped, evicted - known)
            merged = tally["merged"].sum(axis=1).astype(np.int64)
            complete = (self._dropped + merged == self._left_out).tolist()
            self._left_out = self._dropped + merged
            self._note_worst()
        self._blind = self._blindness(tally, looked)
        seen = [place.interface not in self._blind for place in self.places]
        fresh = self._findings.take(
            Now(time.time_ns(), now),
            self._flows.interval,
            self._flows.disordered(),
            seen,
            complete,
            self._adapters.state,
        )
        self.state = self._state(tally, seen)
        return fresh

    def _blindness(self, tally: Array, looked: bool) -> dict[str, Blind]:
        by_name = {}
        counted: dict[str, int] = {}
        for tap, place in enumerate(self.places):
            packets = int(tally[tap]["counted"].sum() + tally[tap]["filtered"].sum())
            counted[place.interface] = counted.get(place.interface, 0) + packets
        for name, adapters in self._of.items():
            if looked:
                self._bypass[name].look(counted.get(name, 0), self._moved(name))
            reason = blind_because(
                attached=self._source is not None,
                gone=name in self._gone,
                adapters=adapters,
                counted=counted.get(name, 0),
                bypassed=self._bypass[name].found,
            )
            if reason is not None:
                by_name[name] = blind(name, reason)
        return by_name

    def _moved(self, name: str) -> dict[str, int]:
        """Packets of the adapters of an interface in the directions that probes see."""
        hardware = [device.name for device in self._of[name] or () if not device.is_software]
        directions = [place.direction for place in self.places if place.interface == name]
        packets = self._adapters.state.packets
        return {
            adapter: sum(packets.get((adapter, direction), 0) for direction in directions)
            for adapter in hardware
        }

    def _note_worst(self) -> None:
        flows = self._flows
        listed = flows.listed()
        taps = flows.keys["tap"][listed]
        now = time.time()
        for tap in range(len(self.places)):
            rows = listed[taps == tap]
            for name in _TROUBLE if len(rows) else ():
                column = flows.recent[rows, _C[name]]
                most = int(np.argmax(column))
                if column[most]:
                    key = flows.keys[rows[most]]
                    peer = key["src"] if self.places[tap].direction == "in" else key["dst"]
                    self._worst[tap][name] = Worst(
                        int(key["dest_qp"]), _address(peer, key), int(column[most]), now
                    )

    def _state(self, tally: Array, seen: Sequence[bool]) -> State:
        flows = self._flows
        active, missing = flows.active(), flows.missing()
        places = []
        for tap, place in enumerate(self.places):
            if not seen[tap]:
                continue
            total = {name: int(tally[tap][name].sum()) for name in TALLY.names or ()}
            peers = flows.peers[tap]
            named = [(_peer_text(key), peers.sums[row].copy()) for key, row in peers.rows.items()]
            if peers.sums[MOST_PEERS].any():
                named.append(("other", peers.sums[MOST_PEERS].copy()))
            places.append(
                Seen(
                    place=place,
                    packets=total["counted"],
                    wire_bytes=total["counted_bytes"],
                    sums=flows.sums[tap].copy(),
                    dropped=int(self._dropped[tap]),
                    merged=total["merged"],
                    ultra_ethernet=total["ultra_ethernet"],
                    active_flows=int(active[tap]),
                    unsprayed_flows=int(flows.unsprayed[tap]),
                    missing=int(missing[tap]),
                    width_bins=flows.width_bins[tap].copy(),
                    width_sum=float(flows.width_sum[tap]),
                    peers=named,
                    worst=dict(self._worst[tap]),
                )
            )
        adapters = self._adapters.state
        sources = {}
        for name in self._interfaces:
            has_pairs = bool(self._of[name]) and adapters.reason is None
            blind_now = name in self._blind
            sources[name] = "packets" if not blind_now else "queue_pairs" if has_pairs else "none"
        return State(
            time_s=time.time(),
            places=places,
            sources=sources,
            blind=list(self._blind.values()),
            adapters=adapters,
            has_adapters=any(self._of.values()) or bool(adapters.queue_pairs),
            findings=list(self._findings.current),
            unlisted_packets=flows.unlisted_packets,
            recordings=None if self._recorder is None else self._recorder.count,
        )

    def top_flows(self, top: int) -> Flows:
        """The worst flows: those with most late, skipped, refused and marked packets first."""
        flows = self._flows
        listed = flows.listed()
        trouble = flows.totals[listed][:, [_C[name] for name in _TROUBLE]].sum(axis=1)
        order = np.lexsort((flows.totals[listed, WIRE_BYTES], trouble))[::-1][:top]
        return Flows(
            time_ns=time.time_ns(),
            interval_ns=self._interval_ns,
            listed=len(listed),
            blind=list(self._blind.values()),
            flows=[self._flow(int(number), self._read_at) for number in listed[order]],
        )

    def _flow(self, number: int, now: int) -> FlowCounts:
        flows = self._flows
        key, total = (
            flows.keys[number],
            dict(zip(COUNTED, flows.totals[number].tolist(), strict=True)),
        )
        place = self.places[int(key["tap"])]
        owner = None
        if place.direction == "in":
            adapters = self._of.get(place.interface) or []
            owner = self._adapters.state.owner(adapters, int(key["dest_qp"]))
        width = float(flows.widths[number])
        return FlowCounts(
            interface=place.interface,
            direction=place.direction,
            src=_address(key["src"], key),
            dst=_address(key["dst"], key),
            dest_qp=int(key["dest_qp"]),
            owner=printable(owner.command) if owner is not None else None,
            pid=owner.pid if owner is not None else None,
            idle_ns=max(0, now - int(flows.last_ns[number])),
            packets=total["packets"],
            wire_bytes=total["wire_bytes"],
            payload_bytes=total["payload_bytes"],
            messages=total["messages"],
            late_packets=total["late"],
            skipped_psns=total["gap_psns"],
            naks=total["naks"],
            rnr_naks=total["rnr_naks"],
            cnps=total["cnps"],
            ecn_marked_packets=total["ecn_marked"],
            packets_in_interval=int(flows.recent[number, PACKETS]),
            wire_bytes_in_interval=int(flows.recent[number, WIRE_BYTES]),
            spraying_width=round(width, 3) if width else None,
        )

    def queue_pairs(self, top: int) -> QueuePairs:
        """The queue pairs of this host: those in error first, then by their largest counter."""
        state = self._adapters.state
        by_pair = {
            (port.device, number): port for port in state.counters for number in port.queue_pairs
        }
        rows = []
        for pair in state.queue_pairs:
            counted = by_pair.get((pair.device, pair.local_qp))
            rows.append(
                QueuePairCounts(
                    adapter=pair.device,
                    port=pair.port,
                    qp=pair.local_qp,
                    remote_qp=pair.remote_qp,
                    type=pair.type,
                    state=pair.state,
                    pid=pair.pid,
                    command=printable(pair.command),
                    counters=counted.values if counted is not None else {},
                    counted_with=len(counted.queue_pairs) if counted is not None else 0,
                )
            )
        rows.sort(key=lambda row: (row.state != "ERR", -max(row.counters.values(), default=0)))
        no_adapter = None if self.state.has_adapters else "this host has no RDMA adapter"
        return QueuePairs(
            time_ns=time.time_ns(),
            known=len(rows),
            unknown_because=state.reason or no_adapter,
            counters_unknown_because=state.counters_reason or no_adapter,
            queue_pairs=rows[:top],
        )

    def diagnosis(self) -> AgentDiagnosis:
        """What the last minute shows, and what nobody has checked."""
        findings = self._findings.current
        if self._recorder is not None:
            files = self._recorder.files_of
            findings = [
                msgspec.structs.replace(finding, recordings=files(finding)) for finding in findings
            ]
        blind_now = list(self._blind.values())
        if findings:
            summary = findings[0].sentence
        elif self._findings.healthy:
            summary = "No finding in the packets that were counted."
        elif self._findings.counted:
            summary = (
                "No finding in the packets whose details are known, and no check passed for all"
                " packets: see limits."
            )
        else:
            summary = "Nothing was checked: no packet was counted in the last minute."
        return AgentDiagnosis(
            time_ns=time.time_ns(),
            window_ns=WINDOW_NS,
            summary=summary,
            findings=findings,
            healthy=self._findings.healthy,
            blind=blind_now,
            limits=[
                *(_NO_PACKETS.format(entry.interface, entry.sentence) for entry in blind_now),
                *self._limits(),
                _ALWAYS,
            ],
        )

    def trouble(self) -> list[str]:
        """What has failed in the agent itself, or limits it."""
        lines = [*self._notes, self.slow] if self.slow else list(self._notes)
        if self._recorder is not None and self._recorder.error:
            lines.append(f"recording has ended: {self._recorder.error}")
        return lines

    def _limits(self) -> list[str]:
        lines = [*self.trouble(), *self._findings.undecided]
        dropped = int(self._dropped.sum())
        if dropped:
            lines.append(
                f"the table of the kernel was too small: details of {dropped} packets are lost;"
                " give a larger --max-flows"
            )
        if self._flows.unlisted_packets:
            lines.append(
                f"{self._flows.unlisted_packets} packets are of flows beyond the list: they are in"
                " the totals only"
            )
        if self._source is not None:
            lines += self._source.others.lines()
        if self._flows.sums[:, _C["jumps"]].any():
            lines.append(
                "after READ requests and between READ responses no skipped PSN counts: their"
                " number is unknown"
            )
        lines += [
            f"{name}: whether an RDMA adapter moves part of the packets past the kernel is unknown"
            for name, adapters in self._of.items()
            if adapters is None and name not in self._blind
        ]
        state = self._adapters.state
        if state.reason is not None:
            lines.append(f"queue pairs of this host are unknown: {state.reason}")
        return lines


def _address(raw: Array, key: Array) -> str:
    return address_text(bytes(raw), bool(int(key["flags"]) & IS_IPV6))


def _peer_text(key: bytes) -> str:
    return address_text(key[:16], bool(key[16]))
