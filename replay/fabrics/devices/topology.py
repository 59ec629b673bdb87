"""Nodes and wires that follow from the answers of devices.

A device with a single port in the fabric, or one that does not forward, is a host; every port of
a host with several is a host (NIC) of its own, `name:port`. A connected network in which no
other device has an address is one host, named `device:port`, with all addresses of the
network. A gateway that belongs to no device is a switch `via GATEWAY`, or `via NAME` as LLDP
calls it, and each network behind it a host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..addressing import Address, Network
from .cabling import Cabling, Note, find_links
from .device import Device, NextHop
from .networks import End, Member, connected_networks, management_networks, owners

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
    notes: list[Note] = field(default_factory=list)
    _at: dict[tuple[str, str], list[tuple[int, str]]] = field(default_factory=dict)

    def behind(self, node: str, port: str) -> list[tuple[int, str]]:
        """(wire, node at its other end) of the wires at a port."""
        return self._at.get((node, port), [])

    def add(self, wire: Wire) -> None:
        """Add a wire."""
        self._at.setdefault((wire.a, wire.port_a), []).append((len(self.wires), wire.b))
        self._at.setdefault((wire.b, wire.port_b), []).append((len(self.wires), wire.a))
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


class _Builder:
    def __init__(self, devices: Sequence[Device]) -> None:
        self.topology = Topology()
        self._devices = devices
        networks = connected_networks(devices)
        self._owner = owners(devices)
        management = management_networks(devices, networks, self._owner)
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
        self._cabling: Cabling = find_links(devices, self.networks, self._owner, self._left_out)
        for network, ends in management.items():
            names = {end.device for end in ends}
            text = f"{network} is a management network of {len(names)} devices: left out"
            self.topology.notes.append(Note("management network", "", text))
        self.topology.notes += self._cabling.notes
        self._lengths: dict[int, set[int]] = {4: set(), 6: set()}
        """Prefix lengths of all routes, by IP version."""
        for device in devices:
            for route in device.routes:
                self._lengths[route.network.version].add(route.network.prefixlen)
        self._ports = {device.name: self._fabric_ports(device) for device in devices}

    def _fabric_ports(self, device: Device) -> list[str]:
        """Ports in the fabric: with a network, a link or a next hop."""
        name = device.name
        found = [m.end.port for ms in self.networks.values() for m in ms if m.end.device == name]
        for link in self._cabling.links:
            found += [end.port for end in (link.a, link.b) if end.device == name]
        found += [hop.device for route in device.routes for hop in route.hops if hop.gateway]
        kept = dict.fromkeys(p for p in found if End(name, p) not in self._left_out and p)
        return list(kept)

    def add_nodes(self) -> None:
        """Switches and hosts in the order of the devices."""
        self._hosts: dict[str, dict[str, str]] = {}
        for device in self._devices:
            ports = self._ports[device.name]
            alone = len(ports) == 1 and len(self._devices) > 1
            if alone or (device.forwards is False and ports):
                several = len(ports) > 1
                names = {p: f"{device.name}:{p}" if several else device.name for p in ports}
                self._hosts[device.name] = names
                self.topology.hosts += names.values()
            else:
                self.topology.switches.append(device.name)
        for address, end in self._owner.items():
            if end.device not in self._hosts:
                self.topology.owner[address] = end.device
            elif end.port in self._hosts[end.device]:
                self.topology.owner[address] = self._hosts[end.device][end.port]

    def _node(self, end: End) -> str:
        names = self._hosts.get(end.device)
        return end.device if names is None else names[end.port]

    def add_links(self) -> None:
        """Wires between devices; hosts are not wired to hosts."""
        for link in self._cabling.links:
            if link.a.device in self._hosts and link.b.device in self._hosts:
                continue
            a, b = self._node(link.a), self._node(link.b)
            self.topology.add(Wire(a, link.a.port, b, link.b.port, link.evidence))

    def add_network(self, network: Network, members: Sequence[Member]) -> None:
        """Gateways and hosts of one connected network whose tables are missing."""
        if len(members) > 1:
            nodes = [self._node(m.end) for m in members if m.end.device in self._hosts]
            if len(nodes) == 1:
                self.topology.subnets[network] = nodes[0]
            return
        end, own = members[0]
        behind = self.topology.behind(self._node(end), end.port)
        if behind:
            hosts = [node for _, node in behind if node in self.topology.hosts]
            if len(hosts) == 1:
                self.topology.subnets[network] = hosts[0]
            return
        if end.device in self._hosts:
            return
        gateways = self._gateways_in(end, network)
        for gateway in gateways:
            name = self._stub_name(end, str(gateway), len(gateways) == 1)
            self.topology.owner[gateway] = name
            self._stub(end, name)
        if not gateways and (network.num_addresses > 2 or own is not None):
            name = f"{end.device}:{end.port}"
            if name not in self.topology.hosts:
                self.topology.hosts.append(name)
            self._wire(end, name, NO_NEIGHBOUR)
            self.topology.subnets[network] = name

    def _gateways_in(self, end: End, network: Network) -> list[Address]:
        device = next(d for d in self._devices if d.name == end.device)
        return list(
            dict.fromkeys(
                hop.gateway
                for route in device.routes
                for hop in route.hops
                if hop.gateway is not None
                and hop.gateway.version == network.version
                and hop.gateway in network
                and hop.gateway not in self.topology.owner
            )
        )

    def _stub_name(self, end: End, otherwise: str, alone: bool = True) -> str:
        """The name of a switch without tables: as LLDP tells if it is alone behind the port."""
        known = self._cabling.strangers.get(end) if alone else None
        return VIA + _UNSAFE.sub("?", known or otherwise)

    def _stub(self, end: End, name: str) -> None:
        """A switch without tables, behind a port."""
        if name not in self.topology.switches:
            self.topology.switches.append(name)
        self._wire(end, name, GATEWAY)

    def _wire(self, end: End, node: str, evidence: str) -> None:
        if all(other != node for _, other in self.topology.behind(end.device, end.port)):
            self.topology.add(Wire(end.device, end.port, node, "", (evidence,)))

    def add_unnumbered_gateways(self) -> None:
        """Switches without tables behind link-local next hops, named by LLDP if it tells."""
        for device in self._devices:
            for route in device.routes if device.name not in self._hosts else ():
                for hop in route.hops:
                    end = End(device.name, hop.device)
                    if hop.gateway is None or not hop.gateway.is_link_local:
                        continue
                    if end in self._left_out or self.topology.behind(*end):
                        continue
                    name = f"{hop.gateway} on {end.device} {end.port}"
                    self._stub(end, self._stub_name(end, name))

    def add_networks_behind_gateways(self) -> None:
        """Hosts for networks behind switches without tables."""
        topology = self.topology
        hosts = set(topology.hosts)
        around = {wider for known in topology.subnets for wider in self._wider(known)}
        for device in self._devices:
            for route in device.routes if device.name not in self._hosts else ():
                ends = [self._reached(device.name, hop) for hop in route.hops]
                neighbours = list(dict.fromkeys(n for n in ends if n and n.startswith(VIA)))
                name = str(route.network)
                if not neighbours or route.network in around or self._known(route.network, name):
                    continue
                if name not in hosts:
                    topology.hosts.append(name)
                    hosts.add(name)
                topology.subnets[route.network] = name
                around |= self._wider(route.network)
                for neighbour in neighbours:
                    if not topology.behind(neighbour, f"to {name}"):
                        topology.add(Wire(neighbour, f"to {name}", name, "", (GATEWAY,)))

    def _known(self, network: Network, name: str) -> bool:
        """Whether hosts or switches with answers have a network."""
        topology = self.topology
        if topology.subnets.get(network, name) != name:
            return True
        return network.num_addresses == 1 and network.network_address in topology.owner

    def _wider(self, network: Network) -> set[Network]:
        """The networks of routes that contain this one."""
        lengths = self._lengths[network.version]
        return {network.supernet(new_prefix=n) for n in lengths if n < network.prefixlen}

    def _reached(self, device: str, hop: NextHop) -> str | None:
        """The node of a next hop, if it is one."""
        if hop.gateway is None:
            return None
        owner = self.topology.owner.get(hop.gateway)
        nodes = [node for _, node in self.topology.behind(device, hop.device)]
        return owner if owner in nodes else nodes[0] if len(nodes) == 1 else None
