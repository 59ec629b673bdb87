"""The first line of each screen: one sentence that answers, from the columns of a snapshot."""

from __future__ import annotations

import numpy as np

from ....analyzer.results.flow import Flow
from ....kernels.kernel import Bools, Floats, Ints
from ....report.words import human
from ....report.words.verdicts import PATH_WORDS, SPRAYS_FROM_WIDTH
from ..snapshots.snapshot import UNKNOWN, PathColumns, Snapshot

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
