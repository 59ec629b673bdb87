"""Where each packet was seen: points, the links they stand on, and how points relate.

A point is what one capture sees of a link. A capture does not hold the topology of its points:
their relations are learned from the packets seen at them, hop limits, the names of taps, and the
file of a fabric. Each relation names its `Evidence`.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Ints
from ...wire.packets import FULL_HOP_LIMITS
from ...wire.registry import DIVIDER, Registry, address_text
from .state import END, START

MOST_OFF_LINK = 0.1
"""Packets that a host sends and its own tap does not see, because the capture misses some."""
MOST_DIRECT = 0.2
"""Packets of a flow that skip a tap are missed by its capture only up to this share of the flow;
beyond, they have another path."""
_SERIES_SHARE = 0.1
"""Points that share more than this part of the packets of the smaller point are in series."""
_FILE = re.compile(r"(.*?)(\.(pcapng|pcap|cap|gz|xz|zst|lz4|bz2|snoop|dmp))+(:.*)?$", re.IGNORECASE)
"""A file name and, of a pcapng with several interfaces, the interface."""
_FOLDERS = re.compile(r" \(.*\)$")
_PARTS = re.compile(r"[^A-Za-z0-9.]+")
_WORDS = {"to", "in", "out", "rx", "tx", "link", "tap", "port"}
_PORT = re.compile(
    r"(eth|ethernet|et|xe|ge|te|gi|fo|hu|swp|port|bond|mlx|rxe|irdma|ib)?\d+|et|xe|ge"
    r"|(en|roce|ib)(o|s|p|x)\d\w*",
    re.IGNORECASE,
)
"""A port of a device or host, or its number."""


class Evidence(StrEnum):
    """How a relation between points is known, strongest first."""

    FLOW = "flow"
    """Other packets of the same flow pass both points."""
    HOST = "host"
    """One point stands on the link of the host: it is source or destination of the packets."""
    DESTINATION = "destination"
    """Packets of other flows to the same destination pass both points."""
    PARTNER = "partner"
    """The names of the points share a device."""
    FABRIC = "fabric"
    """All shortest paths of a fabric file pass both points."""
    HOP_LIMIT = "hop limit"
    """Packets of one host pair pass either point with the same hop limit."""
    ONLY_SET = "only set"
    """No packet passes the point, and only one set of parallel points exists."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one tap sees of one link: as yet, of both its directions.

    The number of a point is its place in `Vantage.points`.
    """

    tap: int
    name: str
    """Short name of the tap."""
    devices: tuple[str, ...]
    """The devices at the ends of the link, where the name shows them."""
    is_one_way: bool
    """The name says that only one direction is mirrored."""


class Downstream(NamedTuple):
    """The next point of packets."""

    point: int
    """-1: a next point exists, but it is unknown which."""
    evidence: Evidence


class Onward(NamedTuple):
    """Packets of a flow that passed from a point to a next point."""

    packets: int
    first_ns: int
    last_ns: int


def points_of(names: Sequence[str]) -> list[Point]:
    """One point per tap; names: short."""
    return [
        Point(tap, name, tuple(parts_of(name)), name.endswith((" in", " out")))
        for tap, name in enumerate(names)
    ]


def rows_of(edges: NDArray[Any], *names: str) -> Iterator[tuple[Any, ...]]:
    """These columns as rows of Python integers: reading single records takes many times longer."""
    return zip(*(edges[name].tolist() for name in names), strict=True)


def name_devices(edges: NDArray[Any], sources: Ints, registry: Registry) -> dict[int, str]:
    """The name of the device that has each Ethernet address of a link.

    A router takes one from the hop limit: the address to which a packet goes on one link, and the
    address from which it comes on the next with the hop limit one lower, belong to it. A gateway
    address that several routers may share is no evidence: it never sends, and stands on the links
    of several hosts. edges, sources: as of `Vantage`.
    """
    links = [tap.link for tap in registry.taps.items]
    towards = [link.towards.values() for link in links if link is not None]
    senders = {ends[0] for ends in chain.from_iterable(towards) if ends is not None}
    hosted = Counter(
        address for link in links if link is not None and link.hosts for address in link.addresses
    )
    shared = {address for address, times in hosted.items() if times > 1} - senders
    device = {address: address for link in links if link is not None for address in link.addresses}

    def lowest(address: int) -> int:
        while device[address] != address:
            address = device[address]
        return address

    routed = edges[
        (edges["flow"] >= 0) & (edges["from_tap"] < START) & (edges["to_tap"] < START)
        & (edges["drop_min"] == 1) & (edges["drop_max"] == 1)
    ]  # fmt: skip
    for flow, near, far in rows_of(routed, "flow", "from_tap", "to_tap"):
        source, before, after = int(sources[flow]), links[near], links[far]
        if before is None or after is None:
            continue
        arrives, leaves = before.towards.get(source), after.towards.get(source)
        if arrives is not None and leaves is not None and arrives[1] not in shared:
            one, other = sorted((lowest(arrives[1]), lowest(leaves[0])))
            device[other] = one
    names = {lowest(address): address_text(lowest(address)) for address in device}
    for address in device:
        if named := registry.device_named(address):
            names[lowest(address)] = named
    return {address: names[lowest(address)] for address in device}


class Vantage:
    """The points of the captures and their relations, learned from counts per edge."""

    def __init__(
        self,
        edges: NDArray[Any],
        sources: Ints,
        destinations: Ints,
        names: Sequence[str],
        fabric: FabricTaps | None = None,
    ) -> None:
        """edges: EDGE records. sources, destinations: endpoints of each flow. names: short names
        of all taps."""
        self.points = points_of(names)
        self.sources: list[int] = sources.tolist()
        self.destinations: list[int] = destinations.tolist()
        self._fabric = fabric
        of_flows = edges[edges["flow"] >= 0]
        starts, ends = of_flows["from_tap"] == START, of_flows["to_tap"] == END
        self.starts, self.ends = of_flows[starts], of_flows[ends]
        """EDGE per flow before its first point, and after its last point."""
        self.passes = of_flows[~starts & ~ends]
        """EDGE per flow and two points that saw the same packets one after the other."""
        together = edges[edges["flow"] < 0]
        between = (together["from_tap"] != START) & (together["to_tap"] != END)
        self.hops = {
            (int(edge["from_tap"]), int(edge["to_tap"])): edge for edge in together[between]
        }
        """By point and next point that saw the same packets: EDGE of all flows together."""
        self._devices: dict[tuple[int, int], str | None] = {}
        self.next_of: dict[tuple[int, int], dict[int, Onward]] = defaultdict(dict)
        """By flow and point: what passed to each next point."""
        for flow, point, after, *onward in rows_of(
            self.passes, "flow", "from_tap", "to_tap", "packets", "first_ns", "last_ns"
        ):
            self.next_of[flow, point][after] = Onward(*onward)
        self.link_of = self._host_links()
        """By endpoint: the points on its own link, which see its packets with their full hop limit
        and those that arrive."""

    def device_between(self, near: int, far: int) -> str | None:
        """The device between two points; None when names do not show it."""
        if (near, far) not in self._devices:
            names = self.points[near].name, self.points[far].name
            self._devices[near, far] = device_between(*names)
        return self._devices[near, far]

    def downstream(self, end: Any) -> Downstream | None:
        """The next point of packets that were last seen at the point of an END edge; None: they
        arrived, or nothing says that a later point should have seen them."""
        known = self._downstream_by_packets(end)
        if self._fabric is None or (known is not None and known.point >= 0):
            return known
        points = self._fabric.after(int(end["from_tap"]), self.destinations[end["flow"]])
        if not points or (len(points) > 1 and known is not None):
            return known
        return Downstream(min(points) if len(points) == 1 else -1, Evidence.FABRIC)

    @cached_property
    def tapped_hosts(self) -> set[int]:
        """Endpoints with no other link than those with a point: all that they send begins there."""
        began: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for flow, first, packets in rows_of(self.starts, "flow", "to_tap", "packets"):
            source = self.sources[flow]
            began[source][first in self.link_of.get(source, ())] += packets
        return {
            host for host, (off, on) in began.items() if on and off <= MOST_OFF_LINK * (off + on)
        }

    @cached_property
    def partly_covered(self) -> set[int]:
        """Sources of flows that some points see first at their beginning, others further on: not
        all their paths begin with a point."""
        begun: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for flow, limit, packets in rows_of(self.starts, "flow", "limit_max", "packets"):
            begun[flow][limit] += packets
        return {
            self.sources[flow]
            for flow, by_limit in begun.items()
            if max(by_limit.values()) < (1 - MOST_DIRECT) * sum(by_limit.values())
        }

    @cached_property
    def main_starts(self) -> dict[int, Any]:
        """By flow: its START edge with the most packets."""
        main: dict[int, Any] = {}
        for edge in self.starts:
            flow = int(edge["flow"])
            if flow not in main or edge["packets"] > main[flow]["packets"]:
                main[flow] = edge
        return main

    @cached_property
    def reached(self) -> set[tuple[int, int]]:
        """Flows and points that the flow passed after another point."""
        return set(rows_of(self.passes, "flow", "to_tap"))

    def _host_links(self) -> dict[int, set[int]]:
        links: dict[int, set[int]] = defaultdict(set)
        arriving: set[tuple[int, int]] = set()
        for edges, column in (
            (self.starts, "to_tap"), (self.passes, "from_tap"), (self.ends, "from_tap"),
        ):  # fmt: skip
            for flow, point, limit in rows_of(edges, "flow", column, "limit_max"):
                arriving.add((self.destinations[flow], point))
                if limit in FULL_HOP_LIMITS:
                    links[self.sources[flow]].add(point)
        # A mirror of one direction never sees what arrives at the host.
        both = {
            point for host, points in links.items() for point in points if (host, point) in arriving
        }
        return {
            host: points
            for host, points in links.items()
            if points & both or (both and not any(self.points[p].is_one_way for p in points))
        }

    @cached_property
    def _lowest_limit(self) -> dict[tuple[int, int], int]:
        """By source and destination: the lowest hop limit at the end of their packets."""
        lowest: dict[tuple[int, int], int] = {}
        for flow, limit in rows_of(self.ends, "flow", "limit_min"):
            pair = self.sources[flow], self.destinations[flow]
            lowest[pair] = min(limit, lowest.get(pair, limit))
        return lowest

    @cached_property
    def _next_of_all(self) -> dict[tuple[int, int, int], dict[int, int]]:
        """By destination (-1 for all), point and hop limit there: packets by next point."""
        onward: dict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
        for flow, point, after, limit, packets in rows_of(
            self.passes, "flow", "from_tap", "to_tap", "limit_max", "packets"
        ):
            for destination in (self.destinations[flow], -1):
                counts = onward[destination, point, limit]
                counts[after] = counts.get(after, 0) + packets
        return onward

    @cached_property
    def _on_host_links(self) -> set[int]:
        return {point for points in self.link_of.values() for point in points}

    @cached_property
    def _devices_before(self) -> dict[tuple[int, int], set[str]]:
        """By flow and point: the devices that its packets passed right before the point."""
        before: dict[tuple[int, int], set[str]] = defaultdict(set)
        for flow, point, after in rows_of(self.passes, "flow", "from_tap", "to_tap"):
            device = self.device_between(point, after)
            if device is not None:
                before[flow, after].add(device)
        return before

    @cached_property
    def _devices_of_host(self) -> dict[int, set[str]]:
        """By endpoint: the device between it and the points that see its packets first."""
        devices: dict[int, set[str]] = defaultdict(set)
        begins = {
            (self.sources[flow], first, after)
            for flow, first in rows_of(self.starts, "flow", "to_tap")
            for after in self.next_of.get((flow, first), ())
        }
        for host, point, after in begins:
            device = self.device_between(point, after)
            if device is not None:
                devices[host] |= set(self.points[point].devices) - {device}
        return devices

    def _downstream_by_packets(self, end: Any) -> Downstream | None:
        """`downstream` as other packets and the names of points show it."""
        flow, point = int(end["flow"]), int(end["from_tap"])
        limit, destination = int(end["limit_max"]), self.destinations[flow]
        same_flow = self.next_of.get((flow, point))
        if same_flow:
            counts = {after: onward.packets for after, onward in same_flow.items()}
            return Downstream(_main(counts), Evidence.FLOW)
        links = self.link_of.get(destination)
        if links is not None and point in links:
            return None
        same_destination = self._next_of_all.get((destination, point, limit))
        if same_destination:
            return Downstream(_main(same_destination), Evidence.DESTINATION)
        if links is not None:
            return Downstream(self._towards(end, links), Evidence.HOST)
        devices = self._devices_of_host.get(destination, set())
        if self._lowest_limit[self.sources[flow], destination] < int(end["limit_min"]):
            after = self._only_link_to(end, devices)
            others = self.next_of_others(point, limit, destination)
            if after < 0 and not others:
                return None
            return Downstream(_main(others) if after < 0 else after, Evidence.DESTINATION)
        if not devices or not devices.isdisjoint(self.points[point].devices):
            return None
        after = self._only_link_to(end, devices)
        return None if after < 0 else Downstream(after, Evidence.PARTNER)

    def _towards(self, end: Any, links: set[int]) -> int:
        """The next point on the path to the link of a host, by the names of links or other
        traffic."""
        point = int(end["from_tap"])
        devices = {device for link in links for device in self.points[link].devices}
        if not devices.isdisjoint(self.points[point].devices):
            nearest = [link for link in links if self.device_between(point, link)]
            if len(nearest) == 1:
                return nearest[0]
        after = self._only_link_to(end, devices)
        if after >= 0:
            return after
        destination = self.destinations[end["flow"]]
        return _main(self.next_of_others(point, int(end["limit_max"]), destination))

    def next_of_others(self, point: int, limit: int, destination: int) -> dict[int, int]:
        """Packets of all flows by next point, without the points on the links of other hosts."""
        others = self._on_host_links - self.link_of.get(destination, set())
        onward = self._next_of_all.get((-1, point, limit), {})
        return {after: packets for after, packets in onward.items() if after not in others}

    def _only_link_to(self, end: Any, devices: set[str]) -> int:
        """The only point on a link from the device after this point to one of `devices`; -1 for
        none.

        A packet does not return to the device that it came from.
        """
        point = int(end["from_tap"])
        before = self._devices_before.get((int(end["flow"]), point), set())
        near = set(self.points[point].devices) - before
        links = [
            other.tap
            for other in self.points
            if other.tap != point
            and len(near.intersection(other.devices)) == 1
            and not devices.isdisjoint(other.devices)
        ]
        return links[0] if len(links) == 1 else -1


def _main(packets: dict[int, int]) -> int:
    """The point that nearly all packets go to; -1 when they are spread over several."""
    point, most = max(packets.items(), key=lambda item: item[1], default=(-1, 0))
    return point if most > 0.9 * sum(packets.values()) else -1


class Crossings(NamedTuple):
    """Packets of each group at each point, copies included; only those with packets.

    A group is the packets of one source, destination and hop limit, which may be spread over
    parallel links. Records are ordered by group, and there is one for each group and point.
    """

    group: Ints
    tap: Ints
    packets: Ints


def parallel_points(seen: Crossings, copies: Ints, points: int) -> list[dict[int, Evidence]]:
    """Sets of two or more points on parallel links, in ascending order, and how each is known.

    Packets of one host pair with the same hop limit are at the same distance from the source;
    points with such packets share the traffic between the two hosts, unless they see the same
    packets (taps in series without a router between them).

    `copies`, int64[points or less, same]: packets first seen at the one point and again at the
    other. With only one set, an idle point belongs to it, because unused links must be visible.
    """
    packets_at = np.bincount(seen.tap, seen.packets, points).astype(np.int64)
    first_here = packets_at[: len(copies)] - copies.sum(axis=0)
    begins = np.searchsorted(seen.group, np.arange(int(seen.group.max(initial=-1)) + 2))
    sizes = np.diff(begins)
    first_of_set = np.arange(points)
    by_tap = np.argsort(seen.tap, kind="stable")
    for at_point in np.split(by_tap, np.flatnonzero(np.diff(seen.tap[by_tap])) + 1):
        if not len(at_point):
            break
        point = int(seen.tap[at_point[0]])
        # The records of all groups that were at this point.
        size = sizes[seen.group[at_point]]
        first = np.repeat(begins[seen.group[at_point]] - np.cumsum(size) + size, size)
        rows = np.arange(len(first)) + first
        least = np.minimum(np.repeat(seen.packets[at_point], size), seen.packets[rows])
        together = np.bincount(seen.tap[rows], least, points)
        shared = _packets_in_common(point, first_here, copies, points)
        joined = (together > 0) & (shared <= _SERIES_SHARE * together)
        joined[point] = True
        joining = np.zeros(points, bool)
        joining[first_of_set[joined]] = True
        first_of_set[joining[first_of_set]] = np.argmax(joining)
    sets: dict[int, dict[int, Evidence]] = defaultdict(dict)
    for point in np.flatnonzero(packets_at).tolist():
        sets[int(first_of_set[point])][point] = Evidence.HOP_LIMIT
    parallel = [members for members in sets.values() if len(members) > 1]
    if len(parallel) == 1:
        idle = np.flatnonzero(packets_at == 0).tolist()
        members = parallel[0] | dict.fromkeys(idle, Evidence.ONLY_SET)
        parallel = [{point: members[point] for point in sorted(members)}]
    return parallel


def _packets_in_common(point: int, first_here: Ints, copies: Ints, points: int) -> Ints:
    """Lower bound of the packets that a point has in common with each other, int64[points].

    `first_here`: packets of each point that no other point saw before.
    The copy counts relate later points only to the first: of n packets first seen at one point,
    two others that saw b and c of them have at least b + c - n in common.
    """
    shared = np.zeros(points, np.int64)
    if point < len(copies):
        known = shared[: len(copies)]
        known += copies[point] + copies[:, point]
        for first in np.flatnonzero(copies[:, point]):
            others = np.flatnonzero(copies[first])
            overlap = copies[first, point] + copies[first, others] - max(int(first_here[first]), 0)
            known[others] = np.maximum(known[others], overlap)
    return shared


def sides(pairs: Iterable[tuple[int, int, int]]) -> dict[int, int] | None:
    """The side (0 or 1) of each host relative to a set of links; None when unknown.

    `pairs` are (source, destination, hop limit) of packets that crossed the
    links. Every packet goes from one side to the other, so the sides are a
    2-colouring of the graph of hosts. If the graph is not connected, equal hop limits show which
    sources are on the same side. The host with the lowest index is on side 0.
    """
    opposite: dict[Any, list[tuple[Any, int]]] = {}

    def relate(node: Any, other: Any, differ: int) -> None:
        opposite.setdefault(node, []).append((other, differ))
        opposite.setdefault(other, []).append((node, differ))

    triples = sorted({pair for pair in pairs if pair[0] != pair[1]})
    for src, dst, _ in triples:
        relate(src, dst, 1)
    colours, parts = _coloured(opposite)
    if colours is not None and parts > 1:
        for src, _, hop_limit in triples:
            relate(src, ("hop limit", hop_limit), 0)
        colours, parts = _coloured(opposite)
    if colours is None or parts != 1:
        return None
    return {host: side for host, side in colours.items() if isinstance(host, int)}


def _coloured(graph: dict[Any, list[tuple[Any, int]]]) -> tuple[dict[Any, int] | None, int]:
    """A colouring (None if impossible) and the number of connected components."""
    colours: dict[Any, int] = {}
    parts = 0
    for start in graph:
        if start in colours:
            continue
        parts += 1
        colours[start] = 0
        stack = [start]
        while stack:
            node = stack.pop()
            for other, differ in graph[node]:
                if other not in colours:
                    colours[other] = colours[node] ^ differ
                    stack.append(other)
                elif colours[other] != colours[node] ^ differ:
                    return None, parts
    return colours, parts


def short_names(names: Sequence[str]) -> list[str]:
    """The names without folder, file endings, and what all have in common at both ends.

    Of a file with one interface the interface is dropped, of the interfaces of one file the file.
    A common part ends at a separator: leaf1-spine1 and leaf1-spine2 stay as they are. Where all
    names have two parts in common anywhere, and two devices of their own, only what differs stays:
    leaf1-spine1 of pod3-row7-leaf1-eth1-to-pod3-row7-spine1-eth1. Where two names would become
    equal, all keep the folders in which they differ: leaf1-spine1 (monday). Links that are named by
    their ends stay as they are.
    """
    if any(DIVIDER in name for name in names):
        return list(names)
    files, interfaces = zip(*map(_file_and_interface, names), strict=True) if names else ((), ())
    short = list(files)
    if len(files) > len(set(files)) == 1 and all(interfaces):
        short = list(interfaces)
    elif len(set(files)) < len(set(names)):
        times = Counter(files)
        short = [
            f"{file}:{interface}" if interface and times[file] > 1 else file
            for file, interface in zip(files, interfaces, strict=True)
        ]
    if len(set(short)) < len(set(names)):
        short = _with_folders(names, short)
    if len(set(short)) < len(set(names)):
        return list(names)
    if len(short) > 1:
        trimmed = _without_common(_without_common(short, front=True), front=False)
        trimmed = _without_shared(trimmed)
        if all(trimmed) and len(set(trimmed)) == len(set(short)):
            short = trimmed
    return short


def _file_and_interface(name: str) -> tuple[str, str]:
    """Without folder and file ending; an empty interface for none."""
    match = _FILE.match(name)
    if match is None:
        return os.path.basename(name) or name, ""
    return os.path.basename(match[1]) or name, (match[4] or "")[1:]


def _with_folders(names: Sequence[str], short: Sequence[str]) -> list[str]:
    """The short names before their folders, without those that all have in common."""
    folders = [os.path.dirname(name).split("/") for name in names]
    named = [path for path in folders if path != [""]]  # the first of equal files has no folder
    common = len(os.path.commonprefix(named))  # of lists, whole folders
    if all(path == named[0] for path in named):
        common -= 1
    tails = ["/".join(path[common:]) for path in folders]
    return [f"{name} ({tail})" if tail else name for name, tail in zip(short, tails, strict=True)]


def _without_common(names: list[str], front: bool) -> list[str]:
    """Without the parts, up to a dot, underscore or at sign, that begin (or end) every name."""
    cut = [re.split(r"([._@]+)", name) for name in names]
    while all(len(parts) > 2 for parts in cut):
        ends = {tuple(parts[:2] if front else parts[-2:]) for parts in cut}
        if len(ends) > 1:
            break
        cut = [parts[2:] if front else parts[:-2] for parts in cut]
    return ["".join(parts) for parts in cut]


def _without_shared(names: list[str]) -> list[str]:
    """Without the parts of every name, where these leave no pair of names a device in between."""
    devices = [set(parts_of(name)) for name in names]
    shared = set.intersection(*devices)
    one_way = any(name.endswith((" in", " out")) for name in names)
    if len(shared) < 2 or one_way or any(len(each - shared) < 2 for each in devices):
        return names
    parts = [_PARTS.split(name) for name in names]
    common = set.intersection(*map(set, parts))
    return ["-".join(part for part in each if part and part not in common) for each in parts]


def parts_of(name: str) -> list[str]:
    """The devices in a short name: `leaf1-spine3` has leaf1 and spine3, and so have
    `leaf1-eth2-spine3-eth1` and `leaf1 | spine3`; its folders, in brackets, are none."""
    name = _FOLDERS.sub("", name)
    if DIVIDER in name:
        return name.split(DIVIDER)
    parts = [part for part in _PARTS.split(name) if part and part.lower() not in _WORDS]
    devices = [part for part in parts if not _PORT.fullmatch(part)]
    return devices if len(devices) > 1 else parts


def ends_of(name: str) -> tuple[str, str] | None:
    """The two devices of the link in a short name; None where it does not show both."""
    parts = parts_of(name)
    if len(parts) != 2 or parts[0] == parts[1] or any(map(_PORT.fullmatch, parts)):
        return None
    return parts[0], parts[1]


def device_between(near: str, far: str) -> str | None:
    """The device that both links have at one end; None when the names do not show it."""
    near_ends, far_ends = parts_of(near), set(parts_of(far))
    shared = [part for part in near_ends if part in far_ends]
    if len(shared) != 1 or len(far_ends) < 2:
        return None
    # Ports of two devices may have the same name; where all are numbers these are devices.
    is_port = _PORT.fullmatch(shared[0]) and not all(map(_PORT.fullmatch, (*near_ends, *far_ends)))
    return None if is_port else shared[0]


def direction(near: str, far: str) -> str | None:
    """`leaf1 to leaf2` for the hop from leaf1-spine3 to leaf2-spine3."""
    device = device_between(near, far)
    if device is None:
        return None
    origins = [part for part in parts_of(near) if part != device]
    targets = [part for part in parts_of(far) if part != device]
    return f"{origins[0]} to {targets[0]}" if len(origins) == len(targets) == 1 else None


@dataclass(frozen=True, slots=True)
class FabricLinks:
    """The links that packets take in a fabric: all shortest paths, no host in between."""

    links: Sequence[tuple[str, str]]
    """Names of source and target of every one-way link that is up; parallel links repeat."""
    hosts: frozenset[str]
    networks: Mapping[IPv4Network | IPv6Network, str]
    """Hosts by address, which is a network of one address, or by network."""
    spec: str = ""
    """What a user typed to name the fabric."""

    def host_of(self, address: str) -> str | None:
        """The host of the longest network with this address; None for none."""
        ip = ip_address(address)
        if ip.version == 6 and ip.ipv4_mapped:
            ip = ip.ipv4_mapped
        for bits in range(ip.max_prefixlen, -1, -1):
            network = (IPv4Network if ip.version == 4 else IPv6Network)((int(ip), bits), False)
            if network in self.networks:
                return self.networks[network]
        return None


class FabricTaps:
    """The taps on the links of a fabric."""

    def __init__(
        self, fabric: FabricLinks, points: Sequence[Point], addresses: Sequence[str]
    ) -> None:
        """points: known by the devices in their names. addresses: of all endpoints."""
        self._onward: dict[str, list[str]] = defaultdict(list)
        backward: dict[str, list[str]] = defaultdict(list)
        for source, target in fabric.links:
            self._onward[source].append(target)
            backward[target].append(source)
        self._host = [fabric.host_of(address) for address in addresses]
        self._distance = {
            host: _distances(host, backward, fabric.hosts) for host in set(self._host) if host
        }
        times = Counter(fabric.links)
        self._ends: dict[int, tuple[str, str]] = {}
        for point in points:
            ends = [device for device in point.devices if device in self._onward]
            if len(ends) == 2 and times[ends[0], ends[1]] == 1 and not point.is_one_way:
                self._ends[point.tap] = ends[0], ends[1]
        taps_of = Counter(map(frozenset, self._ends.values()))
        self._tap = {
            frozenset(ends): tap
            for tap, ends in self._ends.items()
            if taps_of[frozenset(ends)] == 1
        }
        self._known: dict[tuple[str, str], frozenset[int] | None] = {}
        self.limits = [
            f"{len(missing)} of {len(every)} {what}"
            for every, missing, what in (
                (
                    points,
                    [point for point in points if point.tap not in self._ends],
                    "taps are not named like a link of the fabric file, such as leaf1-spine1"
                    " (--tap): the file does not show the next tap after them",
                ),
                (
                    addresses,
                    [host for host in self._host if host is None],
                    "addresses are not in the fabric file: it does not show the path to them",
                ),
            )
            if missing
        ]
        """What the fabric does not show, one line each."""

    def after(self, tap: int, destination: int) -> frozenset[int] | None:
        """The taps of which one sees a packet next after a tap, on its path to an endpoint; empty
        on the last link.

        None: a path without a tap exists, or the fabric knows neither the tap nor the endpoint.
        """
        host, ends = self._host[destination], self._ends.get(tap)
        if host is None or ends is None:
            return None
        distance = self._distance[host]
        if not all(node in distance for node in ends):
            return None
        near, far = sorted(ends, key=distance.__getitem__)
        return None if distance[near] == distance[far] else self._after(near, host)

    def _after(self, node: str, host: str) -> frozenset[int] | None:
        """The next taps of packets at a node; empty at the host itself."""
        if node == host:
            return frozenset()
        if (node, host) not in self._known:
            self._known[node, host] = self._next_taps(node, host)
        return self._known[node, host]

    def _next_taps(self, node: str, host: str) -> frozenset[int] | None:
        distance, taps = self._distance[host], set[int]()
        for onward in self._onward[node]:
            if distance.get(onward) != distance[node] - 1:
                continue
            tap = self._tap.get(frozenset((node, onward)))
            further = self._after(onward, host) if tap is None else frozenset({tap})
            if not further:
                return None
            taps |= further
        return frozenset(taps)


def _distances(
    host: str, backward: Mapping[str, Sequence[str]], hosts: frozenset[str]
) -> dict[str, int]:
    """Links from every node to a host."""
    distance, queue = {host: 0}, deque([host])
    while queue:
        node = queue.popleft()
        if node in hosts and node != host:
            continue  # hosts do not forward
        for before in backward[node]:
            if before not in distance:
                distance[before] = distance[node] + 1
                queue.append(before)
    return distance
