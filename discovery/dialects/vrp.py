"""Huawei VRP (CloudEngine): text only. Each line is one of the documented forms, or an error.

The forwarding table says how many routes it has: fewer in the answer are half an answer. Shapes:
Huawei's command references of CloudEngine switches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from ...replay.fabrics.devices import Advertised, Device, Interface, NextHop, Route
from ...replay.fabrics.fabric import Network
from .dialect import Calculator, Dialect, Question, vrp_role
from .reading import (
    Line,
    Lines,
    Reader,
    Told,
    address,
    mac,
    mac_or_text,
    match_only,
    network,
    number,
    one_of,
    own_address,
    port_name,
    rate_in_text,
)

_ROUTES = "vrp-fib.text"
_QUESTIONS = (
    Question(_ROUTES, "display fib", "IPv4 routes"),
    Question("vrp-interfaces.text", "display interface", "ports, addresses, MAC addresses"),
    Question("vrp-lldp.text", "display lldp neighbor", "LLDP neighbours"),
    Question("vrp-local.text", "display lldp local", "its own name and chassis id"),
)
_TOTAL = re.compile(r"\s*Total number of (?:Routes|Destinations)\s*:\s*(\d+)\s*")
_TABLE = re.compile(r"\s*FIB Table\s*:\s*(\S*)\s*")
_ROW = re.compile(
    r"(?:\s*(?P<dest>[\d.]+/\d+))?\s+(?P<to>[\d.]+)\s+(?P<flags>[A-Z]+)\s+(?:t\[\d+\]\s+)?"
    r"(?P<port>\S+)\s+(?P<tunnel>-|0x[0-9a-fA-F]+)\s*"
)
_IGNORED = re.compile(r"\s*|Route Flags:.*|\s+S - Static.*|-+|\s*Destination/Mask\s.*|<.*>.*")
_FLAGS = set("GHUSDB")
_OWN = ("InLoop", "InLoopBack", "LoopBack")
_STATE = re.compile(r"(\S+) current state\s*:([^(]+)(?:\(.*\))?")
_ADDRESS = re.compile(r"\s*Internet Address is ([\d.]+)/(\d+)(?: .*)?")
_MAC = re.compile(r".*Hardware address is ([0-9a-fA-F-]+).*")
_SPEED = re.compile(r"\s*Speed\s*:\s*(\d+)\s*,.*")
_TRUNK = re.compile(r"\s*(?:Port is )?(?:a )?member of (Eth-Trunk\d+).*", re.IGNORECASE)
_NEIGHBOURS = re.compile(r"(\S+) has (\d+) neighbor\(s\)\s*:?")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9 ./-]*")
_MBIT = 1_000_000
_MOST_COUNTED = 10**9


def _read(folder: Path, name: str) -> Device:
    reader = Reader(folder, name, _QUESTIONS)
    local = reader.text("vrp-local.text", _local) or ("", "")
    return reader.device(
        Told(
            reader.text("vrp-interfaces.text", _interfaces),
            reader.text(_ROUTES, _routes),
            None,
            reader.text("vrp-lldp.text", _lldp),
            None,
            system=local[0],
            chassis=local[1],
            default_table=True,
        )
    )


def _routes(lines: Lines) -> tuple[list[Route], list[str]]:
    hops_of: dict[Network, tuple[list[NextHop], str]] = {}
    total, rows, now, tunnels = None, 0, None, 0
    own_networks: set[Network] = set()
    for line in lines:
        table, count = _TABLE.fullmatch(line.text), _TOTAL.fullmatch(line.text)
        if table:
            one_of(table[1], {"", "_public_"}, "table", line)
        if count:
            total = (
                number(count[1], "a number of routes", _MOST_COUNTED, line),
                "Destinations" in line.text,
            )
        if table or count or _IGNORED.fullmatch(line.text):
            continue
        row = _ROW.fullmatch(line.text)
        if row is None or not (row["dest"] or now) or not set(row["flags"]) <= _FLAGS:
            raise line.wrong(f"expected prefix, next hop, flags, port, found {line.text[:60]!r}")
        rows += 1
        now = network(row["dest"], line) if row["dest"] else now
        assert now is not None
        to = address(row["to"], line)
        if row["port"].startswith(_OWN) or to.is_loopback:
            own_networks.add(now)
            continue
        hops = hops_of.setdefault(now, ([], line.where))[0]
        if "B" in row["flags"] or row["port"].upper() == "NULL0":
            continue
        tunnel = row["tunnel"] not in ("-", "0x0")
        tunnels += tunnel
        gateway = to if "G" in row["flags"] else None
        usable = "U" in row["flags"] and not tunnel
        hops.append(NextHop(gateway, port_name(row["port"], line), usable=usable))
    given = rows if total is None or not total[1] else len(hops_of.keys() | own_networks)
    if total is None or total[0] != given:
        shown = "no total" if total is None else f"a total of {total[0]}"
        raise lines.first.wrong(f"expected all routes, found {given} with {shown}")
    remark = f"{tunnels} next hops lead into a tunnel: left out"
    routes = [Route(net, tuple(hops), None, at) for net, (hops, at) in hops_of.items()]
    return routes, [remark] if tunnels else []


def _interfaces(lines: Lines) -> list[Interface]:
    ports: list[Interface] = []
    for line in lines:
        state = _STATE.fullmatch(line.text)
        if state and state[1] not in ("protocol", "Line"):
            if line.text.startswith("Line protocol"):
                continue
            name = port_name(state[1], line)
            up = state[2].strip().removeprefix("Administratively ").upper()
            one_of(up, {"UP", "DOWN", "STANDBY"}, "state", line)
            kind = "vxlan" if name.startswith("Nve") else ""
            ports.append(Interface(name, "", (), up == "UP", kind=kind))
            continue
        if not ports:
            continue
        last = ports[-1]
        ip, hardware = _ADDRESS.fullmatch(line.text), _MAC.fullmatch(line.text)
        speed, trunk = _SPEED.fullmatch(line.text), _TRUNK.fullmatch(line.text)
        if ip:
            last = last._replace(addresses=(*last.addresses, own_address(ip[1], ip[2], line)))
        if hardware:
            last = last._replace(mac=mac(hardware[1], line))
        if speed:
            last = last._replace(bits_per_second=rate_in_text(speed[1], _MBIT, line))
        if trunk:
            last = last._replace(master=trunk[1])
        ports[-1] = last
    if not ports:
        raise lines.first.wrong("expected 'PORT current state : UP'")
    return ports


def _lldp(lines: Lines) -> list[Advertised]:
    neighbours: list[Advertised] = []
    fields: dict[str, str] = {}
    port, waiting, start = "", 0, lines.first
    for line in chain(lines, [Line("end has 0 neighbor(s)", "the end of the answer")]):
        head = _NEIGHBOURS.fullmatch(line.text)
        field = _field(line.text)
        if head or (field and field[0] == "Neighbor index"):
            if fields:
                neighbours.append(_neighbour(port, fields, start))
                waiting -= 1
            fields, start = {}, line
        if head:
            if waiting:
                raise line.wrong(f"expected {waiting} more neighbours of {port[:40]}")
            port, waiting = (
                port_name(head[1], line),
                number(head[2], "a number of neighbours", _MOST_COUNTED, line),
            )
        elif field and port:
            fields.setdefault(*field)
    return neighbours


def _neighbour(port: str, fields: dict[str, str], start: Line) -> Advertised:
    for key in ("Chassis ID", "Port ID"):
        if key not in fields:
            raise start.wrong(f"expected {key!r} of the neighbour of {port}")
    name = fields.get("System name") or fields.get("SysName") or ""
    at = fields.get("Management address", "")
    ids = mac_or_text(fields["Chassis ID"]), mac_or_text(fields["Port ID"])
    return Advertised(port, name, *ids, (at,) if at else ())


def _local(lines: Lines) -> tuple[str, str]:
    """(its own name, its chassis id)."""
    fields = dict(_pairs(lines))
    for key in ("System name", "Chassis ID"):
        if key not in fields:
            raise lines.first.wrong(f"expected {key!r}")
    return fields["System name"], mac_or_text(fields["Chassis ID"])


def _pairs(lines: Lines) -> Iterator[tuple[str, str]]:
    for line in reversed(lines):  # the first of each key is that of the system
        if field := _field(line.text.strip()):
            yield field


def _field(text: str) -> tuple[str, str] | None:
    """(key, value) of `Key : value`."""
    key, colon, value = text.partition(":")
    return (key.rstrip(), value.strip()) if colon and _KEY.fullmatch(key) else None


_ANSWER = re.compile(
    rb"(?m)^[ \t]*Out Interface[ \t]*:[ \t]*([A-Za-z0-9][A-Za-z0-9/.-]{0,47})\s*?$"
)
_ASK = (
    "display load-balance forwarding-path unicast interface ecmp src-interface {port}"
    " src-ip {src} dst-ip {dst} protocol udp l4-src-port {sport}"
    " l4-dst-port {dport} slot 1"
)

VRP = Dialect(
    "vrp",
    _QUESTIONS,
    _read,
    mark=_ROUTES,
    forwarding=(_ROUTES,),
    calculator=Calculator(_ASK, partial(match_only, _ANSWER)),
    role=vrp_role,
)
