"""The links between devices, and what each rests on.

A link follows from LLDP, from MAC addresses in neighbour tables, from link-local next hops
(BGP unnumbered, RFC 5549) and from connected networks of two devices. Where sources
disagree the stronger source wins and the disagreement is noted: nothing overrules LLDP of both
ends. A link is one cable between two physical ports: what networks and neighbour tables say of
a bond or a VLAN interface confirms the cables of its ports, and is a link of its own only where
no cable is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .devices import (
    Advertised,
    Carriers,
    Device,
    End,
    Networks,
    is_management_cable,
)
from .fabric import Address, parse_address

LLDP = "LLDP"
LINK_LOCAL = "link-local next hop"
NETWORK = "shared network"
MAC = "neighbour MAC"
ONE_SIDED = "LLDP of one end"
NO_MAC = ("", "00:00:00:00:00:00")
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
    carriers: Carriers,
) -> Cabling:
    """The links between ports that are not left out, in the order of devices and ports."""
    finder = _Finder(devices, frozenset(left_out), carriers)
    for device in devices:
        finder.by_lldp(device, owner)
        finder.by_mac(device)
        finder.by_link_local(device)
    finder.by_networks(networks)
    return finder.result()


def cabled_by_lldp(
    devices: Sequence[Device], owner: Mapping[Address, End], carriers: Carriers
) -> set[End]:
    """The ports at which LLDP of both ends shows a cable that is not one of management."""
    finder = _Finder(devices, frozenset(), carriers)
    for device in devices:
        finder.by_lldp(device, owner)
    return {
        end
        for pair, evidence in finder.shown.items()
        if LLDP in evidence and not is_management_cable(*pair)
        for end in pair
    }


class _Finder:
    def __init__(
        self, devices: Sequence[Device], left_out: frozenset[End], carriers: Carriers
    ) -> None:
        self._devices = {device.name: device for device in devices}
        self._systems = {device.system: device.name for device in devices if device.system}
        self._carriers = carriers
        self._left_out = left_out
        self._cabling = Cabling()
        self.shown: dict[tuple[End, End], set[str]] = defaultdict(set)
        """The evidence of each pair of ports."""
        self._told: set[tuple[End, End]] = set()
        """(from, to) of LLDP."""
        self._heard: dict[End, End] = {}
        """The other end of a port, of LLDP of both ends."""
        self._on_lan: set[End] = set()
        """Ports on networks of many, or with a VLAN interface."""
        self._down: set[End] = set()
        self._by_chassis: dict[str, set[str]] = defaultdict(set)
        self._by_mac: dict[str, list[End]] = defaultdict(list)
        self._by_link_local: dict[Address, list[End]] = defaultdict(list)
        for device in devices:
            if device.chassis:
                self._by_chassis[device.chassis].add(device.name)
            for port in device.interfaces or ():
                end = End(device.name, port.name)
                if not port.up:
                    self._down.add(end)
                if port.mac not in NO_MAC:
                    self._by_mac[port.mac].append(end)
                for address in port.addresses:
                    if address.ip.is_link_local:
                        self._by_link_local[address.ip].append(end)

    def _note(self, kind: str, device: str, text: str) -> None:
        note = Note(kind, device, text)
        if note not in self._cabling.notes:
            self._cabling.notes.append(note)

    def _physical(self, end: End) -> End:
        """The one port that carries a port; the port itself if there are several, or none."""
        ports = self._carriers.of(end)
        return ports[0] if len(ports) == 1 else end

    def _show(self, a: End, b: End, evidence: str) -> None:
        if a.device != b.device and not (self._is_left_out(a) or self._is_left_out(b)):
            a, b = self._physical(a), self._physical(b)
            self.shown[min(a, b), max(a, b)].add(evidence)

    def _is_left_out(self, end: End) -> bool:
        return end in self._left_out or self._carriers.bond(end) in self._left_out

    def by_lldp(self, device: Device, owner: Mapping[Address, End]) -> None:
        """Links that a device heard of."""
        heard: dict[str, list[Advertised]] = defaultdict(list)
        for neighbour in device.advertised or ():
            if not self._is_left_out(End(device.name, neighbour.port)):
                heard[neighbour.port].append(neighbour)
        for port, neighbours in heard.items():
            self._by_neighbours(self._physical(End(device.name, port)), neighbours, owner)

    def _by_neighbours(
        self, end: End, neighbours: Sequence[Advertised], owner: Mapping[Address, End]
    ) -> None:
        """The link of a port. One neighbour may speak of itself with several protocols."""
        names = list(dict.fromkeys(n.system or n.chassis for n in neighbours))
        senders = [self._advertised_by(neighbour, owner) for neighbour in neighbours]
        known = {sender for sender in senders if sender is not None}
        strangers = {
            name.partition(".")[0]
            for neighbour, sender in zip(neighbours, senders, strict=True)
            if sender is None and (name := neighbour.system or neighbour.chassis)
        }
        ports = {
            there
            for neighbour, sender in zip(neighbours, senders, strict=True)
            if sender is not None
            and (there := self._advertised_port(end.device, sender, neighbour, owner)) is not None
        }
        if len(known) + len(strangers) > 1 or len(ports) > 1:
            shown = ", ".join(sorted(names))
            text = f"{end.port} has {len(neighbours)} LLDP neighbours ({shown}): not a cable"
            self._note("several neighbours", end.device, text)
        elif end in self._down:
            text = f"{end.port} has no link, its LLDP neighbour {names[0]} is stale"
            self._note("stale neighbour", end.device, text)
        elif not known:
            self._cabling.strangers[end] = names[0]
        elif not ports:
            (far,) = known
            port = neighbours[0].far_port
            text = (
                f"LLDP names ports of {far} by numbers, which the answers of {far} do not show"
                if port.isdecimal()
                else f"{end.port}: LLDP names port {port} of {far}, which {far} does not have"
            )
            self._note("unknown port", end.device, text)
        else:
            (there,) = ports
            self._told.add((end, there))
            if (there, end) in self._told:
                self._heard[end], self._heard[there] = there, end
                self._show(end, there, LLDP)
            else:
                self._show(end, there, ONE_SIDED)

    def _advertised_by(self, neighbour: Advertised, owner: Mapping[Address, End]) -> str | None:
        """The device that a neighbour is: by name, chassis id or management address."""
        for name in (neighbour.system, neighbour.system.partition(".")[0]):
            if name in self._systems or name in self._devices:
                return self._systems.get(name, name)
        by_mac = self._by_chassis.get(neighbour.chassis) or {
            end.device for end in self._by_mac.get(neighbour.chassis.lower(), ())
        }
        devices = by_mac or {
            owner[address].device for address in _addresses_in(neighbour) if address in owner
        }
        return next(iter(devices)) if len(devices) == 1 else None

    def _far_port(self, device: str, port: str) -> End | None:
        interfaces = self._devices[device].interfaces
        if interfaces is None or any(interface.name == port for interface in interfaces):
            return self._physical(End(device, port))
        ends = [End(device, i.name) for i in interfaces if port and port in i.aliases]
        ends = ends or [
            e
            for e in self._by_mac.get(port.lower(), ())
            if e.device == device and self._carriers.of(e) == (e,)
        ]
        return ends[0] if len(ends) == 1 else None

    def _advertised_port(
        self, device: str, far: str, neighbour: Advertised, owner: Mapping[Address, End]
    ) -> End | None:
        """The port of a neighbour that its LLDP frames name."""
        port = neighbour.far_port
        end = self._far_port(far, port)
        if end is None and port.isdecimal():
            end = self._only_port(device, far, owner)
        return end

    def _only_port(self, device: str, far: str, owner: Mapping[Address, End]) -> End | None:
        """The port of a neighbour that names its ports by numbers of its own, if each of the two
        hears the other at one port alone."""
        ports = [
            {heard.port for heard in self._devices[at].advertised or ()
             if self._advertised_by(heard, owner) == peer}
            for at, peer in ((device, far), (far, device))
        ]  # fmt: skip
        if [len(names) for names in ports] != [1, 1]:
            return None
        return self._physical(End(far, ports[1].pop()))

    def by_mac(self, device: Device) -> None:
        """Links to owners of MAC addresses in the neighbour table; several per port: a network."""
        tunnels = {port.name for port in device.interfaces or () if port.kind == "vxlan"}
        seen: dict[str, set[End]] = defaultdict(set)
        for entry in device.resolved or ():
            ends = {
                self._carriers.bond(e)
                for e in self._by_mac.get(entry.mac, ())
                if e.device != device.name
            }
            if len(ends) == 1 and entry.port not in tunnels:
                seen[entry.port] |= ends
        for port, ends_of_port in seen.items():
            if len(ends_of_port) == 1:
                self._show(End(device.name, port), ends_of_port.pop(), MAC)

    def by_link_local(self, device: Device) -> None:
        """Links to owners of link-local gateways."""
        hops = {
            (hop.gateway, hop.device) for route in device.routes.telling() for hop in route.hops
        }
        for gateway, port in hops:
            if gateway is None or not gateway.is_link_local:
                continue
            ends = [e for e in self._by_link_local.get(gateway, ()) if e.device != device.name]
            if len(ends) == 1:
                self._show(End(device.name, port), ends[0], LINK_LOCAL)

    def by_networks(self, networks: Networks) -> None:
        """Links between all members of a network; a network of many is no point-to-point link,
        and says nothing of ports whose cable LLDP of both ends shows."""
        for members in networks.values():
            ends = [m.end for m in members if not self._is_left_out(m.end)]
            ports = {self._physical(end) for end in ends}
            bridges = [end for end in ends if self._carriers.is_bridge(end)]
            if len(ends) > 2 or bridges:
                self._on_lan |= ports
                for end in ports:
                    if self._heard.get(end) in ports:
                        self._show(end, self._heard[end], NETWORK)
                for bridge in bridges:
                    for end in ends:
                        self._show(bridge, end, NETWORK)
                ends = [end for end in ends if self._physical(end) not in self._heard]
            for i, a in enumerate(ends):
                for b in ends[i + 1 :]:
                    self._show(a, b, NETWORK)

    def result(self) -> Cabling:
        """The links that no stronger source contradicts."""
        peer: dict[End, End] = {}
        accepted: dict[tuple[End, End], tuple[str, ...]] = {}
        between: dict[frozenset[str], list[tuple[End, End]]] = defaultdict(list)
        for pair, evidence in sorted(self._ranked(), key=self._place_of_evidence):
            is_cable = all(self._carriers.of(end) == (end,) for end in pair)
            if not is_cable:
                cables = [c for c in between[_devices(pair)] if self._carry(c, pair)]
                for cable in cables:
                    both = {*accepted[cable], *evidence}
                    accepted[cable] = tuple(sorted(both, key=_STRENGTH.index))
                if cables or not all(self._is_free(end, peer) for end in pair):
                    continue
                if all(self._carriers.is_bridge(end) for end in pair):
                    continue
            taken = [end for end in pair if end in peer and self._is_taken(end, peer, accepted)]
            if taken:
                shared = taken[0]
                chosen = accepted[min(shared, peer[shared]), max(shared, peer[shared])]
                if LLDP in evidence or not self._on_lan.issuperset(pair):
                    self._conflict(pair, evidence, shared, peer[shared], chosen)
                continue
            accepted[pair] = evidence
            between[_devices(pair)].append(pair)
            peer[pair[0]], peer[pair[1]] = pair[1], pair[0]
            if evidence[0] == ONE_SIDED:
                self._one_sided(pair)
        order = {name: i for i, name in enumerate(self._devices)}
        ports = {name: _ports(device) for name, device in self._devices.items()}
        for a, b in sorted(accepted, key=lambda pair: _place(pair, order, ports)):
            first, second = (a, b) if order[a.device] < order[b.device] else (b, a)
            self._cabling.links.append(Link(first, second, accepted[a, b]))
        return self._cabling

    def _ranked(self) -> Iterator[tuple[tuple[End, End], tuple[str, ...]]]:
        for pair, evidence in self.shown.items():
            names = evidence - {ONE_SIDED} if LLDP in evidence else evidence
            yield pair, tuple(sorted(names, key=_STRENGTH.index))

    def _place_of_evidence(
        self, item: tuple[tuple[End, End], tuple[str, ...]]
    ) -> tuple[bool, int, int]:
        """A key that sorts cables before pairs of bonds and VLAN interfaces, the surest first."""
        pair, evidence = item
        loose = any(self._carriers.of(end) != (end,) for end in pair)
        return loose, _STRENGTH.index(evidence[0]), -len(evidence)

    def _carry(self, cable: tuple[End, End], pair: tuple[End, End]) -> bool:
        """Whether a cable is one of those of a pair of bonds or VLAN interfaces."""
        here = {end.device: self._carriers.of(end) for end in pair}
        return all(not here[end.device] or end in here[end.device] for end in cable)

    def _is_free(self, end: End, peer: Mapping[End, End]) -> bool:
        """Whether a bond has a member with a link whose cable is not known; VLAN interfaces and
        bridges are always free."""
        ports = self._carriers.of(end)
        if self._carriers.is_bridge(end):
            return True
        return any(port not in peer and port not in self._down for port in ports)

    def _is_taken(
        self,
        end: End,
        peer: Mapping[End, End],
        accepted: Mapping[tuple[End, End], tuple[str, ...]],
    ) -> bool:
        """Whether a port has its one cable; bridges, bonds and ports of networks may have more,
        unless LLDP of both ends shows the one."""
        other = peer[end]
        if LLDP in accepted[min(end, other), max(end, other)]:
            return True
        return end not in self._on_lan and self._carriers.of(end) == (end,)

    def _one_sided(self, pair: tuple[End, End]) -> None:
        for end, there in (pair, pair[::-1]):
            heard = self._devices[there.device].advertised
            if heard is not None and (end, there) in self._told:
                text = (
                    f"{end.port}: LLDP neighbour {there.device} {there.port} does not "
                    f"list {end.device} as its neighbour"
                )
                self._note("one-sided neighbour", end.device, text)

    def _conflict(
        self,
        pair: tuple[End, End],
        evidence: Sequence[str],
        shared: End,
        chosen: End,
        evidence_of_chosen: Sequence[str],
    ) -> None:
        other = pair[1] if pair[0] == shared else pair[0]
        text = (
            f"{shared.port} leads to {chosen.device} {chosen.port} "
            f"({', '.join(evidence_of_chosen)}), "
            f"not to {other.device} {other.port} ({', '.join(evidence)})"
        )
        self._note("conflict", shared.device, text)


def _devices(pair: tuple[End, End]) -> frozenset[str]:
    return frozenset(end.device for end in pair)


def _addresses_in(neighbour: Advertised) -> Iterator[Address]:
    for text in neighbour.addresses:
        try:
            yield parse_address(text)
        except ValueError:
            continue  # an address of another kind, such as a MAC address


def _place(
    pair: tuple[End, End], order: Mapping[str, int], ports: Mapping[str, Mapping[str, int]]
) -> tuple[int, int, str]:
    """A key that sorts links by their first device and its ports in table order."""
    end = min(pair, key=lambda e: order[e.device])
    known = ports[end.device]
    return order[end.device], known.get(end.port, len(known)), end.port


def _ports(device: Device) -> dict[str, int]:
    """The places of the ports of a device in table order."""
    named = [port.name for port in device.interfaces or ()]
    routed = [hop.device for route in device.routes.telling() for hop in route.hops]
    return {port: place for place, port in enumerate(dict.fromkeys([*named, *routed]))}
