"""One sentence per section of the report.

Every sentence follows from the counts; an unknown value is called unknown and never
counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from ..analyzer.results.analysis import Analysis
from ..analyzer.results.base import Imbalance, Quantiles, Spraying, facts_of
from ..analyzer.results.flow import Flow
from ..analyzer.words import printable
from .hops import mostly_at, short_taps
from .human import count, counted, duration, message_size, percent, rate, size, span
from .notes import first_ns, lost_again

SPRAYS_FROM_WIDTH = 1.5
"""Spraying width from which a flow sprays: its bytes spread as over 1.5 equally used paths."""
_PSN_ERROR = "PSN sequence error"
PATH_WORDS = {
    "entropy": "source port",
    "tap": "tap",
    "srv6": "segment list",
    "plane": "plane",
    "fabric": "fabric path",
}


def data_flows(analysis: Analysis) -> list[Flow]:
    """The flows that carry requests or responses."""
    return [flow for flow in analysis.flows if flow.data_packets]


def sequenced_flows(analysis: Analysis) -> list[Flow]:
    """The data flows with a PSN order; datagrams (UD) have none."""
    return [flow for flow in data_flows(analysis) if flow.transport != "UD"]


def chosen_spraying(flow: Flow) -> Spraying | None:
    """The spraying record of the path key of `flow.paths`."""
    names = [share.path for share in flow.paths]
    same = (s for s in flow.spraying if [share.path for share in s.paths] == names)
    return next(same, None)


def sprays(flow: Flow) -> bool:
    """Whether the flow alternates between paths; a single move to another path does not count."""
    return flow.spraying_width >= SPRAYS_FROM_WIDTH and not moves(flow)


def moves(flow: Flow) -> bool:
    """Whether the flow moved once from one path to another: it was rerouted."""
    return _moved_on(chosen_spraying(flow))


def _moved_on(record: Spraying | None) -> bool:
    if record is None or record.switches is None:
        return False
    return 0 < record.switches < record.paths_seen


def total(values: Iterable[int | None]) -> int:
    """Sum of the known values."""
    return sum(value for value in values if value is not None)


def trust(analysis: Analysis) -> str:
    """The sentence for captures without warnings."""
    if any(tap.dropped_frames is None for capture in analysis.captures for tap in capture.taps):
        return (
            "No frame was damaged or undecodable; "
            "the capture does not say whether it dropped frames."
        )
    return "The capture dropped no frame; none was damaged or undecodable."


def snapped(analysis: Analysis) -> str | None:
    """The number of frames that the snap length truncated, which is harmless for the report."""
    frames = sum(capture.snapped_frames for capture in analysis.captures)
    if not frames:
        return None
    everything = sum(capture.frames for capture in analysis.captures)
    return (
        f"The snap length truncated {count(frames)} of {count(everything)} frames; "
        "sizes are those of the IP headers."
    )


def ended(analysis: Analysis) -> str | None:
    """The flows that were idle and removed from memory; None without any."""
    gone = analysis.left
    if not gone.flows:
        return None
    lost = gone.missing_packets + gone.recovered_packets + gone.lost_between_taps
    late = gone.reordered_packets + gone.reordered_between_taps
    marked = gone.ecn_marked_packets + gone.marked_between_taps
    unknown = ""
    if gone.partial_flows:
        unknown = f" {counted(gone.partial_flows, 'flow was', 'flows were')} seen only in part:"
        unknown += " losses there are unknown."
    return (
        f"{counted(gone.flows, 'flow was', 'flows were')} idle and removed from memory, with"
        f" {counted(gone.packets, 'packet')} ({size(gone.wire_bytes)}): {count(lost)} lost,"
        f" {count(late)} late, {count(gone.retransmitted_packets)} retransmitted,"
        f" {count(gone.duplicate_packets)} duplicated, {count(marked)} marked CE."
        f"{unknown} All numbers below exclude these flows, except the hops between taps."
    )


def icrc(analysis: Analysis) -> str | None:
    """The result of `--icrc`; None without that option."""
    checks = [capture.icrc for capture in analysis.captures if capture.icrc is not None]
    if not checks:
        return None
    right, wrong, cut = (sum(f.get(k, 0) for f in checks) for k in ("ok", "bad", "truncated"))
    text = f"ICRC: {count(right)} correct, {count(wrong)} wrong"
    return f"{text}; {counted(cut, 'packet')} truncated, not verified." if cut else f"{text}."


def overview(analysis: Analysis) -> str:
    """The numbers of flows and connections, and the peak rate."""
    data = data_flows(analysis)
    others = len(analysis.flows) - len(data)
    text = f"{counted(len(data), 'flow carries', 'flows carry')} data"
    if others:
        text += f", {others} only ACKs or CNPs"
    text += f"; {counted(len(analysis.connections), 'connection is', 'connections are')} paired"
    peak = max(analysis.series.wire_bytes, default=0) * 8e9 / analysis.series.window_ns
    if (
        peak and len(analysis.series.wire_bytes) > 1
    ):  # otherwise the window is longer than the capture
        text += f"; the peak rate over {duration(analysis.series.window_ns)} is {rate(peak)}"
    return f"{text}."


def spraying(analysis: Analysis) -> str:
    """The number of flows that use several paths, and the share of bytes on single-path flows."""
    data = data_flows(analysis)
    if not data:
        return "No flow carries data; spraying is not judged."
    spraying_flows = [flow for flow in data if sprays(flow)]
    moved = [flow for flow in data if moves(flow)]
    word = _path_word(data)
    single = [flow for flow in data if not sprays(flow) and not moves(flow)]
    if not spraying_flows:
        spread, moved_on = _over_taps(data)
        others = sum(1 for flow in single if (r := chosen_spraying(flow)) and r.paths_seen > 1)
        if spread and not moved:
            verb = "sprays" if spread == 1 else "spray"
            text = (
                f"{spread} of {counted(len(data), 'flow')} {verb} over several taps (--path-by tap)"
            )
            text += f", each with one {word}"
        elif len(data) == 1 and single:
            text = f"The only data flow uses one {word}"
        elif not moved:
            text = f"None of {len(data)} flows sprays: each uses one {word}"
        else:
            text = f"None of {counted(len(data), 'flow')} sprays: {_moved(analysis, moved, word)}"
            text += f", {len(single)} used one {word}" if single else ""
        if others:
            text += f", but {others} sent a few packets over another {word}"
        notes = []
        if spread and moved:
            notes.append(f"{counted(spread, 'flow sprays', 'flows spray')} over several taps")
        if moved_on:
            notes.append(f"{counted(moved_on, 'flow')} moved to another tap")
        return f"{text}." + (f" But {' and '.join(notes)}; add --path-by tap." if notes else "")
    paths = [record.paths_seen for flow in spraying_flows if (record := chosen_spraying(flow))]
    width = median(flow.spraying_width for flow in spraying_flows)
    verb = "sprays" if len(spraying_flows) == 1 else "spray"
    text = f"{len(spraying_flows)} of {counted(len(data), 'flow')} {verb}"
    if paths:
        differ = len({f"{flow.spraying_width:.1f}" for flow in spraying_flows}) > 1
        text += f" over {span(paths)} {word}s ({'median ' if differ else ''}width {width:.1f})"
    text += f"; {_moved(analysis, moved, word)}" if moved else ""
    if single:
        everything = sum(flow.wire_bytes for flow in data)
        share = sum(flow.wire_bytes for flow in single) / everything if everything else 0.0
        uses, carry = ("uses", "carries") if len(single) == 1 else ("use", "carry")
        text += f"; {len(single)} {uses} one path and {carry} {percent(share)} of the bytes"
    return f"{text}."


def _over_taps(flows: list[Flow]) -> tuple[int, int]:
    """Flows that spray over taps and that moved to another, if the chosen path key is not taps."""
    records = [s for f in flows for s in f.spraying if s.path_by == "tap" and s.paths_seen > 1]
    if not records or _path_word(flows) == PATH_WORDS["tap"]:
        return 0, 0
    moved = sum(map(_moved_on, records))
    spread = sum(r.width >= SPRAYS_FROM_WIDTH and not _moved_on(r) for r in records)
    return spread, moved


def _moved(analysis: Analysis, flows: list[Flow], word: str) -> str:
    """`7 moved to another tap (the first after 2.18 s)`: the first use of the second path."""
    times = [sorted(p.first_time_ns or 0 for p in flow.paths) for flow in flows]
    seconds = [path[1] for path in times if len(path) > 1]
    text = f"{len(flows)} moved to another {word}"
    if seconds:
        which = "the first " if len(flows) > 1 else ""
        text += f" ({which}after {duration(min(seconds) - first_ns(analysis))})"
    return text


def _path_word(flows: list[Flow]) -> str:
    """The word for a path by the chosen path key."""
    records = (chosen_spraying(flow) for flow in flows)
    key = next((record.path_by for record in records if record), None)
    return PATH_WORDS.get(key or "", "path")


def is_orderly(analysis: Analysis) -> bool:
    """Whether every count of late, lost, retransmitted and duplicate packets is known to be 0."""
    return (
        bool(sequenced_flows(analysis))
        and all(
            value == 0
            for flow in sequenced_flows(analysis)
            for value in (getattr(flow, fact.name) for fact in facts_of(Flow) if fact.is_trouble)
        )
        and not any(flow.naks != 0 or flow.rnr_naks != 0 for flow in analysis.flows)
        and not any(
            flow.reordered_between_taps or flow.lost_between_taps for flow in analysis.flows
        )
    )


def reordering(analysis: Analysis) -> str:
    """Late packets, their flows, and the packets that a receiver must buffer."""
    data = sequenced_flows(analysis)
    judged = [flow for flow in data if flow.reordered_packets is not None]
    unknown = len(data) - len(judged)
    if not judged:
        return "Packet order cannot be judged in any flow."
    late = [flow for flow in judged if flow.reordered_packets]
    rest = f" The order of {counted(unknown, 'flow')} is unknown." if unknown else ""
    if not late:
        if partly := sum(flow.missing_packets is None for flow in judged):
            rest += f" The order of {counted(partly, 'flow')} is known only in part."
        if overtaken := _overtaken(analysis):
            return f"{overtaken}; none was late at the tap that saw it first.{rest}"
        return f"No packet arrived out of order.{rest}{first_taps(analysis)}"
    packets = total(flow.reordered_packets for flow in late)
    everything = sum(map(first_transmissions, judged))
    where = f"in {len(late)} of {counted(len(judged), 'flow')}" if len(judged) > 1 else "late"
    text = f"{count(packets)} of {count(everything)} packets ({percent(packets / everything)}) "
    text += f"arrived {'late, ' + where if len(judged) > 1 else where}"
    share, path = worst_path(late)
    if path and share >= 0.5:
        which = "all of them" if share == 1 else f"{percent(share)} of them"
        text += f", {which} over {_path_word(late)} {path}"
    records = [flow.reordering for flow in late if flow.reordering]
    packets_held = [r.held_packets.max for r in records if r.held_packets]
    bytes_held = [r.byte_offset.max for r in records if r.byte_offset]
    if packets_held:
        text += f". A receiver must buffer {counted(int(max(packets_held)), 'packet')}"
        text += f" ({size(max(bytes_held))})" if bytes_held else ""
        text += " to restore the order"
    return f"{text}.{rest}{first_taps(analysis)}"


def first_transmissions(flow: Flow) -> int:
    """Packets in the PSN order of the flow, each PSN once: the base of the reordering ratio."""
    repeats = total((flow.retransmitted_packets, flow.duplicate_packets, flow.mirror_duplicates))
    return flow.data_packets - repeats + (flow.recovered_packets or 0)


def first_taps(analysis: Analysis) -> str:
    """A note if taps see the same packets, with the packets overtaken between taps."""
    if not any(flow.tap_copies for flow in analysis.flows):
        return ""
    note = " Each packet is judged at the tap that saw it first; "
    if any(flow.tap_copies and flow.reordered_between_taps is None for flow in analysis.flows):
        return f"{note}to judge the order at the receiver, analyse only the tap next to it."
    if overtaken := _overtaken(analysis):
        return f"{note}{overtaken}."
    return f"{note}between taps none was overtaken."


def _overtaken(analysis: Analysis) -> str:
    """How many packets were overtaken after their first tap, and where most; empty for none."""
    late = [n for flow in analysis.flows if (n := flow.reordered_between_taps)]
    if not late:
        return ""
    packets, flows = counted(sum(late), "packet"), counted(len(late), "flow")
    most = max((hop.overtaken_by.max for hop in analysis.hops if hop.overtaken_by), default=0)
    text = f"{packets} of {flows} were overtaken on the way to later taps"
    text += f" by up to {counted(int(most), 'packet')}" if most else ""
    where = mostly_at(analysis.hops, "reordered_packets")
    return f"{text}, {where}" if where else text


def worst_path(flows: list[Flow]) -> tuple[float, str | None]:
    """The path with the most late packets, and its share of them; None with a single path."""
    late: dict[str, int] = {}
    for flow in flows:
        for share in flow.paths:
            late[share.path] = late.get(share.path, 0) + share.reordered_packets
    everything = sum(late.values())
    if len(late) < 2 or not everything:
        return 0.0, None
    worst = max(late, key=late.__getitem__)
    return late[worst] / everything, worst


def loss(analysis: Analysis) -> str:
    """Lost, retransmitted and duplicate packets."""
    data = sequenced_flows(analysis)
    if not data:
        return "No flow has sequence numbers that show losses."
    parts = []
    repeats = total(flow.retransmitted_packets for flow in data)
    lost = total(flow.recovered_packets for flow in data)
    between = total(flow.lost_between_taps for flow in analysis.flows)
    missing = total(flow.missing_packets for flow in data)
    blind = total(flow.capture_loss_suspected_packets for flow in data)
    duplicates = total(flow.duplicate_packets for flow in data)
    mirrored = total(flow.mirror_duplicates for flow in data)
    naks = total(flow.naks for flow in analysis.flows)
    rnr = total(flow.rnr_naks for flow in analysis.flows)
    if repeats:
        hit = sum(1 for flow in data if flow.retransmitted_packets)
        where = f"in {hit} of {counted(len(data), 'flow')}"
        text = f"{counted(repeats, 'packet was', 'packets were')} retransmitted {where}"
        text += ", although none was lost before the tap" if not lost and not between else ""
        parts.append(text)
    if between:
        parts.append(f"{counted(between, 'packet was', 'packets were')} lost between taps")
    if lost:
        twice = lost_again(analysis.diagnosis)
        parts.append(
            f"{counted(lost, 'packet was', 'packets were')} lost before the tap and recovered"
            + (f", and {counted(twice, 'retransmission')} lost too" if twice else "")
        )
    if missing:
        text = f"{counted(missing, 'packet was', 'packets were')} never seen"
        if blind:
            text += f" ({count(blind)} of them acknowledged: most likely not captured)"
        parts.append(text)
    if duplicates:
        parts.append(
            f"{counted(duplicates, 'packet was', 'packets were')} duplicated by the network"
        )
    if mirrored:
        parts.append(f"{counted(mirrored, 'packet was', 'packets were')} mirrored twice")
    if naks or rnr:
        kinds = [counted(naks, "NAK") + _nak_kinds(data, naks)] if naks else []
        kinds += [counted(rnr, "RNR NAK")] if rnr else []
        parts.append(" and ".join(kinds))
    ways = [flow.recovery.retransmission for flow in data]
    if selective := ways.count("selective"):
        text = "1 flow retransmits" if selective == 1 else f"{count(selective)} flows retransmit"
        back = ways.count("go-back-n")
        rest = f", {counted(back, 'other')} all that follow (go-back-N)" if back else ""
        parts.append(f"{text} only lost packets (selective){rest}")
    parts += _longest_wait(data)
    if not parts:
        unknown = sum(1 for flow in data if flow.missing_packets is None)
        rest = f" Loss in {counted(unknown, 'flow')} is unknown." if unknown else ""
        return f"No packet was lost, retransmitted or duplicated.{rest}"
    return f"{'; '.join(parts)}."


def _nak_kinds(flows: list[Flow], naks: int) -> str:
    """` (36 PSN sequence error, 2 remote access error)` if not all are PSN errors."""
    kinds: dict[str, int] = {}
    for flow in flows:
        for kind, number in (flow.recovery.naks or {}).items():
            kinds[kind] = kinds.get(kind, 0) + number
    if set(kinds) <= {_PSN_ERROR} or sum(kinds.values()) != naks:
        return ""
    ordered = sorted(kinds.items(), key=lambda item: -item[1])
    return " (" + ", ".join(f"{count(number)} {kind}" for kind, number in ordered) + ")"


def _longest_wait(flows: list[Flow]) -> list[str]:
    """The longest wait for a retransmission, and its trigger: a NAK or a timeout."""
    naks = [(r.max, "{} after its NAK") for f in flows if (r := f.recovery.nak_to_resend_ns)]
    silences = [(r.max, "after {} of silence") for f in flows if (r := f.recovery.timeout_ns)]
    if not naks + silences:
        return []
    longest, when = max(naks + silences)
    return [f"the slowest retransmission came {when.format(duration(longest))}"]


def congestion(analysis: Analysis) -> str:
    """ECN marks, CNPs, pause frames and inconsistent DSCPs."""
    marked = sum(flow.congestion.ecn_marked_packets for flow in analysis.flows)
    capable = sum(flow.congestion.ecn_capable_packets for flow in analysis.flows)
    cnps = sum(flow.cnps for flow in analysis.flows)
    if not capable and not marked:
        text = "No packet was ECN-capable, so no switch could mark congestion"
    elif not marked:
        text = "No packet was marked CE"
    else:
        base = max(capable, marked)
        text = f"{count(marked)} of {count(base)} ECN-capable packets ({percent(marked / base)}) "
        text += "were marked CE" if marked != 1 else "was marked CE"
    if cnps:
        text += f"; {counted(cnps, 'CNP')}"
    else:
        text += "; no CNP was sent"
    pauses = [pause for c in analysis.captures for tap in c.taps for pause in tap.pauses]
    if pauses:
        text += f"; {counted(sum(pause.frames for pause in pauses), 'pause frame')}"
        known = [pause.paused_ns for pause in pauses if pause.paused_ns is not None]
        text += f" ({duration(sum(known))} paused)" if len(known) == len(pauses) else ""
    mixed = dscp_mix(analysis)
    return f"{text}. {mixed}" if mixed else f"{text}."


def dscp_mix(analysis: Analysis) -> str | None:
    """A sentence when flows that carry data do not all use one DSCP."""
    data = data_flows(analysis)
    within = sum(1 for flow in data if len(flow.congestion.dscp) > 1)
    used = sorted({dscp for flow in data for dscp in flow.congestion.dscp})
    if len(used) < 2:
        return None
    listed = ", ".join(map(str, used[:-1])) + f" and {used[-1]}"
    text = f"Data packets carry DSCP {listed}"
    return f"{text}; {counted(within, 'flow mixes', 'flows mix')} them." if within else f"{text}."


def set_name(record: Imbalance) -> str:
    """The name of a set of parallel paths; the number of taps stands for their names."""
    listed = ", ".join(sorted(share.path for share in record.shares))
    return printable(record.name.replace(listed, f"{record.paths} parallel taps"))


def path_names(record: Imbalance) -> dict[str, str]:
    """The printable name of each path; of taps without what the names of all have in common."""
    paths = [share.path for share in record.shares]
    return short_taps(paths) if record.path_by == "tap" else {p: printable(p) for p in paths}


def imbalance(record: Imbalance) -> str:
    """The imbalance over one set of parallel paths, and the value of ideal random hashing."""
    busiest = max(record.shares, key=lambda share: share.share, default=None)
    text = f"{set_name(record)}: "
    if busiest:
        text += f"the busiest of {record.paths} paths ({path_names(record)[busiest.path]}) carries "
    else:
        text += f"the busiest of {record.paths} paths carries "
    text += f"{record.max_over_mean:.2f} times its fair share"
    if record.fim_flows_percent is not None:
        text += f"; FIM of {counted(record.flows, 'flow')}: {record.fim_flows_percent:.1f} %"
        if record.fim_flows_chance_percent is not None:
            text += f" (ideal hashing: {record.fim_flows_chance_percent:.1f} %)"
    if record.fim_all_flows_percent is not None:
        text += f"; with flows of ACKs: {record.fim_all_flows_percent:.1f} %"
    return f"{text}."


def latency(analysis: Analysis) -> str:
    """Messages, and the range of their times over the flows."""
    data = data_flows(analysis)
    known = [flow.messages for flow in data if flow.messages is not None]
    if data and not known:
        return "Samples cannot show messages or their times."
    messages = sum(known)
    if not messages:
        return "No message was captured from its first to its last packet."
    text = counted(messages, "message")
    sizes = _medians(flow.message_statistics.size_bytes for flow in data)
    if sizes:
        text += f" of {span(sizes, message_size)}"
        text += " (medians of the flows)" if len(set(sizes)) > 1 else ""
    done = [flow.message_statistics.completion_ns for flow in data]
    text += _times("; completion p50", done)
    unanswered = sum(map(never_acknowledged, data))
    if unanswered:
        text += f", {count(unanswered)} never acknowledged"
    text += _times("; request to ACK p50", [flow.latency.request_to_ack_ns for flow in data])
    text += _times(
        "; READ to first response p50", [flow.latency.read_to_first_response_ns for flow in data]
    )
    if all(flow.transport in ("UC", "UD") for flow in data if flow.messages):
        text += "; UC and UD messages are not acknowledged"
    elif not any(done):
        lone = [flow for flow in analysis.flows if flow.connection is None]
        answers = {(f.dst, f.src) for f in lone if f.ack_packets + f.response_packets}
        if any(flow.recovery.naks is None for flow in data):
            text += "; completion is unknown because the snap length cuts off the AETH of answers"
        elif any((flow.src, flow.dst) in answers for flow in data if flow.connection is None):
            text += "; completion is unknown: which answers are for which queue pair is not known"
        else:
            text += "; completion is unknown because the other direction was not captured"
    return f"{text}."


def never_acknowledged(flow: Flow) -> int:
    """Messages without an answer in the capture; 0 if answers cannot be seen."""
    if flow.connection is None or flow.messages is None or flow.transport in ("UC", "UD"):
        return 0
    if flow.recovery.naks is None:
        return 0
    done = flow.message_statistics.completion_ns
    return max(0, flow.messages - (done.count if done else 0))


def _medians(records: Iterable[Quantiles | None]) -> list[float]:
    return [record.p50 for record in records if record and record.count]


def _times(what: str, records: list[Quantiles | None]) -> str:
    known = [record for record in records if record and record.count]
    if not known:
        return ""
    worst = max(record.p99 for record in known)
    return f"{what} {span(_medians(known), duration)} (p99 up to {duration(worst)})"
