"""The links between devices, and what each rests on.

A link follows from LLDP, from MAC addresses in neighbour tables, from link-local next hops
(BGP unnumbered, RFC 5549) and from connected networks of two devices. Where sources
disagree the stronger source wins and the disagreement is noted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..addressing import Address
from .device import Advertised, Device
from .networks import End, Networks

LLDP = "LLDP"
LINK_LOCAL = "link-local next hop"
NETWORK = "shared network"
MAC = "neighbour MAC"
ONE_SIDED = "LLDP of one end"
_NO_MAC = ("", "00:00:00:00:00:00")
"""No port is known by these."""
_STRENGTH = (LLDP, LINK_LOCAL, NETWORK, MAC, ONE_SIDED)


class Link(NamedTuple):
    """A link between two ports."""

    a: End
    b: End
    evidence: tuple[str, ...]
    """Sources that show it, the strongest first."""


class Note(NamedTuple):
    """Something to know about the answers of a device."""

    kind: str
    """Such as `conflict`."""
    device: str
    text: str


@dataclass
class Cabling:
    """All links, and what did not fit."""

    links: list[Link] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    strangers: dict[End, str] = field(default_factory=dict)
    """Ports whose LLDP neighbour was not asked, and its name."""


def find_links(
    devices: Sequence[Device],
    networks: Networks,
    owner: Mapping[Address, End],
    left_out: Iterable[End],
) -> Cabling:
    """The links between ports that are not left out, in the order of devices and ports."""
    finder = _Finder(devices, frozenset(left_out))
    for device in devices:
        finder.by_lldp(device, owner)
        finder.by_mac(device)
        finder.by_link_local(device)
    finder.by_networks(networks)
    return finder.result()


class _Finder:
    def __init__(self, devices: Sequence[Device], left_out: frozenset[End]) -> None:
        self._devices = {device.name: device for device in devices}
        self._systems = {device.system: device.name for device in devices if device.system}
        self._left_out = left_out
        self._cabling = Cabling()
        self._shown: dict[tuple[End, End], set[str]] = defaultdict(set)
        self._told: set[tuple[End, End]] = set()
        """(from, to) of LLDP."""
        self._shared: set[End] = set()
        """Ports with several neighbours: bridges and connected networks of many."""
        self._by_mac: dict[str, list[End]] = defaultdict(list)
        self._by_link_local: dict[Address, list[End]] = defaultdict(list)
        self._master: dict[End, str] = {}
        for device in devices:
            ports = {port.name for port in device.interfaces or ()}
            for port in device.interfaces or ():
                end = End(device.name, port.name)
                if port.master in ports:
                    self._master[end] = port.master
                if port.mac not in _NO_MAC:
                    self._by_mac[port.mac].append(end)
                for own in port.addresses:
                    if own.ip.is_link_local:
                        self._by_link_local[own.ip].append(end)

    def _note(self, kind: str, device: str, text: str) -> None:
        note = Note(kind, device, text)
        if note not in self._cabling.notes:
            self._cabling.notes.append(note)

    def _logical(self, end: End) -> End:
        """The port that routes name: the bond or bridge of a member."""
        return End(end.device, self._master.get(end, end.port))

    def _show(self, a: End, b: End, evidence: str) -> None:
        a, b = self._logical(a), self._logical(b)
        if a.device != b.device and not self._left_out & {a, b}:
            self._shown[min(a, b), max(a, b)].add(evidence)

    def by_lldp(self, device: Device, owner: Mapping[Address, End]) -> None:
        """Links that a device heard of."""
        up = {port.name: port.up for port in device.interfaces or ()}
        heard: dict[str, list[Advertised]] = defaultdict(list)
        for neighbour in device.advertised or ():
            if End(device.name, neighbour.port) not in self._left_out:
                heard[neighbour.port].append(neighbour)
        for port, neighbours in heard.items():
            here = End(device.name, port)
            if len(neighbours) > 1:
                names = ", ".join(sorted({n.system or n.chassis for n in neighbours}))
                text = f"{port} has {len(neighbours)} LLDP neighbours ({names}): not a cable"
                self._note("several neighbours", device.name, text)
                continue
            (one,) = neighbours
            name = one.system or one.chassis
            if not up.get(port, True):
                text = f"{port} has no link, its LLDP neighbour {name} is stale"
                self._note("stale neighbour", device.name, text)
                continue
            far = self._advertised_by(one, owner)
            if far is None:
                self._cabling.strangers[self._logical(here)] = name
                continue
            there = self._far_port(far, one.far_port)
            if there is None:
                text = f"{port}: LLDP names port {one.far_port} of {far}, which {far} does not have"
                self._note("unknown port", device.name, text)
                continue
            self._told.add((here, there))
            both = (there, here) in self._told
            self._show(here, there, LLDP if both else ONE_SIDED)

    def _advertised_by(self, one: Advertised, owner: Mapping[Address, End]) -> str | None:
        """The device that a neighbour is: by name, chassis id or management address."""
        for name in (one.system, one.system.partition(".")[0]):
            if name in self._systems or name in self._devices:
                return self._systems.get(name, name)
        by_mac = {d.name for d in self._devices.values() if d.chassis and d.chassis == one.chassis}
        by_mac = by_mac or {end.device for end in self._by_mac.get(one.chassis.lower(), ())}
        by_address = {end.device for address, end in owner.items() if str(address) in one.addresses}
        found = by_mac or by_address
        return found.pop() if len(found) == 1 else None

    def _far_port(self, device: str, port: str) -> End | None:
        interfaces = self._devices[device].interfaces
        if interfaces is None or any(own.name == port for own in interfaces):
            return End(device, port)
        found = [End(device, own.name) for own in interfaces if port and own.alias == port]
        found = found or [e for e in self._by_mac.get(port.lower(), ()) if e.device == device]
        return found[0] if len(found) == 1 else None

    def by_mac(self, device: Device) -> None:
        """Links to owners of MAC addresses in the neighbour table; several per port: a network."""
        seen: dict[str, set[End]] = defaultdict(set)
        for entry in device.resolved or ():
            ends = [e for e in self._by_mac.get(entry.mac, ()) if e.device != device.name]
            if len(ends) == 1:
                seen[entry.port].add(ends[0])
        for port, ends_of_port in seen.items():
            if len(ends_of_port) == 1:
                self._show(End(device.name, port), ends_of_port.pop(), MAC)

    def by_link_local(self, device: Device) -> None:
        """Links to owners of link-local gateways."""
        for route in device.routes:
            for hop in route.hops:
                if hop.gateway is None or not hop.gateway.is_link_local:
                    continue
                ends = [
                    e for e in self._by_link_local.get(hop.gateway, ()) if e.device != device.name
                ]
                if len(ends) == 1:
                    self._show(End(device.name, hop.device), ends[0], LINK_LOCAL)

    def by_networks(self, networks: Networks) -> None:
        """Links between all members of a network; a network of many is no point-to-point link."""
        for members in networks.values():
            ends = [m.end for m in members if m.end not in self._left_out]
            if len(ends) > 2:
                self._shared.update(self._logical(end) for end in ends)
            for i, a in enumerate(ends):
                for b in ends[i + 1 :]:
                    self._show(a, b, NETWORK)

    def result(self) -> Cabling:
        """The links that no stronger source contradicts."""
        self._shared |= self._bridges()
        peer: dict[End, End] = {}
        accepted: dict[tuple[End, End], tuple[str, ...]] = {}
        for pair, evidence in sorted(self._ranked(), key=lambda item: _rank(item[1])):
            taken = [end for end in pair if end in peer and end not in self._shared]
            if taken:
                here = taken[0]
                chosen = accepted[min(here, peer[here]), max(here, peer[here])]
                self._conflict(pair, evidence, here, peer[here], chosen)
                continue
            accepted[pair] = evidence
            peer[pair[0]], peer[pair[1]] = pair[1], pair[0]
            if evidence[0] == ONE_SIDED:
                self._one_sided(pair)
        order = {name: i for i, name in enumerate(self._devices)}
        for a, b in sorted(accepted, key=lambda pair: self._place(pair, order)):
            first, second = (a, b) if order[a.device] < order[b.device] else (b, a)
            self._cabling.links.append(Link(first, second, accepted[a, b]))
        return self._cabling

    def _place(self, pair: tuple[End, End], order: Mapping[str, int]) -> tuple[int, int, str]:
        """A key that sorts links by their first device and its ports in table order."""
        end = min(pair, key=lambda e: order[e.device])
        ports = _ports(self._devices[end.device])
        at = ports.index(end.port) if end.port in ports else len(ports)
        return order[end.device], at, end.port

    def _ranked(self) -> Iterator[tuple[tuple[End, End], tuple[str, ...]]]:
        for pair, evidence in self._shown.items():
            names = evidence - {ONE_SIDED} if LLDP in evidence else evidence
            yield pair, tuple(sorted(names, key=_STRENGTH.index))

    def _bridges(self) -> set[End]:
        """Ports with several members: a bridge, or a bond whose members lead to several devices."""
        found = set()
        for (device, _), master in self._master.items():
            end = End(device, master)
            if len({pair for pair in self._shown if end in pair}) > 1:
                found.add(end)
        return found

    def _one_sided(self, pair: tuple[End, End]) -> None:
        for here, there in (pair, pair[::-1]):
            heard = self._devices[there.device].advertised
            if heard is not None and (here, there) in self._told:
                text = (
                    f"{here.port}: LLDP neighbour {there.device} {there.port} does not "
                    f"list {here.device} as its neighbour"
                )
                self._note("one-sided neighbour", here.device, text)

    def _conflict(
        self,
        pair: tuple[End, End],
        evidence: Sequence[str],
        here: End,
        chosen: End,
        evidence_of_chosen: Sequence[str],
    ) -> None:
        other = pair[1] if pair[0] == here else pair[0]
        text = (
            f"{here.port} leads to {chosen.device} {chosen.port} "
            f"({', '.join(evidence_of_chosen)}), "
            f"not to {other.device} {other.port} ({', '.join(evidence)})"
        )
        self._note("conflict", here.device, text)


def _rank(evidence: Sequence[str]) -> tuple[int, int]:
    return _STRENGTH.index(evidence[0]), -len(evidence)


def _ports(device: Device) -> list[str]:
    """The ports of a device in table order."""
    named = [port.name for port in device.interfaces or ()]
    routed = [hop.device for route in device.routes for hop in route.hops]
    return list(dict.fromkeys([*named, *routed]))
