"""The kinds of faults, each drawn at random in place, onset and size."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from router_namespaces import ip

from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.settings import HashSettings, equal_cost

from .damage import change_clock, miss_frames
from .packets import Flow, Hop
from .pause import LINK_BITS_PER_SECOND, pause
from .rules import COPY, DAMAGE, DROP, MARK_CE, Rule
from .scenario import (
    Expected,
    Lab,
    Scenario,
    Spot,
    Step,
    any_output,
    any_spot,
    from_host,
    out_of_leaf,
    through_spine,
    to_host,
)
from .topology import HOSTS, LEAVES, LINKS, SPINES, address
from .traffic import HostFault, QueuePair, Traffic

ECT0 = 2
DATA = "p.opcode != 0x11 && p.opcode != 0x81"
FLOW_HASH = "(p.sport * 40503u + p.dest_qp * 2654435761u)"


MIXED = ("write", "send", "read")
PACED = ("write", "send")
"""Requesters pace their packets; responders send the responses of a READ at once."""


class Draw:
    """What one scenario is made of, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.seconds = round(self.chance.uniform(3, 5), 1)
        self.rate = self.chance.choice([1000, 1400, 1800])
        self.family = self.chance.choice([4, 4, 4, 6])
        self.operations = self.chance.choice([("write",), ("write", "send"), MIXED])

    def traffic(self, **options: object) -> Traffic:
        chosen = {"family": self.family, "rate": self.rate, "operations": self.operations}
        chosen |= options
        return Traffic(seed=self.seed, seconds=self.seconds, **chosen)

    def scenario(self, kind: str, traffic: Traffic, **parts: object) -> Scenario:
        seeds = (self.chance.getrandbits(32) | 1, self.chance.getrandbits(32) | 1)
        return Scenario(kind, traffic, hash_seeds=seeds, **parts)

    def onset(self) -> float:
        """From the beginning, or somewhere in the middle of the run."""
        return self.chance.choice([-0.2, round(self.chance.uniform(0.25, 0.6) * self.seconds, 2)])

    def middle(self) -> float:
        return round(self.chance.uniform(0.25, 0.5) * self.seconds, 2)

    def millionths(self, low_percent: float, high_percent: float) -> int:
        return int(self.chance.uniform(low_percent, high_percent) * 10_000)


class LongDraw(Draw):
    """A long run whose fault begins after its middle."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seconds = round(self.chance.uniform(15, 25), 1)
        self.rate = self.chance.choice([600, 800])

    def onset(self) -> float:
        return self.middle()

    def middle(self) -> float:
        return round(self.chance.uniform(0.5, 0.7) * self.seconds, 2)


def turn(number: int, on: bool) -> Callable[[Lab], object]:
    return lambda lab: lab.rules[number].turn(on)


def turn_all(on: bool, which: slice = slice(None)) -> Callable[[Lab], object]:
    def act(lab: Lab) -> None:
        for rule in lab.rules[which]:
            rule.turn(on)

    return act


def one_rule(
    draw: Draw,
    kind: str,
    kinds: Sequence[str],
    spot: Spot,
    condition: str,
    action: str,
    count: Literal["lost", "changed", "copied", "damaged"],
    traffic: Traffic,
    *more: Expected,
) -> Scenario:
    """A fault that one rule in the kernel makes, until the end or some time before it."""
    steps = [Step(draw.onset(), turn(0, True))]
    ends = None
    if draw.chance.random() < 0.3:
        ends = 1
        until = draw.chance.uniform(0.75, 0.9) * draw.seconds
        steps.append(Step(round(until, 2), turn(0, False)))
    expected = Expected(list(kinds), spot.hop, count, rule=0, ends=ends)
    return draw.scenario(
        kind,
        traffic,
        rules=[spot.rule(condition, action)],
        steps=steps,
        expected=[expected, *more],
    )


# Clean runs.


def clean(draw: Draw) -> Scenario:
    tos = draw.chance.choice([0, 26 << 2, 26 << 2 | ECT0])
    return draw.scenario("clean", draw.traffic(family=4, tos=[tos]))


def clean_ipv6(draw: Draw) -> Scenario:
    return draw.scenario("clean-ipv6", draw.traffic(family=6))


def clean_sizes(draw: Draw) -> Scenario:
    return draw.scenario("clean-sizes", draw.traffic(payload_bytes=[256, 512, 1024]))


def clean_spraying(draw: Draw) -> Scenario:
    """Both leaves choose a spine for every packet."""
    rules = [
        Rule(f"leaf{leaf}", f"H{host}", "in", "1", "bpf_set_hash(skb, bpf_get_prandom_u32())")
        for host, leaf in HOSTS.items()
    ]

    sprays = Expected(["spraying"], required=False, begins=None, severity="note")
    return draw.scenario(
        "clean-spraying",
        draw.traffic(),
        rules=rules,
        steps=[Step(-0.2, turn_all(True))],
        expected=[sprays],
    )


# Loss.


def gray_loss(draw: Draw) -> Scenario:
    condition = f"CHANCE({draw.millionths(0.4, 4)})"
    spot = any_spot(draw.chance)
    return one_rule(draw, "gray-loss", ["loss"], spot, condition, DROP, "lost", draw.traffic())


def ack_loss(draw: Draw) -> Scenario:
    condition = f"p.opcode == 0x11 && CHANCE({draw.millionths(20, 50)})"
    kinds = ["loss", "selective-loss"]
    spot = any_spot(draw.chance)
    return one_rule(draw, "ack-loss", kinds, spot, condition, DROP, "lost", draw.traffic())


def selective_loss(draw: Draw) -> Scenario:
    """All packets with some bits of the UDP source port or the destination QP."""
    bits = draw.chance.choice([2, 3])
    column = draw.chance.choice(["p.sport", "p.dest_qp"])
    condition = f"({column} & {(1 << bits) - 1}) == {draw.chance.randrange(1 << bits)}"
    kinds = ["selective-loss", "blackhole"]
    spot = any_spot(draw.chance)
    return one_rule(draw, "selective-loss", kinds, spot, condition, DROP, "lost", draw.traffic())


def dscp_loss(draw: Draw) -> Scenario:
    """All packets of one of two DSCPs."""
    condition = f"p.tos >> 2 == {draw.chance.choice([0, 26])}"
    kinds = ["selective-loss", "blackhole", "dscp-mismatch"]
    spot, traffic = any_spot(draw.chance), draw.traffic(tos=[0, 26 << 2])
    hosts_mix = Expected(["dscp-mismatch"], required=False)
    return one_rule(draw, "dscp-loss", kinds, spot, condition, DROP, "lost", traffic, hosts_mix)


def length_loss(draw: Draw) -> Scenario:
    """All packets of the largest size."""
    kinds = ["mtu-mismatch", "selective-loss", "blackhole"]
    spot, traffic = any_spot(draw.chance), draw.traffic(payload_bytes=[256, 512, 1024])
    condition = "p.bytes > 1000"
    return one_rule(draw, "length-loss", kinds, spot, condition, DROP, "lost", traffic)


def small_mtu(draw: Draw) -> Scenario:
    """A route of a spine has an MTU below that of the hosts: the router drops what is longer."""
    spine, leaf = draw.chance.choice(SPINES), draw.chance.choice(LEAVES)
    spot, mtu = through_spine(spine, leaf), draw.chance.choice([400, 700, 1000])
    kinds = ["mtu-mismatch", "selective-loss", "blackhole"]

    def lower(lab: Lab) -> None:
        lab.fabric.set_mtu(spine, leaf, mtu)

    return draw.scenario(
        "small-mtu",
        draw.traffic(family=4, payload_bytes=[256, 512, 1024]),
        steps=[Step(draw.onset(), lower)],
        expected=[Expected(kinds, spot.hop, "lost")],
    )


def fragments(draw: Draw) -> Scenario:
    """As `small_mtu`, of hosts that let routers fragment; receivers drop fragments."""
    scenario = small_mtu(draw)
    scenario.kind = "fragments"
    scenario.traffic.dont_fragment = False
    scenario.traffic.timeout_s = 0.1
    hop = scenario.expected[0].hop
    scenario.expected = [Expected(["mtu-mismatch"], hop, "fragmented")]
    return scenario


def blackhole(draw: Draw) -> Scenario:
    """All packets of some flows, by a hash of their headers."""
    of = draw.chance.choice([3, 4, 6])
    condition = f"({FLOW_HASH} >> 8) % {of} == {draw.chance.randrange(of)}"
    kinds = ["blackhole", "selective-loss"]
    spot = any_spot(draw.chance)
    return one_rule(draw, "blackhole", kinds, spot, condition, DROP, "lost", draw.traffic())


def outage(draw: Draw) -> Scenario:
    """Nothing passes in one direction or in both, for some time."""
    leaf, spine = draw.chance.choice(LEAVES), draw.chance.choice(SPINES)
    spots = [through_spine(spine, leaf)]
    if draw.chance.random() < 0.5:
        spots.append(through_spine(spine, 3 - leaf))
    at = draw.middle()

    until = at + round(draw.chance.uniform(0.4, 1), 2)
    kinds = ["outage", "blackhole"]
    return draw.scenario(
        "outage",
        draw.traffic(),
        rules=[spot.rule("1", DROP) for spot in spots],
        steps=[Step(at, turn_all(True)), Step(until, turn_all(False))],
        expected=[
            Expected(kinds, spot.hop, "lost", rule=i, ends=1) for i, spot in enumerate(spots)
        ],
    )


def flapping(draw: Draw) -> Scenario:
    """Nothing passes in one direction, several times."""
    spot = through_spine(draw.chance.choice(SPINES), draw.chance.choice(LEAVES))
    length, pause = draw.chance.uniform(0.15, 0.3), draw.chance.uniform(0.5, 0.8)
    begins = [0.5 + number * (length + pause) for number in range(3)]
    steps = [
        Step(at, turn(0, on))
        for begin in begins
        for at, on in ((begin, True), (begin + length, False))
    ]
    kinds = ["outage", "link-down", "loss", "blackhole"]
    return draw.scenario(
        "flapping",
        draw.traffic(),
        rules=[spot.rule("1", DROP)],
        steps=steps,
        expected=[
            Expected(kinds, spot.hop, "lost", rule=0, ends=5),
            Expected(kinds, spot.hop, required=False),
        ],
    )


def host_link_down(draw: Draw) -> Scenario:
    """The link of a host fails in both directions."""
    host, at = draw.chance.choice(list(HOSTS)), draw.middle()
    spot = to_host(host)
    kinds = ["link-down", "outage", "blackhole"]
    steps = [Step(at, turn_all(True))]
    ends = None
    if draw.chance.random() < 0.5:
        ends = 1
        steps.append(Step(at + draw.chance.uniform(0.5, 1), turn_all(False)))
    return draw.scenario(
        "host-link-down",
        draw.traffic(),
        rules=[spot.rule("1", DROP), Rule(f"H{host}", "eth0", "out", "1", DROP)],
        steps=steps,
        expected=[
            Expected(kinds, spot.hop, "lost", rule=0, ends=ends),
            Expected([*kinds, "loss"], _before_tap(host), host=host, required=False),
        ],
    )


def host_loss(draw: Draw) -> Scenario:
    """A host drops packets after the capture on its link."""
    host = draw.chance.choice(list(HOSTS))
    condition = f"CHANCE({draw.millionths(0.5, 3)})"
    expected = Expected(["loss", "timeout-recovery"], host=host)
    expected.hop = to_host(host).hop
    expected.hop.device, expected.hop.before = f"H{host}", expected.hop.after
    expected.hop.after, expected.hop.to_tap = [], None
    return draw.scenario(
        "host-loss",
        draw.traffic(),
        rules=[Rule(f"H{host}", "eth0", "in", condition, DROP)],
        steps=[Step(draw.onset(), turn(0, True))],
        expected=[expected],
    )


def _before_tap(host: int) -> Hop:
    """From the inside of a host to the capture on its link."""
    hop = from_host(host).hop
    return Hop(f"H{host}", [], hop.before, hop.sources, hop.targets)


def lost_by_sender(draw: Draw) -> Scenario:
    """A host drops packets before the capture on its link."""
    host = draw.chance.choice(list(HOSTS))
    condition = f"CHANCE({draw.millionths(0.5, 3)})"
    expected = Expected(["loss"], _before_tap(host), host=host)
    return draw.scenario(
        "lost-by-sender",
        draw.traffic(),
        rules=[Rule(f"H{host}", "eth0", "out", condition, DROP)],
        steps=[Step(draw.onset(), turn(0, True))],
        expected=[expected],
    )


def two_faults(draw: Draw) -> Scenario:
    """One spine loses, another one marks, each in one direction."""
    lossy, marking = draw.chance.sample(SPINES, 2)
    loss = through_spine(lossy, draw.chance.choice(LEAVES))
    marks = through_spine(marking, draw.chance.choice(LEAVES))
    return draw.scenario(
        "two-faults",
        draw.traffic(tos=[26 << 2 | ECT0], cnp=True),
        rules=[
            loss.rule(f"CHANCE({draw.millionths(1, 4)})", DROP),
            marks.rule(f"(p.tos & 3) == 2 && CHANCE({draw.millionths(2, 8)})", MARK_CE),
        ],
        steps=[Step(draw.onset(), turn(0, True)), Step(draw.onset(), turn(1, True))],
        expected=[
            Expected(["loss"], loss.hop, "lost", rule=0, begins=0),
            Expected(["ecn-marking"], marks.hop, "changed", rule=1, begins=1),
        ],
    )


# Queues, marks, order.


def set_rate(lab: Lab, spot: Spot, bits_per_second: int, queue_bytes: int) -> None:
    """Give an output a rate and a queue."""
    shape = ["tbf", "rate", f"{bits_per_second}bit", "burst", "3000", "limit", str(queue_bytes)]
    lab.fabric.tc(spot.node, "qdisc", "replace", "dev", spot.interface, "root", *shape)


def slow_link(draw: Draw) -> Scenario:
    """An output slower than what is offered, with a short queue that drops."""
    spot = any_output(draw.chance)
    links = 1 if spot.interface[0] == "H" else 4 / 2
    offered = draw.rate * 1094 * 8 / links
    rate = int(offered * draw.chance.uniform(0.4, 0.7))
    step = Step(draw.onset(), partial(set_rate, spot=spot, bits_per_second=rate, queue_bytes=30000))
    expected = Expected(["rate-limit", "queueing"], spot.hop, "lost")
    return draw.scenario(
        "slow-link", draw.traffic(operations=PACED), steps=[step], expected=[expected]
    )


def deep_queue(draw: Draw) -> Scenario:
    """An output slower than what is offered, with a long queue that holds everything."""
    spot = any_output(draw.chance)
    links = 1 if spot.interface[0] == "H" else 4 / 2
    rate = int(draw.rate * 1094 * 8 / links * draw.chance.uniform(0.5, 0.8))
    step = Step(draw.onset(), partial(set_rate, spot=spot, bits_per_second=rate, queue_bytes=10**6))
    expected = Expected(["queueing", "rate-limit"], spot.hop, "delayed")
    traffic = draw.traffic(timeout_s=2.0, linger_s=3.0, operations=PACED)
    return draw.scenario("deep-queue", traffic, steps=[step], expected=[expected])


def _exceeds(draw: Draw, spot: Spot, most_ms: int) -> str:
    """The condition that a packet exceeds a rate below what is offered."""
    offered = draw.rate * 1094 / (1 if spot.interface[0] == "H" else 4 / 2)
    ns = int(1e9 / (offered * draw.chance.uniform(0.4, 0.8)))
    return f"exceeds(until, skb->len * {ns}, {most_ms} * 1000000)"


def policer(draw: Draw) -> Scenario:
    """An output that drops what exceeds a rate, without a queue."""
    spot, traffic = any_output(draw.chance), draw.traffic(operations=PACED)
    condition = _exceeds(draw, spot, 20)
    return one_rule(draw, "policer", ["rate-limit", "loss"], spot, condition, DROP, "lost", traffic)


def incast(draw: Draw) -> Scenario:
    """Three hosts send to the fourth, whose link is slower than they are."""
    target = draw.chance.choice(list(HOSTS))
    spot = to_host(target)
    rate = int(3 * draw.rate * 1094 * 8 * draw.chance.uniform(0.4, 0.7))
    step = Step(-0.2, partial(set_rate, spot=spot, bits_per_second=rate, queue_bytes=60000))
    pairs = [(source, target) for source in HOSTS if source != target]
    traffic = draw.traffic(pairs_of_hosts=pairs, queue_pairs=24, operations=PACED)
    expected = Expected(["incast", "rate-limit", "queueing"], spot.hop, "lost")
    return draw.scenario("incast", traffic, steps=[step], expected=[expected])


def pauses(draw: Draw) -> Scenario:
    """The neighbour at the other end of a link pauses it several times: its buffers are full."""
    spot, priority = any_output(draw.chance), draw.chance.randrange(8)
    lengths = [draw.chance.uniform(0.05, 0.35) for _ in range(draw.chance.randint(1, 4))]
    stop = partial(
        pause, spot=spot, priority=priority, lengths=lengths, gap_s=draw.chance.uniform(0.05, 0.2)
    )
    return draw.scenario(
        "pause",
        draw.traffic(operations=PACED),
        steps=[Step(draw.middle(), stop)],
        expected=[Expected(["pause"], spot.hop, "paused")],
        options=[
            *("--link-rate", f"{LINK_BITS_PER_SECOND // 10**9}G"),
            *("--dscp-priority", f"0={priority}"),
        ],
    )


def ce_marks(draw: Draw) -> Scenario:
    cnp = draw.chance.random() < 0.5
    traffic = draw.traffic(tos=[26 << 2 | ECT0], cnp=cnp)
    condition = f"(p.tos & 3) == 2 && CHANCE({draw.millionths(1, 8)})"
    kinds, spot = ["ecn-marking"], any_spot(draw.chance)
    silent = Expected(["mark-without-cnp"], required=False)
    more = [] if cnp else [silent]
    return one_rule(draw, "ce-marks", kinds, spot, condition, MARK_CE, "changed", traffic, *more)


def rate_marks(draw: Draw) -> Scenario:
    """An output that marks what exceeds a rate (a phantom queue)."""
    spot = any_output(draw.chance)
    traffic = draw.traffic(tos=[26 << 2 | ECT0], cnp=True, operations=PACED)
    condition = f"(p.tos & 3) == 2 && {_exceeds(draw, spot, 5)}"
    kinds = ["ecn-marking"]
    return one_rule(draw, "rate-marks", kinds, spot, condition, MARK_CE, "changed", traffic)


def silent_receiver(draw: Draw) -> Scenario:
    """One of two hosts that get marked packets sends no CNP."""
    host = draw.chance.choice(list(HOSTS))
    other = draw.chance.choice([h for h in HOSTS if HOSTS[h] != HOSTS[host]])
    traffic = draw.traffic(tos=[26 << 2 | ECT0], cnp=True)
    traffic.silent = host
    condition = f"(p.tos & 3) == 2 && CHANCE({draw.millionths(2, 8)})"
    spots = [to_host(host), to_host(other)]
    return draw.scenario(
        "silent-receiver",
        traffic,
        rules=[spot.rule(condition, MARK_CE) for spot in spots],
        steps=[Step(draw.onset(), turn_all(True))],
        expected=[
            Expected(["mark-without-cnp"], host=host),
            *(Expected(["ecn-marking"], s.hop, "changed", rule=i) for i, s in enumerate(spots)),
        ],
    )


def cnps_without_marks(draw: Draw) -> Scenario:
    """A host sends CNPs for packets that nobody marked."""
    host = draw.chance.choice(list(HOSTS))
    traffic = draw.traffic(tos=[26 << 2 | ECT0], operations=("write", "send"))
    traffic.notifies = host
    expected = Expected(["cnp-without-mark"], host=host, begins=None)
    return draw.scenario("cnps-without-marks", traffic, expected=[expected])


def dscp_rewrite(draw: Draw) -> Scenario:
    traffic = draw.traffic(tos=[26 << 2])
    kinds, spot = ["dscp-mismatch"], any_spot(draw.chance)
    action = f"set_dscp(skb, &p, {draw.chance.choice([0, 8, 46])})"
    return one_rule(draw, "dscp-rewrite", kinds, spot, "1", action, "changed", traffic)


def duplication(draw: Draw) -> Scenario:
    condition = f"CHANCE({draw.millionths(0.5, 4)})"
    kinds, spot = ["duplication"], any_output(draw.chance)
    return one_rule(draw, "duplication", kinds, spot, condition, COPY, "copied", draw.traffic())


def corruption(draw: Draw) -> Scenario:
    """Some packets are damaged: routers forward them, the receiver drops them."""
    condition = f"CHANCE({draw.millionths(0.5, 3)})"
    traffic, spot = draw.traffic(icrc=True), any_spot(draw.chance)
    return one_rule(draw, "corruption", ["corruption"], spot, condition, DAMAGE, "damaged", traffic)


def clean_icrc(draw: Draw) -> Scenario:
    return draw.scenario("clean-icrc", draw.traffic(icrc=True))


def reordering(draw: Draw) -> Scenario:
    """Some packets wait in a slow class of an output, the others overtake them."""
    spot = through_spine(draw.chance.choice(SPINES), draw.chance.choice(LEAVES))
    share = draw.millionths(2, 6)
    slow = int(draw.rate / 2 * 1094 * 8 * share / 1e6 * 1.3)

    def classes(lab: Lab) -> None:
        tc = partial(lab.fabric.tc, spot.node)
        dev = ["dev", spot.interface]
        tc("qdisc", "add", *dev, "root", "handle", "1:", "htb", "default", "1")
        for minor, rate, burst in ((1, 10**10, "1000000"), (2, slow, "2000")):
            htb = ["htb", "rate", f"{rate}bit", "burst", burst, "cburst", burst]
            tc("class", "add", *dev, "parent", "1:", "classid", f"1:{minor}", *htb)
            queue = ["pfifo", "limit", "1000"]
            tc("qdisc", "add", *dev, "parent", f"1:{minor}", *queue)
        lab.rules[0].turn(True)

    return draw.scenario(
        "reordering",
        draw.traffic(operations=PACED),
        rules=[spot.rule(f"{DATA} && CHANCE({share})", "skb->priority = 0x10002")],
        steps=[Step(draw.onset(), classes)],
        expected=[Expected(["reordering", "queueing"], spot.hop, "overtaken")],
    )


def spraying_slow_spine(draw: Draw) -> Scenario:
    """A leaf sprays the packets of one host; one spine is slower than its share."""
    host = draw.chance.choice(list(HOSTS))
    leaf = HOSTS[host]
    spot = through_spine(draw.chance.choice(SPINES), 3 - leaf)
    rate = int(draw.rate / 2 * 1094 * 8 * draw.chance.uniform(0.9, 1.3))
    spray = Rule(f"leaf{leaf}", f"H{host}", "in", "1", "bpf_set_hash(skb, bpf_get_prandom_u32())")

    def begin(lab: Lab) -> None:
        lab.rules[0].turn(True)
        set_rate(lab, spot, rate, 10**6)

    return draw.scenario(
        "spraying-slow-spine",
        draw.traffic(timeout_s=2.0, linger_s=3.0, operations=PACED),
        rules=[spray],
        steps=[Step(-0.2, begin)],
        expected=[
            Expected(["delay-step", "queueing", "rate-limit", "reordering"], spot.hop, "delayed"),
            Expected(["reordering"], required=False),
            Expected(["spraying"], required=False, severity="note"),
        ],
    )


# Routes and links.


def rehash(draw: Draw) -> Scenario:
    """A leaf chooses spines by another seed from one moment on, and back."""
    leaf, seed = draw.chance.choice(LEAVES), draw.chance.getrandbits(32) | 1
    at = draw.middle()
    scenario = draw.scenario("rehash", draw.traffic())
    back = scenario.hash_seeds[leaf - 1]
    scenario.steps = [
        Step(at, lambda lab: lab.fabric.hash_by(leaf, seed)),
        Step(at + 1, lambda lab: lab.fabric.hash_by(leaf, back)),
    ]
    hop = out_of_leaf(leaf, 1).hop
    hop.to_tap = None
    scenario.expected = [
        Expected(["rehash"], hop, "moved", ends=1),
        Expected(["rehash"], hop, begins=1, required=False),
    ]
    return scenario


def _ports_to(pair: QueuePair, family: int, seed: int, spine: int) -> list[int]:
    """UDP source ports that put a queue pair on a spine, in a leaf with this seed."""
    ports = range(49152, 65536)
    source, target = address(pair.source, family), address(pair.target, family)
    keys = packet_keys([source] * len(ports), [target] * len(ports), ports)
    settings = HashSettings("linux", extra={"policy": 1})
    spines = bind(keys, settings).choose(seed, equal_cost(len(SPINES)))[0]
    return [port for port, at in zip(ports, spines, strict=True) if SPINES[at] == spine]


def collision(draw: Draw) -> Scenario:
    """A leaf puts the few flows of its hosts on one link, which is too slow for all of them and
    fast enough for each; the parallel links are as fast, and idle.
    """
    leaf, spine = draw.chance.choice(LEAVES), draw.chance.choice(SPINES)
    sources = [host for host, at in HOSTS.items() if at == leaf]
    targets = [host for host, at in HOSTS.items() if at != leaf]
    draw.chance.shuffle(targets)
    traffic = draw.traffic(
        pairs_of_hosts=list(zip(sources, targets, strict=True)),
        queue_pairs=draw.chance.choice([2, 4]),
        operations=PACED,
        timeout_s=2.0,
        linger_s=3.0,
    )
    rate = int(draw.rate * 1094 * 8 * draw.chance.uniform(1.2, 1.6))

    def slow(lab: Lab) -> None:
        for each in SPINES:
            set_rate(lab, out_of_leaf(leaf, each), rate, 10**6)

    hop = out_of_leaf(leaf, spine).hop
    scenario = draw.scenario(
        "collision",
        traffic,
        steps=[Step(-0.2, slow)],
        expected=[Expected(["collision"], hop, "delayed")],
    )
    for pair in traffic.made:
        ports = _ports_to(pair, traffic.family, scenario.hash_seeds[leaf - 1], spine)
        pair.sport = draw.chance.choice(ports)
    return scenario


def polarisation(draw: Draw) -> Scenario:
    """A leaf uses only two of its spines."""
    leaf, spines = draw.chance.choice(LEAVES), tuple(sorted(draw.chance.sample(SPINES, 2)))
    hop = out_of_leaf(leaf, spines[0]).hop
    hop.to_tap = None
    kinds = ["polarisation", "collision"]
    return draw.scenario(
        "polarisation",
        draw.traffic(operations=PACED),
        steps=[Step(-0.2, lambda lab: lab.fabric.set_routes(leaf, spines))],
        expected=[Expected(kinds, hop, severity="note")],
    )


def link_down(draw: Draw) -> Scenario:
    """A link fails: one leaf reroutes at once, the other after a while loses what it sends."""
    leaf, spine = draw.chance.choice(LEAVES), draw.chance.choice(SPINES)
    others = tuple(s for s in SPINES if s != spine)
    at = draw.middle()
    lossy = through_spine(spine, leaf)

    def fail(lab: Lab) -> None:
        ip([f"link set leaf{leaf} down"], lab.fabric.name(f"spine{spine}"))

    def reroute(lab: Lab) -> None:
        lab.fabric.set_routes(3 - leaf, others)

    moved = [
        Expected(["rehash", "link-down"], out_of_leaf(leaf, spine).hop, required=False),
        Expected(["rehash"], out_of_leaf(3 - leaf, spine).hop, begins=1, required=False),
        Expected(["link-down", "outage"], through_spine(spine, 3 - leaf).hop, required=False),
    ]
    for expected in moved:
        expected.hop.to_tap = None
    kinds = ["link-down", "outage", "blackhole"]
    return draw.scenario(
        "link-down",
        draw.traffic(),
        steps=[Step(at, fail), Step(at + round(draw.chance.uniform(0.15, 0.5), 2), reroute)],
        expected=[Expected(kinds, lossy.hop, "lost", ends=1), *moved],
    )


# Hosts.


def _victims(draw: Draw, traffic: Traffic, number: int, operation: str) -> list[QueuePair]:
    target = draw.chance.choice(list(HOSTS))
    pairs = [pair for pair in traffic.made if pair.target == target]
    pairs = [pair for pair in pairs if operation in ("", pair.operation)]
    return draw.chance.sample(pairs, number)


def _host_fault(
    draw: Draw,
    name: str,
    fault: str,
    kinds: list[str],
    number: int,
    operation: str = "",
    lasts_s: float = 1e9,
    **more: float,
) -> Scenario:
    options = {"timeout_s": 0.1, "retry_cnt": draw.chance.choice([0, 7])} | more
    if operation:
        options["operations"] = ("write", "send")
    traffic = draw.traffic(**options)
    victims = _victims(draw, traffic, number, operation)
    host, at = victims[0].target, draw.middle()
    until = at + lasts_s
    numbers = [pair.peer_number for pair in victims]
    traffic.faults = [HostFault(fault, host, numbers, at, until)]
    family = traffic.family
    flows = [
        Flow(address(pair.source, family), address(pair.target, family), pair.peer_number)
        for pair in victims
    ]
    expected = Expected(kinds, host=host, flows=flows)
    steps = [Step(at, lambda _: None)]
    return draw.scenario(name, traffic, steps=steps, expected=[expected])


def dead_responder(draw: Draw) -> Scenario:
    return _host_fault(draw, "dead-responder", "dead", ["stalled", "retry-storm"], 2)


def deaf_responder(draw: Draw) -> Scenario:
    """Queue pairs do not answer for a while."""
    kinds = ["timeout-recovery", "retry-storm"]
    return _host_fault(draw, "deaf-responder", "dead", kinds, 3, "write", 0.55)


def endless_retries(draw: Draw) -> Scenario:
    """Queue pairs send again without end: the receiver is dead, or loses one packet every time."""
    fault, number = draw.chance.choice(["dead", "loses"]), draw.chance.randint(1, 4)
    timeout_s = round(draw.chance.uniform(0.02, 0.06), 3)
    kinds = ["stalled", "retry-storm"]
    options = {"timeout_s": timeout_s, "retry_cnt": 0}
    return _host_fault(draw, "endless-retries", fault, kinds, number, "write", **options)


def nagging_responder(draw: Draw) -> Scenario:
    """Queue pairs lose one packet every time, and NAK the one after it every time, for a while."""
    kinds = ["retry-storm", "loss", "timeout-recovery"]
    return _host_fault(draw, "nagging-responder", "nags", kinds, 2, "write", 0.6, timeout_s=0.25)


def receiver_not_ready(draw: Draw) -> Scenario:
    return _host_fault(draw, "receiver-not-ready", "rnr", ["receiver-not-ready"], 3, "send", 0.8)


def access_error(draw: Draw) -> Scenario:
    return _host_fault(draw, "access-error", "access", ["fatal-nak"], 2, "write")


# Captures.


def capture_loss(draw: Draw) -> Scenario:
    tap, share = draw.chance.choice(LINKS), draw.chance.uniform(0.005, 0.03)
    expected = Expected(["capture-loss"], capture=tap, begins=None, severity="note")

    def after(folder: Path) -> int:
        return miss_frames(folder / f"{tap}.pcap", share, random.Random(draw.seed))

    return draw.scenario("capture-loss", draw.traffic(), expected=[expected], after=after)


def wrong_clock(draw: Draw) -> Scenario:
    """One clock is off, drifts, or steps."""
    tap = draw.chance.choice(LINKS)
    how = draw.chance.choice(["offset", "drift", "step"])
    offset = draw.chance.choice([-1, 1]) * draw.chance.randint(2_000_000, 20_000_000)
    expected = Expected(["clock"], capture=tap, begins=None, severity="note")

    def after(folder: Path) -> int:
        path = folder / f"{tap}.pcap"
        first = []

        def clock(time_ns: int) -> int:
            first.append(time_ns) if not first else None
            run_ns = time_ns - first[0]
            if how == "drift":
                return time_ns + run_ns * 200 // 1_000_000
            late = how == "offset" or run_ns > draw.seconds * 5e8
            return time_ns + (offset if late else 0)

        return change_clock(path, clock)

    name = f"clock-{how}"
    return draw.scenario(name, draw.traffic(), expected=[expected], after=after)


# MRC: planes are spines.


def _mrc(draw: Draw, name: str, faulty: Sequence[Rule] = (), **parts: object) -> Scenario:
    """Each leaf sends a packet to the spine that its UDP source port names; rules come after."""
    steer = "bpf_set_hash(skb, (p.sport & 3) << 30 | 1 << 29)"
    steering = [Rule(f"leaf{leaf}", f"H{host}", "in", "1", steer) for host, leaf in HOSTS.items()]
    parts["steps"] = [
        Step(-0.2, turn_all(True, slice(len(HOSTS)))),
        *parts.pop("steps", ()),
    ]
    more = [Expected(["spraying"], required=False, begins=None, severity="note")]
    parts["expected"] = [*parts.pop("expected", ()), *more]
    scenario = draw.scenario(name, rules=[*steering, *faulty], **parts)
    scenario.traffic.transport = "mrc"
    return scenario


def clean_mrc(draw: Draw) -> Scenario:
    return _mrc(draw, "clean-mrc", traffic=draw.traffic(queue_pairs=8))


def mrc_plane(draw: Draw) -> Scenario:
    """A spine swallows what goes to one leaf: senders stop using its plane."""
    spot = through_spine(draw.chance.choice(SPINES), draw.chance.choice(LEAVES))
    at, number = draw.middle(), len(HOSTS)
    steps, ends = [Step(at, turn(number, True))], None
    if draw.chance.random() < 0.4:
        steps.append(Step(at + draw.chance.uniform(0.8, 1.2), turn(number, False)))
        ends = 2
    kinds = ["mrc-path", "link-down", "outage", "blackhole"]
    return _mrc(
        draw,
        "mrc-plane",
        [spot.rule("1", DROP)],
        traffic=draw.traffic(queue_pairs=8),
        steps=steps,
        expected=[Expected(kinds, spot.hop, "lost", rule=number, begins=1, ends=ends)],
    )


def mrc_port(draw: Draw) -> Scenario:
    """A port of a host fails: the host tells its peers."""
    host, plane = draw.chance.choice(list(HOSTS)), draw.chance.randrange(len(SPINES))
    at, number = draw.middle(), len(HOSTS)
    until = at + draw.chance.uniform(0.5, 1)
    traffic = draw.traffic(queue_pairs=8)
    traffic.faults = [HostFault("port", host, [plane], at, until)]
    spot, condition = to_host(host), f"(p.sport & 3) == {plane}"
    rules = [spot.rule(condition, DROP), Rule(f"H{host}", "eth0", "out", condition, DROP)]
    return _mrc(
        draw,
        "mrc-port",
        rules,
        traffic=traffic,
        steps=[
            Step(at, turn_all(True, slice(number, None))),
            Step(until, turn_all(False, slice(number, None))),
        ],
        expected=[Expected(["mrc-path"], host=host, begins=1, ends=2)],
    )


def mrc_values(draw: Draw) -> Scenario:
    """Receivers ask senders to stop using an entropy value."""
    traffic, at = draw.traffic(queue_pairs=8), draw.middle()
    host = draw.chance.choice(list(HOSTS))
    victims = [pair for pair in traffic.made if pair.target == host]
    traffic.faults = [HostFault("skip", host, [pair.peer_number for pair in victims], at)]
    family = traffic.family
    flows = [
        Flow(address(pair.source, family), address(host, family), pair.peer_number)
        for pair in victims
    ]
    expected = Expected(["mrc-path"], host=host, flows=flows, begins=1)
    steps = [Step(at, lambda _: None)]
    return _mrc(draw, "mrc-values", traffic=traffic, steps=steps, expected=[expected])


def long_run(draw: Draw) -> Scenario:
    """One of several faults, in the middle of a long run."""
    kinds = (gray_loss, blackhole, outage, slow_link, policer, ce_marks, rehash, host_loss)
    scenario = draw.chance.choice(kinds)(LongDraw(draw.seed))
    scenario.kind = f"long-{scenario.kind}"
    return scenario


KINDS: dict[str, Callable[[Draw], Scenario]] = {
    "clean": clean,
    "gray-loss": gray_loss,
    "blackhole": blackhole,
    "slow-link": slow_link,
    "ce-marks": ce_marks,
    "rehash": rehash,
    "link-down": link_down,
    "dead-responder": dead_responder,
    "capture-loss": capture_loss,
    "outage": outage,
    "clean-ipv6": clean_ipv6,
    "two-faults": two_faults,
    "selective-loss": selective_loss,
    "duplication": duplication,
    "reordering": reordering,
    "incast": incast,
    "ack-loss": ack_loss,
    "receiver-not-ready": receiver_not_ready,
    "access-error": access_error,
    "dscp-rewrite": dscp_rewrite,
    "clean-spraying": clean_spraying,
    "deep-queue": deep_queue,
    "spraying-slow-spine": spraying_slow_spine,
    "flapping": flapping,
    "host-link-down": host_link_down,
    "host-loss": host_loss,
    "lost-by-sender": lost_by_sender,
    "wrong-clock": wrong_clock,
    "dscp-loss": dscp_loss,
    "length-loss": length_loss,
    "clean-sizes": clean_sizes,
    "corruption": corruption,
    "clean-icrc": clean_icrc,
    "pause": pauses,
    "clean-mrc": clean_mrc,
    "mrc-plane": mrc_plane,
    "mrc-port": mrc_port,
    "mrc-values": mrc_values,
    "silent-receiver": silent_receiver,
    "cnps-without-marks": cnps_without_marks,
    "polarisation": polarisation,
    "deaf-responder": deaf_responder,
    "small-mtu": small_mtu,
    "collision": collision,
    "fragments": fragments,
    "nagging-responder": nagging_responder,
    "endless-retries": endless_retries,
    "policer": policer,
    "rate-marks": rate_marks,
    "long-run": long_run,
}
