"""What happens to packets on their way: CE marks, rewritten DSCPs, copies, damage, fragments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np

from ...measures.hops.hops import TapHop, TapHops
from ...measures.hops.state import START
from ...measures.hops.vantage import parts_of
from ...measures.troubles import CNP_SENT, COPIED, CORRUPT, FRAGMENTED, MARKED, Trouble
from ...results.diagnosis import Finding, Kind, Place
from ...results.flow import Flow
from ...wire.packets import FULL_HOP_LIMITS
from ...words import printable
from ..case import Case
from ..finding import (
    before,
    by_hosts,
    counted,
    finding,
    hosts,
    of_same_hosts,
    only,
    packets_of,
    span_of,
    tap_of,
)
from ..hop_groups import HopGroup, groups, hits_by_flow, shown
from ..known import Finder, Known

_TIMES: Final = {
    "marked": "marked", "copies": "copy", "dscp_changed": "dscp", "corrupted": "corrupted",
    "fragmented": "fragmented", "trimmed": "trimmed",
}  # fmt: skip


SMALL_MTU = "raise the MTU of the links, or lower the RoCE path MTU: NICs drop fragments"
"""The next step where packets are fragmented."""
_FAULTS: Final[tuple[tuple[Kind, str, str, str, bool], ...]] = (
    # Not CE at the tap before, CE at the tap after.
    ("ecn-marking", "marked", "marks {share}{way} CE",
     "find what loads this egress: see imbalance and incast", False),
    # More copies at the tap after than at the tap before.
    ("duplication", "copies", "duplicates {share}{way}",
     "check {name} for loops, flooding and mirror sessions that feed the tap", False),
    # Another DSCP at the tap after.
    ("dscp-mismatch", "dscp_changed", "rewrites the DSCP of {share}{way}",
     "check the trust and remark settings of {name}: the packets change their queue", False),
    # A right ICRC at the tap before, a wrong one at the tap after.
    ("corruption", "corrupted", "damages {share}{way}: their ICRC is wrong",
     "look at the error counters of {name} and its links, or drain it", True),
    # Whole at the tap before, the first fragment at the tap after.
    ("mtu-mismatch", "fragmented", "fragments {share}{way}: they exceed its MTU", SMALL_MTU, True),
)  # fmt: skip
"""Kind, column of the hit packets, what the hop does, next step, whether it costs time."""


def hop_faults(case: Case, _: Known) -> Iterator[Finding]:
    """Faults that the taps before and after a hop prove."""
    for fault in _FAULTS:
        yield from _arisen(case, *fault)


def hop_trims(case: Case, known: Known) -> Iterator[Finding]:
    """Less payload at the tap after: a full queue. One that is known says more."""
    for trims in _arisen(
        case, "queueing", "trimmed", "trims {share}{way}: its queue is full",
        "find what loads this egress: see imbalance and incast", True,
    ):  # fmt: skip
        device, tap = trims.place.device, trims.place.to_tap
        if (
            device is None
            or tap is None
            or not any(
                known.onto(kind, device, tap) for kind in ("queueing", "rate-limit", "incast")
            )
        ):
            yield trims


def _arisen(
    case: Case,
    kind: Kind,
    counter: str,
    says: str,
    step: str,
    costs: bool,
) -> Iterator[Finding]:
    if case.tap_hops is None:
        return

    def is_hit(hop: TapHop) -> bool:
        return hop.total is not None and bool(hop.total[counter] > 0)

    for group in groups(case.tap_hops, is_hit):
        passed = group.passed()
        hit = passed[passed[counter] > 0]
        packets, hits = int(hit[counter].sum()), hits_by_flow(hit["flow"], hit[counter])
        of = sum(hop.passed_packets for hop in group.hops)
        text = says.format(share=packets_of(packets, of), way=group.way())
        yield finding(
            case,
            kind,
            group.place(case),
            of,
            f"{group.name()} {text}",
            step.format(name=group.name()),
            hits=hits,
            span=_span_of_fault(group, counter),
            confidence="proven",
            evidence=shown(case, group, counter, hits),
            severity=None if costs else "warning",
            costs=costs,
        )


def _span_of_fault(group: HopGroup, counter: str) -> tuple[int, int]:
    """First and last time."""
    name = _TIMES[counter]
    hit = [hop.total for hop in group.hops]
    first = min(int(total[f"first_{name}_ns"]) for total in hit)
    return first, max(int(total[f"last_{name}_ns"]) for total in hit)


OF_CAPTURE = 0.5
"""Share of wrong ICRCs from which the capture is at fault: a tap before the NIC that computes the
ICRC, or a device that rewrites fields the ICRC covers."""


def corrupt_packets(case: Case, known: Known) -> Iterator[Finding]:
    """Wrong ICRCs: a bit changed on the way, or the header was rewritten.

    Packets that were right at an earlier tap are those of a hop.
    """
    bad = case.measuring.troubles.by_flow(CORRUPT)
    counts = [capture.icrc for capture in case.captures if capture.icrc is not None]
    checked = sum(count["ok"] + count["bad"] for count in counts)
    if case.tap_hops is not None and bad:
        sightings = _Sightings(case, case.tap_hops, bad)
        bad = {f: left for f, t in bad.items() if (left := sightings.before_the_taps(f, t))}
        checked = round(checked / sightings.mean)
    if not bad:
        return
    packets = sum(trouble.packets for trouble in bad.values())
    # The first tap of a flow saw its first wrong packet first.
    names = case.registry.tap_names
    tap = only(names[min(trouble.frames)[2]] for trouble in bad.values() if trouble.frames)
    of_capture = packets > OF_CAPTURE * checked
    yield finding(
        case,
        "corruption",
        Place(capture=tap) if of_capture else Place(to_tap=tap, direction="before the tap"),
        checked,
        f"{packets_of(packets, checked)} have a wrong ICRC"
        + (f" at {printable(tap or 'the taps')}" if of_capture else f" {before(case, tap)}"),
        "check that the tap is after the NIC, and what rewrites headers"
        if of_capture
        else "look at the error counters of links and devices before the tap",
        confidence="possible" if of_capture else "proven",
        seen=bad.values(),
        severity="note" if of_capture else None,
    )


class _Sightings:
    """How often one packet was seen with its ICRC checked: ICRCs are checked at every tap.

    Exact where all packets of a flow pass the same taps, and these capture whole frames; else the
    mean over the packets of the flow.
    """

    def __init__(self, case: Case, tap_hops: TapHops, wanted: Collection[int]) -> None:
        """wanted: the flows that `before_the_taps` will be asked for."""
        self._checked = _checked_shares(case)
        """By tap: the share of its packets whose ICRC could be checked."""
        visits = tap_hops.visits[tap_hops.visits["tap"] < START]
        flows, taps = visits["flow"], visits["tap"].astype(np.int64)
        self._seen = dict(
            zip(
                zip(flows.tolist(), taps.tolist(), strict=True),
                visits["packets"].tolist(),
                strict=True,
            )
        )
        """By flow and tap: packets seen."""
        packets, seen = np.zeros(len(case.flows)), np.zeros(len(case.flows))
        np.add.at(packets, flows, visits["packets"])
        np.add.at(seen, flows, visits["packets"] * self._checked[taps])
        self._onward: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        """By flow and tap: next tap, packets that went there, and those damaged on this hop."""
        self._left: dict[int, set[int]] = defaultdict(set)
        """By flow: the taps from which packets continued."""
        for way in tap_hops.hops:
            np.subtract.at(packets, way.passed["flow"], way.passed["packets"])
            mine = way.passed[np.isin(way.passed["flow"], list(wanted))]
            columns = (mine[name].tolist() for name in ("flow", "packets", "corrupted"))
            for flow, passed, corrupted in zip(*columns, strict=True):
                self._onward[flow, way.from_tap].append((way.to_tap, passed, corrupted))
                self._left[flow].add(way.from_tap)
        once = np.minimum(packets, seen)
        self._of_flow = np.maximum(seen / np.maximum(once, 1), 1)
        self.mean = max(seen.sum() / max(once.sum(), 1), 1)
        """Checked ICRCs per packet."""

    def before_the_taps(self, flow: int, wrong: Trouble) -> Trouble | None:
        """The packets among `wrong` that no hop between taps explains; None without any."""
        left, after = float(wrong.packets), set[int]()
        for tap in self._left.get(flow, ()):
            for to_tap, _, corrupted in self._onward[flow, tap]:
                if corrupted:
                    left -= corrupted * (1 + self._later(flow, to_tap, after))
        packets = round(left / self._of_flow[flow])
        if packets <= 0:
            return None
        frames = [frame for frame in wrong.frames if frame[2] not in after]
        return wrong._replace(packets=packets, frames=frames)

    def _later(self, flow: int, tap: int, after: set[int], known: tuple[int, ...] = ()) -> float:
        """How often a packet is seen behind a tap; adds the tap and these taps to `after`."""
        after.add(tap)
        later = 0.0
        for to_tap, passed, _ in self._onward.get((flow, tap), ()):
            if to_tap not in known:
                share = min(passed / max(self._seen.get((flow, tap), 0), 1), 1)
                onward = self._later(flow, to_tap, after, (*known, tap))
                later += share * (float(self._checked[to_tap]) + onward)
        return later


def _checked_shares(case: Case) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    names = case.registry.tap_names
    shares = np.zeros(len(names))
    for capture in case.captures:
        if capture.icrc is not None and (every := sum(capture.icrc.values())):
            taps = [names.index(tap.name) for tap in capture.taps]
            shares[taps] = (capture.icrc["ok"] + capture.icrc["bad"]) / every
    return shares


def fragments(case: Case, known: Known) -> Iterator[Finding]:
    """One finding for all packets that come to their first tap in IP fragments."""
    cut = case.measuring.troubles.by_flow(FRAGMENTED)
    if not cut:
        return
    flows = [case.flows[f] for f in cut]
    could = sum(flow.packets for flow in of_same_hosts(case, flows))
    taps = sorted({case.registry.tap_names[at] for t in cut.values() for _, _, at in t.frames})
    tap = tap_of(case, cut.values())
    packets = sum(trouble.packets for trouble in cut.values())
    where = f"{before(case, tap)}" if len(taps) == 1 else f"before {counted(len(taps), 'tap')}"
    yield finding(
        case,
        "mtu-mismatch",
        Place(to_tap=tap, direction="before the tap"),
        could,
        f"{packets_of(packets, could)} from {hosts(flows)} are IP fragments {where}:"
        " they exceed a link's MTU",
        SMALL_MTU,
        confidence="proven",
        seen=cut.values(),
    )


def mtu_mismatches(case: Case, known: Known) -> Iterator[Finding]:
    """Connections with two path MTUs."""
    odd = []
    for connection in case.connections:
        sizes = {case.flows[f].path_mtu for f in connection.flows} - {None}
        if len(sizes) > 1:
            odd.append(connection)
    if odd:
        flows = [case.flows[f] for connection in odd for f in connection.flows]
        values = sorted({flow.path_mtu for flow in flows if flow.path_mtu})
        yield finding(
            case,
            "mtu-mismatch",
            Place(direction=f"between {odd[0].a} and {odd[0].b}" if len(odd) == 1 else None),
            sum(flow.packets for flow in flows),
            f"{counted(len(odd), 'connection')} ({hosts(flows)}) with path MTUs"
            f" {' and '.join(map(str, values))} in its two directions",
            "set one MTU on both hosts and all links",
            hits={flow.id: flow.packets for flow in flows},
            severity="warning",
            costs=False,
        )


COPY_CAUSES: Final[tuple[Kind, ...]] = ("duplication",)
TWICE = 0.4
"""Share of copies from which it is the capture that sees its packets twice: two mirror ports, or
both ends of a bond. A network that doubles everything does not exist."""


def copies_before(case: Case, known: Known) -> Iterator[Finding]:
    """The same transmission seen again at the same tap with the same hop limit."""
    troubles = case.measuring.troubles
    for group in by_hosts(case.flows[f] for f in troubles.flows(COPIED)):
        copied = troubles.by_flow(COPIED, (flow.id for flow in group))
        could = sum(flow.packets for flow in of_same_hosts(case, group))
        packets = sum(trouble.packets for trouble in copied.values())
        tap = tap_of(case, copied.values())
        span = span_of(copied.values())
        if all(known.explains(COPY_CAUSES, f, *span) for f in copied):
            continue
        if packets > TWICE * could:
            name = "the capture" if tap is None else printable(tap)
            yield finding(
                case,
                "duplication",
                Place(capture=tap),
                could,
                f"{name} holds {packets_of(packets, could)} from {hosts(group)} twice",
                "mirror every packet once; --drop-duplicates 2us leaves the copies out",
                seen=copied.values(),
                severity="note",
                costs=False,
            )
            continue
        yield finding(
            case,
            "duplication",
            Place(
                to_tap=tap,
                device=_device_at(case, copied.values()) if tap is None else None,
                direction="before the tap",
                host=only(f.src for f in group),
            ),
            could,
            f"{packets_of(packets, could)} from {hosts(group)} are duplicated {before(case, tap)}",
            "look for a loop, or a device that copies packets, before the tap",
            confidence="proven",
            seen=copied.values(),
            severity="warning",
            costs=False,
        )


def _device_at(case: Case, troubles: Iterable[Trouble]) -> str | None:
    """The device at which all links of the taps end that saw these packets first."""
    short = [] if case.tap_hops is None else case.tap_hops.names
    taps = {tap for trouble in troubles for _, _, tap in trouble.frames if tap < len(short)}
    shared = set.intersection(*(set(parts_of(short[tap])) for tap in taps)) if taps else set()
    return next(iter(shared)) if len(shared) == 1 else None


ENOUGH_MARKS = 10
"""Marks that a receiver answers with at least one CNP: NICs send one per flow and 50 us or so."""


def marks_before(case: Case, known: Known) -> Iterator[Finding]:
    """Packets that are marked CE at the first tap of their flow."""
    troubles = case.measuring.troubles
    for group in by_hosts(case.flows[f] for f in troubles.flows(MARKED)):
        marked = troubles.by_flow(MARKED, (flow.id for flow in group))
        could = sum(f.congestion.ecn_capable_packets for f in of_same_hosts(case, group))
        packets = sum(trouble.packets for trouble in marked.values())
        tap = tap_of(case, marked.values())
        yield finding(
            case,
            "ecn-marking",
            Place(to_tap=tap, direction="before the tap", host=only(f.dst for f in group)),
            could,
            f"{packets_of(packets, could)} from {hosts(group)} are marked CE {before(case, tap)}",
            "look for the full queue: a tap on each link of the path shows where marks begin",
            confidence="proven",
            seen=marked.values(),
            severity="warning",
            costs=False,
        )


def notifications_without_marks(case: Case, known: Known) -> Iterator[Finding]:
    """CNPs although no packet to their sender is marked at any tap.

    CNPs that a router forwarded before the tap: the packets may be marked on the rest of their way.
    CNPs straight from their sender: every mark passed the tap, unless the tap is at the other end
    of an unrouted network.
    """
    troubles = case.measuring.troubles
    notifying = _by_source(case, CNP_SENT)
    to_host: dict[str, list[Flow]] = {receiver: [] for receiver in notifying}
    for flow in case.flows:
        if flow.dst in to_host and flow.data_packets:
            to_host[flow.dst].append(flow)
    for receiver, flows in notifying.items():
        senders, data = {f.dst for f in flows}, to_host[receiver]
        notified = [f for f in data if f.src in senders]
        if not notified or any(_is_marked(case, f) for f in data):
            continue
        sent = troubles.by_flow(CNP_SENT, (flow.id for flow in flows))
        tap = tap_of(case, sent.values())
        at_link = all(_unrouted(case, f) for f in flows) and all(tap in f.taps for f in notified)
        total = sum(trouble.packets for trouble in sent.values())
        could = sum(f.data_packets for f in notified)
        name = printable(receiver)
        unrouted = all(_unrouted(case, f) for f in notified) and not case.measuring.many_taps
        yield finding(
            case,
            "cnp-without-mark" if at_link else "ecn-marking",
            Place(host=receiver, direction=None if at_link else "after the tap"),
            max(could, total),
            f"{name} sends {counted(total, 'CNP')}, none of {counted(could, 'packet')} to it is"
            f" marked CE {'here' if at_link else 'at the tap: they are marked after it'}",
            f"check the congestion control of {name}"
            if at_link
            else f"capture on the link of {name} and before it: that shows where marks begin",
            hits=dict.fromkeys((f.id for f in notified), 0),
            confidence="possible" if unrouted else "likely",
            seen=sent.values(),
            severity="warning",
            costs=False,
            packets=total,
        )


def marks_without_notification(case: Case, known: Known) -> Iterator[Finding]:
    """Receivers of marked packets that send no CNP, while others do.

    Without any CNP in the capture its transport sends none (Soft-RoCE, MRC), or the tap does not
    see them: no finding.
    """
    notifying = set(_by_source(case, CNP_SENT))
    if not notifying:
        return
    marked: dict[str, list[Flow]] = {}
    for flow in case.flows:
        if flow.ecn_marked_packets:
            marked.setdefault(flow.dst, []).append(flow)
    for receiver, flows in marked.items():
        answers = any((f.dst, f.src) in case.hosts_seen for f in flows)
        total = sum(flow.ecn_marked_packets for flow in flows)
        if receiver in notifying or total < ENOUGH_MARKS or not answers:
            continue
        yield finding(
            case,
            "mark-without-cnp",
            Place(host=receiver),
            sum(f.congestion.ecn_capable_packets for f in flows),
            f"{printable(receiver)} gets {counted(total, 'packet')} marked CE and sends no CNP",
            f"enable ECN and CNPs on {printable(receiver)}",
            hits={flow.id: flow.ecn_marked_packets for flow in flows},
            span=_marked_between(case, flows),
            seen=case.measuring.troubles.by_flow(MARKED, (f.id for f in flows)).values(),
            severity="warning",
            costs=False,
        )


def _marked_between(case: Case, flows: list[Flow]) -> tuple[int, int]:
    """Times of the first and the last mark of these flows, before the first tap or on a hop."""
    numbers = [flow.id for flow in flows]
    marked = case.measuring.troubles.by_flow(MARKED, numbers).values()
    spans = [(trouble.first_ns, trouble.last_ns) for trouble in marked]
    for hop in () if case.tap_hops is None else case.tap_hops.hops:
        rows = hop.passed[np.isin(hop.passed["flow"], numbers) & (hop.passed["marked"] > 0)]
        if len(rows):
            spans.append((int(rows["first_marked_ns"].min()), int(rows["last_marked_ns"].max())))
    return min(first for first, _ in spans), max(last for _, last in spans)


def _unrouted(case: Case, flow: Flow) -> bool:
    """Whether the tap sees the flow before any router does."""
    return int(case.measuring.troubles.progress(flow.id)["hop_limit"]) in FULL_HOP_LIMITS


def _is_marked(case: Case, flow: Flow) -> bool:
    """Whether any tap saw a mark on the flow."""
    return bool(flow.ecn_marked_packets) or any(
        hop.ce_marked_packets for hop in case.hops if hop.to_tap in flow.taps
    )


def _by_source(case: Case, kind: int) -> dict[str, list[Flow]]:
    by_source: dict[str, list[Flow]] = {}
    for f in case.measuring.troubles.flows(kind):
        by_source.setdefault(case.flows[f].src, []).append(case.flows[f])
    return by_source


FINDERS = (
    Finder(hop_trims, ("queueing",), after=("hop_losses", "hop_queues")),
    Finder(
        hop_faults,
        ("ecn-marking", "duplication", "dscp-mismatch", "corruption", "mtu-mismatch"),
    ),
    Finder(corrupt_packets, ("corruption",)),
    Finder(fragments, ("mtu-mismatch",)),
    Finder(copies_before, ("duplication",), COPY_CAUSES, after=("hop_faults",)),
    Finder(marks_before, ("ecn-marking",)),
    Finder(notifications_without_marks, ("cnp-without-mark", "ecn-marking")),
    Finder(marks_without_notification, ("mark-without-cnp",)),
    # Two path MTUs are a setting; they show no packet that was lost.
    Finder(mtu_mismatches, ("mtu-mismatch",), after=("retry_storms",)),
)
