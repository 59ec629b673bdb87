"""Connected networks of devices, and management networks, which carry no traffic of the fabric.

A network is for management if no member routes through another member, every member
has other ports, and it has three or more members or all its ports have names of management
ports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ..addressing import Address, Network
from .device import Device

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
    found: dict[Network, list[Member]] = {}
    for device in devices:
        for route in device.routes:
            port = route.hops[0].device if route.hops else ""
            private = _PRIVATE.fullmatch(port)
            if route.connected and not private and not route.network.is_link_local:
                end = End(device.name, port)
                found.setdefault(route.network, []).append(Member(end, route.source))
        for interface in () if device.tables_read else device.interfaces or ():
            for own in interface.addresses:
                network = own.network
                if _PRIVATE.fullmatch(interface.name) or network.num_addresses == 1:
                    continue
                if not network.is_link_local and not network.is_loopback:
                    member = Member(End(device.name, interface.name), own.ip)
                    found.setdefault(network, []).append(member)
    return found


def owners(devices: Sequence[Device]) -> dict[Address, End]:
    """The port of every address that is not link-local."""
    found: dict[Address, End] = {}
    for device in devices:
        for route in device.routes:
            if route.connected and route.source is not None:
                found.setdefault(route.source, End(device.name, route.hops[0].device))
        for port in device.interfaces or ():
            for own in port.addresses:
                if not own.ip.is_link_local and not own.ip.is_loopback:
                    found.setdefault(own.ip, End(device.name, port.name))
    return found


def management_networks(
    devices: Sequence[Device], networks: Networks, owner: Mapping[Address, End]
) -> dict[Network, list[End]]:
    """The management networks and their ports."""
    by_name = {device.name: device for device in devices}
    found = {}
    for network, members in networks.items():
        names = {member.end.device for member in members}
        typical = all(_MANAGEMENT.fullmatch(member.end.port) for member in members)
        if len(names) < (2 if typical else 3):
            continue
        if any(_routes_through(by_name[name], network, names, owner, typical) for name in names):
            continue
        if all(_other_ports(by_name[member.end.device], member.end.port) for member in members):
            found[network] = [member.end for member in members]
    return found


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
