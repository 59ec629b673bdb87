"""Longest prefix matches of the addresses of hosts in tables of routes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.kernel import Bools, Int32s
from .devices import Routes
from .fabric import Network


class Matches:
    """What of the tables can match each host, found once for all tables."""

    def __init__(self, tables: Sequence[Routes], targets: Sequence[Sequence[Network]]) -> None:
        """targets: the addresses and networks of each host, the preferred first."""
        number: dict[Network, int] = {}
        self._number: dict[int, int] = {}
        """The number of each network by its `id`: tables share equal networks, and hashing one
        takes longer than all else that is done with it."""
        for table in tables:
            for network in table.networks:
                if id(network) not in self._number:
                    self._number[id(network)] = number.setdefault(network, len(number))
        self._networks = len(number)
        lengths = {
            version: sorted({n.prefixlen for n in number if n.version == version}, reverse=True)
            for version in (4, 6)
        }
        self.has: dict[int, Bools] = {}
        """bool[hosts], by IP version: whether a host has an address or network of it."""
        self._candidates: dict[int, Int32s] = {}
        """int32[hosts, most], by IP version: the networks that contain each host, the preferred
        first; -1 for none."""
        for version in (4, 6):
            of_hosts = [[t for t in of_host if t.version == version] for of_host in targets]
            self.has[version] = np.array([bool(of_host) for of_host in of_hosts], np.bool_)
            found = [
                [
                    number[wider]
                    for target in of_host
                    for length in lengths[version]
                    if length <= target.prefixlen
                    and (wider := target.supernet(new_prefix=length)) in number
                ]
                for of_host in of_hosts
            ]
            most = max(map(len, found), default=0) + 1
            padded = [numbers + [-1] * (most - len(numbers)) for numbers in found]
            self._candidates[version] = np.array(padded, np.int32).reshape(-1, most)

    def of(self, routes: Routes, version: int) -> Int32s:
        """int32[hosts]: the route of one of the tables to each host, -1 without one.

        It is the longest that matches the first address (or network) that any route matches; of
        equal networks the first route.
        """
        known = self._number
        numbers = np.fromiter((known[id(n)] for n in routes.networks), np.int32, len(routes))
        first = np.full(self._networks + 1, -1, np.int32)  # the last serves -1
        first[numbers[::-1]] = np.arange(len(routes) - 1, -1, -1, dtype=np.int32)
        found = first[self._candidates[version]]
        matched: Int32s = found[np.arange(len(found)), (found >= 0).argmax(1)]
        return matched
