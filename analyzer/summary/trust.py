"""How far results can be trusted: what captures missed and hide, told as limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType, structs

from ..capture.rings import RingCapture
from ..decode.control import TYPE_NAMES
from ..decode.counters import LIKE_ROCE, DecodeCounters
from ..decode.decoder import Source
from ..decode.merge import MergeCounts
from ..decode.mirrors import OTHER_EVENT, Mirrors, SwitchCounters, check_switch, mirror_checks
from ..errors import UnreadableInput
from ..results.base import Series, facts_of
from ..results.captures import (
    CaptureGap,
    CaptureSummary,
    Ended,
    MirrorChecks,
    Sampling,
    TapSummary,
    UltraEthernet,
)
from ..results.flow import Flow, Recovery
from ..wire.registry import address_text
from ..wire.taps import Gap, SampledFrames, Taps
from ..words import noun

# What gaps in the captures of taps hide of flows and hops.

Gaps = Mapping[str, Sequence[Gap]]
"""By the name of a tap."""


def gaps_of(taps: Taps) -> dict[str, list[Gap]]:
    """The taps that have gaps."""
    by_tap = {tap.name: taps.carrier(n).gaps for n, tap in enumerate(taps.items)}
    return {name: gaps for name, gaps in by_tap.items() if gaps}


def gaps_in(flow: Flow, gaps: Gaps) -> list[str]:
    """The taps with a gap that may hide packets of the flow: one between its first and its last
    packet at a tap that saw it, one during its whole life at any other."""
    return [tap for tap, of_tap in gaps.items() if any(_hides(gap, tap, flow) for gap in of_tap)]


def _hides(gap: Gap, tap: str, flow: Flow) -> bool:
    begin, end = flow.first_time_ns, flow.last_time_ns
    if tap not in flow.taps:
        begin, end = end, begin
    begun = gap.from_ns is None or gap.from_ns <= end
    return begun and (gap.until_ns is None or begin <= gap.until_ns)


def as_hidden(flow: Flow, gaps: Gaps) -> Flow:
    """The flow without what a gap hides: its losses and late packets; unchanged without a gap, if
    other taps saw all of it, or if no tap with a gap saw it and it has no loss or late packet."""
    if not (taps := gaps_in(flow, gaps)):
        return flow
    sequenced = flow.reordered_packets is not None
    lossy = sequenced and bool(flow.missing_packets != 0 or flow.recovered_packets)
    between = flow.lost_between_taps or flow.reordered_between_taps
    late = bool(flow.reordered_packets)
    if not set(taps) & set(flow.taps) and not (lossy or late or between):
        return flow
    changes: dict[str, object] = {}
    if flow.lost_between_taps is not None:
        changes |= {"lost_between_taps": None, "reordered_between_taps": None}
    if lossy:
        changes |= {"missing_packets": None, "capture_loss_suspected_packets": None}
    if lossy or late:
        changes |= {"reordered_packets": None, "reordering": None}
    if not changes:
        return flow
    what = "losses and late packets are unknown"
    note = f"the capture of {', '.join(taps)} has gaps while the flow lives: its {what}"
    return structs.replace(flow, **changes, notes=[note, *flow.notes])


# Flows and taps seen only as samples (sFlow): estimates and unknown values.

PSN_EVENTS = ("rewind", "sequence_restart")
"""Kinds of events that gaps between samples would falsely cause."""


def tap_sampling(sampled: SampledFrames) -> Sampling:
    """The estimate for the RoCE packets of one tap."""
    one_in = sampled.rates / sampled.frames
    error = 100 / sqrt(sampled.frames)
    return Sampling(one_in, sampled.rates, sampled.wire_bytes, error)


def sampled_taps(taps: Taps) -> dict[str, float]:
    """Mean sampling rate of the taps with samples only, by name."""
    return {tap.name: tap.sampled.rates / tap.sampled.frames for tap in taps.items if tap.sampled}


def as_sampled(flow: Flow, rates: Mapping[str, float]) -> Flow:
    """The flow with estimates, without values that samples cannot give; unchanged without samples.

    rates: from `sampled_taps`. Packets that passed several sampled ports count at each port.
    """
    seen = {tap: n for tap, n in flow.taps.items() if tap in rates}
    if not seen:
        return flow
    estimate = sum(n * rates.get(tap, 1.0) for tap, n in flow.taps.items())
    count = sum(flow.taps.values())
    one_in = estimate / count
    recovery = structs.replace(flow.recovery, **_unknown(Recovery))
    statistics = structs.replace(
        flow.message_statistics, **dict.fromkeys(flow.message_statistics.__struct_fields__)
    )
    latency = structs.replace(flow.latency, **dict.fromkeys(flow.latency.__struct_fields__))
    sampling = Sampling(
        one_in, round(estimate), round(flow.wire_bytes * one_in), 100 / sqrt(sum(seen.values()))
    )
    note = (
        f"sampled 1 in {one_in:.0f}: messages, loss, reordering and retransmissions are unknown,"
        " counts are those of the samples"
    )
    return structs.replace(
        flow,
        **_unknown(Flow),
        recovery=recovery,
        message_statistics=statistics,
        latency=latency,
        sampling=sampling,
        notes=[note, *flow.notes],
    )


def _unknown(kind: type) -> dict[str, Any]:
    """None for each field that samples cannot give."""
    return {fact.name: None for fact in facts_of(kind) if not fact.from_samples}


# The integrity of a mirror that numbers its packets.


def checks_of(
    mirrors: Sequence[Mirrors], addresses: list[str], switch_counters: SwitchCounters | None
) -> MirrorChecks | None:
    """The checks over all captures; None when no mirror numbers its packets.

    addresses: of the endpoints, by index. switch_counters: counters of the mirroring switch.
    """
    numbered = [mirror.lumina for mirror in mirrors if mirror.lumina is not None]
    if not numbered:
        return None
    switch = None
    if switch_counters is not None:
        switch = check_switch(switch_counters, sum(mirror.packets for mirror in numbered))
    return mirror_checks(numbered, addresses, switch)


def mirror_warnings(checks: MirrorChecks) -> list[str]:
    """Warnings about losses and disorder of the mirror, which affect the result."""
    lines = []
    if checks.lost_packets:
        lines.append(
            f"the mirror lost {checks.lost_packets} of {checks.packets + checks.lost_packets}"
            f" packets (gaps in its numbers: {checks.gaps}): losses below may be its own"
        )
    switch = checks.switch
    if switch is not None and not switch.agrees:
        lines.append(
            f"the switch received {switch.received_packets} packets, mirrored"
            f" {switch.mirrored_packets}, and {switch.captured_packets} were captured"
        )
    if checks.times_backwards:
        lines.append(f"the mirror's clock goes back {checks.times_backwards} times by over 50 ns")
    if checks.direction_times_backwards:
        lines.append(
            f"the mirror's clock goes back {checks.direction_times_backwards} times between packets"
            " of one sender"
        )
    unknown = checks.injected.get(OTHER_EVENT, 0)
    if unknown:
        lines.append(
            f"{unknown} packets have a TTL that Lumina does not write: is this a Lumina mirror?"
        )
    return lines


ENDED_EARLY = "ended early: "
"""Begins the warning about a limit that ended reading."""


def capture_summary(source: Source, taps: Taps, series: Series, icrc: bool) -> CaptureSummary:
    """The record of one capture."""
    capture, counters = source.capture, source.decoder.counters
    first, last = source.first_time_ns, source.last_time_ns
    gaps = capture.gaps if isinstance(capture, RingCapture) else []
    its_taps = [tap for tap in range(len(taps)) if _frames_at(source, tap)]
    return CaptureSummary(
        name=capture.name,
        format=capture.format,
        compression=capture.compression,
        frames=capture.frames,
        roce_packets=counters.roce_packets(),
        first_time_ns=first,
        last_time_ns=last,
        duration_ns=None if first is None or last is None else last - first,
        snapped_frames=capture.truncated_frames,
        out_of_order_frames=capture.out_of_order_frames,
        undecodable_frames=counters.undecodable(),
        later_fragments=counters.later_fragments(),
        icrc={k: n for k, n in counters.icrc().items() if k != "unchecked"} if icrc else None,
        contents={name: n for name, n in counters.contents() if name != "RoCE"},
        taps=[tap_summary(counters, taps, tap, series) for tap in its_taps],
        warnings=[*capture.warnings, *source.decoder.warnings(capture.name)],
        damaged_places=capture.damaged_places,
        encapsulations=counters.tunnels() or UNSET,
        ultra_ethernet=ultra_ethernet(counters),
        gaps=[CaptureGap(gap.from_ns, gap.until_ns, gap.reason) for gap in gaps] or UNSET,
    )


def capture_of(tap: TapSummary, capture: CaptureSummary) -> str:
    """The name of what captured the frames of a tap: the tap itself, unless it is a link."""
    return tap.name if tap.link_addresses is UNSET else capture.name


def check_read(captures: Sequence[CaptureSummary], complete: bool) -> None:
    """UnreadableInput when nothing was read, or when complete captures hold no RoCE packet."""
    if not any(capture.frames for capture in captures):
        names = ", ".join(capture.name for capture in captures)
        why = [warning for capture in captures for warning in capture.warnings]
        raise UnreadableInput(f"{names}: no frame in it" + (f" ({why[0]})" if why else ""))
    if complete and not any(capture.roce_packets for capture in captures):
        contents = "; ".join(f"{c.name}: {contents_text(c)}" for c in captures)
        why = [warning for c in captures for warning in c.warnings if LIKE_ROCE in warning]
        hint = "; ".join(why) or "inside a tunnel or tag that is not decoded? see docs/captures.md"
        raise UnreadableInput(
            f"no RoCE packet in {len(captures)} capture(s), which hold: {contents} ({hint})"
        )


def warnings_of(
    captures: Sequence[CaptureSummary],
    flows: Sequence[Flow],
    merge: MergeCounts,
    complete: bool,
    filtered: bool,
    before_taps: int = 0,
    ended_by: str | None = None,
    ended: Ended | None = None,
    rows_kept: bool = False,
) -> list[str]:
    """Warnings that limit trust in the results, worst first; empty for a faultless capture.

    before_taps: packets read before the first mirror session showed that there are several taps.
    ended_by: the limit that ended reading, if one did. ended: flows that were removed from memory;
    rows_kept: their records are kept elsewhere.
    """
    late = any(flow.reordered_packets for flow in flows)
    lines = []
    if ended_by is not None:
        lines.append(f"{ENDED_EARLY}{ended_by}")
    elif not complete:
        lines.append("interrupted: the report covers what was read so far")
    if ended is not None and ended.untracked_packets:
        lines.append(
            "more flows were active at once, or more addresses seen, than the limits allow:"
            f" {_counted(ended.untracked_packets, 'packet')} of other flows counted, not"
            " analysed"
        )
    if ended is not None and ended.flows and ended.returned_flows is not None:
        lines.append(
            f"too many flows for memory: {_counted(ended.flows, 'idle flow')} removed from memory,"
            f" {len(flows)} flows are listed; "
            + ("flows/ended.parquet has" if rows_kept else "-o FOLDER keeps")
            + " a row of every other flow"
        )
    if ended is not None and ended.returned_flows:
        lines.append(
            f"{_counted(ended.returned_flows, 'flow')} resumed after removal from memory and count"
            " as new flows: losses and reordering in between are unknown"
        )
    if ended is not None and ended.flows_in_trouble:
        lines.append(
            f"{_counted(ended.flows_in_trouble, 'idle flow')} with losses, late, marked or"
            " retransmitted packets removed from memory: only the worst are listed"
        )
    for capture in captures:
        lines += capture.warnings
        lost = {
            capture_of(tap, capture): tap.dropped_frames
            for tap in capture.taps
            if tap.dropped_frames
        }
        lines += [
            f"{name}: the capture itself lost {n} frames: losses below may be capture losses"
            for name, n in lost.items()
        ]
        lines += [
            f"{tap.name}: samples, 1 in {tap.sampling.one_in:.0f} frames: totals"
            " are estimates, loss and reordering are unknown"
            for tap in capture.taps
            if isinstance(tap.sampling, Sampling)
        ]
        undecodable = sum(capture.undecodable_frames.values())
        if undecodable:
            reasons = ", ".join(f"{n} {why}" for why, n in capture.undecodable_frames.items())
            lines.append(f"{capture.name}: {undecodable} frames could not be decoded: {reasons}")
        if capture.later_fragments:
            lines.append(
                f"{capture.name}: {capture.later_fragments} later IP fragments: their bytes are"
                " not counted"
            )
        # The merge of several captures by time sorts such records.
        if capture.out_of_order_frames and late and len(captures) == 1:
            verb = "record is" if capture.out_of_order_frames == 1 else "records are"
            lines.append(
                f"{capture.name}: {capture.out_of_order_frames} {verb} out of time order:"
                " some of the reordering below may come from the capture itself"
            )
        if capture.icrc and capture.icrc["bad"]:
            lines.append(f"{capture.name}: {capture.icrc['bad']} packets have a wrong ICRC")
        if not capture.roce_packets and capture.ultra_ethernet is UNSET:
            lines.append(f"{capture.name}: it holds no RoCE ({contents_text(capture)})")
    if merge.late_rows:
        lines.append(
            f"{merge.late_rows} packets were too late for the merge in time order:"
            " are the clocks of the taps synchronised?"
        )
    # Datagrams and flows of ACKs have no PSN sequence that could be incomplete.
    sequenced = [flow for flow in flows if flow.retransmitted_packets is not None]
    partial = sum(flow.missing_packets is None for flow in sequenced)
    partial += 0 if ended is None else ended.partial_flows
    if partial:
        verb = "flow was" if partial == 1 else "flows were"
        lines.append(f"{partial} {verb} seen only in part: losses and reordering are unknown there")
    if before_taps:
        lines.append(
            f"{before_taps} packets precede the first mirror session: paths by tap, and losses"
            " between taps, exclude them"
        )
    if filtered:
        lines.append("a filter is set: excluded packets count as neither seen nor lost")
    return lines


def _counted(value: int, of: str) -> str:
    return f"{value} {noun(value, of)}"


def contents_text(capture: CaptureSummary) -> str:
    """`120 TCP, 4 ARP`: contents of a capture other than RoCE."""
    largest = list(capture.contents.items())[:6]
    return ", ".join(f"{n} {name}" for name, n in largest) or "no frames"


def ultra_ethernet(counters: DecodeCounters) -> UltraEthernet | UnsetType:
    """Counters of Ultra Ethernet; UNSET without any."""
    counts = counters.arrays.uet
    packets = int(counts.types.sum())
    if not packets:
        return UNSET
    lowest, highest = (int(psn) for psn in counts.psns)
    return UltraEthernet(
        packets=packets,
        wire_bytes=int(counts.wire_bytes[0]),
        by_type={
            TYPE_NAMES.get(int(kind), f"type {kind}"): int(counts.types[kind])
            for kind in np.flatnonzero(counts.types)
        },
        entropy_values=int(np.count_nonzero(counts.sports)),
        lowest_psn=lowest if highest >= 0 else None,
        highest_psn=highest if highest >= 0 else None,
    )


def _frames_at(source: Source, tap: int) -> int:
    counters = source.decoder.counters
    return counters.frames(tap) if tap < len(counters.arrays.outcomes) else 0


def tap_summary(counters: DecodeCounters, taps: Taps, index: int, series: Series) -> TapSummary:
    """The record of one tap."""
    tap = taps[index]
    decoded = index < len(counters.arrays.outcomes)
    wire_bytes = series.tap_wire_bytes.get(tap.name, series.wire_bytes)
    link = tap.link if tap.link is not None and tap.link.is_one_of_several else None
    return TapSummary(
        name=tap.name,
        link_type=tap.link_type,
        frames=counters.frames(index) if decoded else 0,
        roce_packets=counters.roce_packets(index) if decoded else 0,
        wire_bytes=sum(wire_bytes),
        dropped_frames=_dropped(taps, index),
        speed_bits_per_second=tap.speed_bits_per_second,
        pauses=counters.pause(index) if decoded else [],
        sampling=tap_sampling(tap.sampled) if tap.sampled else UNSET,
        filter=tap.filter or UNSET,
        fragmented_packets=counters.fragmented_packets(index) if decoded else 0,
        link_addresses=UNSET if link is None else [address_text(a) for a in link.addresses],
    )


def _dropped(taps: Taps, index: int) -> int | None:
    """Frames that the capture of a tap dropped; those of a capture with several links count at the
    first."""
    tap = taps[index]
    if tap.link is None or not tap.link.is_one_of_several or tap.dropped is not None:
        return tap.dropped
    return None if taps.carrier(index).dropped is None else 0
