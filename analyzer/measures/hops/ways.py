"""From counts per edge to hops: which packets were lost, and after which tap.

A packet that ends at a tap is lost only on evidence that it should have gone on (`EXPECTED`). Its
loss belongs to the network if it was retransmitted later, or if nothing says that it arrived; if it
was acknowledged and never retransmitted, the next capture missed it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...track.state import REQUESTS
from ...track.tracker import FlowTracker
from ...wire.opcodes import OPCODE_CLASS, REQUEST, SEQUENCED, UC, UD
from ...wire.packets import FULL_HOP_LIMITS
from ...wire.psn import PSN_MASK
from . import state
from .fabric_links import FabricLinks, FabricTaps
from .measure import HopMeasure
from .names import device_between, parts_of, short_names
from .state import END, START

MOST_DIRECT = 0.2
"""Packets of a flow that skip a tap are missed by its capture only up to this share of the flow;
beyond, they have another way."""
MOST_MOVES = 4
"""Flows that change their next tap more often are sprayed."""
MOST_OFF_LINK = 0.1
"""Packets that a host sends and its own tap does not see, because the capture misses some."""
MOST_ACKED = 0.5
"""Share of the requests of a flow that lost nothing that are acknowledged; others are in flight."""
UNANSWERED = (UC, UD)
RESENT_WITHIN_NS = 500_000_000
"""A sender retransmits what nobody answers within this time, at the usual ACK timeouts of NICs."""
GRACE_NS = 1_000_000
"""At the end of the captures packets may be in flight: a packet counts as lost only if the
captures continue for twice the longest delay of the hop after it (this long if nothing passed), or
if a packet that entered the hop later passed. Senders also retransmit what waits in a queue."""
LIVE_GRACE_NS = 1_000_000_000
"""While the captures run, no packet counts as lost earlier: a paused output may hold it back, and
packets of other priorities pass."""

LOST = np.dtype(
    [
        ("flow", np.int32),
        ("label", np.uint32),
        ("time", np.int64),  # when it was last seen; of unlogged packets the first or last time
        ("frame", np.int64),  # 0 for packets without their own moment
        ("wire_bytes", np.int64),
        ("udp_sport", np.uint16),  # of packets with a moment
        ("hop_limit", np.int16),
        ("resent", np.bool_),  # its PSN was retransmitted later
        ("again", np.bool_),  # it is a retransmission itself
    ]
)

ENDED = np.dtype([("flow", np.int32), ("tap", np.int32), ("last_ns", np.int64)])
"""A tap after which no tap saw some packets of a flow, and when it saw the last of them."""


@dataclass(slots=True)
class Way:
    """One hop, from tap to tap in one direction."""

    from_tap: int
    to_tap: int
    """-1 when nothing shows the next tap of lost packets."""
    expected_by: str | None = None
    whole: Any = None
    """EDGE of all flows together; None when nothing passed."""
    passed: NDArray[Any] = field(default_factory=lambda: np.zeros(0, state.EDGE))
    """EDGE per flow that passed."""
    lost: NDArray[Any] = field(default_factory=lambda: np.zeros(0, LOST))
    windows: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros((0, state.WINDOW_VALUES), np.int64)
    )

    @property
    def passed_packets(self) -> int:
        """Packets that went from tap to tap."""
        return 0 if self.whole is None else int(self.whole["packets"])

    @property
    def packets(self) -> int:
        """Packets that entered the hop."""
        return self.passed_packets + len(self.lost)


@dataclass(slots=True)
class Missed:
    """Packets that the capture of a tap missed: seen on both sides of it, or acknowledged."""

    tap: int
    flows: NDArray[np.int32]
    """The flow of each packet."""
    times: NDArray[np.int64]
    passed: int
    """Packets that the tap saw."""


@dataclass(slots=True)
class Ways:
    """All hops, and what the captures missed."""

    hops: list[Way]
    missed: list[Missed]
    visits: NDArray[Any]
    """VISIT per flow and tap: moves between next taps."""
    window_ns: int
    origin_ns: int
    """Width and start of the first of `Way.windows`."""
    newest_ns: int
    undecided: int
    """Packets whose end cannot be judged: in flight when the captures ended."""
    elsewhere: int
    """Flows that took paths without a tap."""
    hurried: int
    """Packets followed for less than the horizon, for lack of memory."""
    names: list[str]
    """Short names of the taps."""
    devices: dict[tuple[int, int], str]
    """The device between two taps, where names show."""
    fabric_limits: Sequence[str] = ()
    """What the fabric does not tell, one line each."""
    unlogged: int = 0
    """Ends and retransmissions without their own moment, for lack of memory."""
    left: int = 0
    """Packets that no later tap saw, of flows that also took paths without a tap: unknown whether
    they arrived."""
    hidden: int = 0
    """Packets that no later tap saw, and that a tap with gaps in its capture may have seen."""
    open_sources: frozenset[int] = frozenset()
    """Endpoints that spray packets, some of them over paths without a tap."""

    ended: NDArray[Any] = field(default_factory=lambda: np.zeros(0, ENDED))
    """ENDED per flow and tap, arrived or not."""
    unknown: dict[int, int] = field(default_factory=dict)
    """By flow, the packets counted in `undecided`, `left` and `hidden`."""
    untapped: frozenset[int] = frozenset()
    """The flows counted in `elsewhere`."""
    set_forward: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By tap whose clock is set forward: how many times, and by how much in all, ns."""

    def arisen(self, counter: str) -> dict[int, int]:
        """Packets per flow that were marked, late, ... after their first tap: the sum of a counter
        of EDGE over all hops."""
        found: dict[int, int] = defaultdict(int)
        for way in self.hops:
            hit = way.passed[way.passed[counter] > 0]
            for flow, packets in zip(hit["flow"].tolist(), hit[counter].tolist(), strict=True):
                found[flow] += packets
        return found

    def lost(self) -> dict[int, int]:
        """Packets per flow that were lost between taps."""
        found: dict[int, int] = defaultdict(int)
        for way in self.hops:
            flows, packets = np.unique(way.lost["flow"], return_counts=True)
            for flow, count in zip(flows.tolist(), packets.tolist(), strict=True):
                found[flow] += count
        return found

    def without(self, taps: set[int]) -> Ways:
        """Without hops from or to these taps, and moves between them and others.

        Different samples at both ends are no loss, and neither are packets that a clock that was
        set puts before or after those of the other taps.
        """
        hops = [w for w in self.hops if not taps & {w.from_tap, w.to_tap}]
        missed = [m for m in self.missed if m.tap not in taps]
        ends = [self.visits[name] for name in ("tap", "first_next_tap", "next_tap")]
        visits = self.visits.copy()
        visits["moves"][np.isin(ends, list(taps)).any(axis=0)] = 0
        return replace(self, hops=hops, missed=missed, visits=visits)


def _rows(edges: NDArray[Any], *names: str) -> Iterator[tuple[int, ...]]:
    """These columns as rows of Python integers: reading single records takes many times longer."""
    return zip(*(edges[name].tolist() for name in names), strict=True)


class _Tables:
    """The edges in the forms that the rules need."""

    def __init__(
        self,
        measure: HopMeasure,
        tracker: FlowTracker,
        names: list[str],
        fabric: FabricTaps | None,
    ) -> None:
        edges = measure.edges
        self.names = names
        self.fabric = fabric
        self.flows = edges[edges["flow"] >= 0]
        self.all = edges[edges["flow"] < 0]
        self.numbers = np.flatnonzero(edges["flow"] >= 0)
        self.src = tracker.flows["src"].astype(np.int64)
        self.dst = tracker.flows["dst"].astype(np.int64)
        starts = self.flows["from_tap"] == START
        ends = self.flows["to_tap"] == END
        self.starts, self.ends = self.flows[starts], self.flows[ends]
        self.end_numbers, self.start_numbers = self.numbers[ends], self.numbers[starts]
        self.passes = self.flows[~starts & ~ends]
        self.next_of: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        """By flow and tap: next taps, and the packets that went there."""
        self.onward_ns: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        """By flow and tap: when the first and last packet passed to each next tap."""
        for flow, here, there, packets, first_ns, last_ns in _rows(
            self.passes, "flow", "from_tap", "to_tap", "packets", "first_ns", "last_ns"
        ):
            self.next_of[flow, here].append((there, packets))
            first, last = self.onward_ns[flow, here].get(there, (first_ns, last_ns))
            self.onward_ns[flow, here][there] = min(first, first_ns), max(last, last_ns)
        self.access: dict[int, set[int]] = defaultdict(set)
        """By endpoint: the taps on its own link."""
        arriving: set[tuple[int, int]] = set()
        src, dst = self.src.tolist(), self.dst.tolist()
        for flow, here, there, limit in _rows(
            self.flows, "flow", "from_tap", "to_tap", "limit_max"
        ):
            at = there if here == START else here
            arriving.add((dst[flow], at))
            if limit in FULL_HOP_LIMITS:
                self.access[src[flow]].add(at)
        # A mirror of one direction never sees what arrives at the host.
        both = {
            tap for host, taps in self.access.items() for tap in taps if (host, tap) in arriving
        }
        one_way = {tap for tap, name in enumerate(names) if name.endswith((" in", " out"))}
        for host, taps in list(self.access.items()):
            if not taps & both and (not both or taps & one_way):
                del self.access[host]
        self.end_limit: dict[tuple[int, int], int] = {}
        """By source and destination: the lowest hop limit at the end of their packets."""
        for flow, limit in _rows(self.ends, "flow", "limit_min"):
            pair = src[flow], dst[flow]
            self.end_limit[pair] = min(limit, self.end_limit.get(pair, limit))
        self.onward: dict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
        """By destination (-1 for all), tap and hop limit there: packets by next tap."""
        self.passed: dict[tuple[int, int], set[str]] = defaultdict(set)
        """By flow and tap: the devices that its packets passed right before the tap."""
        hops = {(int(edge["from_tap"]), int(edge["to_tap"])) for edge in self.all}
        devices = {
            (here, there): device_between(names[here], names[there])
            for here, there in hops
            if here != START and there != END
        }
        for flow, here, there, limit, packets in _rows(
            self.passes, "flow", "from_tap", "to_tap", "limit_max", "packets"
        ):
            device = devices[here, there]
            if device is not None:
                self.passed[flow, there].add(device)
            for goal in (dst[flow], -1):
                counts = self.onward[goal, here, limit]
                counts[there] = counts.get(there, 0) + packets
        visits = measure.visits
        self.moves = {
            (flow, at): moves
            for flow, at, moves in _rows(visits[visits["moves"] > 0], "flow", "tap", "moves")
        }
        """By flow and tap: consecutive packets that went to different next taps."""
        self.last_seen = np.full(len(names), np.iinfo(np.int64).min)
        for edge in self.all:
            at = int(edge["to_tap"] if edge["from_tap"] == START else edge["from_tap"])
            self.last_seen[at] = max(self.last_seen[at], edge["last_ns"])
        began: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for flow, first, packets in _rows(self.starts, "flow", "to_tap", "packets"):
            began[src[flow]][first in self.access.get(src[flow], ())] += packets
        self.whole_links = {
            host for host, (off, on) in began.items() if on and off <= MOST_OFF_LINK * (off + on)
        }
        """Endpoints with no other link than those with a tap: all that they send begins there."""
        self.side: dict[int, set[str]] = defaultdict(set)
        """By endpoint: the device between it and the taps that see its packets first."""
        begins = {
            (src[flow], first, then)
            for flow, first in _rows(self.starts, "flow", "to_tap")
            for then, _ in self.next_of.get((flow, first), [])
        }
        for host, first, then in begins:
            device = devices[first, then]
            if device is not None:
                self.side[host] |= {part for part in parts_of(names[first]) if part != device}


def ways_of(
    measure: HopMeasure,
    tracker: FlowTracker,
    tap_names: list[str],
    fabric: FabricLinks | None = None,
    addresses: Sequence[str] = (),
    unclocked: AbstractSet[int] = frozenset(),
    now_ns: int | None = None,
) -> Ways:
    """The hops of a concluded measure. addresses: of all endpoints, for the fabric. unclocked: taps
    whose clock was set, so that their packets and those of other taps do not meet. now_ns: the
    present, while the captures run."""
    names = short_names(tap_names)
    known = None if fabric is None else FabricTaps(fabric, names, addresses)
    tables = _Tables(measure, tracker, names, known)
    whole = {(int(e["from_tap"]), int(e["to_tap"])): e for e in tables.all}
    hops: dict[tuple[int, int], Way] = {}
    moments = _moments_by_edge(measure)
    resent = _resent_times(measure)
    newest = int(measure.state.clock[state.NEWEST])
    if unclocked:
        newest = int(np.delete(tables.last_seen, list(unclocked)).max(initial=-1))
    open_ends = _open_ends(tables, tracker, moments, resent)
    lost: dict[tuple[int, int], list[NDArray[Any]]] = defaultdict(list)
    reasons: dict[tuple[int, int], set[str]] = defaultdict(set)
    undecided = left = 0
    elsewhere: set[int] = set()
    unknown_of: dict[int, int] = defaultdict(int)
    for number, edge in zip(tables.end_numbers.tolist(), tables.ends, strict=True):
        expected = _expected(tables, edge)
        if expected is None or int(edge["from_tap"]) in unclocked:
            continue
        if _took_another_way(tables, tracker, edge):
            elsewhere.add(int(edge["flow"]))
            continue
        to_tap, reason = expected
        here = int(edge["from_tap"])
        packets = _lost_packets(edge, moments.get(number))
        passed = whole.get((here, to_tap))
        grace = GRACE_NS if passed is None else max(2 * int(passed["delay_max"]), 0)
        packets["resent"], packets["again"] = _sent_later(packets, resent)
        judged = packets["time"] + grace <= newest
        if passed is not None:
            judged |= packets["time"] < passed["last_ns"]
        if now_ns is not None:
            judged &= packets["time"] + LIVE_GRACE_NS <= now_ns
        undecided += int(np.count_nonzero(~judged))
        unknown_of[int(edge["flow"])] += int(np.count_nonzero(~judged))
        packets = packets[judged]
        away = _off_the_taps(tables, tracker, edge, to_tap, packets, resent, open_ends, newest)
        if away.any():
            elsewhere.add(int(edge["flow"]))
            left += int(np.count_nonzero(away))
            unknown_of[int(edge["flow"])] += int(np.count_nonzero(away))
            packets = packets[~away]
        between = _between_ways(tables, edge, to_tap, packets)
        for tap, some in ((to_tap, packets[~between]), (-1, packets[between])):
            if len(some):
                lost[here, tap].append(some)
                reasons[here, tap].add(reason)
    missed: dict[int, list[tuple[NDArray[np.int32], NDArray[np.int64]]]] = defaultdict(list)
    ended = {taps: np.sort(np.concatenate(parts), order="time") for taps, parts in lost.items()}
    arrivals = {taps: _arrived(packets, tracker) for taps, packets in ended.items()}
    for tap in _ended_early(tables, ended, arrivals):
        for taps in [taps for taps in ended if taps[1] == tap]:
            packets = ended[taps]
            passed = whole.get(taps)
            grace = GRACE_NS if passed is None else max(2 * int(passed["delay_max"]), 0)
            before = packets["time"] + grace <= tables.last_seen[tap]
            undecided += int(np.count_nonzero(~before))
            for flow in packets["flow"][~before].tolist():
                unknown_of[flow] += 1
            ended[taps], arrivals[taps] = packets[before], arrivals[taps][before]
    in_part = cache(tracker.in_part)
    for taps, packets in ended.items():
        hidden = _maybe_resent_elsewhere(packets, arrivals[taps], in_part)
        arrivals[taps] &= ~hidden
        if np.count_nonzero(hidden) > np.count_nonzero(packets["resent"]):
            left += int(np.count_nonzero(hidden))
            for flow in packets["flow"][hidden].tolist():
                unknown_of[flow] += 1
            ended[taps], arrivals[taps] = packets[~hidden], arrivals[taps][~hidden]
    missing = {to_tap for (_, to_tap), arrived in arrivals.items() if arrived.any()}
    for (here, to_tap), packets in ended.items():
        arrived = arrivals[here, to_tap]
        if to_tap >= 0 and to_tap in missing:
            network = packets["resent"]
            unknown = ~arrived & ~network
            if np.count_nonzero(arrived) > np.count_nonzero(network) or unknown.all():
                arrived |= unknown
        if to_tap >= 0 and arrived.any():
            missed[to_tap].append((packets["flow"][arrived], packets["time"][arrived]))
        packets = packets[~arrived]
        if len(packets):
            way = hops.setdefault((here, to_tap), Way(here, to_tap))
            way.lost = packets
            way.expected_by = _strongest(reasons[here, to_tap])
    _add_passed(hops, tables, measure)
    _add_skipped(missed, tables, moments, unclocked)
    seen = _seen_at(measure, len(names))
    return Ways(
        hops=sorted(hops.values(), key=lambda w: -w.packets),
        missed=[
            Missed(
                tap,
                np.concatenate([flows for flows, _ in parts]),
                np.concatenate([times for _, times in parts]),
                int(seen[tap]),
            )
            for tap, parts in sorted(missed.items())
        ],
        visits=measure.visits,
        window_ns=int(measure.state.clock[state.WIDTH]),
        origin_ns=int(measure.state.clock[state.ORIGIN] * measure.state.clock[state.WIDTH]),
        newest_ns=newest,
        undecided=undecided,
        left=left,
        open_sources=frozenset(src for src, _ in open_ends) | _begin_anywhere(tables),
        elsewhere=len(elsewhere),
        ended=_ended(tables.ends),
        unknown=unknown_of,
        untapped=frozenset(elsewhere),
        hurried=int(measure.state.clock[state.HURRIED]),
        fabric_limits=() if known is None else known.limits,
        unlogged=int(measure.state.used[state.UNLOGGED]),
        names=names,
        devices=_devices(hops, names),
    )


def _ended(ends: NDArray[Any]) -> NDArray[Any]:
    found = np.zeros(len(ends), ENDED)
    found["flow"], found["tap"] = ends["flow"], ends["from_tap"]
    found["last_ns"] = ends["last_ns"]
    return found


def _ended_early(
    tables: _Tables,
    ended: dict[tuple[int, int], NDArray[Any]],
    arrivals: dict[tuple[int, int], NDArray[np.bool_]],
) -> set[int]:
    """Taps whose capture ended before the others. A link that fails is silent too, but nothing
    passes it: after the last packet at such a tap, packets appear beyond it, or are acknowledged.
    """
    found = {
        to_tap
        for (here, to_tap), packets in ended.items()
        if to_tap >= 0
        and (arrivals[here, to_tap] & (packets["time"] > tables.last_seen[to_tap])).any()
    }
    main: dict[int, Any] = {}
    for edge in tables.starts:
        flow = int(edge["flow"])
        if flow not in main or edge["packets"] > main[flow]["packets"]:
            main[flow] = edge
    beyond = {(int(edge["flow"]), int(edge["to_tap"])) for edge in tables.passes}
    for edge in tables.starts:
        flow, at = int(edge["flow"]), int(edge["to_tap"])
        tap = int(main[flow]["to_tap"])
        if at != tap and (flow, at) in beyond and edge["last_ns"] > tables.last_seen[tap]:
            found.add(tap)
    return found


def _expected(tables: _Tables, edge: Any) -> tuple[int, str] | None:
    """The next tap (-1: unknown) of packets that ended here, and how it is known; None: they
    arrived, or nothing says that a later tap should have seen them."""
    found = _by_packets(tables, edge)
    if tables.fabric is None or (found is not None and found[0] >= 0):
        return found
    taps = tables.fabric.after(int(edge["from_tap"]), int(tables.dst[edge["flow"]]))
    if not taps or (len(taps) > 1 and found is not None):
        return found
    return min(taps) if len(taps) == 1 else -1, "fabric"


def _by_packets(tables: _Tables, edge: Any) -> tuple[int, str] | None:
    """`_expected` as other packets and the names of taps show it."""
    flow, here = int(edge["flow"]), int(edge["from_tap"])
    src, dst, limit = int(tables.src[flow]), int(tables.dst[flow]), int(edge["limit_max"])
    own = tables.next_of.get((flow, here))
    if own:
        by_tap: dict[int, int] = defaultdict(int)
        for there, packets in own:
            by_tap[there] += packets
        return _main(by_tap), "flow"
    access = tables.access.get(dst)
    if access is not None and here in access:
        return None
    onward = tables.onward.get((dst, here, limit))
    if onward:
        return _main(onward), "destination"
    if access is not None:
        return _towards(tables, edge, access), "host"
    side = tables.side.get(dst, set())
    if tables.end_limit[src, dst] < int(edge["limit_min"]):
        tap = _link_to(tables, edge, side)
        others = _beyond(tables, here, limit, dst)
        if tap < 0 and not others:
            return None
        return _main(others) if tap < 0 else tap, "destination"
    if not side or side & set(parts_of(tables.names[here])):
        return None
    tap = _link_to(tables, edge, side)
    return None if tap < 0 else (tap, "partner")


def _took_another_way(tables: _Tables, tracker: FlowTracker, edge: Any) -> bool:
    """Whether the packets that ended here continued where no tap is: their flow lost nothing, and a
    large part of it is not seen again, or it is sprayed.

    Answers are lost without a trace. Those to a host whose every link has a tap have no other way.
    """
    flow, here = int(edge["flow"]), int(edge["from_tap"])
    ended, own = int(edge["packets"]), tables.next_of.get((flow, here), [])
    if own and int(tables.dst[flow]) in tables.whole_links:
        if not tracker.flows[flow]["request_packets"]:
            return False
    went_on = sum(packets for _, packets in own)
    scattered = len(own) > 1 or ended > MOST_DIRECT * (ended + went_on)
    return scattered and _lost_nothing(tracker, flow)


def _between_ways(
    tables: _Tables, edge: Any, to_tap: int, packets: NDArray[Any]
) -> NDArray[np.bool_]:
    """Which packets ended while their flow, which has several next taps, did not use `to_tap`: they
    took another way, or were lost on it before the flow moved."""
    spans = tables.onward_ns.get((int(edge["flow"]), int(edge["from_tap"])), {})
    if len(spans) < 2 or to_tap not in spans:
        return np.zeros(len(packets), np.bool_)
    first, last = spans[to_tap]
    outside: NDArray[np.bool_] = (packets["time"] < first) | (packets["time"] > last)
    return outside


def _begin_anywhere(tables: _Tables) -> set[int]:
    """Sources of flows that some taps see first at their beginning, others further on."""
    begun: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for flow, limit, packets in _rows(tables.starts, "flow", "limit_max", "packets"):
        begun[flow][limit] += packets
    return {
        int(tables.src[flow])
        for flow, by_limit in begun.items()
        if max(by_limit.values()) < (1 - MOST_DIRECT) * sum(by_limit.values())
    }


def _off_the_taps(
    tables: _Tables,
    tracker: FlowTracker,
    edge: Any,
    to_tap: int,
    packets: NDArray[Any],
    resent: NDArray[Any],
    open_ends: set[tuple[int, int]],
    newest: int,
) -> NDArray[np.bool_]:
    """Which of the packets that ended here may have gone on where no tap is.

    The way of a flow is known between two packets that passed to the next tap. Before the first and
    after the last of them, and wherever packets of a sprayed flow are missing, some packets that
    arrived show that the flow has a path without a tap. The others may be lost on either path.
    """
    flow, here = int(edge["flow"]), int(edge["from_tap"])
    none = np.zeros(len(packets), np.bool_)
    dst = int(tables.dst[flow])
    if to_tap in tables.access.get(dst, ()) or dst in tables.whole_links:
        return none  # the tap on the link of the receiver sees what arrives on any way
    record = tracker.flows[flow]
    asks = bool(record["request_packets"])
    requester = flow if asks else int(record["peer"])
    if requester < 0 or record["transport"] in UNANSWERED:
        return none
    again = resent[resent["flow"] == requester]
    spans = tables.onward_ns.get((flow, here), {}).values()
    scattered = _scattered(tables, edge, packets)
    if (int(tables.src[flow]), here) in open_ends:
        if scattered or (flow, here) in tables.moves:
            return ~none
    elif scattered and asks and _shows_a_way(packets, tracker):
        return ~none
    time = packets["time"]
    begin = min((first for first, _ in spans), default=np.iinfo(np.int64).max)
    end = max((last for _, last in spans), default=-1)
    last = int(again["time"].max()) if len(again) else -1
    moved = none
    for some, until in ((time < begin, begin), (time > end, newest + 1)):
        quiet = some & (time > last) if len(spans) and until > newest else some
        if asks:
            shows = bool(_arrived(packets[quiet], tracker).any())
            shows |= not spans and _all_ended(tracker, edge)
        else:
            shows = bool((time[some & (time > last)] + RESENT_WITHIN_NS < newest).any())
            shows |= _heard(packets[some], again[again["time"] < until])
        if shows:
            moved = moved | some
    return moved


def _all_ended(tracker: FlowTracker, edge: Any) -> bool:
    """Whether every transmission of the flow ended at this tap although requests arrived."""
    flow = int(edge["flow"])
    record, requests = tracker.flows[flow], tracker.stream(flow, REQUESTS)
    acked = (int(record["ack_psn"]) - int(requests["first"])) & PSN_MASK
    whole = int(edge["packets"]) >= int(record["request_packets"])
    return bool(whole and record["acked"] and requests["started"] and acked < 1 << 23)


def _heard(answers: NDArray[Any], again: NDArray[Any]) -> bool:
    """Whether one of the answers arrived: the sender then retransmitted from a PSN after it on.

    again: the retransmissions before any other answer could tell the sender the same.
    """
    for time, label in zip(answers["time"].tolist(), answers["label"].tolist(), strict=True):
        later = again["label"][again["time"] > time].astype(np.int64)
        beyond = (later - label) & PSN_MASK
        if len(later) and ((beyond > 0) & (beyond < 1 << 23)).all():
            return True
    return False


def _scattered(tables: _Tables, edge: Any, packets: NDArray[Any]) -> bool:
    """Whether several taps see a sprayed flow, or one tap sees a part of it all the time."""
    flow, here = int(edge["flow"]), int(edge["from_tap"])
    spans = tables.onward_ns.get((flow, here), {}).values()
    if not spans:
        return False
    begin, end = min(first for first, _ in spans), max(last for _, last in spans)
    inside = np.count_nonzero((packets["time"] >= begin) & (packets["time"] <= end))
    went_on = sum(packets for _, packets in tables.next_of[flow, here])
    part = inside > MOST_DIRECT * (inside + went_on)
    return bool(part) or tables.moves.get((flow, here), 0) > MOST_MOVES


def _shows_a_way(packets: NDArray[Any], tracker: FlowTracker) -> bool:
    """Whether packets of a scattered flow that ended at a tap arrived: more than a capture misses
    beside a loss."""
    return bool(np.count_nonzero(_arrived(packets, tracker)) > MOST_DIRECT * len(packets))


def _open_ends(
    tables: _Tables, tracker: FlowTracker, moments: dict[int, NDArray[Any]], resent: NDArray[Any]
) -> set[tuple[int, int]]:
    """Sources and taps after which sprayed packets take paths without a tap: requests arrived that
    no next tap saw, or of one flow some next taps are further away than others."""
    found: set[tuple[int, int]] = set()
    for number, edge in zip(tables.end_numbers.tolist(), tables.ends, strict=True):
        flow = int(edge["flow"])
        here = int(edge["from_tap"])
        if tracker.flows[flow]["request_packets"] and (flow, here) in tables.next_of:
            packets = _lost_packets(edge, moments.get(number))
            packets["resent"], packets["again"] = _sent_later(packets, resent)
            if _scattered(tables, edge, packets) and _shows_a_way(packets, tracker):
                found.add((int(tables.src[flow]), here))
    drops: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for flow, here, drop, n in _rows(tables.passes, "flow", "from_tap", "drop_max", "packets"):
        drops[flow, here][drop] += n
    for (flow, here), by_drop in drops.items():
        further = sum(by_drop.values()) - by_drop[min(by_drop)]
        if further > MOST_OFF_LINK * sum(by_drop.values()) and (flow, here) in tables.moves:
            if tables.moves[flow, here] > MOST_MOVES:
                found.add((int(tables.src[flow]), here))
    return found


def _lost_nothing(tracker: FlowTracker, flow: int) -> bool:
    """Whether a flow of requests was never retransmitted although its sender would have done so, or
    a flow of answers left none of its requests unanswered."""
    record = tracker.flows[flow]
    if not record["request_packets"]:
        peer = int(record["peer"])
        if peer >= 0:
            return bool(tracker.flows[peer]["request_packets"] and _lost_nothing(tracker, peer))
        waiting = tracker.flows[(tracker.flows["peer"] < 0) & (tracker.flows["rewinds"] > 0)]
        return not ((waiting["src"] == record["dst"]) & (waiting["dst"] == record["src"])).any()
    requests = tracker.stream(flow, REQUESTS)
    if not requests["started"] or record["transport"] in UNANSWERED:
        return False
    if requests["retransmitted"] or requests["recovered"] or record["rewinds"]:
        return False
    if not record["acked"]:
        return int(record["last_time"]) - int(record["first_time"]) > RESENT_WITHIN_NS
    sent = (int(requests["next"]) - int(requests["first"])) & PSN_MASK
    acked = (int(record["ack_psn"]) - int(requests["first"])) & PSN_MASK
    return acked <= sent and acked + 1 >= MOST_ACKED * sent


def _main(by_tap: dict[int, int]) -> int:
    """The tap that nearly all packets go to; -1 when they are spread over several."""
    tap, packets = max(by_tap.items(), key=lambda item: item[1], default=(-1, 0))
    return tap if packets > 0.9 * sum(by_tap.values()) else -1


def _towards(tables: _Tables, edge: Any, access: set[int]) -> int:
    """The next tap on the way to the link of a host, from the names of links or other traffic."""
    names, here, limit = tables.names, int(edge["from_tap"]), int(edge["limit_max"])
    goal = {part for tap in access for part in parts_of(names[tap])}
    if goal & set(parts_of(names[here])):
        nearest = [tap for tap in access if device_between(names[here], names[tap])]
        if len(nearest) == 1:
            return nearest[0]
    tap = _link_to(tables, edge, goal)
    return _main(_beyond(tables, here, limit, int(tables.dst[edge["flow"]]))) if tap < 0 else tap


def _beyond(tables: _Tables, here: int, limit: int, dst: int) -> dict[int, int]:
    """Packets of all flows by next tap, without the taps on the links of other hosts."""
    mine = tables.access.get(dst, set())
    others = {tap for taps in tables.access.values() for tap in taps} - mine
    onward = tables.onward.get((-1, here, limit), {})
    return {tap: packets for tap, packets in onward.items() if tap not in others}


def _link_to(tables: _Tables, edge: Any, devices: set[str]) -> int:
    """The only tap on a link from the device after this tap to one of `devices`; -1 for none.

    A packet does not return to the device that it came from.
    """
    names, here = tables.names, int(edge["from_tap"])
    mine = set(parts_of(names[here])) - tables.passed.get((int(edge["flow"]), here), set())
    found = [
        tap
        for tap, name in enumerate(names)
        if tap != here and len(mine & set(parts_of(name))) == 1 and devices & set(parts_of(name))
    ]
    return found[0] if len(found) == 1 else -1


def _strongest(reasons: set[str]) -> str:
    return next(r for r in ("flow", "host", "destination", "partner", "fabric") if r in reasons)


def _moments_by_edge(measure: HopMeasure) -> dict[int, NDArray[Any]]:
    ends = measure.ends
    order = np.argsort(ends["edge"], kind="stable")
    numbers, begin = np.unique(ends["edge"][order], return_index=True)
    parts = np.split(order, begin)[1:]  # no part without ends
    return {int(number): ends[part] for number, part in zip(numbers, parts, strict=True)}


def _lost_packets(edge: Any, moments: NDArray[Any] | None) -> NDArray[Any]:
    """LOST records of all packets of an END edge; those without a moment spread over its time."""
    logged = 0 if moments is None else len(moments)
    packets = np.zeros(int(edge["packets"]), LOST)
    packets["flow"] = edge["flow"]
    packets["hop_limit"] = edge["limit_max"]
    if moments is not None:
        for name in ("label", "time", "frame", "wire_bytes", "udp_sport"):
            packets[name][:logged] = moments[name]
    rest = packets[logged:]
    if len(rest):
        begin = int(edge["first_ns"]) if moments is None else int(moments["time"][-1])
        rest["time"] = spread_times(begin, int(edge["last_ns"]), len(rest))
        rest["wire_bytes"] = int(edge["wire_bytes"]) // int(edge["packets"])
    return packets


def spread_times(begin: int, end: int, count: int) -> NDArray[np.int64]:
    """count times with equal gaps, the last one at end, as int64 ns. In whole numbers: as a float
    the last time of int64 is one too many."""
    gap = (end - begin) // max(count, 1)
    return np.int64(end) - np.arange(count - 1, -1, -1) * np.int64(gap if count > 1 else 0)


def _resent_times(measure: HopMeasure) -> NDArray[Any]:
    resent = measure.resent
    return resent[np.lexsort((resent["time"], _key(resent)))]


def _key(records: NDArray[Any]) -> NDArray[np.uint64]:
    """One number per flow and PSN."""
    psn = records["label"].astype(np.uint64) & np.uint64(PSN_MASK)
    return (records["flow"].astype(np.uint64) << np.uint64(24)) | psn


def _sent_later(
    packets: NDArray[Any], resent: NDArray[Any]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which packets were retransmitted after they were last seen, and which ones before."""
    if not len(resent):
        none = np.zeros(len(packets), np.bool_)
        return none, none
    keys, times = _key(resent), resent["time"]
    wanted = _key(packets)
    begin, end = (np.searchsorted(keys, wanted, side) for side in ("left", "right"))
    known = begin < end
    earliest = times[np.minimum(begin, len(times) - 1)]
    latest = times[np.maximum(end - 1, 0)]
    return known & (latest > packets["time"]), known & (earliest <= packets["time"])


def _arrived(packets: NDArray[Any], tracker: FlowTracker) -> NDArray[np.bool_]:
    """Requests that the peer acknowledged although each was sent only once."""
    flows = tracker.flows[packets["flow"]]
    bits = OPCODE_CLASS[packets["label"] >> np.uint32(24)]
    request = (bits & REQUEST != 0) & (bits & SEQUENCED != 0)
    psn = (packets["label"] & np.uint32(PSN_MASK)).astype(np.int64)
    distance = ((flows["ack_psn"].astype(np.int64) - psn + (1 << 23)) & PSN_MASK) - (1 << 23)
    known = (packets["frame"] > 0) & (flows["acked"] != 0)
    arrived = request & known & (distance >= 0) & ~packets["resent"] & ~packets["again"]
    waits = request & known & (distance < 0)  # the captures ended before its ACK, or its loss
    requesters = np.unique(packets["flow"][flows["request_packets"] > 0]).tolist()
    whole = [flow for flow in requesters if _lost_nothing(tracker, flow)]
    return arrived | (np.isin(packets["flow"], whole) & ~waits)


def _maybe_resent_elsewhere(
    packets: NDArray[Any], arrived: NDArray[np.bool_], in_part: Callable[[int], bool]
) -> NDArray[np.bool_]:
    """Which of the packets that arrived may have been retransmitted on a path without a tap: their
    flows have many PSNs that no tap saw, and are seen `in_part`."""
    flows = [flow for flow in np.unique(packets["flow"][arrived]).tolist() if in_part(flow)]
    return arrived & np.isin(packets["flow"], flows)


def _add_passed(hops: dict[tuple[int, int], Way], tables: _Tables, measure: HopMeasure) -> None:
    for whole in tables.all:
        here, there = int(whole["from_tap"]), int(whole["to_tap"])
        if here == START or there == END:
            continue
        way = hops.setdefault((here, there), Way(here, there))
        way.whole = whole
        mine = (tables.passes["from_tap"] == here) & (tables.passes["to_tap"] == there)
        way.passed = tables.passes[mine]
        way.windows = measure.state.windows[int(whole["hop"])]


def _add_skipped(
    missed: dict[int, list[tuple[NDArray[np.int32], NDArray[np.int64]]]],
    tables: _Tables,
    moments: dict[int, NDArray[Any]],
    unclocked: AbstractSet[int],
) -> None:
    """Packets that a capture missed in the middle of their way or at its beginning."""
    drops = {
        (int(e["from_tap"]), int(e["to_tap"])): int(e["drop_min"])
        for e in tables.all
        if e["from_tap"] != START and e["to_tap"] != END
    }
    after: dict[int, set[int]] = defaultdict(set)
    for here, there in drops:
        after[here].add(there)
    total: dict[tuple[int, int], int] = defaultdict(int)
    for flow, here, packets in _rows(tables.passes, "flow", "from_tap", "packets"):
        total[flow, here] += packets
    columns = ("flow", "from_tap", "to_tap", "drop_max", "packets", "first_ns", "last_ns")
    for flow, here, there, drop, direct, first_ns, last_ns in _rows(tables.passes, *columns):
        between = [
            m
            for m in after[here]
            if m != there
            and there in after[m]
            and drops[here, m] + drops[m, there] == drop
            and drops[here, m] < drop
        ]
        if len(between) != 1 or direct > MOST_DIRECT * total[flow, here]:
            continue
        # Before and after, or where it is sprayed, the flow has other paths than by this tap.
        used = tables.onward_ns[flow, here].items()
        meanwhile = [m for m, (f, l) in used if m != there and f <= last_ns and l >= first_ns]
        if meanwhile != between:
            continue
        times = np.append(np.int64(first_ns), spread_times(first_ns, last_ns, direct - 1))
        missed[between[0]].append((np.full(direct, flow, np.int32), times))
    main: dict[int, Any] = {}
    started: dict[int, int] = defaultdict(int)
    for edge in tables.starts:
        flow = int(edge["flow"])
        started[flow] += int(edge["packets"])
        if flow not in main or edge["packets"] > main[flow]["packets"]:
            main[flow] = edge
    beyond = {(int(edge["flow"]), int(edge["to_tap"])) for edge in tables.passes}
    for number, edge in zip(tables.start_numbers.tolist(), tables.starts, strict=True):
        flow, first = int(edge["flow"]), main[int(edge["flow"])]
        tap = int(first["to_tap"])
        if int(edge["limit_max"]) >= int(first["limit_min"]) or int(edge["to_tap"]) in unclocked:
            continue  # the same tap, or a parallel one
        few = int(first["packets"]) < (1 - MOST_DIRECT) * started[flow]
        if few or (flow, int(edge["to_tap"])) not in beyond:
            continue  # it has several ways, and not all of them have a tap
        found = moments.get(number)
        if found is None:
            continue
        # Before and after, the flow took another way, or the capture of the tap did not run.
        inside = (found["time"] >= first["first_ns"]) & (found["time"] <= first["last_ns"])
        times = found["time"][inside]
        if len(times):
            missed[tap].append((np.full(len(times), flow, np.int32), times))


def _seen_at(measure: HopMeasure, taps: int) -> NDArray[np.int64]:
    """Packets at each tap."""
    seen = np.zeros(taps, np.int64)
    visits = measure.visits
    real = visits["tap"] < START
    np.add.at(seen, visits["tap"][real].astype(np.int64), visits["packets"][real])
    for tap, packets in measure.left_at.items():
        seen[tap] += packets
    return seen


def _devices(hops: dict[tuple[int, int], Way], names: list[str]) -> dict[tuple[int, int], str]:
    found = {}
    for here, there in hops:
        device = device_between(names[here], names[there]) if there >= 0 else None
        if device is not None:
            found[here, there] = device
    return found
