"""Junos: the forwarding table of the Routing Engine, which the hardware has a copy of, and other
commands as JSON.

Every value is a list with an object `{"data": ...}`. A port is its physical one if its unit is 0.
Shapes: Juniper's Junos XML API reference, and genie's tests of `show route forwarding-table`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

from ...analyzer.saved_file import MAX_BYTES
from ...replay.fabrics.devices import (
    Advertised,
    Device,
    Interface,
    NextHop,
    Resolved,
    Route,
    Routes,
)
from ...replay.fabrics.fabric import Network
from ...replay.fabrics.sources import Source
from .dialect import Calculator, Dialect, Question, junos_role
from .reading import (
    Entry,
    Place,
    Reader,
    Rows,
    Told,
    address,
    is_up,
    mac,
    mac_or_text,
    match_only,
    network,
    one_of,
    own_address,
    port_name,
    rate_in_text,
)

_ROUTES, _ROUTES6 = "junos-fib.json", "junos-fib6.json"
_FIB = "show route forwarding-table table default family"
_QUESTIONS = (
    Question(_ROUTES, f"{_FIB} inet | display json", "IPv4 routes"),
    Question(_ROUTES6, f"{_FIB} inet6 | display json", "IPv6 routes"),
    Question("junos-interfaces.json", "show interfaces | display json", "ports and addresses"),
    Question("junos-lldp.json", "show lldp neighbors | display json", "LLDP neighbours"),
    Question("junos-arp.json", "show arp no-resolve | display json", "neighbour MAC addresses"),
    Question("junos-version.json", "show version | display json", "its own name"),
)
_UNIT = {"kbps": 10**3, "mbps": 10**6, "gbps": 10**9, "tbps": 10**12}
_SPEED = re.compile(r"(\d+)([kmgt]bps)")
_SETS = {"ulst", "indr", "sftw", "idxd"}
"""Next hops that only contain others, which follow."""
_DROPS = {"rjct", "dscd", "deny"}
_OWN = {"locl", "recv", "bcst", "mcst", "mdsc", "mgrp", "mcrt", "flood"}
"""Addresses of the device itself, broadcast and multicast."""
_PLAIN = {"ucst", "rslv", "hold"}
_TUNNELS = {"comp", "Push", "Swap", "Pop", "tblr"}
_ROUTED = {"user", "intf", "perm", "rtp"}
"""Types of destinations."""
_OF_NEIGHBOURS = {"dest", "iddn", "clon", "ifcl", "ignr"}
"""Neighbours, also of ports without link, and entries that forward nothing."""
_WITHOUT_PORT = {"ifdn", "rtdn"}
"""Networks of ports without link."""
_LOCAL = "locally assigned"
"""Subtype of LLDP port ids that are the SNMP index of a port or unit."""
_NAME = re.compile(r"[a-z]{2,}\d*(?:-?\d+(?:[/:]\d+)*)(?:\.\d+)?")


def _read(folder: Path, name: str, most_bytes: int = MAX_BYTES) -> Device:
    reader = Reader(folder, name, _QUESTIONS, most_bytes)
    four = reader.json_rows(_ROUTES, partial(_routes, default="0.0.0.0/0"))
    six = reader.json_rows(_ROUTES6, partial(_routes, default="::/0"))
    device = reader.device(
        Told(
            reader.json_rows("junos-interfaces.json", _interfaces),
            four,
            six,
            reader.json_rows("junos-lldp.json", _lldp),
            reader.json_rows("junos-arp.json", _arp),
            system=reader.json("junos-version.json", _name) or "",
            default_table=True,
        )
    )
    return _without_units(device)


def _without_units(device: Device) -> Device:
    """A port with addresses on one unit alone is this unit, whatever its number; several units are
    subinterfaces of their port."""
    units: dict[str, list[Interface]] = {}
    for port in device.interfaces or ():
        physical, dot, _ = port.name.rpartition(".")
        if dot:
            units.setdefault(physical, []).append(port)
    plain = {port.name for port in device.interfaces or () if port.addresses}
    only = {n: subs[0] for n, subs in units.items() if len(subs) == 1 and n not in plain}
    alone = {unit.name: name for name, unit in only.items()}
    ports = []
    for port in device.interfaces or ():
        if port.name in alone:
            continue
        if port.name in only:
            unit = only[port.name]
            aliases = (*port.aliases, *unit.aliases)
            port = port._replace(addresses=unit.addresses, vrf=unit.vrf, aliases=aliases)
        ports.append(port._replace(master=port.master.partition(".")[0]))
    routes = Routes(
        replace(
            route,
            hops=tuple(h._replace(device=alone.get(h.device, h.device)) for h in route.hops),
        )
        for route in device.routes
    )
    resolved = device.resolved
    if resolved is not None:
        resolved = tuple(r._replace(port=alone.get(r.port, r.port)) for r in resolved)
    return replace(
        device,
        interfaces=None if device.interfaces is None else tuple(ports),
        routes=routes,
        resolved=resolved,
    )


def _data(entry: Entry, key: str, default: str | None = None) -> str:
    """The text of `[{"data": text}]`."""
    if default is not None and key not in entry:
        return default
    items = entry.each(key, default=False)
    if len(items) != 1:
        raise entry.at(key).wrong(f"expected one value, found {len(items)}")
    return items[0].text("data").strip()  # some releases keep the line ends of the XML


_ENGINES = "multi-routing-engine-results", "multi-routing-engine-item"


def _pick(top: Source, key: str) -> Entry:
    """The last object below a key; of several routing engines, that of the first which has it."""
    entry = Entry(top)
    results, item = _ENGINES
    if key not in entry and results in entry:
        engines = [e for one in _each(entry, results) for e in _each(Entry(one), item)]
        entry = next((e for e in map(Entry, engines) if key in e), entry)
    (*_, last) = [entry, *map(Entry, _each(entry, key))]
    return last


def _each(entry: Entry, key: str) -> list[Source]:
    """The items of a list, or the only one."""
    place = entry.at(key)
    return [place] if place.is_mapping else place.items("objects")


def _port(text: str, place: Place) -> str:
    return port_name(text.removesuffix(".0"), place)


def _name(top: Source) -> str:
    return _data(_pick(top, "software-information"), "host-name")


def _interfaces(top: Source, rows: Rows) -> list[Interface]:
    listed = _pick(top, "interface-information").items("physical-interface", default=False)
    return [port for ports in rows.each(listed, partial(_ports, rows=rows)) for port in ports]


def _ports(physical: Entry, rows: Rows) -> list[Interface]:
    """A port and its units with addresses."""
    name = _data(physical, "name")
    if name.startswith("."):
        return []  # .local. and similar are no ports
    own_mac = _data(physical, "current-physical-address", "")
    speed = _SPEED.fullmatch(_data(physical, "speed", "").lower())
    base = Interface(
        port_name(name, physical.place),
        mac(own_mac, physical.place) if re.fullmatch(r"[0-9a-f:]{17}", own_mac) else "",
        (),
        is_up(_data(physical, "oper-status"), physical.place),
        kind="vxlan" if name.startswith("vtep") else "",
        bits_per_second=0
        if speed is None
        else rows.value(lambda: rate_in_text(speed[1], _UNIT[speed[2]], physical.place), 0),
        aliases=_index(physical),
    )
    ports = []
    for logical in rows.each(physical.items("logical-interface"), lambda logical: logical):
        with rows:
            unit = _port(_data(logical, "name"), logical.place)
            addresses, bundle = _families(logical, rows)
            if unit == name:
                aliases = (*base.aliases, *_index(logical))
                base = base._replace(addresses=addresses, master=bundle, aliases=aliases)
            elif addresses:
                ports.append(
                    base._replace(name=unit, addresses=addresses, mac="", aliases=_index(logical))
                )
            else:
                base = base._replace(aliases=(*base.aliases, *_index(logical)))
    return [*ports, base]


def _index(entry: Entry) -> tuple[str, ...]:
    """The SNMP index of a port or unit, which LLDP may send in place of its name."""
    index = _data(entry, "snmp-index", "")
    return (index,) if index else ()


def _families(logical: Entry, rows: Rows) -> tuple[tuple[IPv4Interface | IPv6Interface, ...], str]:
    """(addresses, aggregate) of a logical interface."""
    addresses, bundle = [], ""
    for family in rows.each(logical.items("address-family"), lambda family: family):
        with rows:
            if "ae-bundle-name" in family:
                bundle = _port(_data(family, "ae-bundle-name"), family.place)
            if _data(family, "address-family-name") in ("inet", "inet6"):
                listed = rows.each(family.items("interface-address"), _address)
                addresses += [one for one in listed if one is not None]
    return tuple(addresses), bundle


def _address(entry: Entry) -> IPv4Interface | IPv6Interface | None:
    local = _data(entry, "ifa-local", "")
    if not local:
        return None
    length = _data(entry, "ifa-destination", "").partition("/")[2]
    return own_address(local, length or str(128 if ":" in local else 32), entry.place)


def _routes(top: Source, rows: Rows, default: str) -> tuple[list[Route], list[str]]:
    routes: dict[Network, Route] = {}
    tunnels: list[str] = []
    tables = _pick(top, "forwarding-table-information").items("route-table", default=False)
    names = ("default", "default.inet", "default.inet6")
    main = [table for table in map(Entry, tables) if _data(table, "table-name") in names]
    if not main:
        raise top.wrong("expected a route-table 'default'")
    for table in main:
        for place in table.items("rt-entry"):
            with rows:
                _add_route(Entry(place), routes, tunnels, default)
    remark = f"{len(tunnels)} routes add a label or a tunnel header: not used"
    return list(routes.values()), [remark] if tunnels else []


def _add_route(
    entry: Entry, routes: dict[Network, Route], tunnels: list[str], default: str
) -> None:
    kind = _data(entry, "destination-type", "")
    if kind in _OF_NEIGHBOURS:
        return
    dest = _data(entry, "rt-destination")
    net = network(default if dest == "default" else dest, entry.place)
    known = routes.get(net)
    nowhere = Route(net, (), None, entry.place.where)
    routes[net] = nowhere  # stays there if its next hops are odd
    one_of(kind, _ROUTED | _WITHOUT_PORT, "type", entry.place)
    hops = [] if kind in _WITHOUT_PORT else _hops(entry)
    if hops is None or (kind == "perm" and known is not None):
        del routes[net]
        if known is not None:
            routes[net] = known
        return
    if not all(hop.device for hop in hops):
        tunnels.append(dest)
    routes[net] = Route(net, tuple(hops), None, entry.place.where)


def _hops(entry: Entry) -> list[NextHop] | None:
    """The next hops of an entry; None for addresses of the device itself."""
    hops, kinds = [], set()
    for hop in entry.each("nh", default=False):
        kind = _data(hop, "nh-type")
        kinds.add(kind)
        one_of(kind, _SETS | _DROPS | _OWN | _PLAIN | _TUNNELS, "nh-type", hop.place)
        if kind in _OWN:
            return None
        if kind in _TUNNELS:
            hops.append(NextHop(None, "", usable=False))
        elif kind in _PLAIN:
            port = _port(_data(hop, "via"), hop.place)
            to = _data(hop, "to", "") if kind != "rslv" else ""
            gateway = address(to, hop.place) if to else None
            hops.append(NextHop(gateway, port, 1, usable=kind != "hold"))
    if not hops and not kinds & _DROPS:
        raise entry.at("nh").wrong("expected next hops")
    return hops


def _lldp(top: Source, rows: Rows) -> list[Advertised]:
    listed = _pick(top, "lldp-neighbors-information").items("lldp-neighbor-information")
    return rows.each(listed, _neighbour)


def _neighbour(peer: Entry) -> Advertised:
    key = "lldp-local-port-id" if "lldp-local-port-id" in peer else "lldp-local-interface"
    far = _data(peer, "lldp-remote-port-id", "")
    described = _data(peer, "lldp-remote-port-description", "")
    local = _data(peer, "lldp-remote-port-id-subtype", _LOCAL).lower() == _LOCAL
    if not far or (local and _NAME.fullmatch(described)):
        far = described  # not a text of the neighbour's operator, but the name of the port
    if not far:
        _data(peer, "lldp-remote-port-id")
    return Advertised(
        _port(_data(peer, key), peer.place),
        _data(peer, "lldp-remote-system-name", ""),
        mac_or_text(_data(peer, "lldp-remote-chassis-id", "")),
        mac_or_text(far.removesuffix(".0")),
        (),
    )


def _arp(top: Source, rows: Rows) -> list[Resolved]:
    listed = _pick(top, "arp-table-information").items("arp-table-entry")
    return rows.each(listed, _resolved)


def _resolved(entry: Entry) -> Resolved:
    return Resolved(
        _port(_data(entry, "interface-name").partition(" ")[0], entry.place),
        mac(_data(entry, "mac-address"), entry.place),
    )


_ANSWER = re.compile(
    rb"(?m)^[ \t]*(?:Next-hop interface|Interface|via)[ \t]*(?::[ \t]*)?([a-z]+-[0-9/:]+)"
)
_ASK = (
    "show forwarding-options load-balance ingress-interface {port} family inet"
    " source-address {src} destination-address {dst} transport-protocol udp"
    " source-port {sport} destination-port {dport}"
)

JUNOS = Dialect(
    "junos",
    _QUESTIONS,
    _read,
    mark=_ROUTES,
    forwarding=(_ROUTES, _ROUTES6),
    calculator=Calculator(_ASK, partial(match_only, _ANSWER)),
    role=junos_role,
)
