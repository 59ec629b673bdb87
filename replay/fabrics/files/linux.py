"""A fabric from the tables of its Linux routers: real next-hop order, weights, hash seeds.

Routers on the same connected network are linked. A node with a single connected network is a
host. A connected network in which no other table has an address is one host, named
`router:device`, with all addresses of the network. If the tables of the neighbours are missing,
gateways become switches and each network behind them becomes a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import UInt16s
from ...hashing import HashSettings
from ..addressing import Address, AddressPlan, Network
from ..build import build, cables
from ..fabric import Fabric
from ..forwarding import Forwarding
from ..routes import edge_per_host
from ..tiers import tiers_by_distance
from .linux_tables import NextHop, Router, RouterRoute, read_routers

_NEIGHBOUR = "via "
"""Prefix of the names of routers without tables."""


@dataclass
class _Topology:
    """Nodes and links found in the tables."""

    switches: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    wires: list[tuple[str, str]] = field(default_factory=list)
    on_device: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """(router, device): the nodes behind it."""
    owner: dict[Address, str] = field(default_factory=dict)
    """Node of an address."""
    subnets: dict[Network, str] = field(default_factory=dict)
    """Networks that represent one host."""


def linux_fabric(path: Path, rate_bits_per_second: int, delay_ns: int) -> Fabric:
    """The fabric of a folder or file with the tables of routers. UsageError names the place."""
    routers = read_routers(path)
    topology = _topology(routers)
    if not topology.hosts:
        raise UsageError(f"{path}: the tables contain no host: all networks connect routers")
    number = {n: i for i, n in enumerate([*topology.switches, *topology.hosts])}
    ends = np.array([(number[a], number[b]) for a, b in topology.wires], np.int64).reshape(-1, 2)
    wires = cables(ends[:, 0], ends[:, 1], rate_bits_per_second, delay_ns)
    by_name = {router.name: router for router in routers}
    fabric = build(
        str(path),
        topology.switches,
        tiers_by_distance(
            [2 if name.startswith(_NEIGHBOUR) else None for name in topology.switches],
            wires,
            len(topology.switches),
        ),
        topology.hosts,
        wires,
        hash_settings=[_hash_settings(by_name.get(name)) for name in topology.switches],
        explicit_addresses=_addresses(topology),
    )
    return _with_tables(edge_per_host(fabric), by_name, topology, number)


def _topology(routers: Sequence[Router]) -> _Topology:
    topology = _Topology()
    lans: dict[Network, list[tuple[Router, str, Address | None]]] = {}
    for router in routers:
        for route in router.routes:
            device = route.hops[0].device if route.hops else ""
            if route.connected and device != "lo" and not route.network.is_link_local:
                lans.setdefault(route.network, []).append((router, device, route.source))
                if route.source is not None:
                    topology.owner[route.source] = router.name
    # A node with one connected network is a host, unless it is the only node.
    devices = {r.name: {d for lan in lans.values() for o, d, _ in lan if o is r} for r in routers}
    is_host = {r.name: len(devices[r.name]) == 1 and len(routers) > 1 for r in routers}
    for router in routers:
        (topology.hosts if is_host[router.name] else topology.switches).append(router.name)
    for network, members in lans.items():
        _connect(topology, network, members, is_host, routers)
    _behind_gateways(topology, routers)
    return topology


def _connect(
    topology: _Topology,
    network: Network,
    members: list[tuple[Router, str, Address | None]],
    is_host: dict[str, bool],
    routers: Sequence[Router],
) -> None:
    """Wires of one connected network."""
    if len(members) == 1:
        router, device, own = members[0]
        gateways = _gateways_in(router, network, topology)
        for gateway in gateways:  # a neighbour without tables
            name = f"{_NEIGHBOUR}{gateway}"
            topology.owner[gateway] = name
            if name not in topology.switches:
                topology.switches.append(name)
            _wire(topology, router.name, name, device, "")
        if not gateways and (network.num_addresses > 2 or _is_stub(network, own)):
            name = f"{router.name}:{device}"
            if name not in topology.hosts:
                topology.hosts.append(name)
                _wire(topology, router.name, name, device, "")
            topology.subnets[network] = name
        return
    for i, (a, device_a, _) in enumerate(members):
        for b, device_b, _ in members[i + 1 :]:
            if is_host[a.name] and is_host[b.name]:
                continue
            _wire(topology, a.name, b.name, device_a, device_b)
    hosts = [m.name for m, _, _ in members if is_host[m.name]]
    if len(hosts) == 1:
        topology.subnets[network] = hosts[0]


def _is_stub(network: Network, own: Address | None) -> bool:
    """Whether a network of two addresses can hold a host besides the router."""
    return network.num_addresses == 2 and own is not None


def _wire(topology: _Topology, a: str, b: str, device_a: str, device_b: str) -> None:
    behind_a = topology.on_device.setdefault((a, device_a), [])
    if b in behind_a:  # the same wire, seen with another address family
        return
    behind_a.append(b)
    if device_b:
        topology.on_device.setdefault((b, device_b), []).append(a)
    topology.wires.append((a, b))


def _gateways_in(router: Router, network: Network, topology: _Topology) -> list[Address]:
    found: list[Address] = []
    for route in router.routes:
        for hop in route.hops:
            gateway = hop.gateway
            if gateway is None or gateway.version != network.version or gateway not in network:
                continue
            if gateway not in topology.owner and gateway not in found:
                found.append(gateway)
    return found


def _behind_gateways(topology: _Topology, routers: Iterable[Router]) -> None:
    """Hosts for networks behind neighbours whose tables are missing."""
    stubs = {name for name in topology.switches if name.startswith(_NEIGHBOUR)}
    for router in routers:
        for route in router.routes:
            ends = [topology.owner.get(h.gateway) for h in route.hops if h.gateway is not None]
            neighbours = list(dict.fromkeys(n for n in ends if n in stubs))
            name = str(route.network)
            if not neighbours or any(_inside(n, route.network) for n in topology.subnets):
                continue
            if name not in topology.hosts:
                topology.hosts.append(name)
            topology.subnets[route.network] = name
            for neighbour in neighbours:
                if neighbour is not None:
                    _wire(topology, neighbour, name, f"to {name}", "")


def _inside(inner: Network, outer: Network) -> bool:
    return (
        inner != outer
        and inner.version == outer.version
        and (inner.network_address in outer and inner.prefixlen >= outer.prefixlen)
    )


def _addresses(topology: _Topology) -> AddressPlan:
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


def _hash_settings(router: Router | None) -> HashSettings | None:
    if router is None:
        return None
    return HashSettings(
        model="linux",
        seed=router.number("net.ipv4.fib_multipath_hash_seed", 0),
        extra={
            "policy": router.number("net.ipv4.fib_multipath_hash_policy", 0),
            "fields": router.number("net.ipv4.fib_multipath_hash_fields", 7),
        },
    )


class _Groups:
    """Collects groups; equal routes of a switch share one group."""

    def __init__(self) -> None:
        self.start = [0]
        self.links: list[int] = []
        self.weights: list[int] = []
        self.buckets: dict[int, UInt16s] = {}
        self.known: dict[tuple[int, Network], int] = {}

    def add(self, links: Iterable[int], weights: Iterable[int]) -> int:
        """Number of a new group."""
        self.links += links
        self.weights += weights
        self.start.append(len(self.links))
        return len(self.start) - 2


def _with_tables(
    fabric: Fabric, routers: dict[str, Router], topology: _Topology, number: dict[str, int]
) -> Fabric:
    """Forwarding of the tables; switches without a table use shortest paths."""
    groups = _Groups()
    group_of = np.full_like(fabric.forwarding.group_of, -1)
    networks_of: dict[str, list[Network]] = {}
    for network, name in topology.subnets.items():
        networks_of.setdefault(name, []).append(network)
    for host, name in enumerate(topology.hosts):
        edge = int(fabric.attachments.edge[host])
        if edge < 0:
            continue
        addresses = [*fabric.addresses.explicit.get(host, ())]
        for switch, switch_name in enumerate(topology.switches):
            if (fabric.attachments.switch[host] == switch).any():
                continue
            router = routers.get(switch_name)
            if router is None:
                links, weights = fabric.group(switch, edge)
                if len(links):
                    group_of[switch, edge] = groups.add(links.tolist(), weights.tolist())
                continue
            route = _lookup(router, addresses, networks_of.get(name, []))
            if route is None:
                continue
            key = (switch, route.network)
            if key not in groups.known:
                groups.known[key] = _add_route(groups, fabric, router, route, topology, number)
            group_of[switch, edge] = groups.known[key]
    forwarding = Forwarding(
        np.array(groups.start, np.int64),
        np.array(groups.links, np.int32),
        np.array(groups.weights, np.int64),
        group_of,
        groups.buckets,
    )
    return replace(fabric, forwarding=forwarding, routed=False)


def _add_route(
    groups: _Groups,
    fabric: Fabric,
    router: Router,
    route: RouterRoute,
    topology: _Topology,
    number: dict[str, int],
) -> int:
    """The group of a route, -1 when it has no usable next hop."""
    chosen = _usable(router, route)
    if not chosen:
        return -1
    hops = [route.hops[i] for i in chosen]
    group = groups.add(
        [_link(fabric, router.name, hop, route, topology, number) for hop in hops],
        [hop.weight for hop in hops],
    )
    if route.buckets is not None:
        table = [chosen.index(b) for b in route.buckets if b in chosen]
        groups.buckets[group] = np.array(table, np.uint16)
    return group


def _usable(router: Router, route: RouterRoute) -> list[int]:
    """Positions of next hops that the kernel uses."""
    ignored = router.number("net.ipv4.conf.all.ignore_routes_with_linkdown", 0)
    return [i for i, hop in enumerate(route.hops) if hop.usable and not (hop.linkdown and ignored)]


def _lookup(
    router: Router, addresses: list[Address], networks: list[Network]
) -> RouterRoute | None:
    """The longest route that matches the first address (or network) that any route matches."""
    wanted = [*(ip_network(a) for a in addresses), *networks]
    for target in sorted(wanted, key=lambda n: n.version):
        matching = [
            r
            for r in router.routes
            if r.network.version == target.version
            and target.network_address in r.network
            and target.prefixlen >= r.network.prefixlen
        ]
        if matching:
            return max(matching, key=lambda r: r.network.prefixlen)
    return None


def _link(
    fabric: Fabric,
    switch: str,
    hop: NextHop,
    route: RouterRoute,
    topology: _Topology,
    number: dict[str, int],
) -> int:
    """The link of a next hop."""
    behind = topology.on_device.get((switch, hop.device), [])
    owner = topology.owner.get(hop.gateway) if hop.gateway is not None else None
    target = owner if owner in behind else behind[0] if len(behind) == 1 else None
    if target is None:
        raise UsageError(
            f"{route.where}: the next hop {hop.gateway} on {hop.device or 'no device'} of {switch} "
            "is on no connected network of the routers"
        )
    wires = [
        device
        for (name, device), nodes in topology.on_device.items()
        if name == switch and target in nodes
    ]
    found = fabric.links
    parallel = np.flatnonzero(
        (found.source == number[switch]) & (found.target == number[target]) & found.up
    )
    return int(parallel[wires.index(hop.device)])
