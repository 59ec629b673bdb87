"""A fabric: devices, links, hosts and their addresses.

Switches are nodes 0 .. switches-1, host i is node switches+i, in port order: host 0 sits on
the first port of the first leaf. A host is one NIC; in a multi-plane fabric it has a port
in every plane. Forwarding is stored per (switch, edge). An edge is the set of hosts that
are attached to the same switches, so memory does not grow with hosts times hosts.

The path of a packet: at its source host one of the usable ports (`usable_ports`), at
every switch the exit link if the destination is attached there (`exit_link_at`),
otherwise a link of `group(switch, edge of the destination)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...analyzer.errors import UsageError
from ...kernels.kernel import Array, Bools, Bytes, Int32s, Ints, NamedTuple
from .forwarding import Forwarding, shortest_paths, without_links

if TYPE_CHECKING:
    from ..hashing.settings import HashSettings


# Addresses of hosts: host i of a fabric is 10.0.0.1 + i unless the fabric sets its address.

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

FIRST_IPV4 = int(IPv4Address("10.0.0.1"))
FIRST_IPV6 = int(IPv6Address("fd10::1"))
MAX_HOSTS = 1 << 24
"""Usable addresses of 10.0.0.0/8."""


@lru_cache(maxsize=1 << 16)
def parse_address(text: str) -> Address:
    """The address that a device or a file names. ValueError without one."""
    return ip_address(_without_zone(text))


@lru_cache(maxsize=1 << 16)
def parse_network(text: str, strict: bool = True) -> Network:
    """The same for a network; strict: without bits beyond its length."""
    return ip_network(_without_zone(text), strict)


def parse_interface(text: str) -> IPv4Interface | IPv6Interface:
    """The same for an address with the length of its network."""
    return ip_interface(_without_zone(text))


def _without_zone(text: str) -> str:
    """ValueError for a zone (RFC 4007): any text, even further lines, which addresses would carry
    into commands and files."""
    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    return text


@dataclass(frozen=True)
class AddressPlan:
    """Addresses of hosts: counted from the base, or from a file or router tables."""

    hosts: int
    explicit: Mapping[int, tuple[Address, ...]] = field(default_factory=dict)
    """Explicit addresses of hosts; the addresses of other hosts are counted."""
    subnets: Mapping[Network, int] = field(default_factory=dict)
    """Networks that lead to one host, for addresses that are not explicit."""

    def address_of(self, host: int, ipv6: bool = False) -> Address:
        """An address of a host; of this family unless the host has only the other family."""
        if not 0 <= host < self.hosts:
            raise IndexError(f"no host {host}")
        given = self.explicit.get(host)
        if given:
            wanted = IPv6Address if ipv6 else IPv4Address
            return next((a for a in given if isinstance(a, wanted)), given[0])
        return IPv6Address(FIRST_IPV6 + host) if ipv6 else IPv4Address(FIRST_IPV4 + host)

    def packed(self, hosts: Array, ipv6: bool = False) -> Bytes:
        """uint8[n, 16]: an address of each host, IPv4 as ::ffff:a.b.c.d."""
        first = FIRST_IPV6 if ipv6 else FIRST_IPV4 | 0xFFFF << 32
        out = np.empty((len(hosts), 16), np.uint8)
        out[:] = np.frombuffer(first.to_bytes(16, "big"), np.uint8)
        low = (np.asarray(hosts, np.int64) + (first & 0xFFFF_FFFF)).astype(">u4")
        out[:, 12:] = low[:, None].view(np.uint8)
        if self.explicit:
            for row, host in enumerate(hosts):
                address = self.address_of(int(host), ipv6)
                value = int(address) | (0xFFFF << 32 if address.version == 4 else 0)
                out[row] = np.frombuffer(value.to_bytes(16, "big"), np.uint8)
        return out

    def host_of(self, address: Address) -> int | None:
        """The host of an address: exact, then the longest subnet, then by count."""
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        index = self._index
        if address in index:
            return index[address]
        for network in self._networks:
            if address.version == network.version and address in network:
                return self.subnets[network]
        first = FIRST_IPV4 if address.version == 4 else FIRST_IPV6
        host = int(address) - first
        return host if 0 <= host < self.hosts and host not in self.explicit else None

    @cached_property
    def _index(self) -> Mapping[Address, int]:
        return {a: host for host, addresses in self.explicit.items() for a in addresses}

    @cached_property
    def _networks(self) -> list[Network]:
        return sorted(self.subnets, key=lambda n: (-n.prefixlen, n.version, int(n.network_address)))


HOST, SWITCH = 0, 1
"""Values of `Nodes.kind`."""

TIER_NAMES: Final = ("host", "leaf", "spine", "core")


def tier_name(tier: int) -> str:
    """`leaf` for tier 1; tiers above the core have numbers."""
    return TIER_NAMES[tier] if 0 <= tier < len(TIER_NAMES) else f"tier{tier}"


class Nodes(NamedTuple):
    """Switches first, then hosts in port order; equally long."""

    names: tuple[str, ...]
    kind: Bytes
    """HOST or SWITCH."""
    tier: NDArray[np.int8]
    """0 host, 1 leaf, 2 spine, 3 core."""
    plane: NDArray[np.int16]
    """The plane a switch belongs to, from 0; -1 for hosts of several planes."""


class Links(NamedTuple):
    """One-way links; the links that leave a node come in the order of its ports."""

    source: Int32s
    target: Int32s
    rate_bits_per_second: Ints
    delay_ns: Ints
    up: Bools
    layer: Bytes
    """Index into `Fabric.layers`."""


class Attachments(NamedTuple):
    """Where hosts are attached: one row per host, one column per port."""

    switch: Int32s
    """int32[hosts, ports]: the switch at each port, -1 for no port or a link that is down."""
    access_link: Int32s
    """int32[hosts, ports]: from the host to that switch, -1 as above."""
    exit_link: Int32s
    """int32[hosts, ports]: from that switch to the host, -1 as above."""
    edge: Int32s
    """int32[hosts]: column of `Forwarding.group_of`; -1 when no port is up."""


class Origin(NamedTuple):
    """What a fabric that was read from devices rests on."""

    ports: tuple[tuple[str, str], ...]
    """Names of both ports of every cable (links 2i and 2i + 1); empty for unknown ports."""
    links: tuple[str, ...]
    """What shows the cable."""
    tables: tuple[str, ...]
    """The tables that the routes and the hash settings of every switch are from; empty for a
    switch whose tables were not read: shortest paths are assumed."""
    ipv4_only: tuple[bool, ...] = ()
    """Whether the hash settings of a switch are those of IPv4 and those of IPv6 differ, or its
    routes of IPv6 are not known; empty: nowhere."""


@dataclass(frozen=True)
class Fabric:
    """Nodes, links and forwarding; made by `parse_fabric` or a `FabricBuilder`."""

    name: str
    nodes: Nodes
    links: Links
    layers: tuple[str, ...]
    """Names of the layers: `host-leaf`, `leaf-spine`, ... by direction."""
    attachments: Attachments
    forwarding: Forwarding
    hash_settings: tuple[HashSettings | None, ...]
    """Hash settings per switch; None if the fabric does not set them."""
    addresses: AddressPlan
    routed: bool = True
    """Forwarding follows shortest paths and is recomputed when links change;
    False for tables read from routers, which only lose next hops."""
    origin: Origin | None = None
    """None for fabrics that were described, not read."""

    @property
    def switches(self) -> int:
        return len(self.hash_settings)

    @property
    def hosts(self) -> int:
        """Number of hosts (NICs)."""
        return len(self.attachments.edge)

    @property
    def ports(self) -> int:
        """Most ports that a host has; 1 unless hosts are attached to several switches."""
        return int(self.attachments.switch.shape[1])

    def host_name(self, host: int) -> str:
        return self.nodes.names[self.switches + host]

    def address_of(self, host: int) -> IPv4Address | IPv6Address:
        """The first address of a host."""
        return self.addresses.address_of(host)

    def host_of(self, address: str) -> int | None:
        """The host with this address, exactly or in a subnet that leads to one host."""
        return self.addresses.host_of(ip_address(address))

    def group(self, switch: int, edge: int) -> tuple[Int32s, Ints]:
        """(links, weights) of the ordered equal-cost group; empty without a route."""
        group = int(self.forwarding.group_of[switch, edge])
        start = self.forwarding.group_start
        part = slice(int(start[group]), int(start[group + 1])) if group >= 0 else slice(0, 0)
        return self.forwarding.group_links[part], self.forwarding.group_weights[part]

    def choosing_switches(self) -> Ints:
        """The switches with an equal-cost group of several links."""
        size = np.diff(self.forwarding.group_start)
        group = self.forwarding.group_of
        return np.flatnonzero(((group >= 0) & (size[group] > 1)).any(1))

    def edge_of(self, host: Int32s, ipv6: Bools | bool = False) -> Int32s:
        """int32[n]: the column of `Forwarding.group_of` for packets of a family to each host."""
        edge = self.attachments.edge[host]
        six = np.where(edge >= 0, edge + self.forwarding.ipv6_from, edge)
        return np.where(ipv6, six, edge).astype(np.int32)

    def of_ipv6(self) -> Fabric | None:
        """The fabric as packets of IPv6 see it; None: as those of IPv4."""
        if not self.forwarding.ipv6_from:
            return None
        six = self.forwarding._replace(group_of=self.forwarding.of_family(6), ipv6_from=0)
        return replace(self, forwarding=six)

    def usable_ports(
        self, source: Int32s, destination: Int32s, ipv6: Bools | bool = False
    ) -> Bools:
        """bool[n, ports]: the ports through which each source host reaches its destination host."""
        first = self.attachments.switch[source]
        edge = self.edge_of(destination, ipv6)
        known = (first >= 0) & (edge >= 0)[:, None]
        attached = (first[:, :, None] == self.attachments.switch[destination][:, None, :]).any(2)
        routed = self.forwarding.group_of[first, edge[:, None]] >= 0
        usable: Bools = known & (attached | routed)
        return usable

    def exit_link_at(self, switch: Int32s, destination: Int32s) -> Int32s:
        """int32[n]: the link from each switch to each destination host, -1 when not attached."""
        is_attached = self.attachments.switch[destination] == switch[:, None]
        column = is_attached.argmax(1)
        link = self.attachments.exit_link[destination, column]
        exits: Int32s = np.where(is_attached.any(1) & (switch >= 0), link, -1)
        return exits.astype(np.int32)

    def link_name(self, link: int) -> str:
        """`leaf1>spine2`; the second of parallel links is `leaf1>spine2#2`."""
        source, target = int(self.links.source[link]), int(self.links.target[link])
        number = int(self._numbers[link])
        name = f"{self.nodes.names[source]}>{self.nodes.names[target]}"
        return name if number == 1 else f"{name}#{number}"

    @cached_property
    def _numbers(self) -> Ints:
        """int64[links]: the number of each link among those of the same two ends, from 1."""
        pair = self.links.source.astype(np.int64) * len(self.nodes.names) + self.links.target
        order = np.argsort(pair, kind="stable")
        first = np.searchsorted(pair[order], pair[order])
        numbers = np.empty(len(pair), np.int64)
        numbers[order] = np.arange(len(pair)) - first + 1
        return numbers

    @cached_property
    def next_switches(self) -> dict[int, tuple[int, ...]]:
        """The switches that a group of forwarding leads to, of groups that were asked for."""
        return {}

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The number of each node by its name."""
        return {name: node for node, name in enumerate(self.nodes.names)}

    @cached_property
    def _between(self) -> Mapping[tuple[int, int], list[int]]:
        """The links of each pair of nodes, in the order of their ports."""
        between: dict[tuple[int, int], list[int]] = {}
        ends = zip(self.links.source.tolist(), self.links.target.tolist(), strict=True)
        for link, pair in enumerate(ends):
            between.setdefault(pair, []).append(link)
        return between

    def find_links(self, name: str) -> Ints:
        """Links of a name: `leaf1-spine2` (both directions, also parallel ones), `leaf1>spine2`,
        `leaf1-spine2#2` (one of parallel links), `spine2` (all its links).

        UsageError if there is no such link.
        """
        number = self.number
        source, target = self.links.source, self.links.target
        pair, _, which = name.partition("#")
        if pair in number:
            node = number[pair]
            return np.flatnonzero((source == node) | (target == node))
        for sign in (">", "-"):
            for a, b in _splits(pair, sign):
                if a not in number or b not in number:
                    continue
                forth = self._between.get((number[a], number[b]), [])
                back = self._between.get((number[b], number[a]), [])
                directions = [forth] if sign == ">" else [forth, back]
                if which:
                    at = int(which) - 1 if which.isdecimal() else -1
                    directions = [f[at : at + 1] for f in directions] if at >= 0 else []
                links = [link for direction in directions for link in direction]
                if links:
                    return np.array(links, np.int64)
                raise UsageError(f"there is no link {name} in {self.name}")
        raise UsageError(
            f"no link or node is called {name!r} in {self.name}; links are named like "
            f"{self.link_name(0).replace('>', '-') if len(self.links.source) else 'leaf1-spine1'}"
        )

    def down(self, links: Iterable[int | str]) -> Fabric:
        """The fabric after these links (indices or names) fail and routing converges."""
        up = self.links.up.copy()
        for link in links:
            up[self.find_links(link) if isinstance(link, str) else link] = False
        return self.with_links(up=up)

    def with_links(
        self, *, up: Bools | None = None, rate_bits_per_second: Ints | None = None
    ) -> Fabric:
        """The fabric with other link states or rates, and the resulting forwarding."""
        links = self.links
        if rate_bits_per_second is not None:
            links = links._replace(rate_bits_per_second=rate_bits_per_second)
        if up is None:
            return replace(self, links=links)
        links = links._replace(up=up)
        attachments = attach(links, self.switches, self.hosts)
        if self.routed:
            forwarding = forward(links, attachments, self.switches)
        else:
            edge = np.where((attachments.switch >= 0).any(1), self.attachments.edge, -1)
            attachments = attachments._replace(edge=edge.astype(np.int32))
            forwarding = without_links(self.forwarding, up)
        return replace(self, links=links, attachments=attachments, forwarding=forwarding)


def _splits(text: str, sign: str) -> list[tuple[str, str]]:
    """All ways to split a text at a sign: names may contain the sign."""
    return [(text[:i], text[i + 1 :]) for i, c in enumerate(text) if c == sign]


def attach(links: Links, switches: int, hosts: int) -> Attachments:
    """The ports of every host over links that are up; hosts on the same switches share an edge.

    The caller ensures that a host has at most one link to a switch.
    """
    access = np.flatnonzero((links.source >= switches) & links.up)
    exits = np.flatnonzero((links.target >= switches) & links.up)
    # A port needs both directions: pair them by (host, switch).
    key_of_access = links.source[access].astype(np.int64) * switches + links.target[access]
    key_of_exit = links.target[exits].astype(np.int64) * switches + links.source[exits]
    _, leaving, there = np.intersect1d(key_of_access, key_of_exit, return_indices=True)
    both = np.lexsort((access[leaving], links.source[access[leaving]]))  # by host, then by port
    access, exits = access[leaving][both], exits[there][both]
    host = (links.source[access] - switches).astype(np.int64)
    per_host = np.bincount(host, minlength=hosts)
    ports = max(1, int(per_host.max(initial=0)))
    port = np.arange(len(host)) - np.repeat(np.cumsum(per_host) - per_host, per_host)
    table = np.full((3, hosts, ports), -1, np.int32)
    table[0, host, port] = links.target[access]
    table[1, host, port] = access
    table[2, host, port] = exits
    return Attachments(table[0], table[1], table[2], _edges(table[0]))


def _edges(switch: Int32s) -> Int32s:
    """int32[hosts]: hosts with the same switches get the same number, in order of appearance."""
    rows, first, inverse = np.unique(switch, axis=0, return_index=True, return_inverse=True)
    attached = (rows >= 0).any(1)
    order = np.argsort(np.where(attached, first, len(switch)), kind="stable")
    number = np.empty(len(rows), np.int32)
    number[order] = np.arange(len(rows))
    number[~attached] = -1
    edges: Int32s = number[inverse.reshape(-1)]
    return edges


def edge_switches(attachments: Attachments) -> Int32s:
    """int32[edges, ports]: the switches that the hosts of each edge are attached to, -1 none."""
    edges = int(attachments.edge.max(initial=-1)) + 1
    table = np.full((edges, attachments.switch.shape[1]), -1, np.int32)
    known = attachments.edge >= 0
    table[attachments.edge[known]] = attachments.switch[known]
    return table


def forward(links: Links, attachments: Attachments, switches: int) -> Forwarding:
    """Equal-cost shortest-path forwarding over the links that are up."""
    return shortest_paths(
        links.source, links.target, links.up, switches, edge_switches(attachments)
    )
