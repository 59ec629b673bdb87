"""Simulated runs whose fault is drawn at random in kind, place, onset and size, with their truth.

Run n of a kind is the same on every machine. The folder of a run is as that of the lab: a capture
per link and truth.json. The fabric, its hosts and its hops are those of the lab, too.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric_captures import (
    CE,
    DURATION,
    LEAF,
    MS,
    START_NS,
    US,
    Hit,
    Packet,
    Pair,
    Route,
    Run,
    address,
    between,
    by_port,
    delay,
    drop,
    queue,
    rewrite,
    simulate,
    some,
    usual_pairs,
    wire_bytes,
    write,
)

from .packets import LEAST_PACKETS, links_of
from .scenario import Spot, any_spot, out_of_leaf, through_spine, to_host
from .topology import LEAVES, SPINES

ONSET_WINDOW_NS = 20 * MS
IN_FLIGHT_NS = 10 * MS
"""Packets lost so shortly before the end may be on their way, for all that captures tell."""


class Draw:
    """What a run is made of, the same for the same number and kind."""

    def __init__(self, number: int, kind: str) -> None:
        self.chance = random.Random(f"{kind} {number}")
        self.seed = self.chance.getrandbits(32)
        self.ipv6 = self.chance.random() < 0.2
        self.pairs = usual_pairs(
            seed=self.seed, per_hosts=self.chance.choice([2, 2, 3]), gap=self.chance.choice(GAPS)
        )

    def span(self) -> tuple[int, int]:
        """From the start, or from a time in the middle; to the end, or to a time before it."""
        first = self.chance.choice([0, self.chance.randint(80 * MS, 240 * MS)])
        last = first + self.chance.randint(80 * MS, 140 * MS)
        return first, self.chance.choice([DURATION, DURATION, last])

    def middle(self) -> int:
        return self.chance.randint(100 * MS, 220 * MS)


GAPS = (800 * US, 1200 * US, 1600 * US)


@dataclass
class Drawn:
    """A run and the faults that the diagnosis must, or may, find."""

    run: Run
    faults: list[dict[str, Any]] = field(default_factory=list)


class Useless(Exception):
    """The fault hit too few packets."""


def taps_of(spot: Spot) -> tuple[str, str]:
    """Patterns of the taps before and after a spot, for `between` and `queue`."""
    hop = spot.hop
    near = hop.before[0] if len(hop.before) == 1 else f"*{hop.device}*"
    beyond = f"H?-{hop.device}" if hop.after[0][0] == "H" else f"{hop.device}-spine?"
    far = hop.to_tap or (hop.after[0] if len(hop.after) == 1 else beyond)
    return near, far


def truth_of(
    kinds: list[str],
    spot: Spot | None,
    count: str | None,
    hits: list[Hit],
    run: Run,
    set_ns: int = 0,
    until_ns: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A fault as in the truth.json of the lab. hits: in the order of time."""
    if len(hits) < LEAST_PACKETS:
        raise Useless
    end = max(seen[-1].time_ns for seen in run.taps.values() if seen)
    sure = sum(hit.time_ns < end - IN_FLIGHT_NS for hit in hits)
    flows = Counter((hit.packet.src, hit.packet.dst, hit.packet.dest_qp) for hit in hits)
    hop = spot.hop if spot else None
    return {
        "kinds": kinds,
        "count": count,
        "required": True,
        "severity": "warning",
        "from_taps": hop.before if hop else [],
        "to_taps": ([hop.to_tap] if hop.to_tap else hop.after) if hop else [],
        "device": hop.device if hop else None,
        "host": None,
        "capture": None,
        "set_ns": START_NS + set_ns,
        "unset_ns": None if until_ns is None else START_NS + until_ns,
        "from_ns": hits[0].time_ns,
        "until_ns": hits[-1].time_ns,
        "packets": len(hits),
        "sure_packets": sure,
        "of_packets": None,
        "affected": [[*flow, packets] for flow, packets in flows.items()],
    } | more


# Clean runs.


def clean(draw: Draw) -> Drawn:
    return Drawn(simulate(draw.pairs, seed=draw.seed))


def clean_bursts(draw: Draw) -> Drawn:
    """Three hosts send much to the fourth for a while, and its link is fast enough."""
    return Drawn(
        simulate(draw.pairs + _bursts(draw, draw.chance.choice(list(LEAF))), seed=draw.seed)
    )


def clean_spraying(draw: Draw) -> Drawn:
    return Drawn(simulate(draw.pairs, route=_sprayed(draw, 1), seed=draw.seed))


def _sprayed(draw: Draw, leaf: int) -> Route:
    """Some hosts spray, packet by packet: one of a leaf, all of it, or all hosts."""
    first, second = (host for host, at in LEAF.items() if at == leaf)
    hosts = draw.chance.choice([(first,), (first, second), tuple(LEAF)])
    turn = random.Random(draw.seed)

    def route(packet: Packet, now: int) -> int:
        return turn.choice(SPINES) if packet.src in hosts else by_port(packet, now)

    return route


# Losses.


def _lost(draw: Draw, kinds: list[str], spot: Spot, which: Callable[[Packet], bool]) -> Drawn:
    first, last = draw.span()
    run = simulate(draw.pairs, between(*taps_of(spot), drop, first, last, which), seed=draw.seed)
    return Drawn(run, [truth_of(kinds, spot, "lost", run.lost, run, first, last)])


def random_loss(draw: Draw) -> Drawn:
    share = draw.chance.choice([0.02, 0.05, 0.1, 0.3])
    return _lost(draw, ["loss"], any_spot(draw.chance), some(share, draw.seed))


def black_hole(draw: Draw) -> Drawn:
    """All packets of some flows."""
    spot = any_spot(draw.chance)
    salt, of = draw.seed, draw.chance.choice([2, 3, 4])
    kinds = ["blackhole", "selective-loss"]
    return _lost(draw, kinds, spot, lambda packet: (packet.dest_qp * 40503 + salt) % of == 0)


def outage(draw: Draw) -> Drawn:
    """Nothing passes a spine in one direction, for a while."""
    spot = through_spine(draw.chance.choice(SPINES), draw.chance.choice(LEAVES))
    first = draw.middle()
    last = first + draw.chance.randint(30 * MS, 90 * MS)
    run = simulate(draw.pairs, between(*taps_of(spot), drop, first, last), seed=draw.seed)
    return Drawn(run, [truth_of(["outage", "blackhole"], spot, "lost", run.lost, run, first, last)])


def nic_drops(draw: Draw) -> Drawn:
    """A host drops packets after the tap on its link."""
    host = draw.chance.choice(list(LEAF))
    first, last = draw.span()
    lossy = some(draw.chance.choice([0.03, 0.1]), draw.seed)

    def nic(packet: Packet, now: int) -> bool:
        return not (packet.dst == host and first <= now < last and lossy(packet))

    run = simulate(draw.pairs, seed=draw.seed, nic=nic)
    kinds, taps = ["loss", "timeout-recovery"], to_host(host).hop.after
    fault = truth_of(kinds, None, "lost", run.lost, run, first, last)
    fault |= {"from_taps": taps, "device": f"H{host}", "host": address(host, draw.ipv6)}
    return Drawn(run, [fault])


# Queues.


def _bursts(draw: Draw, target: int) -> list[Pair]:
    first = draw.chance.randint(80 * MS, 150 * MS)
    gap = draw.chance.choice([200 * US, 300 * US])
    return [
        Pair(src, target, 0x200 + src, 50000 + src, start=first, stop=first + 120 * MS, gap=gap)
        for src in LEAF
        if src != target
    ]


def incast(draw: Draw) -> Drawn:
    """Three hosts overload the link of the fourth."""
    target = draw.chance.choice(list(LEAF))
    spot, bursts = to_host(target), _bursts(draw, target)
    bits = 3 * 8e9 * 1098 / bursts[0].gap * draw.chance.uniform(0.5, 0.8)
    run = simulate(draw.pairs + bursts, queue("*", spot.hop.to_tap, bits, room=16), seed=draw.seed)
    kinds = ["incast", "rate-limit", "queueing"]
    return Drawn(run, [truth_of(kinds, spot, "lost", run.lost, run, bursts[0].start)])


def slow_link(draw: Draw) -> Drawn:
    """An output of a spine or leaf is slower than what is offered, and drops."""
    leaf, spine = draw.chance.choice(LEAVES), draw.chance.choice(SPINES)
    spot = draw.chance.choice([through_spine(spine, leaf), out_of_leaf(leaf, spine)])
    near, far = taps_of(spot)
    first, last = draw.span()
    bits = _offered(draw) / 8 * draw.chance.uniform(0.4, 0.7)
    room = draw.chance.choice([8, 12, 24])
    run = simulate(draw.pairs, queue(near, far, bits, first, last, room), seed=draw.seed)
    kinds = ["rate-limit", "queueing"]
    return Drawn(run, [truth_of(kinds, spot, "lost", run.lost, run, first, last)])


def _offered(draw: Draw) -> float:
    """Bits per second of all requesters."""
    return sum(8e9 * wire_bytes(_full) / pair.gap for pair in draw.pairs)


_full = Packet(1, 3, 0, 0, 0, 0x07, False, 0, 1024, 0, 0)


def delay_step(draw: Draw) -> Drawn:
    """A spine takes longer from a time in the middle on, for every packet alike."""
    spot = through_spine(draw.chance.choice(SPINES), draw.chance.choice(LEAVES))
    first = draw.middle()
    longer = delay(draw.chance.randint(360 * US, 1300 * US))
    run = simulate(draw.pairs, between(*taps_of(spot), longer, first, DURATION), seed=draw.seed)
    kinds = ["delay-step", "delay", "queueing"]
    return Drawn(run, [truth_of(kinds, spot, "delayed", run.hits, run, first)])


def ce_marks(draw: Draw) -> Drawn:
    spot = any_spot(draw.chance)
    first, last = draw.span()
    share = some(draw.chance.choice([0.05, 0.1, 0.3]), draw.seed)
    marking = between(*taps_of(spot), rewrite(26 << 2 | CE), first, last, share)
    run = simulate(draw.pairs, marking, seed=draw.seed)
    return Drawn(run, [truth_of(["ecn-marking"], spot, "changed", run.hits, run, first, last)])


def spraying_slow_spine(draw: Draw) -> Drawn:
    """Hosts spray, and one spine delays its packets: they are late where the ways meet."""
    leaf = draw.chance.choice(LEAVES)
    spot = through_spine(draw.chance.choice(SPINES), leaf)
    run = simulate(
        draw.pairs,
        between(*taps_of(spot), delay(2 * MS)),
        _sprayed(draw, 3 - leaf),
        draw.seed,
    )
    kinds = ["reordering", "queueing", "delay-step", "delay"]
    fault = truth_of(kinds, spot, "overtaken", run.hits, run, neighbours=[f"leaf{leaf}"])
    slow = spot.hop.after[0]
    fault["from_taps"] = [*spot.hop.before, slow]
    fault["to_taps"] = [slow, *links_of(leaf, "H")]
    return Drawn(run, [fault])


# Routes.


def rehash(draw: Draw) -> Drawn:
    """A leaf chooses spines by another seed from one moment on."""
    leaf, at = draw.chance.choice(LEAVES), draw.middle()
    sources = [host for host in LEAF if LEAF[host] == leaf]
    until = draw.chance.choice([DURATION * 2, at + 120 * MS])

    def route(packet: Packet, now: int) -> int:
        return by_port(packet, now, salt=packet.src in sources and at <= now < until)

    run = simulate(draw.pairs, route=route, seed=draw.seed)
    return Drawn(run, [_moves(run, ["rehash"], leaf, at)])


def withdrawn(draw: Draw) -> Drawn:
    """A leaf stops using one of its spines; nothing is lost."""
    leaf, gone, at = draw.chance.choice(LEAVES), draw.chance.choice(SPINES), draw.middle()
    run = simulate(draw.pairs, route=_around(gone, {leaf: at}), seed=draw.seed)
    return Drawn(run, [_moves(run, ["link-down", "rehash"], leaf, at, [f"spine{gone}"])])


def link_down(draw: Draw) -> Drawn:
    """A link fails: its leaf reroutes at once, the other leaf after a while loses what it sends."""
    leaf, gone, at = draw.chance.choice(LEAVES), draw.chance.choice(SPINES), draw.middle()
    other, until = 3 - leaf, at + draw.chance.randint(30 * MS, 100 * MS)
    spot = through_spine(gone, leaf)
    run = simulate(
        draw.pairs,
        between(*taps_of(spot), drop, at),
        _around(gone, {leaf: at, other: until}),
        seed=draw.seed,
    )
    kinds = ["link-down", "outage", "blackhole"]
    faults = [truth_of(kinds, spot, "lost", run.lost, run, at, until, other_end=f"leaf{leaf}")]
    for each, moved_at in ((leaf, at), (other, until)):
        moves = _moves(run, ["rehash", "link-down"], each, moved_at, [f"spine{gone}"])
        faults.append(moves | {"required": False})
    return Drawn(run, faults)


def _around(gone: int, from_ns: dict[int, int]) -> Route:
    """The packets of a leaf take other spines from its time on."""
    left = [spine for spine in SPINES if spine != gone]

    def route(packet: Packet, now: int) -> int:
        spine = by_port(packet, now)
        is_moved = spine == gone and now >= from_ns.get(LEAF[packet.src], DURATION * 2)
        return left[packet.sport % 3] if is_moved else spine

    return route


def _moves(
    run: Run, kinds: list[str], leaf: int, at: int, neighbours: list[str] | None = None
) -> dict[str, Any]:
    """The flows that a leaf moves from a time on, as a fault."""
    spot = out_of_leaf(leaf, 1)
    spot.hop.to_tap = None
    sightings = sorted(
        (seen.time_ns, link, seen.packet)
        for link in spot.hop.after
        for seen in run.taps[link]
        if LEAF[seen.packet.src] == leaf
    )
    first: dict[tuple[int, int, int], str] = {}
    hits = [
        Hit(time_ns, packet, True)
        for time_ns, link, packet in sightings
        if first.setdefault((packet.src, packet.dst, packet.dest_qp), link) != link
    ]
    return truth_of(kinds, spot, "moved", hits, run, at, neighbours=neighbours or [])


KINDS: dict[str, Callable[[Draw], Drawn]] = {
    "clean": clean,
    "random-loss": random_loss,
    "black-hole": black_hole,
    "incast": incast,
    "slow-link": slow_link,
    "link-down": link_down,
    "rehash": rehash,
    "withdrawn": withdrawn,
    "ce-marks": ce_marks,
    "delay-step": delay_step,
    "nic-drops": nic_drops,
    "outage": outage,
    "clean-spraying": clean_spraying,
    "clean-bursts": clean_bursts,
    "spraying-slow-spine": spraying_slow_spine,
}


def draw_run(number: int, kind: str | None, folder: Path) -> Path:
    """The folder of run `number`, of a kind in turn if None; written there."""
    chosen = kind or list(KINDS)[number % len(KINDS)]
    for attempt in range(20):
        draw = Draw(number + attempt * 1_000_000, chosen)
        try:
            drawn = KINDS[chosen](draw)
        except Useless:
            continue
        where = folder / f"{number:04}-{chosen}"
        where.mkdir(parents=True, exist_ok=True)
        write(where, drawn.run.taps, draw.ipv6)
        for fault in drawn.faults:
            fault["affected"] = [
                [address(src, draw.ipv6), address(dst, draw.ipv6), qp, packets]
                for src, dst, qp, packets in fault["affected"]
            ]
        truth = {"kind": chosen, "options": [], "onset_window_ns": ONSET_WINDOW_NS}
        truth["expected"] = drawn.faults
        (where / "truth.json").write_text(json.dumps(truth, indent=1))
        return where
    raise AssertionError(f"run {number} ({chosen}): its fault hits nothing in twenty attempts")
