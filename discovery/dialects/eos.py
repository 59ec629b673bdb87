"""Arista EOS: `show ... | json`. The routes show for each route whether hardware has it.

No `enable`: a user whose role or privilege lets it run these commands is enough. Shapes: the eAPI
models in Arista's own tools (ANTA, AVD) and in napalm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

from ...analyzer.saved_file import MAX_BYTES
from ...replay.fabrics.devices import Advertised, Device, Interface, NextHop, Resolved, Route
from ...replay.fabrics.fabric import Network
from ...replay.fabrics.sources import Source, load_json
from ..port_counters import Bytes, Port
from .dialect import Calculator, Dialect, Question, eos_role
from .reading import (
    Entry,
    Reader,
    Rows,
    Told,
    address,
    is_up,
    mac,
    mac_or_text,
    match_whole,
    network,
    octets,
    one_of,
    own_address,
    port_name,
    rate,
    weight,
)

_ROUTES, _ROUTES6 = "eos-route.json", "eos-route6.json"
_QUESTIONS = (
    Question(_ROUTES, "show ip route vrf all | json", "IPv4 routes"),
    Question(_ROUTES6, "show ipv6 route vrf all | json", "IPv6 routes"),
    Question("eos-interfaces.json", "show interfaces | json", "ports, addresses, MAC addresses"),
    Question("eos-lldp.json", "show lldp neighbors detail | json", "LLDP neighbours"),
    Question("eos-arp.json", "show ip arp | json", "neighbour MAC addresses"),
    Question("eos-version.json", "show version | json", "the chassis id"),
    Question("eos-hostname.json", "show hostname | json", "its own name"),
)
_ACTIONS = {"forward", "drop", "receive"}
_TUNNELS = ("vtepAddr", "vniTag", "tunnelDescriptor", "resolvingTunnel", "labelStack")
"""Keys of next hops that add a header."""
_MEMBER = re.compile(r"Member of (Port-Channel\d+)")


def _read(folder: Path, name: str, most_bytes: int = MAX_BYTES) -> Device:
    reader = Reader(folder, name, _QUESTIONS, most_bytes)
    four, six = reader.json_rows(_ROUTES, _routes), reader.json_rows(_ROUTES6, _routes)
    version = reader.json("eos-version.json", lambda top: Entry(top).text("systemMacAddress"))
    return reader.device(
        Told(
            reader.json_rows("eos-interfaces.json", _interfaces),
            four,
            six,
            reader.json_rows("eos-lldp.json", _lldp),
            reader.json_rows("eos-arp.json", _arp),
            system=reader.json("eos-hostname.json", lambda top: Entry(top).text("hostname")) or "",
            chassis=mac_or_text(version or ""),
        )
    )


def _interfaces(top: Source, rows: Rows) -> list[Interface]:
    return rows.named(Entry(top).named("interfaces"), partial(_interface, rows=rows))


def _interface(name: str, entry: Entry, rows: Rows) -> Interface:
    bond = _MEMBER.search(entry.text("interfaceMembership", ""))
    vrf = entry.text("vrf", "default")
    return Interface(
        port_name(name, entry.place),
        rows.value(lambda: mac(entry.text("physicalAddress", ""), entry.place), ""),
        tuple(_addresses(entry, rows)),
        is_up(entry.text("lineProtocolStatus"), entry.place),
        bond[1] if bond else "",
        "" if vrf == "default" else vrf,
        "vxlan" if name.startswith("Vxlan") else "",
        rows.value(lambda: rate(entry.values.get("bandwidth")), 0),
    )


def _addresses(entry: Entry, rows: Rows) -> Iterator[IPv4Interface | IPv6Interface]:
    four: list[Source] = []
    for given in rows.each(entry.items("interfaceAddress"), lambda given: given):
        four += [given.at(key) for key in ("primaryIp", "virtualIp") if key in given]
        four += given.items("secondaryIpsOrderedList")
    for row in rows.each(four, lambda row: row):
        with rows:
            if row.text("address") != "0.0.0.0":
                yield own_address(row.text("address"), row.text("maskLen"), row.place)
    if "interfaceAddressIp6" in entry:
        six = entry.inner("interfaceAddressIp6")
        local = [six.at("linkLocalIp6")] if "linkLocalIp6" in six else []
        yield from rows.each([*six.items("globalUnicastIp6s"), *local], _address6)


def _address6(row: Entry) -> IPv4Interface | IPv6Interface:
    return own_address(row.text("address"), row.text("subnet").partition("/")[2], row.place)


def _routes(top: Source, rows: Rows) -> tuple[list[Route], list[str]]:
    """The routes of the default VRF, and remarks."""
    vrfs = Entry(top).inner("vrfs")
    remarks = [
        f"VRF {name} is left out: only the main table was read"
        for name in vrfs.values
        if name != "default"
    ]
    table: dict[Network, Route] = {}
    soft, tunnels = [], []
    for dest, place in vrfs.inner("default").named("routes"):
        with rows:
            net = network(dest, place)
            table[net] = Route(net, (), None, place.where)
            entry = Entry(place)
            action = one_of(entry.text("routeAction"), _ACTIONS, "routeAction", place)
            if action == "receive":
                del table[net]
                continue
            if not entry.at("hardwareProgrammed").boolean("hardwareProgrammed"):
                soft.append(dest)  # a shorter prefix in hardware forwards these packets
                del table[net]
                continue
            vias = entry.each("vias", default=False) if action == "forward" else []
            hops = [_hop(via) for via in vias]
            if not all(hop.device for hop in hops):
                tunnels.append(dest)
            if not all(hop.device.startswith("Null") for hop in hops):
                table[net] = Route(net, tuple(hops), None, place.where)
    if soft:
        remarks.append(f"hardware does not have {len(soft)} routes, such as {soft[0]}: left out")
    if tunnels:
        remarks.append(f"{len(tunnels)} routes lead into a tunnel, such as {tunnels[0]}: not used")
    return list(table.values()), remarks


def _hop(via: Entry) -> NextHop:
    if any(key in via for key in _TUNNELS):
        return NextHop(None, "", usable=False)
    to = address(via.text("nexthopAddr"), via.place) if "nexthopAddr" in via else None
    port = port_name(via.text("interface"), via.place)
    return NextHop(to, port, weight(via.values.get("weight")))


def _lldp(top: Source, rows: Rows) -> list[Advertised]:
    neighbours = []
    for port, place in Entry(top).named("lldpNeighbors"):
        with rows:
            listed = Entry(place).items("lldpNeighborInfo", default=False)
            neighbours += rows.each(listed, partial(_neighbour, port_name(port, place)))
    return neighbours


def _neighbour(port: str, neighbour: Entry) -> Advertised:
    far = neighbour.inner("neighborInterfaceInfo")
    return Advertised(
        port,
        neighbour.text("systemName", ""),
        mac_or_text(neighbour.text("chassisId")),
        mac_or_text(far.text("interfaceId_v2", "") or far.text("interfaceId").strip('"')),
        tuple(each.text("address") for each in neighbour.each("managementAddresses")),
    )


def _arp(top: Source, rows: Rows) -> list[Resolved]:
    def resolved(entry: Entry) -> Resolved:
        port = entry.text("interface").rpartition(", ")[2]  # of a VLAN: "Vlan100, Ethernet3"
        if port == "not learned":
            return Resolved("", "")
        return Resolved(port_name(port, entry.place), mac(entry.text("hwAddress"), entry.place))

    listed = rows.each(Entry(top).items("ipV4Neighbors", default=False), resolved)
    return [entry for entry in listed if entry.port]


def _counters(folder: Path, name: str, suffix: str) -> dict[Port, Bytes]:
    counters = {}
    for port, place in Entry(load_json(folder / f"{name}.{suffix}")).named("interfaces"):
        entry = Entry(place)
        if "interfaceCounters" in entry:
            count = entry.inner("interfaceCounters")
            sent, received = octets(count.at("outOctets")), octets(count.at("inOctets"))
            counters[Port(name, port_name(port, entry.place))] = Bytes(sent, received)
    return counters


_ANSWER = re.compile(rb"\s*Output Interface: ([A-Za-z][A-Za-z0-9/.-]{0,47})\s*")
_ASK = (
    "show load-balance destination ip ingress-interface {port}"
    " src-ipv4-address {src} dst-ipv4-address {dst} ip-protocol 17"
    " src-l4-port {sport} dst-l4-port {dport}"
)

EOS = Dialect(
    "eos",
    _QUESTIONS,
    _read,
    mark=_ROUTES,
    forwarding=(_ROUTES, _ROUTES6),
    calculator=Calculator(_ASK, partial(match_whole, _ANSWER)),
    counters=("eos-interfaces.json", _counters),
    role=eos_role,
)
