"""Flows that change their way at one moment: a rehash, or a link that went down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ...measures.hops.hops import TapHops
from ...measures.hops.state import START, VISIT
from ...measures.hops.vantage import parts_of, rows_of
from ...measures.troubles import JUMPED, LOST_AFTER, RECOVERED_LOSS
from ...results.diagnosis import Finding, Place
from ...wire.packets import FULL_HOP_LIMITS
from ...words import device_words, printable
from ..case import Case
from ..finding import counted, finding, span_of
from ..known import AFTERMATH_NS, REHASH_CAUSES, REROUTED_NS, Finder, Known
from .losses import lost_before

MOST_MOVES = 4
PACKETS_PER_MOVE = 10
"""Flows that move more often, or with fewer packets between moves, are sprayed."""
TOGETHER_NS = 100_000_000
"""Moves this close together have one cause: a router changes its table in milliseconds, and every
flow moves with its next packet."""
LEAST_BESIDE = 5
"""Packets of a flow on each of two links, and while both links are captured, that show that the
flow does not use both at a time: of twenty sprayed packets, five in front by chance are rare."""
LEAST_FLOWS = 3
USUAL_GAPS = 8
"""Flows of which none is seen for longer than this many gaps between packets of the busiest passed
somewhere unseen."""
CHANCE = 0.01
"""Most probable accident that a link without packets after a rehash is."""


def hop_moves(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per device and moment."""
    tap_hops = case.tap_hops
    if tap_hops is None:
        return
    visits = tap_hops.visits
    moved = visits[(visits["moves"] > 0) & (visits["moves"] <= MOST_MOVES)]
    moved = moved[moved["went_on"] >= PACKETS_PER_MOVE * moved["moves"]]
    # A tap before the links that began to capture later hides whether the flow is sprayed.
    moved = moved[(moved["tap"] < START) | (moved["early_ns"] == 0)]
    moved = np.append(moved, _moves_between_links(tap_hops, moved))
    by_device: dict[str | None, list[int]] = {}
    for i, visit in enumerate(moved):
        nexts = {int(visit["first_next_tap"]), int(visit["next_tap"])}
        if visit["tap"] == START:
            nexts |= _taps_beside(tap_hops, visit)
            if visit["turns"] > MOST_MOVES:
                continue  # its packets are sprayed
        if visit["tap"] < START:
            device = _device(tap_hops.names, int(visit["tap"]), nexts)
            by_device.setdefault(device or tap_hops.names[int(visit["tap"])], []).append(i)
        elif (limit := _common_limit(case, int(visit["flow"]), nexts)) is not None:
            sender = _sender(case, int(visit["flow"]), nexts, limit)
            by_device.setdefault(sender, []).append(i)
    clusters = []
    for device, rows in by_device.items():
        at_device = moved[rows]
        at_device = at_device[np.argsort(at_device["first_move_ns"], kind="stable")]
        starts = np.flatnonzero(np.diff(at_device["first_move_ns"]) > TOGETHER_NS) + 1
        clusters += [(device, cluster) for cluster in np.split(at_device, starts)]
    named = [
        int(cluster["first_move_ns"].min())
        for device, cluster in clusters
        if device is not None and len(np.unique(cluster["flow"])) >= LEAST_FLOWS
    ]
    # The routers on either side of a link notice one after the other that it is down.
    down: dict[str | None, int] = {}
    for device, cluster in sorted(clusters, key=lambda item: int(item[1]["first_move_ns"].min())):
        flows = np.unique(cluster["flow"])
        if len(flows) < LEAST_FLOWS:
            continue
        first = int(cluster["first_move_ns"].min())
        last = int(cluster["last_move_ns"].max())
        is_effect = any(abs(first - time) <= TOGETHER_NS for time in named)
        if device is None and is_effect and _is_seen_before(tap_hops, cluster):
            continue  # at that device, to a link without a tap
        left = {case.registry.tap_names[int(tap)] for tap in cluster["first_next_tap"]}
        if known.moved_from(left, first, last):
            continue
        if any(known.explains(REHASH_CAUSES, int(f), first, last) for f in flows):
            continue
        move = _move(case, device, cluster, first, last)
        soon = down and first - max(down.values()) <= REROUTED_NS
        link = move.place.to_tap or move.place.from_tap
        if soon and (device is None or link in down):
            continue
        if move.kind == "link-down":
            down[link] = first
        yield move


def _moves_between_links(tap_hops: TapHops, moved: np.ndarray) -> np.ndarray:
    """VISIT records, in place of the tap before the first one, of flows that came to one link and
    then to another with the same hop limit, where `moved` has none at that time: no tap before the
    links captured all the time."""
    arrived = tap_hops.arrived
    old, new = arrived[:-1], arrived[1:]
    follows = (old["flow"] == new["flow"]) & (old["limit"] == new["limit"])
    is_move = (old["tap"] != new["tap"]) & (old["last_ns"] < new["first_ns"])
    # A flow that used both links at a time would show where both captured.
    beside = (
        _packets_seen_by(tap_hops, this, other["tap"]) for this, other in ((old, new), (new, old))
    )
    is_move &= np.maximum(*beside) >= LEAST_BESIDE
    group = np.cumsum(np.append(False, ~follows))[: len(arrived)]
    links = np.bincount(group)
    is_sprayed = np.bincount(group[1:], follows & ~is_move, len(links)) > 0
    begin = np.cumsum(links) - links
    known: dict[int, list[int]] = defaultdict(list)
    for flow, time in rows_of(moved, "flow", "first_move_ns"):
        known[flow].append(time)
    visits = []
    numbers = np.flatnonzero((links > 1) & (links <= MOST_MOVES + 1) & ~is_sprayed)
    for number in numbers[::-1].tolist():  # what moves at one router comes to later ones, too
        rows = arrived[begin[number] :][: links[number]]
        flow, first_ns = int(rows["flow"][0]), int(rows["first_ns"][1])
        is_known = any(abs(time - first_ns) <= TOGETHER_NS for time in known[flow])
        is_seldom = rows["packets"].sum() < 2 * PACKETS_PER_MOVE * (len(rows) - 1)
        if is_known or is_seldom or rows["packets"].min() < LEAST_BESIDE:
            continue
        known[flow].append(first_ns)
        visit = np.zeros((), VISIT)
        visit["flow"], visit["tap"], visit["moves"] = flow, START, len(rows) - 1
        visit["first_next_tap"], visit["next_tap"] = rows["tap"][0], rows["tap"][-1]
        visit["first_move_ns"], visit["last_move_ns"] = first_ns, rows["first_ns"][-1]
        visits.append(visit)
    return np.array(visits, VISIT)


def _packets_seen_by(tap_hops: TapHops, arrived: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """How many packets of ARRIVED records came while another tap each captured, as float64: by the
    part of the time."""
    first = np.maximum(arrived["first_ns"], tap_hops.first_seen[taps])
    last = np.minimum(arrived["last_ns"], tap_hops.last_seen[taps])
    time = np.maximum(arrived["last_ns"] - arrived["first_ns"], 1)
    return arrived["packets"] * (np.maximum(last - first, 0) / time)


def _device(names: list[str], tap: int, nexts: set[int]) -> str | None:
    """The device between a tap and all its next taps."""
    shared = set(parts_of(names[tap]))
    for other in nexts:
        shared &= set(parts_of(names[other]))
    return next(iter(shared)) if len(shared) == 1 else None


def _common_limit(case: Case, flow: int, taps: set[int]) -> int | None:
    """The hop limit with which all packets of a flow pass these taps, which are parallel; None
    if it differs."""
    assert case.tap_hops is not None
    arrived = case.tap_hops.arrived
    rows = arrived[(arrived["flow"] == flow) & np.isin(arrived["tap"], list(taps))]
    limits = set(rows["limit"].tolist())
    is_known = len(taps) > 1 and taps == set(rows["tap"].tolist())
    places = {int(case.parallel_places[tap]) for tap in taps}  # taps in series share their packets
    return limits.pop() if is_known and len(limits) == len(places) == 1 else None


def _sender(case: Case, flow: int, taps: set[int], limit: int) -> str | None:
    """The device that sends a flow over parallel links: by the Ethernet addresses from which its
    packets come, or, where they have passed one router only, the device that the links share."""
    assert case.tap_hops is not None
    registry = case.registry
    source = int(case.measuring.tracker.flows["src"][flow])
    senders = set[str | None]()
    for tap in taps:
        link = registry.taps[tap].link
        ends = None if link is None else link.towards.get(source)
        known = "" if ends is None else registry.device_named(ends[0])
        senders.add(known or (None if ends is None else registry.devices.get(ends[0])))
    if None not in senders:
        return senders.pop() if len(senders) == 1 else None
    if limit + 1 not in FULL_HOP_LIMITS:
        return None
    shared = set.intersection(*(set(parts_of(case.tap_hops.names[tap])) for tap in taps))
    return shared.pop() if len(shared) == 1 else None


def _move(case: Case, device: str | None, cluster: np.ndarray, first: int, last: int) -> Finding:
    assert case.tap_hops is not None
    names, taps = case.tap_hops.names, case.registry.tap_names
    flows = np.unique(cluster["flow"])
    went_back = cluster["first_next_tap"] == cluster["next_tap"]
    is_undone = _is_undone(case, cluster, went_back)
    left = np.unique(cluster["first_next_tap"])
    from_taps = np.unique(cluster["tap"][cluster["tap"] < START])
    hits = {int(f): 1 for f in flows}
    gone = _gone_quiet(case, cluster, last)
    abandoned = len(left) == 1 and not went_back.any() and not _used_after(case, cluster, last)
    if gone is not None:
        abandoned, left = True, np.array([gone])
    abandoned &= not _had_ended(case, int(left[0]), cluster)
    moving = counted(len(flows), "flow")
    link = printable(names[int(left[0])])
    if abandoned:
        nothing = "nothing comes" if device is None else f"{device_words(device)} sends nothing"
        tap = taps[int(left[0])]
        before, after = _lost_over(case, tap, first, last)
        lost = {f: before.get(f, 0) + after.get(f, 0) for f in (*before, *after)}
        packets = sum(lost.values()) or len(hits)
        says = f"{nothing} over {link} any more: {moving} moved away"
        place = Place(to_tap=tap, device=None if lost else device)
        if sum(after.values()) > sum(before.values()):
            place = Place(from_tap=tap)
        return finding(
            case, "link-down", place, packets,
            says + (f", at least {counted(packets, 'packet')} lost" if lost else ""),
            f"check the link {link}" + ("" if device else " and the routers before it"),
            hits=dict.fromkeys(hits, 0) | lost if lost else hits, span=(first, last),
            severity="warning", costs=bool(lost), until_ns=None, packets=packets,
        )  # fmt: skip
    is_before = device is None and not len(from_taps)
    is_before = is_before and not _is_seen_before(case.tap_hops, cluster)
    back = " and back" if is_undone else ""
    from_links, to_links = _links(case.tap_hops, cluster)
    way = f" from {_some(from_links)} to {_some(to_links)}"
    if from_links == to_links:
        way = f" to other links among {_some(to_links)}"
    return finding(
        case, "rehash",
        Place(
            from_tap=taps[int(from_taps[0])] if len(from_taps) == 1 else None,
            device=device,
            direction="before the tap" if is_before else None,
        ),
        len(hits),
        (f"{device_words(device)} moves {moving}" if device else f"{moving} moved")
        + way
        + back,
        f"check the log of {device_words(device)} for changed routes or link members" if device else
        "check the routers before these links for changed routes or link members",
        hits=hits, span=(first, last), severity="warning", costs=False,
        until_ns=last if back else None,
        details={"left": ", ".join(from_links), "taken": ", ".join(to_links)},
    )  # fmt: skip


def _lost_over(
    case: Case, link: str, first: int, last: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Packets that the flows over a link lost before and after it, at the time of the moves only;
    losses at the end of a run leave no trace. Where a tap before the link saw a flow and had not
    ended, its packets may be lost between the two."""
    assert case.tap_hops is not None
    number = case.registry.tap_names.index(link)
    into = [
        hop.passed["flow"]
        for hop in case.tap_hops.hops
        if hop.to_tap == number and case.tap_hops.last_seen[hop.from_tap] >= first
    ]
    between = {flow for flows in into for flow in flows.tolist()}
    of, before, after = case.measuring.troubles.of, dict[int, int](), dict[int, int]()
    for flow in case.flows:
        if link not in flow.taps:
            continue
        kinds = (of(flow.id, kind) for kind in (RECOVERED_LOSS, JUMPED, LOST_AFTER))
        seen = [trouble for trouble in kinds if trouble is not None]
        if not seen:
            continue
        begin, end = span_of(seen)
        if begin < first - REROUTED_NS or last + AFTERMATH_NS < end or flow.id in between:
            continue
        if packets := lost_before(case, flow):
            before[flow.id] = packets
        if naked := of(flow.id, LOST_AFTER):
            after[flow.id] = naked.packets
    return before, after


def _is_undone(case: Case, cluster: np.ndarray, went_back: np.ndarray) -> bool:
    """Whether all flows went back, but for those that ended before the others did."""
    if not went_back.any():
        return False
    returned_ns = int(cluster["last_move_ns"][went_back].max())
    ends = [case.flows[flow].last_time_ns for flow in cluster["flow"][~went_back].tolist()]
    return all(end <= returned_ns for end in ends)


MOST_LINKS = 3
"""Links that a sentence names."""


def _links(tap_hops: TapHops, cluster: np.ndarray) -> tuple[list[str], list[str]]:
    """Short names of the links that flows left, and of those that they took instead."""
    left: set[int] = set(cluster["first_next_tap"].tolist())
    taken: set[int] = set()
    for hop in tap_hops.hops:
        moved = cluster[cluster["tap"] == hop.from_tap]
        moved = moved[moved["first_next_tap"] != hop.to_tap]
        if hop.to_tap >= 0 and np.isin(moved["flow"], hop.passed["flow"]).any():
            taken.add(hop.to_tap)
    for visit in cluster[cluster["tap"] == START]:
        taken |= _taps_beside(tap_hops, visit) - {int(visit["first_next_tap"])}
    names = tap_hops.names
    return sorted(printable(names[t]) for t in left), sorted(printable(names[t]) for t in taken)


def _taps_beside(tap_hops: TapHops, visit: np.ndarray) -> set[int]:
    """The taps to which the flow of a VISIT record came with the same hop limit as to the first
    next tap."""
    arrived = tap_hops.arrived
    of_flow = arrived[arrived["flow"] == visit["flow"]]
    limits = of_flow["limit"][of_flow["tap"] == visit["first_next_tap"]]
    return set(of_flow["tap"][np.isin(of_flow["limit"], limits)].tolist())


def _is_seen_before(tap_hops: TapHops, cluster: np.ndarray) -> bool:
    """Whether a tap before the links that flows left, with a higher hop limit, captures a flow when
    it moves."""
    arrived = tap_hops.arrived
    of_flows = arrived[np.isin(arrived["flow"], cluster["flow"])]
    limit = of_flows["limit"][np.isin(of_flows["tap"], cluster["first_next_tap"])].max(initial=0)
    taps = np.unique(of_flows["tap"][of_flows["limit"] > limit])
    return bool((tap_hops.last_seen[taps] >= cluster["first_move_ns"].min()).any())


def _some(links: list[str]) -> str:
    """`a, b, c and 2 more`."""
    more = f" and {len(links) - MOST_LINKS} more" if len(links) > MOST_LINKS else ""
    return ", ".join(links[:MOST_LINKS]) + more


def _used_after(case: Case, cluster: np.ndarray, last: int) -> bool:
    """Whether packets came to the link that all flows left after the moves; where no tap before the
    link shows these flows, packets that pass it as they did."""
    assert case.tap_hops is not None
    arrived = case.tap_hops.arrived
    at_tap = arrived[arrived["tap"] == cluster["first_next_tap"][0]]
    if (cluster["tap"] == START).all():
        limits = at_tap["limit"][np.isin(at_tap["flow"], cluster["flow"])]
        at_tap = at_tap[np.isin(at_tap["limit"], limits)]
    return bool((at_tap["last_ns"] > last + TOGETHER_NS).any())


def _had_ended(case: Case, tap: int, cluster: np.ndarray) -> bool:
    """Whether the capture of a link may have ended before flows left it, where no tap before the
    link shows these flows: none of them is seen for a while."""
    assert case.tap_hops is not None
    if (cluster["tap"] < START).any():
        return False
    flows = [case.flows[flow] for flow in cluster["flow"].tolist()]
    usual_ns = min((f.last_time_ns - f.first_time_ns) / max(f.packets - 1, 1) for f in flows)
    unseen_ns = int(cluster["first_move_ns"].min()) - int(case.tap_hops.last_seen[tap])
    return unseen_ns > USUAL_GAPS * usual_ns


def _gone_quiet(case: Case, cluster: np.ndarray, last: int) -> int | None:
    """The one link among those that flows left over which nothing comes after the moves, while so
    many flows use the parallel links that chance leaves none of them unused."""
    assert case.tap_hops is not None
    arrived, left = case.tap_hops.arrived, set(cluster["first_next_tap"].tolist())
    of_moved = arrived[np.isin(arrived["flow"], cluster["flow"])]
    limits = np.unique(of_moved["limit"][np.isin(of_moved["tap"], list(left))])
    parallel = np.unique(of_moved["tap"][np.isin(of_moved["limit"], limits)])
    alike = arrived[np.isin(arrived["tap"], parallel) & np.isin(arrived["limit"], limits)]
    after = alike[alike["last_ns"] > last + TOGETHER_NS]
    quiet = left - set(after["tap"].tolist())
    flows = len(np.unique(after["flow"]))
    if len(quiet) != 1 or len(parallel) * (1 - 1 / len(parallel)) ** flows > CHANCE:
        return None
    return int(quiet.pop())


FINDERS = (Finder(hop_moves, ("rehash", "link-down"), REHASH_CAUSES, after=("overtaking",)),)
