"""Devices of a fabric as their tables describe them: interfaces, networks, limits."""

from __future__ import annotations

import re
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from typing import Literal, NamedTuple, TypeAlias, overload

import numpy as np

from ...kernels.kernel import Bools, Int32s
from ..hashing.settings import HashSettings
from .fabric import Address, Network

# What one switch or host answered: interfaces, routes, neighbours, hash settings.


class End(NamedTuple):
    """One port of a device."""

    device: str
    port: str


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
        """Whether the network is on a link of the device itself.

        A single address without a gateway is the neighbour of an unnumbered port: no network.
        """
        return self.network.num_addresses > 1 and self.without_gateway

    @property
    def without_gateway(self) -> bool:
        """Whether its one next hop is a port alone."""
        return len(self.hops) == 1 and self.hops[0].gateway is None and self.hops[0].device != ""


class Routes(Sequence[Route]):
    """The routes of a device as columns: those with equal next hops are of one group.

    A large fabric has millions of routes and few groups: what is asked of all routes is asked of
    their groups (`telling`), or of the columns.
    """

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self.networks: list[Network] = []
        self.firsts: list[Route] = []
        """The first route of each group."""
        self._group = array("i")
        self._known: dict[object, int] = {}
        self._telling: tuple[Route, ...] | None = None
        for route in routes:
            self.append(route)

    def append(self, route: Route) -> int:
        """Add a route; returns its group."""
        group = self._group_like(route)
        self.add(route.network, group)
        return group

    def _group_like(self, route: Route) -> int:
        """The group of a route, which is new if it is the first."""
        group = self._known.setdefault((route.hops, route.source, route.buckets), len(self.firsts))
        if group == len(self.firsts):
            self.firsts.append(route)
        return group

    def extend(self, other: Routes) -> None:
        """Add all routes of another table."""
        groups = [self._group_like(first) for first in other.firsts]
        self.networks += other.networks
        self._group.extend(groups[group] for group in other._group)
        self._telling = None

    def add(self, network: Network, group: int) -> None:
        """Add a route of a known group."""
        self.networks.append(network)
        self._group.append(group)
        self._telling = None

    @property
    def group(self) -> Int32s:
        """int32[routes]: the group of each route."""
        return np.array(self._group, np.int32)

    def __len__(self) -> int:
        return len(self.networks)

    @overload
    def __getitem__(self, index: int) -> Route: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Route, ...]: ...
    def __getitem__(self, index: int | slice) -> Route | tuple[Route, ...]:
        """A route; `where` is the place of the first route of its group."""
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        first = self.firsts[self._group[index]]
        return Route(self.networks[index], first.hops, first.source, first.where, first.buckets)

    def telling(self) -> tuple[Route, ...]:
        """In table order, every route whose next hop is a port alone, and one of the others per
        group, IP version and whether it is a default route: more of them differ in the network
        only."""
        if self._telling is None:
            group = self.group.astype(np.int64)
            alone = np.array([route.without_gateway for route in self.firsts], np.bool_)[group]
            count = len(group)
            six = np.fromiter((n.version == 6 for n in self.networks), np.bool_, count)
            default = np.fromiter((not n.prefixlen for n in self.networks), np.bool_, count)
            _, first = np.unique(group * 4 + six * 2 + default, return_index=True)
            alone[first] = True
            self._telling = tuple(self[i] for i in np.flatnonzero(alone).tolist())
        return self._telling

    def of_groups(self, wanted: Bools) -> Iterator[Route]:
        """The routes of some groups, in table order; wanted: bool[groups]."""
        for i in np.flatnonzero(wanted[self.group]).tolist():
            yield self[i]


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
    """`vxlan` for a tunnel, `bridge`, `bond`, `team`, `vlan` as Linux names them; else not told."""
    bits_per_second: int = 0
    """0: not told."""
    aliases: tuple[str, ...] = ()
    """Other names by which its LLDP neighbours may know it, such as its SNMP index."""
    parent: str = ""
    """The port of the device whose frames it tags, as Linux tells; empty: not told."""


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
    routes: Routes
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
    kind: Literal["switch", "host", ""] = ""
    """What the inventory calls it; empty: nothing."""
    asked_at: Address | None = None
    """The address at which the inventory asks it; None: a name, or no inventory."""


# Ports that other ports carry: a subinterface is on the cable of its port, a port channel or bond
# is the cables of its members, and a bridge or VLAN interface (SVI) has no cable of its own: it
# forwards through the ports that the neighbour table and LLDP name.

_SUBINTERFACE = re.compile(r"(.+)\.\d+")
_SVI = re.compile(r"(vlan|vlanif|bdi|bvi|vbdif|ve)[ .]?\d+|irb(\.\d+)?", re.IGNORECASE)
"""Names of VLAN interfaces: EOS, NX-OS, SONiC and Cumulus, VRP, Junos, IOS."""
_BRIDGE = re.compile(r"br[-_]?\w*|bridge\w*", re.IGNORECASE)
"""Names of bridges, where the kind of a port is not told."""

_BOND = re.compile(r"bond\w*|team\w*|port-?channel\d+|ae\d+|eth-trunk\d+", re.IGNORECASE)
"""Names of port channels and bonds, where only an answer names the port."""


class Carriers:
    """Which ports of devices carry which others."""

    def __init__(self, devices: Iterable[Device] = ()) -> None:
        self._parent: dict[End, End] = {}
        """The port whose frames a subinterface tags."""
        self._master: dict[End, End] = {}
        """The bond or bridge of a member."""
        self._members: dict[End, list[End]] = {}
        self._bridges: set[End] = set()
        for device in devices:
            self.read(device)

    def read(self, device: Device) -> None:
        """The ports that a device names, read for the first time."""
        ports = {port.name: port for port in device.interfaces or ()}
        for port in ports.values():
            end = End(device.name, port.name)
            parent = port.parent or parent_of(port.name)
            if port.kind == "bridge" or (not port.kind and _is_bridge(port.name)):
                self._bridges.add(end)
            if parent in ports and parent != port.name:
                self._parent[end] = End(device.name, parent)
            if port.master in ports and port.master != port.name:
                self._master[end] = End(device.name, port.master)
                self._members.setdefault(self._master[end], []).append(end)

    def of(self, end: End) -> tuple[End, ...]:
        """The ports with cables that carry a port, itself if it has its own; none for an SVI whose
        access ports are not told."""
        seen: set[End] = set()
        waiting, ends = [end], []
        while waiting:
            at = waiting.pop(0)
            if at in seen:
                continue
            seen.add(at)
            inner = [self._parent[at]] if at in self._parent else self._members.get(at, [])
            waiting += inner
            if not inner and at not in self._bridges:
                ends.append(at)
        return tuple(ends)

    def is_bridge(self, end: End) -> bool:
        """Whether a port is a bridge or an SVI: frames leave it by the MAC address table."""
        for _ in range(_DEEPEST):
            end = self._parent.get(end, end)
        return end in self._bridges

    def bond(self, end: End) -> End:
        """The bond of a port or VLAN, which spreads packets over its members with a hash of its
        own; of a port without one, the port itself."""
        for _ in range(_DEEPEST):
            upper = self._parent.get(end) or self._master.get(end, end)
            if upper in self._bridges and end not in self._parent:
                break
            end = upper
        return end

    def adapter(self, end: End) -> End:
        """The network adapter of a host that a port belongs to: a bond or bridge with all its ports
        and VLANs, or the port itself."""
        for _ in range(_DEEPEST):
            end = self._parent.get(end) or self._master.get(end, end)
        return end


_DEEPEST = 8
"""Most levels of VLANs, bonds and bridges; names of hostile answers may be circular."""


def _is_bridge(name: str) -> bool:
    return bool(_SVI.fullmatch(name) or _BRIDGE.fullmatch(name))


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
    bridges = {port.name for port in interfaces if port.kind == "bridge"}
    bonds = {
        name: ports
        for name, ports in _by(interfaces, "master").items()
        if name not in bridges and not _is_bridge(name)
    }
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
# A network is for management if a port on it is in a management VRF or has a name that only
# management ports have, whatever single devices answer. Without these, if no member routes through
# another member and
# - it holds addresses at which the inventory asks several devices, or
# - several of its ports have names that management ports often have, and more than half of its
#   ports are on devices with other ports, or
# - it has three or more members, all with other ports.
# A port without such a name that LLDP of both ends shows on a cable stays in the fabric.

_MANAGEMENT_ONLY = re.compile(r"(mgmt\d*|ma\d+|Management\d+(/\d+)*|fxp\d+|oob\d*|MEth\S*)")
"""Names of management ports: NX-OS, EOS, Junos, VRP."""
_MANAGEMENT = re.compile(_MANAGEMENT_ONLY.pattern + r"|eth0|em0|v?me0?")
"""The same, and names that other ports have too: Linux, Cumulus and SONiC, Junos."""
_MANAGEMENT_VRF = re.compile(r"mgmt|manage|\boob\b", re.IGNORECASE)

_PRIVATE = re.compile(
    r"docker\d+|virbr\d+|lxcbr\d+|lxdbr\d+|podman\d+|cni\d+|br-[0-9a-f]{12}"
    r"|lo|[Ll]oop[Bb]ack\d+|lo\d+(\.\d+)?"
)
"""Bridges of containers and virtual machines, the same network on every host; loopbacks."""


class Member(NamedTuple):
    """A device on a connected network."""

    end: End
    address: Address | None
    """None if the table does not show it."""


Networks: TypeAlias = Mapping[Network, Sequence[Member]]


def is_network(route: Route, ports: Mapping[str, Interface]) -> bool:
    """Whether a route is that of a network on a port: a route that was learned over an unnumbered
    port names no gateway either, but is none of the networks of its addresses."""
    if not route.connected:
        return False
    name = route.hops[0].device
    if route.source is not None or name not in ports:
        return True
    version = route.network.version
    addresses = [a for a in ports[name].addresses if a.version == version and not a.is_link_local]
    return not addresses or any(address.ip in route.network for address in addresses)


def connected_networks(devices: Sequence[Device]) -> dict[Network, list[Member]]:
    """The connected networks with their members, in table order; not loopback and link-local.

    Of a device whose table could not be read: the networks of its addresses.
    """
    members: dict[Network, list[Member]] = {}
    for device in devices:
        ports = {port.name: port for port in device.interfaces or ()}
        for route in device.routes.telling():
            if is_network(route, ports) and not route.network.is_link_local:
                end = End(device.name, route.hops[0].device)
                if _PRIVATE.fullmatch(end.port):
                    continue
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
        for route in device.routes.telling():
            if route.without_gateway and route.source is not None:
                owner.setdefault(route.source, End(device.name, route.hops[0].device))
        for port in device.interfaces or ():
            for address in port.addresses:
                if not address.ip.is_link_local and not address.ip.is_loopback:
                    owner.setdefault(address.ip, End(device.name, port.name))
    return owner


def parent_of(port: str) -> str:
    """The port of a subinterface by its name; another port is its own."""
    name = _SUBINTERFACE.fullmatch(port)
    return name[1] if name else port


def has_no_cable(port: str) -> bool:
    """Whether a port is a bond, bridge or VLAN interface by its name: a packet leaves by a port of
    its own choice."""
    return bool(_BOND.fullmatch(port)) or _is_bridge(port)


def is_management_cable(a: End, b: End) -> bool:
    """Whether a cable is one of management, by the names of its ports."""
    return any(_MANAGEMENT.fullmatch(end.port) for end in (a, b))


def management_networks(
    devices: Sequence[Device],
    networks: Networks,
    owner: Mapping[Address, End],
    cabled: Container[End] = (),
) -> dict[Network, list[End]]:
    """The management networks and their ports. cabled: ports that are certainly in the fabric."""
    by_name = {device.name: device for device in devices}
    of_vrfs = {
        address.network
        for device in devices
        for port in device.interfaces or ()
        if _MANAGEMENT_VRF.search(port.vrf) or _MANAGEMENT_ONLY.fullmatch(port.name)
        for address in port.addresses
        if not address.is_link_local
    }
    management = {}
    for network, members in networks.items():
        ends = [member.end for member in members if member.end not in cabled]
        names = {end.device for end in ends}
        if not ends:
            continue
        if network in of_vrfs or any(_MANAGEMENT_ONLY.fullmatch(end.port) for end in ends):
            management[network] = ends
            continue
        named = [end for end in ends if _MANAGEMENT.fullmatch(end.port)]
        typical = len(named) == len(ends)
        if len(ends) < len(members) or len(names) < (2 if typical else 3):
            continue
        if any(_routes_through(by_name[name], network, names, owner, typical) for name in names):
            continue
        asked = sum(
            at is not None and at.version == network.version and at in network
            for at in (by_name[name].asked_at for name in names)
        )
        others = sum(_other_ports(by_name[end.device], end.port) for end in ends)
        if asked > 1 or (2 * others > len(ends) if len(named) > 1 else others == len(ends)):
            management[network] = ends
    return management


def _routes_through(
    device: Device,
    network: Network,
    members: set[str],
    owner: Mapping[Address, End],
    typical: bool,
) -> bool:
    """Whether a device routes through another member; default routes may be for management."""
    for route in device.routes.telling():
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
