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

from ...analyzer.errors import UsageError
from ...analyzer.saved_file import MAX_BYTES
from ...replay.fabrics.devices import Advertised, Device, Interface, NextHop, Route
from ...replay.fabrics.fabric import Network
from .dialect import Calculator, Dialect, Question, vrp_role
from .reading import (
    UNKNOWN_HOP,
    Line,
    Lines,
    Reader,
    Rows,
    Told,
    address,
    is_up,
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
_DEST = re.compile(r"\s*([\d.]+/\d+)(?:\s|$)")
_IGNORED = re.compile(
    r"\s*|Route Flags\s*:.*|\s+[A-Z] - [A-Z][a-z]+ .*|-+|\s*Destination/Mask\s.*|<.*>.*"
)
_FLAGS = set("GHUSDBL")
_OWN = ("InLoop", "InLoopBack", "LoopBack")
_STATE = re.compile(r"\s*(?!Description)(\S+) current state\s*:(.*)")
_ADDRESS = re.compile(r"\s*Internet Address is\s+(.*)", re.IGNORECASE)
_GIVEN = re.compile(
    r"(?:(?:allocated by \S+|negotiated),?\s+)?([\d.]+)/([\d.]+)\b.*", re.IGNORECASE
)
_NOT_GIVEN = re.compile(r"(?:unnumbered|negotiated|allocated by|unassigned)\b.*", re.IGNORECASE)
"""Also the address of another port that an unnumbered port uses."""
_MAC = re.compile(r".*Hardware address is ([0-9a-fA-F-]+).*")
_SPEED = re.compile(r"\s*Speed\s*:\s*(\d+)\s*,.*")
_TRUNK = re.compile(r"\s*(?:Port is )?(?:a )?member of (Eth-Trunk\d+).*", re.IGNORECASE)
_NEIGHBOURS = re.compile(r"\s*(\S+)\s+has\s+(\d+)\s+neighbou?r(?:s|\(s\))?\s*[:.]?", re.IGNORECASE)
_INDEX = re.compile(r"neighbou?r(?:index|\d*)")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9 ./-]*")
_MBIT = 1_000_000
_MOST_COUNTED = 10**9


def _read(folder: Path, name: str, most_bytes: int = MAX_BYTES) -> Device:
    reader = Reader(folder, name, _QUESTIONS, most_bytes)
    local = reader.text("vrp-local.text", _local) or ("", "")
    return reader.device(
        Told(
            reader.text_rows("vrp-interfaces.text", _interfaces),
            reader.text_rows(_ROUTES, _routes),
            None,
            reader.text_rows("vrp-lldp.text", _lldp),
            None,
            system=local[0],
            chassis=local[1],
            default_table=True,
        )
    )


def _routes(lines: Lines, rows: Rows) -> tuple[list[Route], list[str]]:
    table: dict[Network, tuple[list[NextHop], str]] = {}
    own: set[Network] = set()
    total, by_network, listed, tunnels = None, False, 0, 0
    now: Network | None = None
    left_out = False
    for line in lines:
        head, count = _TABLE.fullmatch(line.text), _TOTAL.fullmatch(line.text)
        if _IGNORED.fullmatch(line.text) or (left_out and not head):
            continue
        with rows:
            if head:
                left_out, now = True, None
                one_of(head[1], {"", "_public_"}, "table", line)
                left_out = False
                continue
            if count:
                total = number(count[1], "a number of routes", _MOST_COUNTED, line)
                by_network = "Destinations" in line.text
                continue
            start = _DEST.match(line.text)
            if start or not line.text[0].isspace():
                now = network(start[1], line) if start else None
            if now is None:
                raise _odd_row(line)
            hops = table.setdefault(now, ([], line.where))[0]
            hops.append(UNKNOWN_HOP)
            row = _ROW.fullmatch(line.text)
            if row is None or not set(row["flags"]) <= _FLAGS:
                raise _odd_row(line)
            to = address(row["to"], line)
            tunnel = row["tunnel"] not in ("-", "0x0")
            usable = "U" in row["flags"] and not tunnel
            if row["port"].startswith(_OWN) or to.is_loopback:
                own.add(now)
                hops.pop()
            elif "B" in row["flags"] or row["port"].upper() == "NULL0":
                hops.pop()
            else:
                gateway = to if "G" in row["flags"] else None
                hops[-1] = NextHop(gateway, port_name(row["port"], line), usable=usable)
                tunnels += tunnel
            listed += 1
    if by_network:
        listed = sum(UNKNOWN_HOP not in hops for hops, _ in table.values())
    if total is None or not listed <= total <= listed + rows.odd:
        shown = "no total" if total is None else f"a total of {total}"
        raise lines.first.wrong(f"expected all routes, found {listed} with {shown}")
    remark = f"{tunnels} next hops lead into a tunnel: left out"
    routes = [
        Route(net, () if UNKNOWN_HOP in hops else tuple(hops), None, at)
        for net, (hops, at) in table.items()
        if hops or net not in own
    ]
    return routes, [remark] if tunnels else []


def _odd_row(line: Line) -> UsageError:
    return line.wrong(f"expected prefix, next hop, flags, port, found {line.text[:60]!r}")


def _interfaces(lines: Lines, rows: Rows) -> list[Interface]:
    ports: list[Interface] = []
    known = False
    for line in lines:
        state = _STATE.fullmatch(line.text)
        if state and "current state" not in state[2]:
            known = False
            with rows:
                name = port_name(state[1], line)
                kind = "vxlan" if name.startswith("Nve") else ""
                ports.append(Interface(name, "", (), is_up(state[2], line), kind=kind))
                known = True
        elif known:
            with rows:
                ports[-1] = _with_line(ports[-1], line)
    if not ports and not rows.odd:
        raise lines.first.wrong("expected 'PORT current state : UP'")
    return ports


def _with_line(port: Interface, line: Line) -> Interface:
    """A port with what a line tells of it."""
    ip, hardware = _ADDRESS.fullmatch(line.text), _MAC.fullmatch(line.text)
    speed, trunk = _SPEED.fullmatch(line.text), _TRUNK.fullmatch(line.text)
    if ip:
        given = _GIVEN.fullmatch(ip[1])
        if given is None:
            if not _NOT_GIVEN.fullmatch(ip[1]):
                raise line.wrong(f"expected an address, found {ip[1][:60]!r}")
        elif given[1] != "0.0.0.0":
            address = own_address(given[1], given[2], line)
            port = port._replace(addresses=(*port.addresses, address))
    if hardware:
        port = port._replace(mac=mac(hardware[1], line))
    if speed:
        port = port._replace(bits_per_second=rate_in_text(speed[1], _MBIT, line))
    if trunk:
        port = port._replace(master=trunk[1])
    return port


def _lldp(lines: Lines, rows: Rows) -> list[Advertised]:
    neighbours: list[Advertised] = []
    fields: dict[str, str] = {}
    port, waiting, heads, start = "", 0, 0, lines.first
    strange: Line | None = None
    for line in chain(lines, [Line("end has 0 neighbor(s)", "the end of the answer")]):
        head = _NEIGHBOURS.fullmatch(line.text)
        field = _field(line.text.strip())
        if head or (field and _INDEX.fullmatch(_plain(field[0]))):
            if fields:
                waiting -= 1
                with rows:
                    if waiting < 0:  # of a port whose head is not understood
                        raise start.wrong(f"expected no further neighbour of {port[:40]}")
                    neighbours.append(_neighbour(port, fields, start))
            fields, start = {}, line
        if head:
            if waiting > 0:
                rows.add(line.wrong(f"expected {waiting} more neighbours of {port[:40]}"))
            port, waiting = "", 0
            heads += 1
            try:
                waiting = number(head[2], "a number of neighbours", _MOST_COUNTED, line)
                port = port_name(head[1], line)
            except UsageError as error:
                rows.add(error)
        elif field and port:
            fields.setdefault(_plain(field[0]), field[1])
        elif line.text.strip() and not port:
            strange = strange or line
    if strange is not None and heads == 1:
        raise strange.wrong(f"expected 'PORT has 1 neighbor(s):', found {strange.text[:60]!r}")
    return neighbours


def _plain(key: str) -> str:
    """A key in the same way on all versions."""
    return re.sub(r"[^a-z0-9]", "", key.lower())


def _neighbour(port: str, fields: dict[str, str], start: Line) -> Advertised:
    for key in ("Chassis ID", "Port ID"):
        if _plain(key) not in fields:
            raise start.wrong(f"expected {key!r} of the neighbour of {port}")
    name = fields.get("systemname") or fields.get("sysname") or ""
    at = fields.get("managementaddress") or fields.get("managementaddressvalue") or ""
    ids = mac_or_text(fields["chassisid"]), mac_or_text(fields["portid"])
    none = ("", "--")
    return Advertised(port, "" if name in none else name, *ids, () if at in none else (at,))


def _local(lines: Lines) -> tuple[str, str]:
    """(its own name, its chassis id)."""
    fields = dict(_pairs(lines))
    for key in ("System name", "Chassis ID"):
        if _plain(key) not in fields:
            raise lines.first.wrong(f"expected {key!r}")
    return fields["systemname"], mac_or_text(fields["chassisid"])


def _pairs(lines: Lines) -> Iterator[tuple[str, str]]:
    for line in reversed(lines):  # the first of each key is that of the system
        if field := _field(line.text.strip()):
            yield _plain(field[0]), field[1]


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
