"""One run of the lab: traffic, faults, when they begin and end, and what the truth is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .packets import Flow, Hop, hosts_of, links_of
from .rules import Attached, Rule
from .topology import HOSTS, LEAVES, SPINES, Fabric
from .traffic import Traffic


@dataclass
class Lab:
    """What the steps of a scenario act on."""

    fabric: Fabric
    rules: list[Attached]


@dataclass
class Step:
    """Something that happens at a second of the run; below 0: before the traffic."""

    at_s: float
    do: Callable[[Lab], object]


@dataclass
class Expected:
    """A finding that the diagnosis must make, or may make."""

    kinds: list[str]
    """The best name first; the others describe the same fault rightly."""
    hop: Hop | None = None
    count: (
        Literal[
            "lost", "changed", "copied", "damaged", "delayed", "overtaken", "moved", "paused",
            "fragmented",
        ]
        | None
    ) = None  # fmt: skip
    """What the captures tell of the packets that were hit; a method of `Captured`."""
    rule: int | None = None
    """Index of the rule whose counter tells the same number."""
    host: int | None = None
    capture: str | None = None
    flows: list[Flow] | None = None
    """Who suffers, where the packets of a hop do not tell."""
    begins: int | None = 0
    """Index of the step that begins it; None: true of the whole run."""
    ends: int | None = None
    required: bool = True
    severity: Literal["warning", "note"] = "warning"
    """The least severity that it deserves."""


@dataclass
class Scenario:
    kind: str
    traffic: Traffic
    rules: list[Rule] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    after: Callable[[Path], int] | None = None
    """What happens to the captures, once the truth has been read from them; frames it changes."""
    hash_seeds: tuple[int, int] = (1, 1)
    options: list[str] = field(default_factory=list)
    """Of `rocescope analyze`: what a user knows of this network."""

    @property
    def quiet(self) -> bool:
        """Whether the hosts have no reason to retransmit."""
        losing = {"loss", "blackhole", "outage", "queueing", "reordering", "stalled", "corruption"}
        losing |= {"mtu-mismatch", "rate-limit"}
        losing |= {"receiver-not-ready", "fatal-nak", "pause", "timeout-recovery"}
        return not any(losing & set(expected.kinds) for expected in self.expected)


@dataclass
class Spot:
    """A place for a fault: an interface of a node, and the hop that it is part of."""

    hop: Hop
    node: str
    interface: str
    direction: Literal["in", "out"]

    def rule(self, condition: str, action: str) -> Rule:
        return Rule(self.node, self.interface, self.direction, condition, action)

    @property
    def neighbour(self) -> tuple[str, str]:
        """The node at the other end of the interface, and its interface."""
        return self.interface, "eth0" if self.interface[0] == "H" else self.node


def through_spine(spine: int, leaf: int) -> Spot:
    """The output of a spine to a leaf."""
    other = 3 - leaf
    before, after = f"leaf{other}-spine{spine}", f"leaf{leaf}-spine{spine}"
    hop = Hop(f"spine{spine}", [before], [after], hosts_of(other), hosts_of(leaf), after)
    return Spot(hop, f"spine{spine}", f"leaf{leaf}", "out")


def out_of_leaf(leaf: int, spine: int) -> Spot:
    """The output of a leaf to a spine."""
    hop = Hop(
        f"leaf{leaf}",
        links_of(leaf, "H"),
        links_of(leaf, "spine"),
        hosts_of(leaf),
        hosts_of(3 - leaf),
        f"leaf{leaf}-spine{spine}",
    )
    return Spot(hop, f"leaf{leaf}", f"spine{spine}", "out")


def into_leaf(leaf: int, spine: int) -> Spot:
    """The input of a leaf from a spine."""
    before = [f"leaf{leaf}-spine{spine}"]
    hop = Hop(f"leaf{leaf}", before, links_of(leaf, "H"), hosts_of(3 - leaf), hosts_of(leaf))
    return Spot(hop, f"leaf{leaf}", f"spine{spine}", "in")


def to_host(host: int) -> Spot:
    """The output of a leaf to a host."""
    leaf = HOSTS[host]
    tap = f"H{host}-leaf{leaf}"
    before = links_of(leaf, "spine") + [link for link in links_of(leaf, "H") if link != tap]
    hop = Hop(f"leaf{leaf}", before, [tap], [h for h in HOSTS if h != host], [host], tap)
    return Spot(hop, f"leaf{leaf}", f"H{host}", "out")


def from_host(host: int) -> Spot:
    """The input of a leaf from a host."""
    leaf = HOSTS[host]
    before, after = [f"H{host}-leaf{leaf}"], links_of(leaf, "spine")
    hop = Hop(f"leaf{leaf}", before, after, [host], hosts_of(3 - leaf))
    return Spot(hop, f"leaf{leaf}", f"H{host}", "in")


def all_hops() -> list[Hop]:
    """Every hop: through the spines, up and down through the leaves."""
    hops = [through_spine(spine, leaf).hop for spine in SPINES for leaf in LEAVES]
    for leaf in LEAVES:
        inner, outer = links_of(leaf, "H"), links_of(leaf, "spine")
        here, there = hosts_of(leaf), hosts_of(3 - leaf)
        hops.append(Hop(f"leaf{leaf}", inner, outer, here, there))
        hops.append(Hop(f"leaf{leaf}", outer, inner, there, here))
    return hops


def any_output(chance: random.Random) -> Spot:
    """The output of a spine or a leaf, where there is a queue."""
    leaf, spine = chance.choice(LEAVES), chance.choice(SPINES)
    host = chance.choice(list(HOSTS))
    return chance.choice([through_spine(spine, leaf), out_of_leaf(leaf, spine), to_host(host)])


def any_spot(chance: random.Random) -> Spot:
    """Any place between two taps; a spine more often than each of the others."""
    leaf, spine = chance.choice(LEAVES), chance.choice(SPINES)
    spots = [through_spine(spine, leaf), through_spine(spine, leaf), any_output(chance)]
    spots += [into_leaf(leaf, spine), from_host(chance.choice(list(HOSTS)))]
    return chance.choice(spots)
