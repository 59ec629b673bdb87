"""What one switch or host answered: interfaces, routes, neighbours, hash settings."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from typing import NamedTuple

from ...hashing.settings import HashSettings
from ..addressing import Address, Network


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
    alias: str = ""
    """Another name by which its LLDP neighbours may know it."""


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
