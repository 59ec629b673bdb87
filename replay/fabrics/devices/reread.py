"""A fabric whose switches are read again: cables stay, and routes, hash settings and ports change.

A fresh discovery would lose the cable of a port without link, and number the others anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ....kernels.kernel import Bools, Int32s, Ints, UInt16s
from ...hashing.settings import HashSettings
from ..fabric import Fabric
from ..forwarding import Forwarding
from ..routes import edge_per_host, with_ipv6
from .assemble import Router
from .cabling import Note
from .device import Device
from .topology import Topology, Wire


class Reread:
    """The current fabric; `fabric` changes with every `update`."""

    def __init__(self, fabric: Fabric) -> None:
        """fabric: with the names of ports, as discovery writes it."""
        assert fabric.origin is not None
        own = edge_per_host(fabric)
        self.fabric = replace(own, forwarding=with_ipv6(own.forwarding), routed=False)
        self._attached = self.fabric.attachments.switch
        self._versions = {6} if own.forwarding.ipv6_from else set[int]()
        """IP versions that the switches route, as far as they told."""
        self._told: dict[int, HashSettings] = {}
        """The hash settings that each switch told last."""
        names = fabric.nodes.names
        self._number = {name: i for i, name in enumerate(names)}
        self._topology = Topology(
            list(names[: fabric.switches]),
            list(names[fabric.switches :]),
            owner={
                address: fabric.host_name(host)
                for host, own in fabric.addresses.explicit.items()
                for address in own
            },
            subnets={n: fabric.host_name(host) for n, host in fabric.addresses.subnets.items()},
        )
        for cable, (near, far) in enumerate(fabric.origin.ports):
            a, b = (int(end[2 * cable]) for end in (fabric.links.source, fabric.links.target))
            self._topology.add(Wire(names[a], near, names[b], far, ()))

    def update(self, device: Device, told: str) -> tuple[bool, list[Note]]:
        """Take over what a switch answered now: (whether it forwards otherwise, remarks).

        told: what its tables are, for `Fabric.origin`. Ports to hosts that have no link are lost;
        other ports without link are not: its tables tell whether it still uses them.
        """
        fabric, switch = self.fabric, self._number[device.name]
        router = Router(fabric, {}, self._topology, self._number, False, self._versions)
        self._versions |= {version for version in (4, 6) if router.leads(device, version)}
        own = router.of_switch(switch, device)
        attached = self._attached_now(switch, device)
        old = fabric.origin
        assert old is not None
        tables = (*old.tables[:switch], told, *old.tables[switch + 1 :])
        four = list(old.ipv4_only or (False,) * fabric.switches)
        four[switch] = device.ipv4_only or device.name in router.ipv4_only
        settings = list(fabric.hash_settings)
        settings[switch] = _hash_now(settings[switch], device.hash, self._told.get(switch))
        if device.hash is not None:
            self._told[switch] = device.hash
        differs = (
            _row(fabric.forwarding, switch) != _row(own, 0)
            or bool((attached != fabric.attachments.switch).any())
            or settings[switch] != fabric.hash_settings[switch]
            or tuple(four) != (old.ipv4_only or (False,) * fabric.switches)
        )
        self.fabric = replace(
            fabric,
            forwarding=_with_row(fabric.forwarding, switch, own),
            attachments=fabric.attachments._replace(switch=attached),
            hash_settings=tuple(settings),
            origin=old._replace(tables=tables, ipv4_only=tuple(four) if any(four) else ()),
        )
        return differs, router.notes

    def _attached_now(self, switch: int, device: Device) -> Int32s:
        """The switch at each port of every host."""
        attached: Int32s = self.fabric.attachments.switch.copy()
        if device.interfaces is None:
            return attached
        up = {port.name for port in device.interfaces if port.up}
        origin = self.fabric.origin
        assert origin is not None
        for host, port in np.argwhere(self._attached == switch).tolist():
            link = int(self.fabric.attachments.exit_link[host, port])
            name = origin.ports[link // 2][link % 2]
            attached[host, port] = -1 if name and name not in up else switch
        return attached

    def begins_at(self, switches: Ints, hosts: Int32s) -> Bools:
        """bool[n]: whether each host is wired to one of these switches, with a link or without."""
        wired: Bools = np.isin(self._attached[hosts], switches)
        found: Bools = np.any(wired, axis=1)
        return found


def _hash_now(
    before: HashSettings | None, told: HashSettings | None, last: HashSettings | None
) -> HashSettings | None:
    """What the switch tells; a seed that it never told stays while it tells no other.

    last: what it told before.
    """
    if before is None or (told is not None and told.seed):
        return told
    if told is None:
        return before if before.seed_recovered else None
    if last is not None and last.seed:
        return told
    usual = {"policy": 1, "fields": 7}
    same = {**usual, **before.extra} == {**usual, **told.extra} and before.model == told.model
    return before if same else told


def _row(forwarding: Forwarding, switch: int) -> list[object]:
    """What a switch does with the packets for each edge, whatever the numbers of its groups."""
    known: dict[int, object] = {-1: None}
    for group in np.unique(forwarding.group_of[switch]).tolist():
        if group >= 0:
            part = slice(*forwarding.group_start[group : group + 2].tolist())
            buckets = forwarding.buckets.get(group)
            known[group] = (
                forwarding.group_links[part].tolist(),
                forwarding.group_weights[part].tolist(),
                None if buckets is None else buckets.tolist(),
            )
    return [known[group] for group in forwarding.group_of[switch].tolist()]


def _with_row(forwarding: Forwarding, switch: int, own: Forwarding) -> Forwarding:
    """The forwarding with other groups of one switch; groups that nobody uses are dropped."""
    group_of = forwarding.group_of.copy()
    group_of[switch] = -1
    used = np.unique(group_of[group_of >= 0])
    number = np.full(len(forwarding.group_start), -1, np.int32)  # the last serves -1
    number[used] = np.arange(len(used))
    group_of = number[group_of]
    group_of[switch] = np.where(own.group_of[0] >= 0, own.group_of[0] + len(used), -1)
    sizes = np.diff(forwarding.group_start)
    kept = np.repeat(number[:-1] >= 0, sizes)
    all_sizes = np.concatenate([sizes[used], np.diff(own.group_start)])
    return Forwarding(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(all_sizes)]),
        np.concatenate([forwarding.group_links[kept], own.group_links]).astype(np.int32),
        np.concatenate([forwarding.group_weights[kept], own.group_weights]).astype(np.int64),
        group_of.astype(np.int32),
        _renumbered(forwarding.buckets, number)
        | {group + len(used): table for group, table in own.buckets.items()},
        forwarding.ipv6_from,
    )


def _renumbered(buckets: Mapping[int, UInt16s], number: Int32s) -> dict[int, UInt16s]:
    return {
        int(number[group]): table for group, table in buckets.items() if int(number[group]) >= 0
    }
