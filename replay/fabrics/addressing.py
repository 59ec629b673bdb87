"""Addresses of hosts: host i of a fabric is 10.0.0.1 + i unless the fabric sets its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
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
from typing import TypeAlias

import numpy as np

from ...kernels.kernel import Array, Bytes

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

FIRST_IPV4 = int(IPv4Address("10.0.0.1"))
FIRST_IPV6 = int(IPv6Address("fd10::1"))
MAX_HOSTS = 1 << 24
"""Usable addresses of 10.0.0.0/8."""


def parse_address(text: str) -> Address:
    """The address that a device or a file names. ValueError without one."""
    return ip_address(_without_zone(text))


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
        own = self.explicit.get(host)
        if own:
            wanted = IPv6Address if ipv6 else IPv4Address
            return next((a for a in own if isinstance(a, wanted)), own[0])
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
        return {a: host for host, own in self.explicit.items() for a in own}

    @cached_property
    def _networks(self) -> list[Network]:
        return sorted(self.subnets, key=lambda n: (-n.prefixlen, n.version, int(n.network_address)))
