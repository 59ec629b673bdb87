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

from ...replay.fabrics.devices import Advertised, Device, Interface, NextHop, Resolved, Route
from ...replay.fabrics.fabric import Network
from ...replay.fabrics.sources import Source
from .dialect import Calculator, Dialect, Question, junos_role
from .reading import (
    Entry,
    Place,
    Reader,
    Told,
    address,
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
_SETS = {"ulst", "indr", "sftw"}
"""Next hops that only contain others, which follow."""
_DROPS = {"rjct", "dscd"}
_OWN = {"locl", "recv", "bcst", "mcst", "mdsc", "mgrp"}
"""Addresses of the device itself, broadcast and multicast."""
_PLAIN = {"ucst", "rslv", "hold"}
_TUNNELS = {"comp", "Push", "Swap", "Pop", "tblr"}


def _read(folder: Path, name: str) -> Device:
    reader = Reader(folder, name, _QUESTIONS)
    four = reader.json(_ROUTES, lambda top: _routes(top, "0.0.0.0/0"))
    six = reader.json(_ROUTES6, lambda top: _routes(top, "::/0"))
    device = reader.device(
        Told(
            reader.json("junos-interfaces.json", _interfaces),
            four,
            six,
            reader.json("junos-lldp.json", _lldp),
            reader.json("junos-arp.json", _arp),
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
            port = port._replace(addresses=unit.addresses, vrf=unit.vrf)
        ports.append(port._replace(master=port.master.partition(".")[0]))
    routes = tuple(
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
    return items[0].text("data")


def _pick(top: Source, key: str) -> Entry:
    (*_, last) = [Entry(top), *Entry(top).each(key, default=False)]
    return last


def _port(text: str, place: Place) -> str:
    return port_name(text.removesuffix(".0"), place)


def _name(top: Source) -> str:
    return _data(_pick(top, "software-information"), "host-name")


def _interfaces(top: Source) -> list[Interface]:
    ports = []
    for physical in _pick(top, "interface-information").each("physical-interface", default=False):
        name = port_name(_data(physical, "name"), physical.place)
        up = one_of(_data(physical, "oper-status"), {"up", "down"}, "oper-status", physical.place)
        own_mac = _data(physical, "current-physical-address", "")
        speed = _SPEED.fullmatch(_data(physical, "speed", "").lower())
        base = Interface(
            name,
            mac(own_mac, physical.place) if re.fullmatch(r"[0-9a-f:]{17}", own_mac) else "",
            (),
            up == "up",
            kind="vxlan" if name.startswith("vtep") else "",
            bits_per_second=0
            if speed is None
            else rate_in_text(speed[1], _UNIT[speed[2]], physical.place),
        )
        for logical in physical.each("logical-interface"):
            unit = _port(_data(logical, "name"), logical.place)
            addresses, bundle = _families(logical)
            if unit == name:
                base = base._replace(addresses=addresses, master=bundle)
            elif addresses:
                ports.append(base._replace(name=unit, addresses=addresses, mac=""))
        ports.append(base)
    return ports


def _families(logical: Entry) -> tuple[tuple[IPv4Interface | IPv6Interface, ...], str]:
    """(addresses, aggregate) of a logical interface."""
    addresses, bundle = [], ""
    for family in logical.each("address-family"):
        if "ae-bundle-name" in family:
            bundle = _port(_data(family, "ae-bundle-name"), family.place)
        if _data(family, "address-family-name") not in ("inet", "inet6"):
            continue
        for entry in family.each("interface-address"):
            local = _data(entry, "ifa-local", "")
            if local:
                full = 128 if ":" in local else 32
                length = _data(entry, "ifa-destination", "").partition("/")[2] or str(full)
                addresses.append(own_address(local, length, entry.place))
    return tuple(addresses), bundle


def _routes(top: Source, default: str) -> tuple[list[Route], list[str]]:
    routes: dict[Network, Route] = {}
    tunnels = []
    for table in _pick(top, "forwarding-table-information").each("route-table", default=False):
        if _data(table, "table-name") not in ("default", "default.inet", "default.inet6"):
            continue
        for entry in table.each("rt-entry"):
            kind = _data(entry, "destination-type")
            one_of(kind, {"user", "intf", "dest", "perm", "rtp", "iddn"}, "type", entry.place)
            dest = _data(entry, "rt-destination")
            if kind in ("dest", "iddn"):
                continue  # neighbours
            hops = _hops(entry)
            if hops is None:
                continue
            net = network(default if dest == "default" else dest, entry.place)
            if not all(hop.device for hop in hops):
                tunnels.append(dest)
            if kind == "perm" and net in routes:
                continue
            routes[net] = Route(net, tuple(hops), None, entry.place.where)
    remark = f"{len(tunnels)} routes add a label or a tunnel header: not used"
    return list(routes.values()), [remark] if tunnels else []


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


def _lldp(top: Source) -> list[Advertised]:
    neighbours = []
    listed = _pick(top, "lldp-neighbors-information").each("lldp-neighbor-information")
    for peer in listed:
        key = "lldp-local-port-id" if "lldp-local-port-id" in peer else "lldp-local-interface"
        named = _data(peer, "lldp-remote-port-id-subtype", "") in ("Interface name", "Mac address")
        described = "lldp-remote-port-description"
        far = "lldp-remote-port-id" if named or described not in peer else described
        neighbours.append(
            Advertised(
                _port(_data(peer, key), peer.place),
                _data(peer, "lldp-remote-system-name", ""),
                mac_or_text(_data(peer, "lldp-remote-chassis-id", "")),
                mac_or_text(_data(peer, far).removesuffix(".0")),
                (),
            )
        )
    return neighbours


def _arp(top: Source) -> list[Resolved]:
    return [
        Resolved(
            _port(_data(entry, "interface-name").partition(" ")[0], entry.place),
            mac(_data(entry, "mac-address"), entry.place),
        )
        for entry in _pick(top, "arp-table-information").each("arp-table-entry")
    ]


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
