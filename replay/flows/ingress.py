"""Hashing of the ingress port: every unit has one key per possible ingress port."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int32s, UInt32s, UInt64s
from ..fabrics.fabric import Fabric
from ..hashing.keys import parse_field_set
from ..hashing.models import bind
from ..hashing.settings import HashSettings
from ..traffic.traffic import Traffic


def hashes_ingress(settings: HashSettings) -> bool:
    """Whether the field set contains the ingress port; for Linux the policy sets the fields."""
    return settings.model != "linux" and "ingress" in parse_field_set(settings.field_set)


def ingress_ports(fabric: Fabric) -> Int32s:
    """int32[links]: the port at which each link arrives, from 1 in the order of the links."""
    order = np.argsort(fabric.links.target, kind="stable")
    ordered = fabric.links.target[order]
    ports = np.empty(len(order), np.int32)
    ports[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered) + 1
    return ports


class IngressVariants:
    """Hash values of every unit for its ingress port.

    All ports are hashed and the value of the ingress port is selected, so the cost grows
    with the number of ports of a switch.
    """

    def __init__(self, fabric: Fabric, traffic: Traffic, settings: HashSettings) -> None:
        self._port = ingress_ports(fabric)
        self._ports = int(self._port.max(initial=1))
        units = len(traffic)
        rows = np.tile(np.arange(units), self._ports)
        ports = np.repeat(np.arange(1, self._ports + 1), units)
        self._units = units
        self.bound = bind(traffic.keys.take(rows), settings, ports)

    def values(self, seeds: UInt64s, which: Int32s, came_by: Int32s) -> UInt32s:
        """uint32[rows, units]: unit i under seeds[which[r, i]], arrived over link came_by[r, i]."""
        rows = len(which)
        every = np.empty((rows, self._ports * self._units), np.uint32)
        self.bound.fill_at(seeds, np.tile(which, (1, self._ports)), every)
        port = np.where(came_by >= 0, self._port[came_by], 1) - 1
        by_port = every.reshape(rows, self._ports, self._units)
        picked: UInt32s = np.take_along_axis(by_port, port[:, None, :], 1)[:, 0]
        return picked
