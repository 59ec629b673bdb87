"""A fabric from the answers of devices: next-hop order, weights, buckets, hash settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from ipaddress import ip_network
from typing import NamedTuple

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Int32s, UInt16s
from ..addressing import Address, AddressPlan, Network
from ..build import build, cables
from ..fabric import Fabric, Origin
from ..forwarding import Forwarding
from ..routes import edge_per_host
from ..tiers import tiers_by_distance
from .cabling import Note
from .device import Device, NextHop, Route
from .networks import End, connected_networks, owners
from .topology import VIA, Topology, find_topology


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
    told: str | Mapping[str, str],
    *,
    strict: bool,
) -> Assembled:
    """The fabric of devices. told: what their tables are, for all or by name, for `Fabric.origin`.

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
        wires.rate_bits_per_second[i] = min(told_rates, default=rate_bits_per_second)
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
    ipv4_only = tuple(
        n in router.ipv4_only or (n in by_name and by_name[n].ipv4_only) for n in topology.switches
    )
    origin = Origin(
        ports=tuple((w.port_a, w.port_b) for w in topology.wires),
        links=tuple(", ".join(w.evidence) for w in topology.wires),
        tables=tuple(
            (told if isinstance(told, str) else told[n])
            if n in by_name and by_name[n].tables_read
            else ""
            for n in topology.switches
        ),
        ipv4_only=ipv4_only if any(ipv4_only) else (),
    )
    notes = [Note("not represented", d.name, text) for d in devices for text in d.remarks]
    return Assembled(
        replace(fabric, forwarding=forwarding, routed=False, origin=origin),
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
            taken = {a for a in topology.owner if a.version == network.version and a in network}
            free = (a for a in network if a not in taken and a != network.network_address)
            explicit[number[name]] = (next(free, network.network_address),)
    subnets = {network: number[name] for network, name in topology.subnets.items()}
    return AddressPlan(len(topology.hosts), explicit, subnets)


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
        self._strict = strict
        self._fabric, self._devices = fabric, devices
        self._topology, self._number = topology, number
        self._start = [0]
        self._links: list[int] = []
        self._weights: list[int] = []
        self._buckets: dict[int, UInt16s] = {}
        self._known: dict[tuple[int, Network], int] = {}
        self._ipv4: dict[str, bool] = {}
        self._noted: set[Note] = set()
        self._by_network: dict[str, dict[Network, Route]] = {}
        """The first route of each network, by device."""
        self._lengths: dict[str, dict[int, list[int]]] = {}
        """Prefix lengths of the routes, the longest first, by device and IP version."""

    def forwarding(self) -> Forwarding:
        """Forwarding of the tables, IPv6 by itself; switches without a table use shortest paths."""
        fabric, topology = self._fabric, self._topology
        group_of = np.full((2, *fabric.forwarding.group_of.shape), -1, np.int32)
        for host, edge, targets in self._destinations():
            for switch, switch_name in enumerate(topology.switches):
                if (fabric.attachments.switch[host] == switch).any():
                    continue
                device = self._devices.get(switch_name)
                if device is None or not device.tables_read:
                    links, weights = fabric.group(switch, edge)
                    if len(links):
                        added = self._add(links.tolist(), weights.tolist())
                        group_of[:, switch, edge] = added
                    continue
                group_of[:, switch, edge] = self._groups(switch, device, targets)
        return self._stored(*group_of)

    def of_switch(self, switch: int, device: Device) -> Forwarding:
        """Forwarding of one switch alone: `group_of` has one row."""
        fabric = self._fabric
        group_of = np.full((2, 1, int(fabric.attachments.edge.max(initial=-1)) + 1), -1, np.int32)
        for host, edge, targets in self._destinations():
            if not (fabric.attachments.switch[host] == switch).any():
                group_of[:, 0, edge] = self._groups(switch, device, targets)
        return self._stored(*group_of)

    def _stored(self, four: Int32s, six: Int32s) -> Forwarding:
        return Forwarding(
            np.array(self._start, np.int64),
            np.array(self._links, np.int32),
            np.array(self._weights, np.int64),
            np.concatenate([four, six], axis=1),
            self._buckets,
            four.shape[1],
        )

    def _destinations(self) -> Iterator[tuple[int, int, list[Network]]]:
        """(host, its edge, its addresses and networks) of the hosts that have an edge."""
        fabric, topology = self._fabric, self._topology
        networks_of: dict[str, list[Network]] = {}
        for network, name in topology.subnets.items():
            networks_of.setdefault(name, []).append(network)
        for host, name in enumerate(topology.hosts):
            edge = int(fabric.attachments.edge[host])
            if edge >= 0:
                own = [ip_network(a) for a in fabric.addresses.explicit.get(host, ())]
                yield host, edge, [*own, *networks_of.get(name, ())]

    def _groups(self, switch: int, device: Device, targets: Sequence[Network]) -> tuple[int, int]:
        """The groups of a switch towards a host, of IPv4 and of IPv6; -1 without a route.

        A family that the host or the fabric does not have gets the group of the other.
        """
        found = {
            version: self._route_group(switch, device, route)
            for version in (4, 6)
            if (route := self._lookup(device, [t for t in targets if t.version == version]))
        }
        if 4 not in found and self._routes_ipv4(device) and any(t.version == 4 for t in targets):
            found[4] = -1  # the route of IPv6 leads no packet of IPv4
        leads = 6 in self._gateways or self.leads(device, 6)
        if 6 not in found and leads and any(t.version == 6 for t in targets):
            if any(route.network.version == 6 for route in device.routes):
                found[6] = -1
            else:
                self.ipv4_only.add(device.name)  # without any route of IPv6, none was read
        four, six = found.get(4, found.get(6, -1)), found.get(6, found.get(4, -1))
        if self._content(four) != self._content(six):
            text = "IPv4 and IPv6 have different next hops; a replay of packets uses those of IPv4"
            self._note("address families", device.name, text)
            return four, six
        return four, four

    def _lookup(self, device: Device, targets: Sequence[Network]) -> Route | None:
        """The longest route that matches the first address (or network) that any route matches."""
        if device.name not in self._by_network:
            routes = {route.network: route for route in reversed(device.routes)}
            self._by_network[device.name] = routes
            self._lengths[device.name] = {
                version: sorted({n.prefixlen for n in routes if n.version == version}, reverse=True)
                for version in (4, 6)
            }
        for target in targets:
            for length in self._lengths[device.name][target.version]:
                if length <= target.prefixlen:
                    wider = target.supernet(new_prefix=length)
                    if route := self._by_network[device.name].get(wider):
                        return route
        return None

    def _routes_ipv4(self, device: Device) -> bool:
        """Whether a device is to forward IPv4: one of the fabric does, or it has own addresses."""
        if device.name not in self._ipv4:
            known = 4 in self._gateways or self.leads(device, 4)
            self._ipv4[device.name] = known or self._has_ipv4(device)
        return self._ipv4[device.name]

    @cached_property
    def _gateways(self) -> set[int]:
        """The IP versions that the fabric routes."""
        told = {v for v in (4, 6) for one in self._devices.values() if self.leads(one, v)}
        return told | self._versions

    def leads(self, device: Device, version: int) -> bool:
        """Whether a device has a route of an IP version with a gateway in the fabric."""
        left_out = self._topology.left_out
        return any(
            hop.gateway and End(device.name, hop.device) not in left_out
            for route in device.routes
            if route.network.version == version
            for hop in route.hops
        )

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

    def _route_group(self, switch: int, device: Device, route: Route) -> int:
        key = (switch, route.network)
        if key not in self._known:
            self._known[key] = self._add_route(device, route)
        return self._known[key]

    def _add(self, links: Iterable[int], weights: Iterable[int]) -> int:
        """Number of a new group."""
        self._links += links
        self._weights += weights
        self._start.append(len(self._links))
        return len(self._start) - 2

    def _add_route(self, device: Device, route: Route) -> int:
        """The group of a route, -1 when it has no usable next hop."""
        left_out = self._topology.left_out
        chosen = [
            i
            for i, hop in enumerate(route.hops)
            if hop.usable and End(device.name, hop.device) not in left_out
        ]
        if not chosen:
            return -1
        hops = [route.hops[i] for i in chosen]
        try:
            links = [self._link(device.name, hop, route) for hop in hops]
        except UsageError as error:
            if self._strict:
                raise
            self._note("next hop", device.name, f"no route to {route.network}: {error}")
            return -1
        group = self._add(links, [hop.weight for hop in hops])
        if route.buckets is not None:
            table = [chosen.index(b) for b in route.buckets if b in chosen]
            self._buckets[group] = np.array(table, np.uint16)
        return group

    def _link(self, switch: str, hop: NextHop, route: Route) -> int:
        """The link of a next hop. UsageError if it leads nowhere."""
        behind = self._topology.behind(switch, hop.device)
        owner = self._topology.owner.get(hop.gateway) if hop.gateway is not None else None
        wires = [wire for wire, node in behind if node == owner] or [wire for wire, _ in behind]
        if len(wires) != 1:
            raise UsageError(
                f"{route.where}: the next hop {hop.gateway} on {hop.device or 'no device'} of "
                f"{switch} is on no connected network of the routers, and no LLDP neighbour, "
                "neighbour MAC or link-local address shows its link"
            )
        forth = int(self._fabric.links.source[2 * wires[0]]) == self._number[switch]
        return 2 * wires[0] + (0 if forth else 1)
