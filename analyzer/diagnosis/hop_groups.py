"""Hops that share a fault: those of one device that begin or end at the same tap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..measures.hops.hops import TapHop, TapHops
from ..measures.hops.state import DELAY_MOST, PACKETS_IN, SHOWN, WINDOWS
from ..measures.hops.vantage import direction, parts_of
from ..results.diagnosis import Evidence, Place
from ..words import device_words, printable
from .case import Case
from .finding import MOST_EVIDENCE


@dataclass(frozen=True)
class HopGroup:
    """Hops with the same fault."""

    tap_hops: TapHops
    hops: Sequence[TapHop]

    @property
    def from_tap(self) -> int | None:
        """The tap before the fault, if it is one."""
        taps = {hop.from_tap for hop in self.hops}
        return next(iter(taps)) if len(taps) == 1 else None

    @property
    def to_tap(self) -> int | None:
        """The tap after the fault, if it is one and known."""
        taps = {hop.to_tap for hop in self.hops}
        tap = next(iter(taps)) if len(taps) == 1 else -1
        return tap if tap >= 0 else None

    @cached_property
    def beside(self) -> list[TapHop]:
        """Where the next tap of lost packets is unknown: hops that begin at the same tap with the
        same hop limit, so that packets pass the same device."""
        limits = {
            hop.from_tap: (hop.lost["hop_limit"].min(), hop.lost["hop_limit"].max())
            for hop in self.hops
            if hop.to_tap < 0 and len(hop.lost)
        }
        if not limits:
            return []
        mine = {(hop.from_tap, hop.to_tap) for hop in self.hops}
        return [
            hop
            for hop in self.tap_hops.hops
            if hop.total is not None
            and hop.from_tap in limits
            and (hop.from_tap, hop.to_tap) not in mine
            and hop.total["limit_min"] <= limits[hop.from_tap][1]
            and hop.total["limit_max"] >= limits[hop.from_tap][0]
        ]

    @property
    def device(self) -> str | None:
        """The device between the taps, where names show."""
        if self.beside:
            taps = {tap for hop in (*self.hops, *self.beside) for tap in (hop.from_tap, hop.to_tap)}
            parts = [set(parts_of(self.tap_hops.names[tap])) for tap in taps if tap >= 0]
            shared = set.intersection(*parts)
            return next(iter(shared)) if len(shared) == 1 else None
        names = {self.tap_hops.devices.get((hop.from_tap, hop.to_tap)) for hop in self.hops}
        names.discard(None)  # of a hop over several devices, joined with those of one of them
        return next(iter(names)) if len(names) == 1 else None

    @property
    def direction(self) -> str | None:
        """`leaf1 to leaf2`, where names show and all hops agree."""
        names = self.tap_hops.names
        directions = {
            direction(names[hop.from_tap], names[hop.to_tap]) if hop.to_tap >= 0 else None
            for hop in self.hops
        }
        return next(iter(directions)) if len(directions) == 1 else None

    def place(self, case: Case) -> Place:
        """Where the fault is."""
        names = case.registry.tap_names
        return Place(
            from_tap=None if self.from_tap is None else names[self.from_tap],
            to_tap=None if self.to_tap is None else names[self.to_tap],
            device=self.device,
            direction=self.direction,
        )

    def name(self) -> str:
        """The device, or the taps around the fault."""
        if self.device is not None:
            return device_words(self.device)
        near = self._named({hop.from_tap for hop in self.hops})
        far = self._named({hop.to_tap for hop in self.hops} - {-1})
        if not far:
            return f"the network after {near}"
        return f"the network between {near} and {far}"

    def way(self) -> str:
        """Which packets: ` from leaf1 to leaf2`, with a space before it; empty if names
        do not show it."""
        names = self.tap_hops.names
        if self.direction is not None:
            return f" from {printable(self.direction)}"
        if self.device is not None and self.to_tap is not None:
            return f" towards {printable(names[self.to_tap])}"
        if self.device is not None and self.from_tap is not None:
            return f" from {printable(names[self.from_tap])}"
        return ""

    def _named(self, taps: set[int]) -> str:
        names = sorted(printable(self.tap_hops.names[tap]) for tap in taps)
        return names[0] if len(names) == 1 else f"{len(names)} taps" if names else ""

    def queues(self, limit: float) -> list[tuple[int, int]]:
        """Begin and end of each stretch of windows with a delay of `limit` ns above the minimum,
        with windows without packets between them."""
        width, origin = self.tap_hops.window_ns, self.tap_hops.origin_ns
        used, long = np.zeros(WINDOWS, np.bool_), np.zeros(WINDOWS, np.bool_)
        for hop in self.hops:
            if hop.total is not None:
                filled = hop.windows[:, PACKETS_IN] > 0
                long |= filled & (hop.windows[:, DELAY_MOST] - hop.total["delay_min"] >= limit)
                used |= filled
        at = np.flatnonzero(used)
        edges = np.flatnonzero(np.diff(long[at], prepend=False, append=False)).reshape(-1, 2)
        return [
            (origin + int(at[a]) * width, origin + (int(at[b - 1]) + 1) * width) for a, b in edges
        ]

    def wait(self, queue: tuple[int, int]) -> float:
        """Longest delay above the minimum, ns, in the windows of one of `queues`."""
        width, origin = self.tap_hops.window_ns, self.tap_hops.origin_ns
        begin, end = ((time - origin) // width for time in queue)
        longest = 0
        for hop in self.hops:
            if hop.total is not None:
                rows = hop.windows[begin:end]
                rows = rows[rows[:, PACKETS_IN] > 0]
                above = rows[:, DELAY_MOST] - int(hop.total["delay_min"])
                longest = max(longest, int(above.max(initial=0)))
        return longest

    def lost(self) -> NDArray[np.void]:
        """LOST records in the order of time."""
        parts = [hop.lost for hop in self.hops]
        lost: NDArray[np.void] = np.concatenate(parts)
        return lost[np.argsort(lost["time"], kind="stable")]

    def passed(self) -> NDArray[np.void]:
        """EDGE records per flow."""
        return np.concatenate([hop.passed for hop in (*self.hops, *self.beside)])

    @property
    def packets(self) -> int:
        """Packets that entered the hops."""
        return sum(hop.packets for hop in (*self.hops, *self.beside))


def groups(tap_hops: TapHops, hit: Callable[[TapHop], bool]) -> list[HopGroup]:
    """The hops with `hit`, joined where they share a device and a tap on the same side.

    A hop over several devices, because a tap is missing, is joined with the hops of the device that
    it begins or ends with. So are hops to an unknown next tap whose packets pass one device.
    """
    hops = [hop for hop in tap_hops.hops if hit(hop)]
    parent = list(range(len(hops)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    first: dict[tuple[str, str | None, int], int] = {}
    for i, hop in enumerate(hops):
        device = _device(tap_hops, hop)
        for key in (("to", device, hop.to_tap), ("from", device, hop.from_tap)):
            if key[2] >= 0:
                parent[root(i)] = root(first.setdefault(key, i))
    for i, hop in enumerate(hops):
        if (hop.from_tap, hop.to_tap) not in tap_hops.devices:
            ends = [key for key in first if key[1] is not None and _at_end(tap_hops, hop, *key)]
            same = [key for key in ends if _together(hop, hops[first[key]])]
            if len({key[1] for key in same}) == 1:
                parent[root(i)] = root(first[same[0]])
    unknown: dict[str, list[int]] = {}
    for i, hop in enumerate(hops):
        device = HopGroup(tap_hops, [hop]).device if hop.to_tap < 0 else None
        if device is not None:
            unknown.setdefault(device, []).append(i)
    for device, members in unknown.items():
        known = [i for i, hop in enumerate(hops) if _device(tap_hops, hop) == device]
        if len({root(i) for i in known}) == 1:
            members = [known[0], *members]
        for i in members[1:]:
            if _together(hops[members[0]], hops[i]):
                parent[root(i)] = root(members[0])
    by_root: dict[int, list[TapHop]] = {}
    for i, hop in enumerate(hops):
        by_root.setdefault(root(i), []).append(hop)
    return [HopGroup(tap_hops, members) for members in by_root.values()]


def _device(tap_hops: TapHops, hop: TapHop) -> str | None:
    return tap_hops.devices.get((hop.from_tap, hop.to_tap))


def _at_end(tap_hops: TapHops, hop: TapHop, side: str, device: str | None, tap: int) -> bool:
    """Whether a hop over several devices ends (`to`) with this device and the tap after it, or
    begins (`from`) with the tap and the device.

    Packets that pass the device on the other side of the tap come or go the other way.
    """
    if tap != (hop.to_tap if side == "to" else hop.from_tap):
        return False
    flows = _flows(hop)
    outside = [
        other
        for other in tap_hops.hops
        if (other.from_tap if side == "to" else other.to_tap) == tap
        and tap_hops.devices.get((other.from_tap, other.to_tap)) == device
    ]
    return device in parts_of(tap_hops.names[tap]) and not any(flows & _flows(o) for o in outside)


def _flows(hop: TapHop) -> set[int]:
    return {*hop.passed["flow"].tolist(), *hop.lost["flow"].tolist()}


def _together(hop: TapHop, other: TapHop) -> bool:
    """Whether two hops may have one fault: if both lose packets, at the same time."""
    if not len(hop.lost) or not len(other.lost):
        return True
    begin = max(int(hop.lost["time"].min()), int(other.lost["time"].min()))
    return begin <= min(int(hop.lost["time"].max()), int(other.lost["time"].max()))


def shown(case: Case, group: HopGroup, what: str, flows: Collection[int]) -> list[Evidence]:
    """The first frame of each of these flows at the tap after the fault; what: of `SHOWN`."""
    kind, names = SHOWN.index(what), case.registry.tap_names
    return [
        Evidence(names[hop.to_tap], int(frame), int(time), int(flow))
        for hop in group.hops
        for flow, frame, time in zip(
            hop.passed["flow"],
            hop.passed["shown_frame"][:, kind],
            hop.passed["shown_ns"][:, kind],
            strict=True,
        )
        if frame and int(flow) in flows
    ]


def hits_by_flow(flows: NDArray[np.integer], packets: NDArray[np.integer]) -> dict[int, int]:
    """Packets per flow."""
    hits: dict[int, int] = {}
    for flow, count in zip(flows.tolist(), packets.tolist(), strict=True):
        if count:
            hits[flow] = hits.get(flow, 0) + count
    return hits


def loss_evidence(case: Case, group: HopGroup) -> list[Evidence]:
    """The first frames that were lost, at the tap before the fault."""
    names = case.registry.tap_names
    frames = []
    for hop in group.hops:
        known = hop.lost[hop.lost["frame"] > 0][:MOST_EVIDENCE]
        frames += [
            Evidence(names[hop.from_tap], int(lost["frame"]), int(lost["time"]), int(lost["flow"]))
            for lost in known
        ]
    return frames


def losing_groups(case: Case) -> list[HopGroup]:
    """Hops that lose packets, joined."""
    return [] if case.tap_hops is None else groups(case.tap_hops, lambda hop: len(hop.lost) > 0)
