"""The vantage points of an analysis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_WHOLE_FLOWS: Final = re.compile(r"(?:ip6?|vlan|udp|dst|port|4791|or|and|[()\s])*")
"""Words of libpcap expressions that choose all packets of a flow, or none."""
_ALL_ROCE: Final = re.compile(r"udp|(udp )?(dst )?port 4791")
_INSIDE: Final = {"vlan", "mpls", "geneve", "vxlan"}
"""Words that choose packets by what is inside."""
_SPELLINGS: Final = (
    ("&&", " and "),
    (r"\|\|", " or "),
    (r"([()])", r" \1 "),
    (r"\b(src or dst|dst or src) port\b", "port"),
)
MANY_TAPS = 2048
"""From here on interfaces and mirror sessions of a capture share a tap: tables of taps against taps
grow with the square."""


def _keeps_flows_whole(expression: str) -> bool:
    """Whether a libpcap expression is protocol and port only, or has such an alternative."""
    text = " ".join(expression.lower().split())
    for spelling, usual in _SPELLINGS:
        text = re.sub(spelling, usual, text)
    if _WHOLE_FLOWS.fullmatch(text):
        return True
    parts = _alternatives(text.split())
    return any(_ALL_ROCE.fullmatch(" ".join(part)) for part in parts) and not any(
        _INSIDE.intersection(part) and not _WHOLE_FLOWS.fullmatch(" ".join(part)) for part in parts
    )


def _alternatives(words: list[str]) -> list[list[str]]:
    """The expressions that `or` joins. With `and` there is one: the two have equal precedence."""
    depths = list(accumulate((word == "(") - (word == ")") for word in words))
    while words[:1] == ["("] and words[-1] == ")" and 0 not in depths[:-1]:
        words, depths = words[1:-1], [depth - 1 for depth in depths[1:-1]]
    outer = [word for word, depth in zip(words, depths, strict=True) if depth == 0]
    if "and" in outer or "or" not in outer:
        return [words]
    parts: list[list[str]] = [[]]
    for word, depth in zip(words, depths, strict=True):
        if word == "or" and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for each in parts for part in _alternatives(each)]


@dataclass(frozen=True, slots=True)
class SampledFrames:
    """RoCE packets of a tap that are samples (sFlow)."""

    frames: int = 0
    rates: int = 0
    """Sum of the sampling rates (one in N) of all samples: the estimated packets."""
    wire_bytes: int = 0
    """Sum of wire bytes times sampling rate: the estimated bytes."""

    def __add__(self, other: SampledFrames) -> SampledFrames:
        return SampledFrames(
            self.frames + other.frames,
            self.rates + other.rates,
            self.wire_bytes + other.wire_bytes,
        )


@dataclass(frozen=True, slots=True)
class Gap:
    """A time of which a tap has no frames, because they were not captured or cannot be read."""

    from_ns: int | None
    """Of the last frame before; None: the begin is unknown."""
    until_ns: int | None
    reason: str


@dataclass(slots=True)
class Link:
    """What Ethernet addresses tell about the link that a tap shows."""

    addresses: list[int] = field(default_factory=list)
    """Ethernet addresses at its ends, in order of appearance."""
    hosts: dict[int, int] = field(default_factory=dict)
    """By address of a host: the endpoint whose packets begin there."""
    towards: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    """By endpoint: the addresses between which its packets pass, sender first; None for both
    directions."""
    is_one_of_several: bool = False
    """Whether the capture shows other links too: then its tap is named by the ends of the link."""

    def note(self, address: int, is_host: bool, endpoint: int) -> None:
        """Take in an address of the link; endpoint: whose packets begin there, -1 for none."""
        if address not in self.addresses:
            self.addresses.append(address)
        if not is_host:
            self.hosts.pop(address, None)
        elif endpoint >= 0:
            self.hosts[address] = endpoint

    def note_direction(self, endpoint: int, sender: int, receiver: int) -> None:
        """Packets of an endpoint pass from one address to the other."""
        known = self.towards.setdefault(endpoint, (sender, receiver))
        if known is not None and known[0] == receiver:
            self.towards[endpoint] = None

    def renumber(self, endpoints: Sequence[int] | NDArray[Any]) -> None:
        """Endpoint i is number `endpoints[i]` from now on."""
        self.hosts = {address: int(endpoints[host]) for address, host in self.hosts.items()}
        self.towards = {int(endpoints[host]): ends for host, ends in self.towards.items()}


@dataclass(slots=True)
class Tap:
    """One vantage point: a capture file, a pcapng interface, a mirror session, a probe."""

    name: str
    link_type: int
    snap_length: int | None = None
    """Longest frame the capture keeps, bytes; None when unlimited or unknown."""
    speed_bits_per_second: int | None = None
    """Link rate, when the capture states it (pcapng if_speed)."""
    filter: str | None = None
    """Expression of the capture filter, when the capture states it (pcapng if_filter)."""
    frames: int = 0
    first_time_ns: int | None = None
    """Of the first frame, RoCE or not, where it is among the first that were read."""
    dropped: int | None = None
    """Frames lost according to the capture (pcapng interface statistics); None if not stated."""
    clock_steps: int = 0
    """Frames more than a second before the previous one: the clock was set back, or captures were
    joined."""
    carrier: int | None = None
    """For a mirror session, or a further link in a capture: index of the tap that carries its
    frames."""
    sampled: SampledFrames | None = None
    """Set when the frames of the tap are samples."""
    gaps: list[Gap] = field(default_factory=list)
    """Of ring files; complete when all are read."""
    shared: bool = False
    """Whether it stands for all interfaces, mirror sessions or links that have no tap of their
    own."""
    link: Link | None = None
    """The link that its frames pass, where they have Ethernet addresses."""

    @property
    def leaves_out_roce(self) -> bool:
        """Whether its filter may leave out RoCE packets of the flows in the capture."""
        return self.filter is not None and not _keeps_flows_whole(self.filter)


@dataclass(slots=True)
class Taps:
    """All vantage points of an analysis; a tap's index is its identity in every table."""

    items: list[Tap] = field(default_factory=list)

    def add(self, tap: Tap) -> int:
        """Register a tap and return its index (at most 65,536)."""
        if len(self.items) > np.iinfo(np.uint16).max:
            raise ValueError("more than 65,536 taps in one analysis")
        self.items.append(tap)
        return len(self.items) - 1

    @property
    def are_many(self) -> bool:
        """Whether further interfaces and mirror sessions share a tap."""
        return len(self.items) >= MANY_TAPS

    @property
    def show_links(self) -> bool:
        """Whether a capture shows several links, told apart by Ethernet addresses."""
        return any(tap.link is not None and tap.link.is_one_of_several for tap in self.items)

    def carrier(self, index: int) -> Tap:
        """The file, interface or probe of a tap's frames: the tap itself, except for sessions."""
        return self.items[self.clock(index)]

    def clock(self, index: int) -> int:
        """The tap whose clock gives the times of a tap: its carrier, the tap itself otherwise."""
        carrier = self.items[index].carrier
        return index if carrier is None else carrier

    def interface(self, index: int) -> int:
        """The tap that represents both directions of a probed interface, "eth0 in" and "eth0 out".

        Any other tap represents itself.
        """
        base = self._both_directions(index)
        names = (f"{base} in", f"{base} out")
        indexes = (i for i, tap in enumerate(self.items) if tap.name in names)
        return index if base is None else min(indexes)

    def interface_name(self, index: int) -> str:
        """Name of the tap that represents an interface: "eth0"."""
        return self._both_directions(index) or self.items[index].name

    def _both_directions(self, index: int) -> str | None:
        """The interface of a tap, if its other direction is also a tap."""
        name = self.items[index].name
        base, _, direction = name.rpartition(" ")
        other = {"in": "out", "out": "in"}.get(direction)
        if other is None or not any(tap.name == f"{base} {other}" for tap in self.items):
            return None
        return base

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Tap:
        return self.items[index]
