"""Devices of a fabric as their tables describe them: interfaces, networks, limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from typing import Literal, NamedTuple, TypeAlias

from ..hashing.settings import HashSettings
from .fabric import Address, Network

# What one switch or host answered: interfaces, routes, neighbours, hash settings.


class NextHop(NamedTuple):
    """One next hop of a route."""

    gateway: Address | None
    device: str
    weight: int = 1
    usable: bool = True
    """False for a next hop that routers remove from the group: dead, or without link."""


@dataclass(frozen=True, slots=True)
class Route:
    """One route."""

    network: Network
    hops: tuple[NextHop, ...]
    """In table order; empty for routes without next hop, such as blackholes."""
    source: Address | None
    """The device's own address on a connected network."""
    where: str
    buckets: tuple[int, ...] | None = None
    """Resilient groups: the next hop of every bucket, as an index into `hops`."""

    @property
    def connected(self) -> bool:
        """Whether the network is on a link of the device itself."""
        return len(self.hops) == 1 and self.hops[0].gateway is None and self.hops[0].device != ""


class Interface(NamedTuple):
    """One port."""

    name: str
    mac: str
    addresses: tuple[IPv4Interface | IPv6Interface, ...]
    up: bool
    """Whether it has a link."""
    master: str = ""
    """The bond or bridge it belongs to, whose name routes use; empty for none."""
    vrf: str = ""
    """The VRF it belongs to; empty for none."""
    kind: str = ""
    """`vxlan` for a tunnel; else not told."""
    bits_per_second: int = 0
    """0: not told."""
    aliases: tuple[str, ...] = ()
    """Other names by which its LLDP neighbours may know it, such as its SNMP index."""


class Advertised(NamedTuple):
    """A neighbour as it describes itself with LLDP (IEEE 802.1AB)."""

    port: str
    """The port of the device that heard it."""
    system: str
    chassis: str
    """Chassis id, such as a MAC address."""
    far_port: str
    """Port id: the name or the MAC address of the neighbour's port."""
    addresses: tuple[str, ...]
    """Management addresses."""


class Resolved(NamedTuple):
    """An entry of the neighbour table (ARP, neighbour discovery)."""

    port: str
    mac: str


@dataclass(frozen=True, slots=True)
class Device:
    """The answers of one device. None where it was not asked."""

    name: str
    routes: tuple[Route, ...]
    hash: HashSettings | None = None
    """None: unknown, such as on a switch that forwards in hardware."""
    ipv4_only: bool = False
    """Whether IPv6 packets are hashed in another way."""
    forwards: bool | None = None
    """Whether it forwards packets of others; None: not asked."""
    interfaces: tuple[Interface, ...] | None = None
    advertised: tuple[Advertised, ...] | None = None
    resolved: tuple[Resolved, ...] | None = None
    remarks: tuple[str, ...] = ()
    """Answers that the fabric cannot represent, in words."""
    tables_read: bool = True
    """Whether `routes` is its table; without one the fabric assumes shortest paths."""
    system: str = ""
    """Its own name, as LLDP neighbours hear it; empty: `name`."""
    chassis: str = ""
    """Its own LLDP chassis id."""
    hash_in_words: str = ""
    """What it shows of a hash whose function is not known."""
    unexpected: tuple[str, ...] = ()
    """Answers that are not as documented: command, place, what was expected."""


# What the interfaces of a device do that a fabric does not represent: VRFs, bonds, VXLAN.

_MOST_NAMED = 256
"""VRFs or bonds of a device with a line each."""


def limits_of(interfaces: Sequence[Interface]) -> Iterator[str]:
    """One line per VRF and bond, one for all VXLAN ports; one for all VRFs or bonds of many."""
    vrfs = _by(interfaces, "vrf")
    if len(vrfs) > _MOST_NAMED:
        ports = sum(map(len, vrfs.values()))
        yield f"{len(vrfs):,} VRFs are left out with {ports:,} ports: only the main table was read"
    else:
        for vrf, names in vrfs.items():
            yield f"VRF {vrf} is left out with {', '.join(names)}: only the main table was read"
    bonds = _by(interfaces, "master")
    if len(bonds) > _MOST_NAMED:
        ports = sum(map(len, bonds.values()))
        yield f"{len(bonds):,} bonds join {ports:,} ports: which a packet takes is not known"
    else:
        for bond, names in bonds.items():
            yield f"{bond} joins {', '.join(names)}: which of them a packet takes is not known"
    tunnels = [port.name for port in interfaces if port.kind == "vxlan"]
    if tunnels:
        yield (
            f"VXLAN on {', '.join(tunnels)}: the tables of the underlay place the outer packets, "
            "and overlay routes are not read"
        )


def _by(interfaces: Sequence[Interface], key: Literal["vrf", "master"]) -> dict[str, list[str]]:
    """The names of ports by their VRF or bond."""
    devices_by: dict[str, list[str]] = {}
    for port in interfaces:
        if name := getattr(port, key):
            devices_by.setdefault(name, []).append(port.name)
    return devices_by


# Connected networks of devices, and management networks, which carry no traffic of the fabric.
#
# A network is for management if no member routes through another member, every member
# has other ports, and it has three or more members or all its ports have names of management
# ports.

_MANAGEMENT = re.compile(
    r"(eth0|mgmt\d*|ma\d+|Management\d+(/\d+)*|fxp\d+|em0|v?me0?|oob\d*|MEth\S*)"
)
"""Names of management ports: Cumulus and SONiC, NX-OS, EOS, Junos, VRP."""

_PRIVATE = re.compile(
    r"docker\d+|virbr\d+|lxcbr\d+|lxdbr\d+|podman\d+|cni\d+|br-[0-9a-f]{12}"
    r"|lo|[Ll]oop[Bb]ack\d+|lo\d+(\.\d+)?"
)
"""Bridges of containers and virtual machines, the same network on every host; loopbacks."""


class End(NamedTuple):
    """One port of a device."""

    device: str
    port: str


class Member(NamedTuple):
    """A device on a connected network."""

    end: End
    address: Address | None
    """None if the table does not show it."""


Networks: TypeAlias = Mapping[Network, Sequence[Member]]


def connected_networks(devices: Sequence[Device]) -> dict[Network, list[Member]]:
    """The connected networks with their members, in table order; not loopback and link-local.

    Of a device whose table could not be read: the networks of its addresses.
    """
    members: dict[Network, list[Member]] = {}
    for device in devices:
        for route in device.routes:
            port = route.hops[0].device if route.hops else ""
            private = _PRIVATE.fullmatch(port)
            if route.connected and not private and not route.network.is_link_local:
                end = End(device.name, port)
                members.setdefault(route.network, []).append(Member(end, route.source))
        for interface in () if device.tables_read else device.interfaces or ():
            for address in interface.addresses:
                network = address.network
                if _PRIVATE.fullmatch(interface.name) or network.num_addresses == 1:
                    continue
                if not network.is_link_local and not network.is_loopback:
                    member = Member(End(device.name, interface.name), address.ip)
                    members.setdefault(network, []).append(member)
    return members


def owners(devices: Sequence[Device]) -> dict[Address, End]:
    """The port of every address that is not link-local."""
    owner: dict[Address, End] = {}
    for device in devices:
        for route in device.routes:
            if route.connected and route.source is not None:
                owner.setdefault(route.source, End(device.name, route.hops[0].device))
        for port in device.interfaces or ():
            for address in port.addresses:
                if not address.ip.is_link_local and not address.ip.is_loopback:
                    owner.setdefault(address.ip, End(device.name, port.name))
    return owner


def management_networks(
    devices: Sequence[Device], networks: Networks, owner: Mapping[Address, End]
) -> dict[Network, list[End]]:
    """The management networks and their ports."""
    by_name = {device.name: device for device in devices}
    management = {}
    for network, members in networks.items():
        names = {member.end.device for member in members}
        typical = all(_MANAGEMENT.fullmatch(member.end.port) for member in members)
        if len(names) < (2 if typical else 3):
            continue
        if any(_routes_through(by_name[name], network, names, owner, typical) for name in names):
            continue
        if all(_other_ports(by_name[member.end.device], member.end.port) for member in members):
            management[network] = [member.end for member in members]
    return management


def _routes_through(
    device: Device,
    network: Network,
    members: set[str],
    owner: Mapping[Address, End],
    typical: bool,
) -> bool:
    """Whether a device routes through another member; default routes may be for management."""
    for route in device.routes:
        if typical and not route.network.prefixlen:
            continue
        for hop in route.hops:
            gateway = hop.gateway
            if gateway is not None and gateway.version == network.version and gateway in network:
                end = owner.get(gateway)
                if end is not None and end.device in members - {device.name}:
                    return True
    return False


def _other_ports(device: Device, port: str) -> bool:
    return not device.tables_read or any(
        hop.device not in ("", "lo", port)
        for route in device.routes
        if not route.network.is_link_local
        for hop in route.hops
    )
