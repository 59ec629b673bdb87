"""Builds the record of one flow from all measures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from ..measures.hops.hops import TapHops
from ..measures.measuring import Measuring
from ..measures.tap_sets import tap_places
from ..results.base import facts_of
from ..results.flow import Flow, Owner, Recovery, Reordering
from ..statistics.density import MAX_THRESHOLD
from ..track import state as st
from ..wire.bth import NAK_NAMES, TRANSPORT_NAMES, opcode_name
from .hidden import Gaps, as_hidden, as_sampled
from .mrc import MrcSummary, unknowns
from .names import Names, PathBy


class FlowSummary:
    """Makes the records of flows.

    connection_of, owners: connection number and process by flow index. sampled: of
    `sampled_taps`. mrc: None when there is no MRC. tap_hops: None with one tap.
    gaps: of `gaps_of`.
    """

    def __init__(
        self,
        measuring: Measuring,
        names: Names,
        path_by: PathBy,
        connection_of: Mapping[int, int],
        owners: Mapping[int, Owner],
        sampled: Mapping[str, float],
        mrc: MrcSummary | None,
        tap_hops: TapHops | None,
        gaps: Gaps,
    ) -> None:
        self._m = measuring
        self._names = names
        self._path_by = path_by
        self._connection_of = connection_of
        self._owners = owners
        self._sampled = sampled
        self._gaps = gaps
        self._mrc = mrc
        self._marked = {} if tap_hops is None else tap_hops.arisen("marked")
        self._late = {} if tap_hops is None else tap_hops.arisen("late")
        self._lost = {} if tap_hops is None else tap_hops.lost()

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The place of each tap; parallel taps share one, see `tap_places`."""
        m, flows = self._m, self._m.tracker.flows
        copies = m.tracker.copies
        return tap_places(m.taps, flows["src"], flows["dst"], copies, len(self._names.taps))

    def flow(self, f: int) -> Flow:
        """Everything about one flow."""
        m, t = self._m, self._m.tracker
        record: Any = t.flows[f]
        requests, responses = t.stream(f, st.REQUESTS), t.stream(f, st.RESPONSES)
        packets = t.opcodes(np.array([f]))[0]
        sequenced = bool(requests["started"] or responses["started"])
        notes: list[str] = []
        missing = acknowledged = None
        if not sequenced:
            only_acks = record["ack_packets"] == record["packets"]
            what = "only ACKs were seen: they have" if only_acks else "datagrams and CNPs have"
            if TRANSPORT_NAMES[record["transport"]] == "MRC" and not only_acks:
                what = "only control packets were seen: they have"
            notes.append(f"{what} no PSN sequence that could show reordering or loss")
        if sequenced:
            missing, acknowledged = (
                sum(pair)
                for pair in zip(t.missing(f, st.REQUESTS), t.missing(f, st.RESPONSES), strict=True)
            )
            if t.in_part(f):
                notes.append(
                    f"{missing} PSNs were never seen here: this tap seems to see only some of"
                    " the flow's paths, so losses are unknown"
                )
                missing = acknowledged = None
        entropy = m.entropy.spraying(f)
        by_tap = m.taps.spraying(f, self._names.tap, self.places) if m.many_taps else None
        by_segments = m.srv6.spraying(f, self._names.segments.name)
        spraying = [s for s in (entropy, by_tap, by_segments) if s is not None]
        chosen = next((s for s in spraying if s.path_by == self._path_by), entropy)
        messages = m.messages.messages(f)
        untracked = m.messages.untracked(f)
        if untracked:
            notes.append(
                f"{untracked} requests exceeded the tracking limit: they are missing from"
                " the completion times"
            )
        if m.messages.unacknowledged(f):
            notes.append("no answer to its requests was seen: goodput is unknown")

        mrc = self._mrc.flow(f) if self._mrc else None
        if mrc is not None:
            notes += unknowns(mrc)
        answered_again = int(responses["recovered"] + responses["retransmitted"])
        if answered_again:
            notes.append(
                f"{answered_again} retransmitted packets answer READs or atomics, mostly repeated"
                " ones: rewinds and triggers are those of the requests only"
            )
        counts = _counts(record, requests, responses, sequenced) | m.counters.of(f)
        counts["ecn_marked_packets"] += self._marked.get(f, 0)
        several = bool(record["tap_copies"]) or f in self._lost
        summary = Flow(
            id=f,
            src=self._names.addresses[record["src"]],
            dst=self._names.addresses[record["dst"]],
            dest_qp=int(record["dest_qp"]),
            transport=TRANSPORT_NAMES[record["transport"]],
            connection=self._connection_of.get(f),
            first_time_ns=int(record["first_time"]),
            last_time_ns=int(record["last_time"]),
            opcodes={opcode_name(int(op)): int(packets[op]) for op in np.flatnonzero(packets)},
            path_mtu=int(record["path_mtu"]) or None,
            messages=messages.count,
            reordered_between_taps=self._late.get(f, 0) if several else None,
            lost_between_taps=self._lost.get(f, 0) if several else None,
            missing_packets=missing,
            capture_loss_suspected_packets=acknowledged,
            entropy_values=m.entropy.paths_seen(f),
            spraying_width=chosen.width if chosen else 1.0,
            paths=chosen.paths if chosen else [],
            spraying=spraying,
            reordering=self._reordering(f, requests, responses),
            recovery=self._recovery(f, record, known=not answered_again or requests["started"]),
            message_statistics=messages,
            latency=m.messages.latency(f),
            congestion=m.congestion.congestion(f, self._marked.get(f, 0)),
            idle_gaps=m.idle.gaps(f),
            goodput_bits_per_second=m.messages.goodput_bits_per_second(f),
            activity_bytes=m.activity.column(f),
            activity_bin_ns=m.activity.width_ns,
            taps=self._seen_at(f, record),
            owner=self._owners.get(f),
            notes=notes,
            mrc=mrc or UNSET,
            **counts,
        )
        return as_hidden(as_sampled(summary, self._sampled), self._gaps)

    def _seen_at(self, f: int, record: Any) -> dict[str, int]:
        if not self._m.many_taps:
            return {self._names.taps[0]: int(record["packets"])}
        seen = {self._names.taps[tap]: n for tap, n in self._m.taps.packets_by_key(f).items()}
        earlier = int(record["packets"] + record["tap_copies"]) - sum(seen.values())
        if earlier:  # all packets were at the first tap until another tap appeared
            seen = {self._names.taps[0]: seen.pop(self._names.taps[0], 0) + earlier, **seen}
        return seen

    def _reordering(self, f: int, requests: Any, responses: Any) -> Reordering | None:
        """RFC metrics over both streams of the flow; None without PSNs of its own."""
        unique = int(requests["arrivals"] + responses["arrivals"])
        if unique == 0:
            return None
        tracker = self._m.tracker
        h, d = tracker.histograms, tracker.densities
        n_counts = tracker.n_counts(f, st.REQUESTS) + tracker.n_counts(f, st.RESPONSES)
        n_reordering = np.cumsum(n_counts[::-1])[
            ::-1
        ]  # a 3-reordered packet is also 1- and 2-reordered
        return Reordering(
            ratio=int(requests["reordered"] + responses["reordered"]) / unique,
            max_extent=int(max(requests["max_extent"], responses["max_extent"])),
            extent_packets=h.quantiles(f, st.EXTENT),
            extent_histogram=h.bins(f, st.EXTENT),
            late_time_ns=h.quantiles(f, st.LATE_TIME),
            late_time_histogram=h.bins(f, st.LATE_TIME),
            held_packets=h.quantiles(f, st.HELD_PACKETS),
            byte_offset=h.quantiles(f, st.BYTE_OFFSET),
            gap_packets=h.quantiles(f, st.GAP_PACKETS),
            gap_time_ns=h.quantiles(f, st.GAP_TIME),
            n_reordering=[int(n) for n in n_reordering if n],
            max_n_reordering=int(max(requests["max_n"], responses["max_n"])),
            runs=int(requests["runs"] + responses["runs"]),
            run_packets=int(requests["run_packets"] + responses["run_packets"]),
            run_packets_squared=int(
                requests["run_packets_squared"] + responses["run_packets_squared"]
            ),
            displacement_threshold=MAX_THRESHOLD,
            density=_sum(d.density(f, st.REQUESTS), d.density(f, st.RESPONSES)),
            buffer_density=_sum(
                d.buffer_density(f, st.REQUESTS), d.buffer_density(f, st.RESPONSES)
            ),
        )

    def _recovery(self, f: int, record: Any, known: bool) -> Recovery:
        """known: the retransmissions of the flow have triggers of its own."""
        h = self._m.tracker.histograms
        codes = {
            NAK_NAMES.get(0x60 | code, "other"): int(n)
            for code, n in enumerate(record["nak_codes"])
            if n
        }
        return Recovery(
            naks=codes,
            rnr_naks=int(record["rnr_received"]),
            retransmitted_by={
                name: int(n)
                for name, n in zip(st.TRIGGER_NAMES, record["retransmitted_by"], strict=True)
                if n
            }
            if known
            else None,
            rewinds=int(record["rewinds"]) if known else None,
            rewound_bytes=int(record["rewound_bytes"]) if known else None,
            gap_to_nak_ns=h.quantiles(f, st.GAP_TO_NAK),
            nak_to_resend_ns=h.quantiles(f, st.NAK_TO_RESEND),
            timeout_ns=h.quantiles(f, st.TIMEOUT),
        )


def _counts(record: Any, requests: Any, responses: Any, sequenced: bool) -> dict[str, Any]:
    """The fields of `Flow` that are columns of the tracker, by name."""
    counts: dict[str, Any] = {}
    for fact in facts_of(Flow):
        if fact.flow_column:
            counts[fact.name] = int(record[fact.flow_column])
        elif fact.stream_columns:
            streams = sum(requests[name] + responses[name] for name in fact.stream_columns)
            counts[fact.name] = int(streams) if sequenced else fact.unsequenced
    return counts


def _sum(counts: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    return {k: counts.get(k, 0) + other.get(k, 0) for k in sorted({*counts, *other})}
