"""How traffic is spread over paths: idle links beside shared ones, and who sprays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
from msgspec import UNSET

from ...measures.hops.hops import TapHops
from ...measures.spraying import SPRAYED_WIDTH
from ...results.base import Spraying
from ...results.diagnosis import Finding, Kind, Place
from ...results.flow import Flow
from ...wire.bth import MRC, TRANSPORT_NAMES
from ...words import device_words, printable
from ..case import Case
from ..finding import called, counted, duration, finding, life_of, only
from ..known import P99_NS, Finder, Known

CHANCE = 1e-4
"""With a smaller chance that as many links stay idle under a uniform hash, the hash is at fault."""
LEAST_FLOWS = 2
OVERLOAD = 1.5
"""A link that is overloaded carries this many times what any link without trouble does."""
LOADED: Final[tuple[Kind, ...]] = ("queueing", "rate-limit", "incast", "ecn-marking", "pause")
"""What flows do to a link when they share it. A link that fails or loses at random would do so
without them."""


class Choice(NamedTuple):
    """What one device put on the links of one set."""

    device: str
    flows: dict[str, list[int]]
    """Data flows by tap; empty lists for idle links."""


def placements(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per device that leaves links idle while flows share another."""
    for choice in choices(case):
        over_links = [f for flows in choice.flows.values() for f in flows]
        placed = _at_once(case, set(over_links))
        receivers = {case.flows[f].dst for f in placed}
        idle = sorted(
            tap
            for tap, flows in choice.flows.items()
            if not flows
            and tap not in case.gaps
            and not _is_used(case, tap, receivers)
            and not _may_be_used(case, tap, receivers, over_links)
        )
        crowd = {tap: _at_once(case, flows) for tap, flows in choice.flows.items()}
        crowded = [tap for tap, flows in crowd.items() if len(flows) >= LEAST_FLOWS]
        if not idle or not crowded or known.troubled(set(idle)):
            continue  # nobody uses a link that is down
        chance = chance_of_idle(len(choice.flows), len(idle), len(placed))
        kind: Kind = "polarisation" if chance < CHANCE else "collision"
        links = f"{len(idle)} of {counted(len(choice.flows), 'parallel link')}"
        flows = [case.flows[f] for f in placed]
        overloaded = {tap for tap in crowded if _is_overloaded(case, known, choice, tap)}
        if _pass_beside(case, receivers, over_links):
            overloaded = set()  # a link without a tap may carry as much
        hurt = known.troubled(overloaded, LOADED)
        queues = _queues(case, known, choice, sorted(overloaded))
        for queue in queues:
            known.absorb(queue)
        sharing = {f for tap in crowded for f in crowd[tap]}
        yield finding(
            case,
            kind,
            Place(device=choice.device, to_tap=only(queue.place.to_tap or "" for queue in queues)),
            sum(flow.packets for flow in flows),
            f"{device_words(choice.device)} leaves {links} idle:"
            f" {counted(len(placed), 'flow')} share the others" + _waits(case, queues),
            _next_step(choice, kind, idle, queues),
            hits={f: case.flows[f].packets for f in sharing},
            span=life_of(case, flows),
            confidence="proven" if kind == "collision" else "likely",
            severity="warning" if hurt else "note",
            costs=hurt,
            details={P99_NS: _longest(queues)} if queues else UNSET,
        )


def _at_once(case: Case, flows: Iterable[int]) -> list[int]:
    """The flows that are active at the time when most of them are."""
    numbers = np.array(sorted(flows), np.int64)
    if not len(numbers):
        return []
    first = np.array([case.flows[f].first_time_ns for f in numbers.tolist()], np.int64)
    last = np.array([case.flows[f].last_time_ns for f in numbers.tolist()], np.int64)
    begun = np.searchsorted(np.sort(first), first, side="right")
    ended = np.searchsorted(np.sort(last), first, side="left")
    busiest = first[np.argmax(begun - ended)]
    active: list[int] = numbers[(first <= busiest) & (busiest <= last)].tolist()
    return active


def _may_be_used(case: Case, tap: str, receivers: set[str], placed: list[int]) -> bool:
    """Whether a flow to these receivers that passed none of the links may have taken this one while
    its tap did not capture."""
    hops = case.tap_hops
    if hops is None:
        return False
    number = case.registry.tap_names.index(tap)
    return any(
        not hops.captured(number, flow.first_time_ns, flow.last_time_ns)
        for flow in _beside(case, receivers, placed)
    )


def _pass_beside(case: Case, receivers: set[str], placed: list[int]) -> bool:
    """Whether flows between the same hosts pass none of the links: there are more of them."""
    sources = {case.flows[f].src for f in placed}
    return any(flow.src in sources for flow in _beside(case, receivers, placed))


def _beside(case: Case, receivers: set[str], placed: list[int]) -> Iterator[Flow]:
    """Data flows to these receivers that pass none of the links."""
    others = set(placed)
    for flow in case.flows:
        if flow.data_packets and flow.dst in receivers and flow.id not in others:
            yield flow


def _is_overloaded(case: Case, known: Known, choice: Choice, tap: str) -> bool:
    """Whether the link carries clearly more flows or packets than any without trouble: else
    sharing it is not what hurts, the link itself is slow."""
    calm = [
        flows
        for other, flows in choice.flows.items()
        if flows and not known.troubled({other}, LOADED)
    ]

    def packets(flows: list[int]) -> int:
        return sum(case.flows[f].packets for f in flows)

    mine = choice.flows[tap]
    more = len(mine) >= OVERLOAD * max(map(len, calm), default=0)  # a queue slows its flows
    return more or packets(mine) >= OVERLOAD * max(map(packets, calm), default=0)


def _queues(case: Case, known: Known, choice: Choice, crowded: list[str]) -> list[Finding]:
    """The queues of flows that share a link, while several of them do."""
    queues = []
    for tap in crowded:
        sharing = {flow: case.flows[flow] for flow in choice.flows[tap]}
        for queue in known.onto("queueing", choice.device, tap):
            until = case.last_ns if queue.until_ns is None else queue.until_ns
            there = [
                flow
                for flow in sharing.values()
                if flow.first_time_ns <= until and flow.last_time_ns >= queue.from_ns
            ]
            waiting = {flow for flow in queue.flows if case.flows[flow].data_packets}
            if len(there) >= LEAST_FLOWS and waiting <= sharing.keys():
                queues.append(queue)
    return queues


def _longest(queues: list[Finding]) -> int:
    return max(int(q.details[P99_NS]) for q in queues if q.details is not UNSET)


def _waits(case: Case, queues: list[Finding]) -> str:
    if not queues:
        return ""
    where = {called(case, queue.place.to_tap, "next") for queue in queues}
    return f", and wait for up to {duration(_longest(queues))} at {' and '.join(sorted(where))}"


def _next_step(choice: Choice, kind: Kind, idle: list[str], queues: list[Finding]) -> str:
    if kind == "polarisation":
        step = f"give {device_words(choice.device)} its own hash seed,"
        return f"{step} or check that {printable(idle[0])} is up"
    step = "spray, or use more queue pairs or source ports per connection"
    return f"{step}; compare the speeds of the links" if queues else step


def choices(case: Case) -> list[Choice]:
    """The devices that choose among parallel links, with the data flows that they put there.

    Links are parallel where flows to one host take them; a link without flows belongs to them if
    its name differs only in digits. Where all flows take one link, those are parallel that lead to
    another device which has links to the same next devices.
    """
    if case.tap_hops is None:
        return []
    taken: dict[str, dict[str, dict[int, set[int]]]] = {}  # device -> host -> tap -> flows
    for way in case.tap_hops.hops:
        device = case.tap_hops.devices.get((way.from_tap, way.to_tap))
        if device is None or way.to_tap < 0:
            continue
        for f in np.unique(way.passed["flow"]).tolist():
            if case.flows[f].data_packets:
                by_tap = taken.setdefault(device, {}).setdefault(case.flows[f].dst, {})
                by_tap.setdefault(way.to_tap, set()).add(f)
    return [
        Choice(device, {case.registry.tap_names[tap]: sorted(on) for tap, on in links.items()})
        for device, hosts in taken.items()
        for links in _parallel(case.tap_hops, device, list(hosts.values()))
    ]


def _parallel(
    tap_hops: TapHops, device: str, by_host: list[dict[int, set[int]]]
) -> list[dict[int, set[int]]]:
    """Sets of parallel links with their flows, those without flows included."""
    sets: list[dict[int, set[int]]] = []
    for links in by_host:
        joined = {tap: set(flows) for tap, flows in links.items()}
        for other in [other for other in sets if other.keys() & joined.keys()]:
            sets.remove(other)
            for tap, flows in other.items():
                joined.setdefault(tap, set()).update(flows)
        sets.append(joined)
    used = {tap for links in sets for tap in links}
    names = tap_hops.names
    for links in sets:
        if len(links) == 1:
            links.update({tap: set() for tap in _twins(tap_hops, device, next(iter(links)))})
    parallel = [links for links in sets if len(links) > 1]
    for links in parallel:
        kinds = {_without_digits(names[tap], device) for tap in links} - {None}
        for tap, name in enumerate(names):
            if tap not in used and _without_digits(name, device) in kinds:
                links[tap] = set()
    return parallel


def _twins(tap_hops: TapHops, device: str, tap: int) -> set[int]:
    """Taps on links of the device to others that stand where the device behind `tap` stands: each
    tap by which packets leave this one has a namesake there."""
    names = tap_hops.names
    ends = names[tap].split("-")
    if device not in ends or len(ends) != 2:
        return set()
    behind = ends[1 - ends.index(device)]
    then = [
        names[way.to_tap]
        for way in tap_hops.hops
        if way.from_tap == tap and tap_hops.devices.get((tap, way.to_tap)) == behind
    ]
    return {
        other
        for other, name in enumerate(names)
        if then
        and other != tap
        and _without_digits(name, device) == _without_digits(names[tap], device)
        and all(_with_end(each, behind, _other_end(name, device)) in names for each in then)
    }


def _other_end(name: str, device: str) -> str:
    ends = name.split("-")
    return ends[1 - ends.index(device)]


def _with_end(name: str, end: str, becomes: str) -> str:
    return "-".join(becomes if each == end else each for each in name.split("-"))


def _without_digits(name: str, device: str) -> tuple[str, ...] | None:
    """The ends of a link, that of the device as it is; None if it is not one of them."""
    ends = name.split("-")
    if device not in ends:
        return None
    return tuple(end if end == device else end.rstrip("0123456789") for end in ends)


def _is_used(case: Case, tap: str, receivers: set[str]) -> bool:
    """Whether data to these hosts passes a tap, wherever it comes from."""
    return any(
        flow.dst in receivers and tap in flow.taps and flow.data_packets for flow in case.flows
    )


def chance_of_idle(links: int, idle: int, flows: int) -> float:
    """Upper limit of the chance that a uniform hash leaves `idle` of `links` without any of
    `flows` flows: the number of ways to choose the links, times the chance of each."""
    return math.comb(links, idle) * (1 - idle / links) ** flows


def sprays(case: Case, known: Known) -> Iterator[Finding]:
    """A note on hosts that spray their packets, and one on flows that switches spray."""
    by_host: dict[int, Spraying] = {}
    by_switch: dict[int, Spraying] = {}
    for flow in case.flows:
        kinds = {spraying.path_by: spraying for spraying in flow.spraying}
        entropy, tap = kinds.get("entropy"), kinds.get("tap")
        if entropy is not None and is_sprayed(entropy):
            by_host[flow.id] = entropy
        elif tap is not None and is_sprayed(tap):
            by_switch[flow.id] = tap
    if by_host:
        flows = [case.flows[f] for f in by_host]
        sources = sorted({flow.src for flow in flows})
        ports = max(spraying.paths_seen for spraying in by_host.values())
        mrc = any(flow.transport == TRANSPORT_NAMES[MRC] for flow in flows)
        keys = "entropy values" if mrc else "source ports"
        who = (
            f"{printable(sources[0])} sprays"
            if len(sources) == 1
            else f"{len(sources)} hosts spray"
        )
        yield _spray(
            case,
            Place(host=sources[0] if len(sources) == 1 else None),
            flows,
            f"{who} {_flows_and_acks(flows)} over {ports} {keys}",
        )
    if by_switch:
        paths = max(spraying.paths_seen for spraying in by_switch.values())
        flows = [case.flows[f] for f in by_switch]
        says = f"switches spray {_flows_and_acks(flows)} over {paths} parallel taps"
        yield _spray(case, Place(), flows, says)


def _flows_and_acks(flows: list[Flow]) -> str:
    """`6 flows (2 of ACKs)`: other figures of spraying are of flows that carry data."""
    acks = sum(not flow.data_packets for flow in flows)
    text = counted(len(flows), "flow")
    return f"{text} ({acks:,} of ACKs)" if acks and acks < len(flows) else text


PACKETS_PER_SWITCH = 10
"""A flow that changes its path at least once in so many packets is sprayed."""
SAME_LIFE = 0.8
"""Paths that a flow sprays over less often live about as long as the flow: the usual one at least
this part of the longest one."""


def is_sprayed(spraying: Spraying) -> bool:
    """True for a flow that alternates between paths. One that moves, and perhaps back, leaves a
    path for long, and alternates only while packets of the old path overtake those of the new."""
    if spraying.width < SPRAYED_WIDTH or spraying.switches is None:
        return False
    packets, lives = sum(path.packets for path in spraying.paths), spraying.path_lifetime_ns
    return spraying.switches >= 2 * spraying.paths_seen and (
        spraying.switches * PACKETS_PER_SWITCH >= packets
        or lives is None
        or lives.p50 >= SAME_LIFE * lives.max
    )


def _spray(case: Case, place: Place, flows: list[Flow], says: str) -> Finding:
    packets = sum(flow.packets for flow in flows)
    return finding(
        case,
        "spraying",
        place,
        packets,
        says,
        "nothing, if the receivers accept packets out of order",
        hits={flow.id: flow.packets for flow in flows},
        confidence="proven",
        severity="note",
        costs=False,
    )


FINDERS = (
    Finder(
        placements,
        ("polarisation", "collision"),
        after=("retry_storms", "copies_before", "marks_before"),
    ),
    Finder(sprays, ("spraying",)),
)
