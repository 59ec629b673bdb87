"""The MRC records: flows, planes, retired entropy values, segment lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Array
from ..decode.mrc import MPR_UNIT, NACK_REASONS, RCVD_BYTES_UNIT, TIMESTAMP_NS
from ..measures import mrc as st
from ..measures.measuring import Measuring
from ..measures.mrc import ORDER_LABEL_HIGH as LABEL_HIGH
from ..measures.mrc import sent_key
from ..measures.path_table import OTHER
from ..measures.spraying import PathUsage
from ..results import mrc as results
from ..results.base import Event, Quantiles
from ..results.mrc import MrcPlane, MrcPlanes, MrcPortOutage, MrcRetirement, SegmentList
from ..statistics.shares import jain
from ..wire.registry import SegmentLists
from .names import Names, PlaneBy

# The SRv6 segment lists of a capture as results.

MAX_LISTED = 256


def segment_lists(usage: PathUsage, segments: SegmentLists) -> list[SegmentList]:
    """Traffic of the segment lists, largest first."""
    packets: Counter[int] = Counter()
    wire_bytes: Counter[int] = Counter()
    for path in usage.records().paths:
        packets[int(path["key"])] += int(path["packets"])
        wire_bytes[int(path["key"])] += int(path["wire_bytes"])
    found = []
    for number, carried in wire_bytes.most_common(MAX_LISTED):
        known = 0 < number <= len(segments)
        carriers = [segments.usids(s) for s in segments.segments(number)] if known else []
        found.append(
            SegmentList(
                path=segments.name(number) if number >= 0 else "other",
                segments=[usids for _, usids, _ in carriers],
                empty_places=carriers[0][2] if carriers else 0,
                packets=packets[number],
                wire_bytes=carried,
            )
        )
    return found


# Planes of MRC: the plane of each entropy value, and the traffic per plane.

NO_PLANES = "neither SRv6 segments nor several taps identify planes; set --plane-by"


class Planes:
    """The planes of one result.

    sent: the measures.mrc.EV records of the entropy values that flows sent.
    """

    def __init__(self, sent: NDArray[Any], names: Names, asked: PlaneBy) -> None:
        self._sent = sent
        self._names = names
        self._segment_names: dict[int, str | None] = {}
        self._inferred = asked.kind == "auto"
        self._by = _guessed(sent) if self._inferred else asked

    @property
    def by(self) -> str:
        """The key of the planes; empty when there is none."""
        return "" if self._by is None else str(self._by)

    def of(self, ev: Any) -> str | None:
        """The plane of an entropy value; None when unknown."""
        by = self._by
        if by is None or int(ev["key"]) == OTHER:
            return None
        if by.kind == "tap":
            return self._names.taps[int(ev["tap"])]
        if by.kind == "ev":
            return str(int(ev["key"]) >> by.number & (1 << by.bits) - 1)
        return self._segment_name(int(ev["evidence"]), by.number)

    def numbered(self) -> tuple[NDArray[np.int64], list[str]]:
        """The plane index of each entropy value (-1: unknown), and the names of the planes."""
        sent, by = self._sent, self._by
        if by is None or not len(sent):
            return np.full(len(sent), -1, np.int64), []
        column = {"tap": "tap", "ev": "key"}.get(by.kind, "evidence")
        _, one, of = np.unique(sent[column], return_index=True, return_inverse=True)
        named = [self.of(sent[i]) for i in one.tolist()]
        names = sorted({name for name in named if name is not None})
        numbers = np.array([-1 if n is None else names.index(n) for n in named], np.int64)
        planes = numbers[of]
        planes[sent["key"] == OTHER] = -1
        return planes, names

    def loads(self, evs: NDArray[Any]) -> MrcPlanes | None:
        """Traffic of each plane for these entropy values; None when no plane is known."""
        carried: Counter[str] = Counter()
        packets: Counter[str] = Counter()
        values: Counter[str] = Counter()
        for ev in evs:
            plane = self.of(ev)
            if plane is None:
                continue
            carried[plane] += int(ev["wire_bytes"])
            packets[plane] += int(ev["packets"])
            values[plane] += 1
        total = carried.total()
        if not total:
            return None
        loads = np.array(list(carried.values()), np.int64)
        return MrcPlanes(
            plane_by=self.by,
            inferred=self._inferred,
            planes=[
                MrcPlane(name, values[name], packets[name], carried[name], carried[name] / total)
                for name in sorted(carried)
            ],
            jain=jain(loads),
            max_over_mean=float(loads.max() / loads.mean()),
        )

    def _segment_name(self, evidence: int, number: int) -> str | None:
        segments = self._names.segments
        if not 0 < evidence <= len(segments):
            return None
        if evidence not in self._segment_names:
            block, usids, _ = segments.usids(segments.segments(evidence)[0])
            name = f"{block}:{usids[number - 1]}" if number <= len(usids) else None
            self._segment_names[evidence] = name
        return self._segment_names[evidence]


def _guessed(sent: NDArray[Any]) -> PlaneBy | None:
    """The detected key of the planes; None when there is none."""
    if len(sent) and sent["evidence"].any():
        return PlaneBy("segment", 1)
    links = np.unique(sent[["lane", "tap"]])
    if len(links) > len(np.unique(links["lane"])):  # else each sender has one link
        return PlaneBy("tap")
    return None


# Retired entropy values of an MRC flow, with their causes.
#
# A sender does not announce a retirement: it shows in packets sent without the entropy value. The
# number of packets needed depends on other evidence in the capture.


class Silence(NamedTuple):
    """The time between two packets with one entropy value, or after its last one."""

    key: int
    since_ns: int
    until_ns: int | None
    without: int
    """Packets that the flow sent during the silence."""
    lost_ns: int
    """First retransmission without a NACK during the silence, ns; 0: none."""


class Why(NamedTuple):
    """The cause of a silence."""

    cause: str
    time_ns: int | None


def silences(log: Array, f: int, packets: int, sent: Array) -> list[Silence]:
    """The long silences of flow `f` by time: ended ones, then those up to the end.

    log: measures.mrc.LOG records; packets: number of packets of the flow; sent: its measures.mrc.EV
    records.
    """
    ended = log[(log["kind"] == st.LOG_RETURNED) & (log["flow"] == f)]
    found = [
        Silence(
            int(entry["key"]),
            int(entry["value"]),
            int(entry["time_ns"]),
            int(entry["without"]),
            int(entry["lost_ns"]),
        )
        for entry in ended
    ]
    found += [
        Silence(
            int(ev["key"]),
            int(ev["last_ns"]),
            None,
            packets - int(ev["last_index"]) - 1,
            int(ev["lost_ns"]) if ev["lost_ns"] > ev["last_ns"] else 0,
        )
        for ev in sent
    ]
    return sorted(found, key=lambda silence: (silence.since_ns, silence.key))


def retirements(
    found: list[Silence],
    values: int,
    near_ns: int,
    told: dict[int, Any],
    outages: list[MrcPortOutage],
    plane_of: Callable[[int], str | None],
    plane_sizes: Counter[str],
    name: Callable[[int], str],
    heard: bool,
) -> list[MrcRetirement]:
    """The silences that mean a retirement.

    values: entropy values of the flow. near_ns: longest distance to a possible cause. told: TOLD
    records by entropy value. heard: responses were seen; otherwise it is unknown which
    retransmissions answer a NACK. outages: of the hosts of the flow. plane_sizes: entropy values of
    each plane.
    """
    enough = max(st.RETIRED_AFTER_PACKETS, st.RETIRED_AFTER_ROUNDS * values)
    whys = [_why(one, near_ns, told.get(one.key), outages) for one in found]
    down = Counter(
        plane_of(one.key)
        for one, why in zip(found, whys, strict=True)
        if why.cause == "port_down" and one.without > st.CAUSED_ROUNDS * values
    )
    listed = []
    for one, why in zip(found, whys, strict=True):
        plane = plane_of(one.key)
        if why.cause == "port_down" and plane is not None and 2 * down[plane] < plane_sizes[plane]:
            why = _why(one, near_ns, told.get(one.key), [])  # the rest of its plane stayed in use
        certain = one.without > (enough if why.cause == "unknown" else st.CAUSED_ROUNDS * values)
        named = heard and one.until_ns is None and why.cause in ("always_skip", "loss")
        if certain or named:
            listed.append(
                MrcRetirement(
                    name(one.key), plane, one.since_ns, one.until_ns, why.cause, why.time_ns,
                    one.without, certain,
                )
            )  # fmt: skip
    return listed


def _why(one: Silence, near_ns: int, told: Any, outages: list[MrcPortOutage]) -> Why:
    """The cause of a retirement, as far as the capture shows."""
    if told is not None and told["always_skips"]:
        said = int(told["last_always_skip_ns"])
        if one.since_ns - near_ns <= said and (one.until_ns is None or said < one.until_ns):
            return Why("always_skip", said)
    for outage in outages:
        up = outage.up_time_ns
        lasted = one.until_ns is None or (up is not None and up <= one.until_ns)
        lost_later = up is not None and up < one.lost_ns
        if lasted and not lost_later and abs(outage.down_time_ns - one.since_ns) <= near_ns:
            return Why("port_down", outage.down_time_ns)
    return Why("loss", one.lost_ns) if one.lost_ns else Why("unknown", None)


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
