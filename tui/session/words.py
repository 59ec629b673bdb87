"""One sentence per screen that answers, and the commands that show the same elsewhere."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...analyzer.pipeline.options import AnalyzeOptions
from ...analyzer.results.base import Event
from ...analyzer.results.flow import Flow
from ...analyzer.summary.names import PlaneBy
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...analyzer.wire.registry import UsidFormat
from ...analyzer.words import printable
from ...kernels.kernel import Bools, Floats, Ints
from ...report import human
from ...report import notes as words
from ...report.human import queue_pair
from ...report.notes import counted_kind
from ...report.verdicts import PATH_WORDS, SPRAYS_FROM_WIDTH
from .snapshot import UNKNOWN, FlowKey, PathColumns, Snapshot

# The content of a session as filters and commands of other programs.


def wireshark_filter(key: FlowKey) -> str:
    """The display filter that shows a flow in Wireshark or tshark."""
    ip = "ipv6" if ":" in key.src else "ip"
    return (
        f"{ip}.src == {key.src} && {ip}.dst == {key.dst}"
        f" && infiniband.bth.destqp == {queue_pair(key.qp)}"
    )


def analyze_command(
    paths: Sequence[str], interfaces: Sequence[str], options: AnalyzeOptions, key: FlowKey | None
) -> str:
    """The command that reports a flow, or all flows; without files a command on interfaces."""
    parts = [options.filter or ""]
    if key is not None:
        parts.append(f"src == {key.src} and dst == {key.dst} and qp == {queue_pair(key.qp)}")
    words = ["rocescope", "analyze", *(paths or ("--live", *interfaces)), *reading_words(options)]
    words += ["--fabric", options.fabric.spec] if options.fabric and options.fabric.spec else []
    for pattern in options.job_logs:
        words += ["--nccl-log", pattern]
    keep = " and ".join(filter(None, parts))
    return shlex.join([*words, "--filter", keep] if keep else words)


def reading_words(options: AnalyzeOptions) -> list[str]:
    """Options for reading files, without the filter and without defaults."""
    words = ["--concat"] * options.concat
    if options.rings is not None:
        words += ["--tap", options.rings]
    else:
        for path, name in options.tap_names.items():
            words += ["--tap", f"{name}={path}"]
    for port in options.udp_ports:
        words += ["--udp-port", str(port)] if port != ROCE_UDP_PORT else []
    if options.plane_by != PlaneBy():
        words += ["--plane-by", str(options.plane_by)]
    if options.usid != UsidFormat():
        words += ["--usid", f"{options.usid.block_bits}:{options.usid.usid_bits}"]
    if options.flow_label != "auto":
        words += ["--flow-label", options.flow_label]
    for dscp in options.trimmed_dscps:
        words += ["--trimmed-dscp", str(dscp)]
    mirror = options.mirror
    if mirror is not None:
        if mirror.clock != "capture":
            words += ["--clock", mirror.clock]
        if mirror.format is not None:
            words += ["--mirror-format", mirror.format]
        if mirror.drop_duplicates_ns is not None:
            words += ["--drop-duplicates", f"{mirror.drop_duplicates_ns}ns"]
    return words


# The first line of each screen: one sentence that answers, from the columns of a snapshot.

_WAY = {
    "entropy": "source port",
    "tap": "tap",
    "srv6": "segment list",
    "plane": "plane",
    "fabric": "predicted link",
}
_LITTLE = 1e-9
"""Share of a fair share that counts as 0: the path carries one flow alone."""


def nothing(snapshot: Snapshot) -> str | None:
    """Why there is no flow; None if there are flows."""
    source = snapshot.source
    if source.error:
        return f"Stopped: {source.error}"
    if len(snapshot.flows):
        return None
    if source.compiling:
        return "Kernels are being compiled; this happens once per machine and takes some seconds."
    if source.running:
        return "Waiting for the first RoCE packet."
    return f"No RoCE packet in {human.counted(source.frames, 'frame')}."


def queue_pairs(snapshot: Snapshot, paths: PathColumns, passing: Bools | None = None) -> str:
    """Flows on a single path and their share of the bytes; then late and lost packets.

    passing: bool by flow, the flows that count; None: all.
    """
    if why := nothing(snapshot):
        return why
    flows, data = snapshot.flows, snapshot.carries_data()
    if passing is None:
        passing = np.ones(len(flows), np.bool_)
    data = data & passing
    count = int(data.sum())
    if not passing.any():
        return "No flow passes the filter."
    if not count:
        return f"{human.counted(len(flows), 'flow')}, none carries data."
    way = "traced link" if paths.trust == "traced" else _WAY[paths.by]
    narrow = data & (paths.width < SPRAYS_FROM_WIDTH)
    everything = int(flows.wire_bytes[data].sum())
    share = int(flows.wire_bytes[narrow].sum()) / everything if everything else 0.0
    single = int(narrow.sum())
    by_tap = over_taps(snapshot, paths, data)
    if single == count and by_tap:
        text = f"{by_tap} of {human.counted(count, 'flow')} {'sprays' if by_tap == 1 else 'spray'}"
        text += f" over several taps (p), each with one {way}"
    elif single == count:
        text = f"No flow sprays: each of {human.counted(count, 'flow')} uses one {way}"
        if count == 1:
            text = f"The only flow uses one {way}"
    elif single:
        uses, carry = ("uses", "carries") if single == 1 else ("use", "carry")
        text = f"{single} of {count} flows {uses} only one {way} and {carry} "
        text += f"{human.percent(share)} of the bytes"
    else:
        text = f"All {human.counted(count, 'flow')} spray, median width "
        text += f"{float(np.median(paths.width[data])):.1f}"

    def tell(*columns: tuple[Ints, str]) -> list[str]:
        totals = ((int(values[passing & (values > 0)].sum()), word) for values, word in columns)
        return [f"{human.count(total)} {word}" for total, word in totals if total]

    troubles = tell(
        (flows.late, "late"),
        (flows.retransmitted, "retransmitted"),
        (flows.missing, "missing"),
        (flows.naks, "NAKs"),
        (flows.rnr_naks, "RNR NAKs"),
    )
    others = tell((flows.duplicate, "duplicated by the network"), (flows.ecn_marked, "marked CE"))
    happened = (troubles or [_nothing_seen(snapshot, data)]) + others
    lost = sum(hop.lost_packets for hop in snapshot.judged.hops)
    happened += [f"{human.count(lost)} lost between taps (3)"] if lost else []
    text = f"{text}; {', '.join(happened)}."
    if by_tap and single < count:
        spray = human.counted(by_tap, "flow sprays", "flows spray")
        text += f" But {spray} over several taps (p)."
    return text


def _nothing_seen(snapshot: Snapshot, data: Bools) -> str:
    """What is known of flows without trouble: only what happened before the (first) tap."""
    flows = snapshot.flows
    known = (flows.late != UNKNOWN) & (flows.retransmitted != UNKNOWN) & (flows.missing != UNKNOWN)
    judged = int((data & known).sum())
    count = int(data.sum())
    if not judged:
        return "loss and order unknown"
    tap = "the first tap" if len(snapshot.source.tap_names) > 1 else "this tap"
    where = "" if judged == count else f" in {judged} of {count} flows, the others unknown"
    return f"no packet late or lost before {tap}{where}"


def over_taps(snapshot: Snapshot, paths: PathColumns, data: Bools) -> int:
    """Number of flows of `data` that spray over parallel taps although their path key shows one."""
    taps = snapshot.paths.get("tap")
    known = snapshot.judged.diagnosis is not None
    if paths.by != "entropy" or snapshot.source.kind == "live" or not known:
        return 0
    if taps is None and snapshot.source.kind != "results":
        return 0
    sprayed = {f for row in snapshot.judged.findings if row.kind == "spraying" for f in row.flows}
    wide = data & (paths.width < SPRAYS_FROM_WIDTH)
    return len(sprayed & set(np.flatnonzero(wide).tolist()))


def busiest(loads: Floats, fair: Floats) -> int:
    """The path with the largest load; among equals the one with the smallest fair share."""
    return int(np.lexsort((fair, -loads))[0])


def busiest_path(
    names: list[str], loads: Floats, fair: Floats, heaviest: tuple[str, float, float]
) -> str:
    """The busiest path over its fair share, and its load without its largest flow.

    fair: the load of each path if every flow were split evenly.
    heaviest: the flow's name, its load on the busiest path, its part of that path's fair share.
    """
    if not len(loads) or not loads.sum():
        return "No traffic in this measure."
    if len(loads) == 1:
        return f"All traffic took one path, {names[0]}."
    top = busiest(loads, fair)
    times = loads[top] / fair[top]
    text = f"Path {names[top]} carries {times:.2f} times its fair share"
    name, load, even = heaviest
    if times > 1.2 and load and fair[top] - even > _LITTLE * fair[top]:
        rest = (loads[top] - load) / (fair[top] - even)
        text += f"; without {name} it would carry {rest:.2f} times"
    return f"{text}."


def reordering(flow: Flow | None, between: int = 0) -> str:
    """The share of late packets and the receive buffer that restores their order.

    between: packets of the flow that were overtaken between taps.
    """
    if flow is None:
        return "Select a flow on screen 2."
    if flow.reordered_packets is None:
        return f"{flow.notes[0]}." if flow.notes else "The order of the packets is unknown."
    record = flow.reordering
    if not flow.reordered_packets or record is None:
        text = "Every packet of this flow arrived in order at "
        text += "the tap that saw it first" if len(flow.taps) > 1 else "this tap"
        return f"{text}{_later(between, 'late')}."
    text = f"{human.percent(record.ratio)} of the packets arrive late"
    held, size = record.held_packets, record.byte_offset
    if held:
        text += "; to restore the order of 99 % of them a receiver must buffer "
        text += human.counted(round(held.p99), "packet")
        text += f" ({human.size(size.p99)})" if size else ""
        text += f", {held.max:.0f} for all" if held.max > held.p99 else ""
    return f"{text}{_later(between, 'late')}."


def after_colon(sentence: str) -> str:
    """The sentence after a name and a colon: without a capital, unless an acronym begins it."""
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


def _later(packets: int, what: str) -> str:
    return f"; {human.count(packets)} {what} between taps (3)" if packets else ""


def marks(flow: Flow, cnps: int) -> str:
    """Marks of congestion, the second part of a sentence about a flow without losses.

    cnps: CNPs that this flow's sender received; UNKNOWN if the flow is not paired.
    """
    parts = []
    if flow.ecn_marked_packets:
        of = human.counted(flow.packets, "packet")
        parts.append(f"{human.count(flow.ecn_marked_packets)} of {of} marked CE")
    if cnps > 0:
        parts.append(f"{human.counted(cnps, 'CNP')} received")
    return f"; {', '.join(parts)}" if parts else ""


def recovery(flow: Flow | None, cnps: int = UNKNOWN, between: int = 0) -> str:
    """Losses and the latency of recovery; without losses congestion.

    cnps: as `marks`. between: packets of the flow that were lost between taps.
    """
    if flow is None:
        return "Select a flow on screen 2."
    repeats = flow.retransmitted_packets
    if repeats is None:
        return (
            f"{flow.notes[0]}." if flow.notes else "Losses are unknown: the flow has no PSN order."
        )
    if not repeats and not flow.missing_packets:
        where = "before the first tap" if len(flow.taps) > 1 else "before this tap"
        later = _later(between, "lost")
        return f"No packet was lost {where} or retransmitted{later}{marks(flow, cnps)}."
    parts = []
    if repeats:
        text = f"{human.counted(repeats, 'packet')} retransmitted"
        if flow.recovery.rewinds:
            text += f" in {human.counted(flow.recovery.rewinds, 'rewind')}"
        if flow.recovered_packets:
            text += f" for {human.count(flow.recovered_packets)} lost before this tap"
        parts.append(text)
    if flow.missing_packets:
        parts.append(f"{human.count(flow.missing_packets)} never seen")
    wait = flow.recovery.nak_to_resend_ns or flow.recovery.timeout_ns
    if wait and wait.count:
        kind = "NAK" if flow.recovery.nak_to_resend_ns else "timeout"
        parts.append(f"{kind} to retransmission p99 {human.duration(wait.p99)}")
    return f"{'; '.join(parts)}{_later(between, 'lost')}."


def own_paths(paths: PathColumns, flows: Ints) -> str:
    """Paths per flow, for flows with few paths in common."""
    shown = np.zeros(len(paths.starts) - 1, np.bool_)
    shown[flows] = True
    used = np.repeat(shown, paths.seen()) & (paths.packets > 0)
    keys, flow = paths.key[used], np.repeat(np.arange(len(shown)), paths.seen())[used]
    seen = np.unique(flow, return_counts=True)[1]
    if not len(seen):
        return "No flow passes the filter."
    word, (low, high) = PATH_WORDS[paths.by], (int(seen.min()), int(seen.max()))
    each = human.counted(high, word) if low == high else f"{low} to {human.counted(high, word)}"
    uses = f"{human.counted(len(seen), 'flow uses', 'flows use')} {each}"
    everything = human.count(len(np.unique(keys)))
    return f"{uses} each, {everything} in all: each column is an equal part of a flow's paths."


# The first line of the diagnosis screen.


def summary(snapshot: Snapshot) -> str:
    """The number of findings and the worst one; a tick only for checks that passed."""
    if why := nothing(snapshot):
        return why
    judged = snapshot.judged
    diagnosis = judged.diagnosis
    if diagnosis is None:
        return printable(judged.why)
    so_far, no = ("", "No") if judged.final else ("So far: ", "no")
    if diagnosis.findings:
        worst = printable(diagnosis.findings[0].sentence).rstrip(".")
        return f"{so_far}{words.heading(diagnosis)}: {worst}."
    packets = human.counted(snapshot.source.packets, "packet")
    if not diagnosis.healthy:
        check = "no check covers this traffic" if judged.final else "no check is complete"
        return f"{so_far}{no} finding in {packets}, but {check}."
    return f"{so_far}{no} finding in {packets}; what was checked is below."


# The events in the time window of the flows that pass the filter.


def shown_events(snapshot: Snapshot, passing: Bools) -> tuple[Event, ...]:
    """Events of connections of which one flow passes, and events that belong to no flow.

    A NAK is an event of the responding flow, and the filter of a flow includes its NAKs.
    passing: bool by flow.
    """
    if passing.all():
        return snapshot.events
    flows = np.flatnonzero(passing)
    wanted = {*flows.tolist(), *snapshot.flows.peer[flows].tolist()}
    return tuple(e for e in snapshot.events if e.flow is None or e.flow in wanted)


def sentence(snapshot: Snapshot, shown: tuple[Event, ...], filtered: bool) -> str:
    """The number of events by kind, and the connection with the most."""
    if why := nothing(snapshot):
        return why
    others = len(snapshot.events) - len(shown)
    left = snapshot.events_omitted
    more = f"; {human.count(left)} more not kept" if left else ""
    if not shown:
        if others:
            count = human.counted(others, "event")
            return f"None of {count} belongs to a flow that passes the filter{more}."
        return "No event was detected."
    kinds = Counter(event.kind for event in shown)
    listed = ", ".join(counted_kind(n, kind) for kind, n in kinds.most_common())
    count = human.counted(len(shown), "event")
    if filtered:
        passes = "passes" if len(shown) == 1 else "pass"
        everything = human.counted(len(snapshot.events), "event")
        count = f"{human.count(len(shown))} of {everything} {passes} the filter"
        if apart := sum(event.flow is None for event in shown):
            belong = "belongs" if apart == 1 else "belong"
            more = f"; {human.count(apart)} of these {belong} to no flow{more}"
    return f"{count}: {listed}{more}{_most(snapshot, shown)}."


def _most(snapshot: Snapshot, shown: tuple[Event, ...]) -> str:
    """The connection with the most events, if there are several connections."""
    peer, data = snapshot.flows.peer, snapshot.flows.data_packets
    known = [e.flow for e in shown if e.flow is not None and e.flow < len(peer)]
    counts = Counter(max(flow, int(peer[flow])) for flow in known)  # of two flows, one
    if len(counts) < 2:
        return ""
    ((flow, most),) = counts.most_common(1)
    other = int(peer[flow])
    if other < 0:
        name = human.queue_pair(int(snapshot.flows.qp[flow]))
    else:
        sender = flow if data[flow] >= data[other] else other
        name = f"the connection of {human.queue_pair(int(snapshot.flows.qp[sender]))}"
    return f"; {name} has the most: {human.count(most)}"
