"""A fabric assembled from its devices: cables, tiers, routes.

A device with a single port in the fabric, or one that does not forward, is a host; every port of
a host with several is a host (NIC) of its own, `name:port`. A connected network in which no
other device has an address is one host, named `device:port`, with all addresses of the
network. A gateway that belongs to no device is a switch `via GATEWAY`, or `via NAME` as LLDP
calls it, and each network behind it a host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import ip_network
from math import lcm
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.words import noun
from ...kernels.kernel import Bools, Int32s, Ints, UInt16s
from ..hashing.settings import HashSettings
from .build import build, cables, tiers_by_distance
from .cables import Cabling, Link, Note, cabled_by_lldp, find_links
from .devices import (
    Carriers,
    Device,
    End,
    Member,
    NextHop,
    Route,
    Routes,
    connected_networks,
    is_network,
    management_networks,
    owners,
)
from .fabric import Address, AddressPlan, Fabric, Network, Origin
from .forwarding import Forwarding
from .matching import Matches
from .routes import edge_per_host, with_ipv6

# Nodes and wires: which devices are hosts, and switches known only by name.

VIA = "via "
"""Prefix of the names of switches without tables."""
GATEWAY = "next hop without tables"
"""Evidence of a wire to such a switch."""
_UNSAFE = re.compile(r"[^\w.:/ -]")
"""Not part of the name of a node: LLDP neighbours choose their names."""
NO_NEIGHBOUR = "connected network"
"""Evidence of a wire to a host without tables."""


class Wire(NamedTuple):
    """A two-way link between two nodes; a port is empty at a node without tables."""

    a: str
    port_a: str
    b: str
    port_b: str
    evidence: tuple[str, ...]
    cables: int = 1
    """Of a bond between a host and one switch: they are one wire of their total rate."""


@dataclass
class Topology:
    """Nodes and wires."""

    switches: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    owner: dict[Address, str] = field(default_factory=dict)
    """Node of an address."""
    subnets: dict[Network, str] = field(default_factory=dict)
    """Networks that represent one host."""
    left_out: set[End] = field(default_factory=set)
    """Ports of management networks."""
    carriers: Carriers = field(default_factory=Carriers)
    notes: list[Note] = field(default_factory=list)
    _at: dict[tuple[str, str], list[tuple[int, str]]] = field(default_factory=dict)
    _of: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def behind(self, node: str, port: str, device: str = "") -> list[tuple[int, str]]:
        """(wire, node at its other end) of the wires at a port, or at those that carry it.

        device: of the node, if its name is another.
        """
        end = End(device or node, port)
        ports = dict.fromkeys((end, self.carriers.bond(end), *self.carriers.of(end)))
        return [wire for at in ports for wire in self._at.get((node, at.port), ())]

    def around(self, node: str) -> list[tuple[int, str]]:
        """(wire, node at its other end) of all wires of a node."""
        return self._of.get(node, [])

    def port(self, wire: int, node: str) -> str:
        """The port of a wire at one of its nodes."""
        ends = self.wires[wire]
        return ends.port_a if ends.a == node else ends.port_b

    def add(self, wire: Wire) -> None:
        """Add a wire."""
        for node, port, other in ((wire.a, wire.port_a, wire.b), (wire.b, wire.port_b, wire.a)):
            self._at.setdefault((node, port), []).append((len(self.wires), other))
            self._of.setdefault(node, []).append((len(self.wires), other))
        self.wires.append(wire)


def find_topology(devices: Sequence[Device]) -> Topology:
    """The nodes and wires of devices with different names."""
    builder = _Builder(devices)
    builder.add_nodes()
    builder.add_links()
    for network, members in builder.networks.items():
        builder.add_network(network, members)
    builder.add_unnumbered_gateways()
    builder.add_networks_behind_gateways()
    return builder.topology


_NAMED = 4
"""Devices or ports named in a remark."""
_TRANSFER = 4
"""Most addresses of a network that two switches have between them: a /30."""


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


class _Builder:
    def __init__(self, devices: Sequence[Device]) -> None:
        self.topology = Topology()
        self._devices = devices
        self._carriers = self.topology.carriers = Carriers(devices)
        networks = connected_networks(devices)
        self._owner = owners(devices)
        cabled = cabled_by_lldp(devices, self._owner, self._carriers)
        management = management_networks(devices, networks, self._owner, cabled)
        self._left_out = self.topology.left_out
        self._left_out.update(end for ends in management.values() for end in ends)
        self._left_out.update(
            End(device.name, port.name)
            for device in devices
            for port in device.interfaces or ()
            if port.vrf
        )
        self.networks = {
            network: kept
            for network, members in networks.items()
            if (kept := [m for m in members if m.end not in self._left_out])
        }
        self._cabling: Cabling = find_links(
            devices, self.networks, self._owner, self._left_out, self._carriers
        )
        for network, ends in management.items():
            count = len({end.device for end in ends})
            text = f"{network} is a management network of {count} {noun(count, 'device')}: left out"
            self.topology.notes.append(Note("management network", "", text))
            for end, _ in self.networks.get(network, ()):
                text = f"{end.port} is on the management network {network} and on a cable of LLDP"
                self.topology.notes.append(Note("conflict", end.device, f"{text}: kept"))
        self.topology.notes += self._cabling.notes
        self._ports = self._fabric_ports()
        self._gateways: dict[str, list[Address]] = {
            device.name: list(
                dict.fromkeys(
                    h.gateway for r in device.routes.telling() for h in r.hops if h.gateway
                )
            )
            for device in devices
        }
        """The gateways of the routes of each device."""

    def _fabric_ports(self) -> dict[str, list[str]]:
        """Ports of each device in the fabric: with a network, a link or a next hop."""
        ports: dict[str, dict[str, None]] = {device.name: {} for device in self._devices}
        for members in self.networks.values():
            for member in members:
                ports[member.end.device][member.end.port] = None
        for link in self._cabling.links:
            for end in (link.a, link.b):
                ports[end.device][end.port] = None
        for device in self._devices:
            known = {port.name: port for port in device.interfaces or ()}
            hops = (
                hop
                for route in device.routes.telling()
                for hop in route.hops
                if hop.gateway
                or (self._stranger(End(device.name, hop.device)) and not is_network(route, known))
            )
            ports[device.name] |= dict.fromkeys(hop.device for hop in hops)
        return {
            name: [p for p in of_device if p and End(name, p) not in self._left_out]
            for name, of_device in ports.items()
        }

    def add_nodes(self) -> None:
        """Switches and hosts in the order of the devices."""
        self._hosts: dict[str, dict[str, str]] = {}
        """The node of each network adapter of a host."""
        for device in self._devices:
            ends = [End(device.name, port) for port in self._ports[device.name]]
            adapters = list(dict.fromkeys(self._carriers.adapter(end).port for end in ends))
            if not self._is_host(device, adapters, ends):
                self.topology.switches.append(device.name)
                continue
            several = len(adapters) > 1
            names = {a: f"{device.name}:{a}" if several else device.name for a in adapters}
            self._hosts[device.name] = names
            self.topology.hosts += names.values()
            if not names:
                self._note_no_port(device)
        self._note_kinds()
        for address, end in self._owner.items():
            if (node := self._node(end)) is not None:
                self.topology.owner[address] = node

    def _is_host(self, device: Device, adapters: Sequence[str], ends: Sequence[End]) -> bool:
        """The inventory decides; else a device that does not forward, or has one adapter."""
        if device.kind:
            return device.kind == "host"
        cables = [end for end in ends if self._carriers.of(end) == (end,)]
        is_bridge = any(self._carriers.is_bridge(End(device.name, name)) for name in adapters)
        alone = len(adapters) == 1 and len(self._devices) > 1
        return device.forwards is False or (alone and not (is_bridge and len(cables) > 1))

    def _note_no_port(self, device: Device) -> None:
        down = [p.name for p in device.interfaces or () if not p.up and not p.master]
        more = f"; without link: {', '.join(down[:_NAMED])}" if down else ""
        text = f"none of its ports is in the fabric{more}: left out"
        self.topology.notes.append(Note("not in the fabric", device.name, text))

    def _note_kinds(self) -> None:
        """What the devices do that the inventory calls otherwise."""
        forward = [d.name for d in self._devices if d.kind == "host" and d.forwards]
        if forward:
            text = "forward packets of others (ip_forward), and the inventory calls them hosts"
            self.topology.notes.append(Note("kind", "", f"{_first(forward)} {text}"))
        still = [d.name for d in self._devices if d.kind == "switch" and d.forwards is False]
        if still:
            text = "do not forward packets of others, and the inventory calls them switches"
            self.topology.notes.append(Note("kind", "", f"{_first(still)} {text}"))

    def _node(self, end: End) -> str | None:
        """The node of a port; None: of a host, and not in the fabric."""
        names = self._hosts.get(end.device)
        return end.device if names is None else names.get(self._carriers.adapter(end).port)

    def _behind(self, end: End) -> list[tuple[int, str]]:
        node = self._node(end)
        return [] if node is None else self.topology.behind(node, end.port, end.device)

    def add_links(self) -> None:
        """Wires between devices; hosts are not wired to hosts.

        The cables of a bond from a host to one switch are one wire.
        """
        bundles: dict[tuple[str, ...], list[Link]] = {}
        for link in self._cabling.links:
            nodes = self._node(link.a), self._node(link.b)
            hosts = sum(end.device in self._hosts for end in (link.a, link.b))
            if hosts < 2 and nodes[0] is not None and nodes[1] is not None:
                key = (nodes[0], nodes[1]) if hosts else (*link.a, *link.b)
                bundles.setdefault(key, []).append(link)
        for links in bundles.values():
            (a, b, evidence), cables = links[0], len(links)
            if cables > 1:
                a, b = self._carriers.bond(a), self._carriers.bond(b)
                text = f"its {cables} cables from {a.port} to {b.device} {b.port}"
                text += " are one link of their total rate"
                self.topology.notes.append(Note("not represented", a.device, text))
            ends = self._node(a) or "", self._node(b) or ""
            self.topology.add(Wire(ends[0], a.port, ends[1], b.port, evidence, cables))

    def add_network(self, network: Network, members: Sequence[Member]) -> None:
        """Gateways and hosts of one connected network whose tables are missing."""
        if len(members) > 1:
            nodes = {self._node(m.end) for m in members if m.end.device in self._hosts} - {None}
            if len(nodes) == 1:
                self.topology.subnets[network] = nodes.pop() or ""
            elif not nodes and self._is_of_hosts(network, members):
                self._add_host(str(network), network, [member.end for member in members])
            return
        end, addresses = members[0]
        if behind := self._behind(end):
            hosts = [node for _, node in behind if node in self.topology.hosts]
            if len(hosts) == 1:
                self.topology.subnets[network] = hosts[0]
            return
        if end.device in self._hosts:
            return
        gateways = [
            gateway
            for gateway in self._gateways[end.device]
            if gateway.version == network.version
            and gateway in network
            and gateway not in self.topology.owner
        ]
        for gateway in gateways:
            name = self._stub_name(end, str(gateway), len(gateways) == 1)
            self.topology.owner[gateway] = name
            self._stub(end, name)
        if not gateways and (network.num_addresses > 2 or addresses is not None):
            self._add_host(f"{end.device}:{end.port}", network, [end])

    def _is_of_hosts(self, network: Network, members: Sequence[Member]) -> bool:
        """Whether a VLAN of several switches has hosts that were not asked: the switches have VLAN
        interfaces on it, and route through none of its addresses."""
        return (
            network.num_addresses > _TRANSFER
            and all(self._carriers.is_bridge(member.end) for member in members)
            and not any(
                gateway.version == network.version and gateway in network
                for member in members
                for gateway in self._gateways[member.end.device]
            )
        )

    def _add_host(self, name: str, network: Network, ends: Sequence[End]) -> None:
        """A host for all addresses of a network, at the ports of switches."""
        if name not in self.topology.hosts:
            self.topology.hosts.append(name)
        for end in ends:
            self._wire(end, name, NO_NEIGHBOUR)
        self.topology.subnets[network] = name

    def _stub_name(self, end: End, otherwise: str, alone: bool = True) -> str:
        """The name of a switch without tables: as LLDP tells if it is alone behind the port."""
        known = self._stranger(end) if alone else None
        return VIA + _UNSAFE.sub("?", known or otherwise)

    def _stranger(self, end: End) -> str | None:
        """The LLDP neighbour of a port that was not asked."""
        ports = (end, *self._carriers.of(end))
        return next((n for port in ports if (n := self._cabling.strangers.get(port))), None)

    def _stub(self, end: End, name: str) -> None:
        """A switch without tables, behind a port."""
        if name not in self.topology.switches:
            self.topology.switches.append(name)
        self._wire(end, name, GATEWAY)

    def _wire(self, end: End, node: str, evidence: str) -> None:
        if all(other != node for _, other in self.topology.behind(end.device, end.port)):
            self.topology.add(Wire(end.device, end.port, node, "", (evidence,)))

    def add_unnumbered_gateways(self) -> None:
        """Switches without tables behind unnumbered ports, named by LLDP if it tells."""
        for device in self._devices:
            ports = {port.name: port for port in device.interfaces or ()}
            for route in device.routes.telling() if device.name not in self._hosts else ():
                for hop in route.hops:
                    end = End(device.name, hop.device)
                    if hop.gateway is None and self._stranger(end) is None:
                        continue
                    if hop.gateway is not None and not hop.gateway.is_link_local:
                        continue
                    if hop.gateway is None and is_network(route, ports):
                        continue
                    if end in self._left_out or self.topology.behind(*end):
                        continue
                    name = f"{hop.gateway} on {end.device} {end.port}"
                    self._stub(end, self._stub_name(end, name))

    def add_networks_behind_gateways(self) -> None:
        """Hosts for networks behind switches without tables."""
        topology = self.topology
        if not any(name.startswith(VIA) for name in topology.switches):
            return
        hosts = set(topology.hosts)
        around = {wider for known in topology.subnets for wider in self._wider(known)}
        for device in self._devices:
            if device.name in self._hosts:
                continue
            ports = {port.name: port for port in device.interfaces or ()}
            leads = [self._strangers_behind(device.name, r) for r in device.routes.firsts]
            for route in device.routes.of_groups(np.array([bool(n) for n in leads], np.bool_)):
                name = str(route.network)
                if is_network(route, ports) or route.network in around:
                    continue
                if self._known(route.network, name):
                    continue
                neighbours = self._strangers_behind(device.name, route)
                if name not in hosts:
                    topology.hosts.append(name)
                    hosts.add(name)
                topology.subnets[route.network] = name
                around |= self._wider(route.network)
                for neighbour in neighbours:
                    if not topology.behind(neighbour, f"to {name}"):
                        topology.add(Wire(neighbour, f"to {name}", name, "", (GATEWAY,)))

    def _strangers_behind(self, device: str, route: Route) -> list[str]:
        """The switches without tables that a route leads to."""
        ends = (self._reached(device, hop) for hop in route.hops)
        return list(dict.fromkeys(name for name in ends if name and name.startswith(VIA)))

    def _known(self, network: Network, name: str) -> bool:
        """Whether hosts or switches with answers have a network."""
        topology = self.topology
        if topology.subnets.get(network, name) != name:
            return True
        return network.num_addresses == 1 and network.network_address in topology.owner

    @cached_property
    def _lengths(self) -> dict[int, set[int]]:
        """Prefix lengths of all routes, by IP version."""
        lengths: dict[int, set[int]] = {4: set(), 6: set()}
        for device in self._devices:
            for network in device.routes.networks:
                lengths[network.version].add(network.prefixlen)
        return lengths

    def _wider(self, network: Network) -> set[Network]:
        """The networks of routes that contain this one."""
        lengths = self._lengths[network.version]
        return {network.supernet(new_prefix=n) for n in lengths if n < network.prefixlen}

    def _reached(self, device: str, hop: NextHop) -> str | None:
        """The node of a next hop, if it is one."""
        owner = self.topology.owner.get(hop.gateway) if hop.gateway is not None else None
        nodes = [node for _, node in self.topology.behind(device, hop.device)]
        return owner if owner in nodes else nodes[0] if len(nodes) == 1 else None


# A fabric from the answers of devices: next-hop order, weights, buckets, hash settings.


class Assembled(NamedTuple):
    """A fabric and what is to know about the answers it rests on."""

    fabric: Fabric
    shortest: Forwarding
    """Shortest paths over the same links, for comparison."""
    notes: list[Note]


def assemble(
    name: str,
    devices: Sequence[Device],
    rate_bits_per_second: int,
    delay_ns: int,
    source: str | Mapping[str, str],
    *,
    strict: bool,
) -> Assembled:
    """The fabric of devices. source: what their tables are, for all or by name (`Fabric.origin`).

    UsageError without a host or with two devices of one name; strict: also for a next hop that
    leads nowhere, which otherwise is noted, and its route left out.
    """
    names = [device.name for device in devices]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise UsageError(f"{name}: two devices have the name {twice!r}")
    topology = find_topology(devices)
    if not topology.hosts:
        raise UsageError(f"{name}: the tables contain no host: all networks connect routers")
    number = {n: i for i, n in enumerate([*topology.switches, *topology.hosts])}
    ends = np.array([(number[w.a], number[w.b]) for w in topology.wires], np.int64).reshape(-1, 2)
    wires = cables(ends[:, 0], ends[:, 1], rate_bits_per_second, delay_ns)
    by_name = {device.name: device for device in devices}
    rates = {
        End(device.name, port.name): port.bits_per_second
        for device in devices
        for port in device.interfaces or ()
        if port.bits_per_second
    }
    for i, w in enumerate(topology.wires):
        told_rates = [rates[e] for e in (End(w.a, w.port_a), End(w.b, w.port_b)) if e in rates]
        wires.rate_bits_per_second[i] = min(told_rates, default=rate_bits_per_second * w.cables)
    fabric = build(
        name,
        topology.switches,
        tiers_by_distance(
            [2 if n.startswith(VIA) else None for n in topology.switches],
            wires,
            len(topology.switches),
        ),
        topology.hosts,
        wires,
        hash_settings=[by_name[n].hash if n in by_name else None for n in topology.switches],
        explicit_addresses=_addresses(topology),
    )
    fabric = edge_per_host(fabric)
    router = Router(fabric, by_name, topology, number, strict)
    forwarding = router.forwarding()
    if (forwarding.of_family(4) == forwarding.of_family(6)).all():
        forwarding = forwarding._replace(group_of=forwarding.of_family(4), ipv6_from=0)
    spread = [n for n in router.spread if by_name[n].hash is not None]
    if spread:
        text = "their bonds spread packets with a hash of their own, so that the hash of the routes"
        topology.notes.append(
            Note("not represented", "", f"{_first(spread)}: {text} alone places none: left out")
        )
    hash_settings = [
        None if n in router.spread else settings
        for n, settings in zip(topology.switches, fabric.hash_settings, strict=True)
    ]
    ipv4_only = tuple(
        n in router.ipv4_only or (n in by_name and by_name[n].ipv4_only) for n in topology.switches
    )
    origin = Origin(
        ports=tuple((w.port_a, w.port_b) for w in topology.wires),
        links=tuple(", ".join(w.evidence) for w in topology.wires),
        tables=tuple(
            (source if isinstance(source, str) else source[n])
            if n in by_name and by_name[n].tables_read
            else ""
            for n in topology.switches
        ),
        ipv4_only=ipv4_only if any(ipv4_only) else (),
    )
    notes = [Note("not represented", d.name, text) for d in devices for text in d.remarks]
    return Assembled(
        replace(
            fabric,
            forwarding=forwarding,
            routed=False,
            origin=origin,
            hash_settings=tuple(hash_settings),
        ),
        fabric.forwarding,
        [*topology.notes, *notes, *router.notes],
    )


def _addresses(topology: Topology) -> AddressPlan:
    number = {name: i for i, name in enumerate(topology.hosts)}
    explicit: dict[int, tuple[Address, ...]] = {}
    for address, owner in topology.owner.items():
        if owner in number:
            explicit[number[owner]] = (*explicit.get(number[owner], ()), address)
    for network, name in topology.subnets.items():
        if number[name] not in explicit:  # an address that the router cannot have
            free = (a for a in network if a not in topology.owner and a != network.network_address)
            explicit[number[name]] = (next(free, network.network_address),)
    subnets = {network: number[name] for network, name in topology.subnets.items()}
    return AddressPlan(len(topology.hosts), explicit, subnets)


class _Destinations(NamedTuple):
    """The hosts that have an edge."""

    host: Ints
    edge: Int32s
    matches: Matches
    """Of their addresses and networks."""


class Router:
    """Turns routes into groups of links; equal routes of a switch share one group."""

    def __init__(
        self,
        fabric: Fabric,
        devices: Mapping[str, Device],
        topology: Topology,
        number: Mapping[str, int],
        strict: bool,
        versions: Iterable[int] = (),
    ) -> None:
        """versions: IP versions that the fabric is known to route, beside those of `devices`."""
        self._versions = set(versions)
        self.notes: list[Note] = []
        self.ipv4_only: set[str] = set()
        self.spread: set[str] = set()
        """Switches with next hops over bonds of several cables."""
        self._strict = strict
        self._fabric, self._devices = fabric, devices
        self._topology, self._number = topology, number
        self._start = [0]
        self._links: list[int] = []
        self._weights: list[int] = []
        self._buckets: dict[int, UInt16s] = {}
        self._of_hops: dict[tuple[str, tuple[NextHop, ...], tuple[int, ...] | None], int] = {}
        """The groups of routes with equal next hops."""
        self._ipv4: dict[str, bool] = {}
        self._leads: dict[tuple[str, int], bool] = {}
        self._noted: set[Note] = set()

    def forwarding(self) -> Forwarding:
        """Forwarding of the tables, IPv6 by itself; switches without a table use shortest paths."""
        fabric, topology = self._fabric, self._topology
        read = {
            name: device
            for name in topology.switches
            if (device := self._devices.get(name)) is not None and device.tables_read
        }
        hosts = self._destinations([device.routes for device in read.values()])
        group_of = np.full((2, *fabric.forwarding.group_of.shape), -1, np.int32)
        for switch, name in enumerate(topology.switches):
            if name in read:
                group_of[:, switch] = self._row(switch, read[name], hosts)
                continue
            shortest = fabric.forwarding.group_of[switch, hosts.edge]
            for group in np.unique(shortest[shortest >= 0]).tolist():
                edges = hosts.edge[shortest == group]
                links, weights = fabric.group(switch, int(edges[0]))
                group_of[:, switch, edges] = self._add(links.tolist(), weights.tolist())
        return self._stored(*group_of)

    def of_switch(self, switch: int, device: Device) -> Forwarding:
        """Forwarding of one switch alone: `group_of` has one row."""
        four, six = self._row(switch, device, self._destinations([device.routes]))
        return self._stored(four[None], six[None])

    def _stored(self, four: Int32s, six: Int32s) -> Forwarding:
        return Forwarding(
            np.array(self._start, np.int64),
            np.array(self._links, np.int32),
            np.array(self._weights, np.int64),
            np.concatenate([four, six], axis=1),
            self._buckets,
            four.shape[1],
        )

    def _destinations(self, tables: Sequence[Routes]) -> _Destinations:
        """The hosts that have an edge, and what of them the tables can match."""
        fabric, topology = self._fabric, self._topology
        networks_of: dict[str, list[Network]] = {}
        for network, name in topology.subnets.items():
            networks_of.setdefault(name, []).append(network)
        hosts = np.flatnonzero(fabric.attachments.edge >= 0)
        targets = [
            [
                *(ip_network(a) for a in fabric.addresses.explicit.get(host, ())),
                *networks_of.get(topology.hosts[host], ()),
            ]
            for host in hosts.tolist()
        ]
        return _Destinations(hosts, fabric.attachments.edge[hosts], Matches(tables, targets))

    def _row(self, switch: int, device: Device, hosts: _Destinations) -> Int32s:
        """int32[2, edges]: the groups of a switch, of IPv4 and of IPv6; -1 without a route."""
        fabric, routes = self._fabric, device.routes
        row = np.full((2, int(fabric.attachments.edge.max(initial=-1)) + 1), -1, np.int32)
        away = ~(fabric.attachments.switch[hosts.host] == switch).any(1)
        group = np.append(routes.group, -1)  # the last serves hosts without a route
        matched = {v: hosts.matches.of(routes, v)[away] for v in (4, 6)}
        families = {v: hosts.matches.has[v][away] for v in (4, 6)}
        kinds = np.stack([*(group[matched[v]] for v in (4, 6)), *families.values()], axis=1)
        kinds, first, kind_of = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        found = np.empty((2, len(kinds)), np.int32)
        errors: dict[int, UsageError] = {}
        """Why groups of routes lead nowhere."""
        for kind in np.argsort(first).tolist():
            groups: dict[int, int] = {}
            for version, of_routes in zip((4, 6), kinds[kind, :2].tolist(), strict=True):
                if of_routes < 0:
                    continue
                try:
                    groups[version] = self._route_group(device, routes.firsts[of_routes])
                except UsageError as error:
                    if self._strict:
                        raise
                    errors[of_routes] = error
                    groups[version] = -1
            has_families = {v for v in (4, 6) if families[v][first[kind]]}
            found[:, kind] = self._groups(device, groups, has_families)
        for i in np.stack([*matched.values()], axis=1).reshape(-1).tolist() if errors else ():
            if (why := errors.get(int(group[i]))) is not None:
                text = f"no route to {routes.networks[i]}: {why}"
                self._note("next hop", device.name, text)
        row[:, hosts.edge[away]] = found[:, kind_of.reshape(-1)]
        return row

    def _groups(
        self, device: Device, groups: dict[int, int], families: set[int]
    ) -> tuple[int, int]:
        """The groups of a switch towards a host, of IPv4 and of IPv6; -1 without a route.

        groups: of the routes, by IP version; families: the IP versions that the host has. One that
        the host or the fabric does not have gets the group of the other.
        """
        if 4 not in groups and 4 in families and self._routes_ipv4(device):
            groups[4] = -1  # the route of IPv6 leads no packet of IPv4
        if 6 not in groups and 6 in families and (6 in self._gateways or self.leads(device, 6)):
            if any(route.network.version == 6 for route in device.routes.telling()):
                groups[6] = -1
            else:
                self.ipv4_only.add(device.name)  # without any route of IPv6, none was read
        four, six = groups.get(4, groups.get(6, -1)), groups.get(6, groups.get(4, -1))
        if self._content(four) != self._content(six):
            text = "IPv4 and IPv6 have different next hops; a replay of packets uses those of IPv4"
            self._note("address families", device.name, text)
            return four, six
        return four, four

    def _routes_ipv4(self, device: Device) -> bool:
        """Whether a device is to forward IPv4: one of the fabric does, or it has own addresses."""
        if device.name not in self._ipv4:
            known = 4 in self._gateways or self.leads(device, 4)
            self._ipv4[device.name] = known or self._has_ipv4(device)
        return self._ipv4[device.name]

    @cached_property
    def _gateways(self) -> set[int]:
        """The IP versions that the fabric routes."""
        versions = {v for v in (4, 6) for device in self._devices.values() if self.leads(device, v)}
        return versions | self._versions

    def leads(self, device: Device, version: int) -> bool:
        """Whether a device has a route of an IP version with a gateway in the fabric."""
        left_out = self._topology.left_out
        if (device.name, version) not in self._leads:
            self._leads[device.name, version] = any(
                hop.gateway and End(device.name, hop.device) not in left_out
                for route in device.routes.telling()
                if route.network.version == version
                for hop in route.hops
            )
        return self._leads[device.name, version]

    def _has_ipv4(self, device: Device) -> bool:
        """Whether a device has IPv4 on a port with a wire, or on `lo`."""
        ends = [end for address, end in owners([device]).items() if address.version == 4]
        for network, members in connected_networks([device]).items():
            ends += [member.end for member in members if network.version == 4]
        return any(end.port == "lo" or self._topology.behind(*end) for end in ends)

    def _note(self, kind: str, device: str, text: str) -> None:
        note = Note(kind, device, text)
        if note not in self._noted:
            self._noted.add(note)
            self.notes.append(note)

    def _content(self, group: int) -> tuple[list[int], list[int], list[int]]:
        """Links, weights and buckets of a group."""
        part = slice(self._start[group], self._start[group + 1]) if group >= 0 else slice(0)
        buckets = self._buckets.get(group, np.zeros(0, np.uint16)).tolist()
        return self._links[part], self._weights[part], buckets

    def _route_group(self, device: Device, route: Route) -> int:
        """The group of routes with the next hops of this one; UsageError if one leads nowhere."""
        content = device.name, route.hops, route.buckets
        if content not in self._of_hops:
            self._of_hops[content] = self._add_route(device, route)
        return self._of_hops[content]

    def _add(self, links: Iterable[int], weights: Iterable[int]) -> int:
        """Number of a new group."""
        self._links += links
        self._weights += weights
        self._start.append(len(self._links))
        return len(self._start) - 2

    def _add_route(self, device: Device, route: Route) -> int:
        """The group of a route, -1 without a usable next hop; UsageError if one leads nowhere."""
        left_out = self._topology.left_out
        chosen = [
            i
            for i, hop in enumerate(route.hops)
            if hop.usable and End(device.name, hop.device) not in left_out
        ]
        if not chosen:
            return -1
        hops = [route.hops[i] for i in chosen]
        members = [self._links_of(device.name, hop, route) for hop in hops]
        links = [link for of_hop in members for link in of_hop]
        share = lcm(*map(len, members))
        weights = [
            h.weight * share // len(m) for h, m in zip(hops, members, strict=True) for _ in m
        ]
        group = self._add(links, weights)
        if share > 1:
            self.spread.add(device.name)
        elif route.buckets is not None:
            table = [chosen.index(b) for b in route.buckets if b in chosen]
            self._buckets[group] = np.array(table, np.uint16)
        return group

    def _links_of(self, switch: str, hop: NextHop, route: Route) -> list[int]:
        """The link of a next hop, or those of its bond. UsageError if it leads nowhere."""
        topology, end = self._topology, End(switch, hop.device)
        behind = topology.behind(*end)
        owner = topology.owner.get(hop.gateway) if hop.gateway is not None else None
        if not behind and topology.carriers.is_bridge(end):  # its access ports are not told
            behind = [(wire, node) for wire, node in topology.around(switch) if node == owner]
        wires = [wire for wire, _ in behind]
        if not self._is_bond(switch, wires):
            wires = [wire for wire, node in behind if node == owner] or wires
            if len(wires) != 1 and not self._is_bond(switch, wires):
                raise UsageError(
                    f"{route.where}: the next hop {hop.gateway} on {hop.device or 'no device'} of "
                    f"{switch} is on no connected network of the routers, and no LLDP neighbour, "
                    "neighbour MAC or link-local address shows its link"
                )
        source = self._fabric.links.source
        number = self._number[switch]
        return [2 * wire + (0 if int(source[2 * wire]) == number else 1) for wire in wires]

    def _is_bond(self, switch: str, wires: Sequence[int]) -> bool:
        """Whether wires are at different members of one bond."""
        ends = {End(switch, self._topology.port(wire, switch)) for wire in wires}
        bonds = {self._topology.carriers.bond(end) for end in ends}
        return len(bonds) == 1 < len(ends) == len(wires)


# A fabric whose switches are read again: cables stay, and routes, hash settings and ports change.
#
# A fresh discovery would lose the cable of a port without link, and number the others anew.


class Reread:
    """The current fabric; `fabric` changes with every `update`."""

    def __init__(self, fabric: Fabric) -> None:
        """fabric: with the names of ports, as discovery writes it."""
        assert fabric.origin is not None
        per_host = edge_per_host(fabric)
        self.fabric = replace(per_host, forwarding=with_ipv6(per_host.forwarding), routed=False)
        self._attached = self.fabric.attachments.switch
        self._versions = {6} if per_host.forwarding.ipv6_from else set[int]()
        """IP versions that the switches route, as far as they told."""
        self._told: dict[int, HashSettings] = {}
        """The hash settings that each switch told last."""
        names = fabric.nodes.names
        self._number = {name: i for i, name in enumerate(names)}
        self._topology = Topology(
            list(names[: fabric.switches]),
            list(names[fabric.switches :]),
            owner={
                address: fabric.host_name(host)
                for host, addresses in fabric.addresses.explicit.items()
                for address in addresses
            },
            subnets={n: fabric.host_name(host) for n, host in fabric.addresses.subnets.items()},
        )
        for cable, (near, far) in enumerate(fabric.origin.ports):
            a, b = (int(end[2 * cable]) for end in (fabric.links.source, fabric.links.target))
            self._topology.add(Wire(names[a], near, names[b], far, ()))

    def update(self, device: Device, source: str) -> tuple[bool, list[Note]]:
        """Take over what a switch answered now: (whether it forwards otherwise, remarks).

        source: what its tables are, for `Fabric.origin`. Ports to hosts that have no link are lost;
        other ports without link are not: its tables tell whether it still uses them.
        """
        fabric, switch = self.fabric, self._number[device.name]
        if device.interfaces is not None:
            self._topology.carriers = Carriers([device])
        router = Router(fabric, {}, self._topology, self._number, False, self._versions)
        self._versions |= {version for version in (4, 6) if router.leads(device, version)}
        of_device = router.of_switch(switch, device)
        attached = self._attached_now(switch, device)
        old = fabric.origin
        assert old is not None
        tables = (*old.tables[:switch], source, *old.tables[switch + 1 :])
        four = list(old.ipv4_only or (False,) * fabric.switches)
        four[switch] = device.ipv4_only or device.name in router.ipv4_only
        settings = list(fabric.hash_settings)
        settings[switch] = _hash_now(settings[switch], device.hash, self._told.get(switch))
        if device.name in router.spread:
            settings[switch] = None
        if device.hash is not None:
            self._told[switch] = device.hash
        differs = (
            _row(fabric.forwarding, switch) != _row(of_device, 0)
            or bool((attached != fabric.attachments.switch).any())
            or settings[switch] != fabric.hash_settings[switch]
            or tuple(four) != (old.ipv4_only or (False,) * fabric.switches)
        )
        self.fabric = replace(
            fabric,
            forwarding=_with_row(fabric.forwarding, switch, of_device),
            attachments=fabric.attachments._replace(switch=attached),
            hash_settings=tuple(settings),
            origin=old._replace(tables=tables, ipv4_only=tuple(four) if any(four) else ()),
        )
        return differs, router.notes

    def _attached_now(self, switch: int, device: Device) -> Int32s:
        """The switch at each port of every host."""
        attached: Int32s = self.fabric.attachments.switch.copy()
        if device.interfaces is None:
            return attached
        up = {port.name for port in device.interfaces if port.up}
        origin = self.fabric.origin
        assert origin is not None
        for host, port in np.argwhere(self._attached == switch).tolist():
            link = int(self.fabric.attachments.exit_link[host, port])
            name = origin.ports[link // 2][link % 2]
            attached[host, port] = -1 if name and name not in up else switch
        return attached

    def begins_at(self, switches: Ints, hosts: Int32s) -> Bools:
        """bool[n]: whether each host is wired to one of these switches, with a link or without."""
        wired: Bools = np.isin(self._attached[hosts], switches)
        begins: Bools = np.any(wired, axis=1)
        return begins


def _hash_now(
    before: HashSettings | None, reported: HashSettings | None, last: HashSettings | None
) -> HashSettings | None:
    """What the switch tells; a seed that it never told stays while it tells no other.

    last: what it told before.
    """
    if before is None or (reported is not None and reported.seed):
        return reported
    if reported is None:
        return before if before.seed_recovered else None
    if last is not None and last.seed:
        return reported
    usual = {"policy": 1, "fields": 7}
    same = before.model == reported.model
    same = same and {**usual, **before.extra} == {**usual, **reported.extra}
    return before if same else reported


def _row(forwarding: Forwarding, switch: int) -> list[object]:
    """What a switch does with the packets for each edge, whatever the numbers of its groups."""
    known: dict[int, object] = {-1: None}
    for group in np.unique(forwarding.group_of[switch]).tolist():
        if group >= 0:
            part = slice(*forwarding.group_start[group : group + 2].tolist())
            buckets = forwarding.buckets.get(group)
            known[group] = (
                forwarding.group_links[part].tolist(),
                forwarding.group_weights[part].tolist(),
                None if buckets is None else buckets.tolist(),
            )
    return [known[group] for group in forwarding.group_of[switch].tolist()]


def _with_row(forwarding: Forwarding, switch: int, row: Forwarding) -> Forwarding:
    """The forwarding with other groups of one switch; groups that nobody uses are dropped."""
    group_of = forwarding.group_of.copy()
    group_of[switch] = -1
    used = np.unique(group_of[group_of >= 0])
    number = np.full(len(forwarding.group_start), -1, np.int32)  # the last serves -1
    number[used] = np.arange(len(used))
    group_of = number[group_of]
    group_of[switch] = np.where(row.group_of[0] >= 0, row.group_of[0] + len(used), -1)
    sizes = np.diff(forwarding.group_start)
    kept = np.repeat(number[:-1] >= 0, sizes)
    all_sizes = np.concatenate([sizes[used], np.diff(row.group_start)])
    return Forwarding(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(all_sizes)]),
        np.concatenate([forwarding.group_links[kept], row.group_links]).astype(np.int32),
        np.concatenate([forwarding.group_weights[kept], row.group_weights]).astype(np.int64),
        group_of.astype(np.int32),
        _renumbered(forwarding.buckets, number)
        | {group + len(used): table for group, table in row.buckets.items()},
        forwarding.ipv6_from,
    )


def _renumbered(buckets: Mapping[int, UInt16s], number: Int32s) -> dict[int, UInt16s]:
    return {
        int(number[group]): table for group, table in buckets.items() if int(number[group]) >= 0
    }
