"""Builds the records of results/mrc.py from the MRC measure."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decode.multipath.mrc import MPR_UNIT, NACK_REASONS, RCVD_BYTES_UNIT, TIMESTAMP_NS
from ..measures import mrc as st
from ..measures.measuring import Measuring
from ..measures.mrc import ORDER_LABEL_HIGH as LABEL_HIGH
from ..measures.mrc import sent_key
from ..measures.path_table import OTHER
from ..results import mrc as results
from ..results.base import Quantiles
from ..results.events import Event
from .mrc_retirements import retirements, silences
from .names import Names
from .options import PlaneBy
from .planes import NO_PLANES, Planes

MAX_VALUES_LISTED = 512
MAX_RETIREMENTS_LISTED = 512


def unknowns(flow: results.MrcFlow) -> list[str]:
    """Why fields of a flow are None."""
    answers = flow.answers
    if answers is None:
        return [
            "no response of its receiver was seen, or its responses are not paired: feedback, round"
            " trips and window use are unknown"
        ]
    lines = []
    if answers.round_trip_ns is None:
        why = "the tap is at the sender of its responses"
        if not flow.timestamped_packets:
            why = "its packets have no timestamps with the default resolution"
        lines.append(f"round trips are unknown: {why}")
    if answers.psn_range_packets is None:
        lines.append("window use is unknown: no SACK states the maximum PSN range")
    return lines


def ev_name(key: int) -> str:
    """`49152/0x12ab`: UDP source port, and flow label bits unless they are 0; or `other`."""
    if key == OTHER:
        return "other"
    label = key >> 16
    return f"{key & 0xFFFF}/0x{label:04x}" if label else str(key)


class MrcSummary:
    """Builds the records; one instance per result, after the flows are paired."""

    def __init__(
        self,
        measuring: Measuring,
        names: Names,
        plane_by: PlaneBy,
    ) -> None:
        self._m = measuring.mrc
        self._tracker = measuring.tracker
        self._names = names
        self._order, self._no_order = self._m.entropy_order()
        evs = self._m.all_evs()
        self._evs = evs[np.argsort(evs["lane"], kind="stable")]
        self._lanes = np.ascontiguousarray(self._evs["lane"])
        self.planes = Planes(self._sent, names, plane_by)
        self._retired: dict[int, list[results.MrcRetirement]] = {}

    def flow(self, f: int) -> results.MrcFlow | None:
        """The MRC view of one flow; None when it sent no MRC data."""
        record = self._m.flow(f)
        if record is None or not record["packets"]:
            return None
        sent = self._of(f, st.SENT)
        peer = int(self._tracker.flows[f]["peer"])
        answers = self._m.flow(peer) if peer >= 0 else None
        heard = self._hears(peer)
        told = self._told(peer) if heard else {}
        trips = self._m.histograms.quantiles(peer, st.ROUND_TRIP) if heard else None
        # Below the resolution of timestamps: the tap is at the sender of the responses.
        if trips is not None and trips.p50 < TIMESTAMP_NS:
            trips = None
        largest = sent[np.argsort(-sent["wire_bytes"], kind="stable")]
        return results.MrcFlow(
            packets=int(record["packets"]),
            retransmissions=int(record["resends"]),
            retransmissions_after_nack=int(record["resends_after_nack"]),
            trimmed_packets=int(record["trimmed"]),
            timestamped_packets=int(record["timestamped"]),
            entropy_values=len(sent),
            values=[
                self._value(ev, told, heard, trips is not None)
                for ev in largest[:MAX_VALUES_LISTED]
            ],
            planes=self.planes.loads(sent),
            retirements=self.retirements(f),
            answers=self._answers(peer, answers, trips) if heard else None,
        )

    @property
    def _sent(self) -> NDArray[Any]:
        """The records of the entropy values that flows sent, by flow."""
        sent: NDArray[Any] = self._evs[self._lanes % st.LANES == st.SENT]
        return sent

    def sent(self) -> tuple[NDArray[Any], NDArray[np.int64], list[str]]:
        """The entropy values that flows sent, by flow: records, plane index of each (-1: unknown),
        and names of the planes.
        """
        return self._sent, *self.planes.numbered()

    def whole(self, outer_labels: bool) -> results.Mrc:
        """MRC traffic of the whole capture.

        outer_labels: entropy values use the flow label of the outer header.
        """
        label, port, both, neither = self._m.votes
        planes = self.planes.loads(self._sent)
        return results.Mrc(
            packets=self._m.packets,
            entropy_order=results.MrcEntropyOrder(
                self._order, self._no_order, label, port, both, neither
            ),
            planes=planes,
            planes_unknown_because=None if planes else NO_PLANES,
            outages=self.outages,
            flow_label="outer" if outer_labels else "inner",
        )

    def _hears(self, peer: int) -> bool:
        """Whether flow `peer` (-1: none) carries any response."""
        answers = self._m.flow(peer) if peer >= 0 else None
        return answers is not None and bool(answers["sacks"] or answers["nacks"].any())

    def _of(self, f: int, lane: int) -> NDArray[Any]:
        begin, end = np.searchsorted(self._lanes, (st.LANES * f + lane, st.LANES * f + lane + 1))
        return self._evs[begin:end]

    def _told(self, peer: int) -> dict[int, Any]:
        """Feedback of flow `peer` about each entropy value; empty while the order is unknown."""
        if self._order is None:
            return {}
        return {sent_key(int(ev["key"]), self._order): ev for ev in self._of(peer, st.TOLD)}

    def _value(
        self, ev: Any, told: dict[int, Any], heard: bool, timed: bool
    ) -> results.MrcEntropyValue:
        known = heard and self._order is not None
        about = told.get(int(ev["key"]))

        def answer(field: str) -> int | None:
            return (int(about[field]) if about is not None else 0) if known else None

        trips = answer("round_trips") if timed else None
        evidence = int(ev["evidence"])
        return results.MrcEntropyValue(
            ev=ev_name(int(ev["key"])),
            plane=self.planes.of(ev),
            path=self._names.segments.name(evidence) if evidence else None,
            packets=int(ev["packets"]),
            wire_bytes=int(ev["wire_bytes"]),
            ecn_marked_packets=int(ev["marked"]),
            retransmissions=int(ev["resends"]),
            lost_packets=int(ev["lost"]),
            trimmed_packets=int(ev["trimmed"]),
            skip_once=answer("skips"),
            always_skip=answer("always_skips"),
            nacks=answer("nacks"),
            round_trips=trips,
            round_trip_min_ns=answer("round_trip_min_ns") if trips else None,
            round_trip_mean_ns=int(about["round_trip_sum_ns"]) / trips
            if trips and about is not None
            else None,
            round_trip_max_ns=answer("round_trip_max_ns") if trips else None,
            first_time_ns=int(ev["first_ns"]),
            last_time_ns=int(ev["last_ns"]),
        )

    def _answers(self, peer: int, record: Any, trips: Quantiles | None) -> results.MrcAnswers:
        h = self._m.histograms
        psn_range = int(record["mpr"]) * MPR_UNIT or None
        in_flight = h.quantiles(peer, st.IN_FLIGHT)
        names = [*NACK_REASONS.values(), "other"]
        return results.MrcAnswers(
            sacks=int(record["sacks"]),
            probe_responses=int(record["probe_responses"]),
            skip_once=int(record["skips"]),
            always_skip=int(record["always_skips"]),
            nacks={name: int(n) for name, n in zip(names, record["nacks"], strict=True) if n},
            out_of_order_depth=h.quantiles(peer, st.OOO_DEPTH),
            max_out_of_order_packets=int(record["max_ooo_count"]),
            round_trip_ns=trips,
            received_bytes=int(record["received_units"]) * RCVD_BYTES_UNIT
            if record["told_bytes"]
            else None,
            in_flight_packets=in_flight,
            psn_range_packets=psn_range,
            max_window_use=in_flight.max / psn_range if psn_range and in_flight else None,
        )

    @cached_property
    def outages(self) -> list[results.MrcPortOutage]:
        """Ports that hosts declared unreachable, by time.

        A mask has no length: the highest port in any mask is taken as the number of ports.
        """
        changes = self._m.port_changes
        ports = max((change.mask.bit_length() for change in changes), default=0)
        down: dict[tuple[int, int], int] = {}
        found = []
        for change in changes:
            for port in range(ports):
                key = (change.host, port)
                if change.mask >> port & 1:
                    if key in down:
                        found.append((down.pop(key), *key, change.time_ns))
                elif key not in down:
                    down[key] = change.time_ns
        lines = [*found, *((since, *key, None) for key, since in down.items())]
        return [
            results.MrcPortOutage(self._names.addresses[host], port + 1, since, until)
            for since, host, port, until in sorted(lines, key=lambda line: line[:3])
        ]

    def retirements(self, f: int) -> list[results.MrcRetirement]:
        """Retired entropy values of flow `f`, by time."""
        if f not in self._retired:
            self._retired[f] = self._find_retirements(f)
        return self._retired[f]

    def _find_retirements(self, f: int) -> list[results.MrcRetirement]:
        packets = int(self._m.flow(f)["packets"])
        sent = self._of(f, st.SENT)
        peer = int(self._tracker.flows[f]["peer"])
        if not self._may_be_out(f, packets, sent, self._m.flow(peer) if peer >= 0 else None):
            return []
        trips = self._m.histograms.quantiles(peer, st.ROUND_TRIP) if peer >= 0 else None
        records = {int(ev["key"]): ev for ev in sent}
        planes = {key: self.planes.of(ev) for key, ev in records.items()}
        span = int(sent["last_ns"].max()) - int(sent["first_ns"].min())  # may exceed int64
        ends = {self._names.addresses[int(self._tracker.flows[f][end])] for end in ("src", "dst")}
        found = retirements(
            silences(self._m.log(), f, packets, sent),
            len(sent),
            st.CAUSED_ROUNDS * len(sent) * span // max(packets, 1) + int(trips.max if trips else 0),
            self._told(peer) if peer >= 0 else {},
            [outage for outage in self.outages if outage.host in ends],
            planes.get,
            Counter(plane for plane in planes.values() if plane is not None),
            ev_name,
            self._hears(peer),
        )
        return found[:MAX_RETIREMENTS_LISTED]

    def _may_be_out(self, f: int, packets: int, sent: NDArray[Any], answers: Any) -> bool:
        """Whether `retirements` could list a silence; most flows have none."""
        silent = packets - sent["last_index"] - 1 > st.CAUSED_ROUNDS * len(sent)
        lost = sent["lost_ns"] > sent["last_ns"]
        told = answers is not None and answers["always_skips"] > 0
        return bool(f in self._returned or told or (silent | lost).any())

    @cached_property
    def _returned(self) -> frozenset[int]:
        """Flows that used an entropy value again after a long silence."""
        log = self._m.log()
        return frozenset(log["flow"][log["kind"] == st.LOG_RETURNED].tolist())

    def events(self) -> list[Event]:
        """NACKs, retired and returned entropy values, ports down and up."""
        flow_name = self._names.flow
        found = [self._nack(entry) for entry in self._m.log() if entry["kind"] == st.LOG_NACK]
        for f in range(len(self._tracker)):
            record = self._m.flow(f)
            if record is None or not record["packets"]:
                continue
            for one in self.retirements(f):
                if not one.certain:
                    continue
                plane = f" of plane {one.plane}" if one.plane is not None else ""
                text = f"{flow_name(f)}: entropy value {one.ev}{plane}"
                why = (
                    "" if one.cause == "unknown" else f" (inferred: {one.cause.replace('_', ' ')})"
                )
                found.append(_event(one.retired_time_ns, "ev_retired", f, f"{text} retired{why}"))
                if one.returned_time_ns is not None:
                    found.append(
                        _event(one.returned_time_ns, "ev_returned", f, f"{text} used again")
                    )
        for outage in self.outages:
            text = f"{outage.host}: port {outage.port}"
            found.append(_event(outage.down_time_ns, "plane_down", None, f"{text} unreachable"))
            if outage.up_time_ns is not None:
                found.append(_event(outage.up_time_ns, "plane_up", None, f"{text} reachable again"))
        return found

    def _nack(self, entry: Any) -> Event:
        reason = int(entry["value"])
        ev = int(entry["key"])
        named = ev_name(sent_key(ev, self._order or LABEL_HIGH))
        return Event(
            time_ns=int(entry["time_ns"]),
            kind="mrc_nack",
            flow=int(entry["flow"]),
            frame_number=int(entry["frame_number"]),
            tap=self._names.taps[int(entry["tap"])],
            text=f"{self._names.flow(int(entry['flow']))}: MRC NACK,"
            f" {NACK_REASONS.get(reason, f'reason 0x{reason:02x}')}, PSN {int(entry['psn'])},"
            f" entropy value {named}",
        )


def _event(time_ns: int, kind: str, flow: int | None, text: str) -> Event:
    return Event(time_ns=time_ns, kind=kind, flow=flow, frame_number=None, tap=None, text=text)
