"""The next tap of a packet by the links of a fabric, where no other packet shows it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

from .names import parts_of


@dataclass(frozen=True, slots=True)
class FabricLinks:
    """What a fabric tells about the ways of packets: all shortest paths, no host in between."""

    links: Sequence[tuple[str, str]]
    """Names of source and target of every one-way link that is up; parallel links repeat."""
    hosts: frozenset[str]
    networks: Mapping[IPv4Network | IPv6Network, str]
    """Hosts by address, which is a network of one address, or by network."""
    spec: str = ""
    """What a user typed to name the fabric."""

    def host_of(self, address: str) -> str | None:
        """The host of the longest network with this address; None for none."""
        own = ip_address(address)
        if own.version == 6 and own.ipv4_mapped:
            own = own.ipv4_mapped
        for bits in range(own.max_prefixlen, -1, -1):
            network = (IPv4Network if own.version == 4 else IPv6Network)((int(own), bits), False)
            if network in self.networks:
                return self.networks[network]
        return None


class FabricTaps:
    """The taps on the links of a fabric."""

    def __init__(self, fabric: FabricLinks, taps: Sequence[str], addresses: Sequence[str]) -> None:
        """taps: short names, which tell a link by the names of both its ends. addresses: of all
        endpoints."""
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
        for tap, name in enumerate(taps):
            ends = [part for part in parts_of(name) if part in self._onward]
            if (
                len(ends) == 2
                and times[ends[0], ends[1]] == 1
                and not name.endswith((" in", " out"))
            ):
                self._ends[tap] = ends[0], ends[1]
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
                    taps,
                    [tap for tap in range(len(taps)) if tap not in self._ends],
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
        """What the fabric does not tell, one line each."""

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
            self._known[node, host] = self._found(node, host)
        return self._known[node, host]

    def _found(self, node: str, host: str) -> frozenset[int] | None:
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
