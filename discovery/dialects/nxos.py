"""Cisco NX-OS: `show ... | json`, and the forwarding table of the line cards as text.

A table of one row is an object in place of a list. Port names are short in some answers
(`Eth1/1`): they are written out. Shapes: the NX-API reference, genie's tests for `show forwarding
ipv4`, napalm.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...replay.fabrics.devices import Advertised, Device, Interface, NextHop, Resolved, Route
from ...replay.fabrics.fabric import Network
from ...replay.fabrics.sources import Source, load_json
from ..port_counters import Bytes, Port
from .dialect import Calculator, Dialect, Question, nxos_role
from .reading import (
    Entry,
    Line,
    Lines,
    Place,
    Reader,
    Told,
    address,
    mac,
    mac_or_text,
    match_only,
    network,
    octets,
    one_of,
    own_address,
    port_name,
    rate,
)

_ROUTES, _ROUTES6 = "nxos-fib.text", "nxos-fib6.text"
_QUESTIONS = (
    Question(_ROUTES, "show forwarding ipv4 route vrf default", "IPv4 routes"),
    Question(_ROUTES6, "show forwarding ipv6 route vrf default", "IPv6 routes"),
    Question("nxos-interfaces.json", "show interface | json", "ports, addresses, MAC addresses"),
    Question("nxos-lldp.json", "show lldp neighbors detail | json", "LLDP neighbours"),
    Question("nxos-arp.json", "show ip arp vrf default | json", "neighbour MAC addresses"),
    Question("nxos-hostname.json", "show hostname | json", "its own name"),
    Question("nxos-hash.text", "show ip load-sharing", "hash mode and seed"),
)
_LONG = {"Eth": "Ethernet", "Po": "port-channel", "Lo": "loopback", "mgmt": "mgmt", "Vlan": "Vlan"}
_SHORT = re.compile(r"([A-Za-z]+(?:-[A-Za-z]+)?)(\d[\d/.]*)")
_HEAD = re.compile(r"(IPv4|IPv6) routes for table (\S+)")
_ROW = re.compile(r"\*?(?P<dest>[0-9a-fA-F.:]+/\d+)?\s+(?P<to>\S+)\s+(?P<port>\S+)(?P<rest>\s.*)?")
_IGNORED = re.compile(r"\s*|slot +\d+|=+|[-+]+|Prefix +\|.*|'\*' .*")
_SEED = re.compile(r"(?i).*(?:universal-id|seed|load-share mode|address family).*")
_KBIT = 1000


def _long(text: str, place: Place) -> str:
    """The name of a port, written out as the ports themselves do."""
    match = _SHORT.fullmatch(text)
    return port_name(_LONG.get(match[1], match[1]) + match[2] if match else text, place)


def _rows(entry: Entry, name: str) -> list[Entry]:
    """The rows of a table; an empty table may be missing or empty text."""
    if f"TABLE_{name}" not in entry or entry.at(f"TABLE_{name}").is_empty:
        return []
    rows = entry.inner(f"TABLE_{name}").at(f"ROW_{name}")
    return [Entry(row) for row in rows.items("rows")] if rows.is_list else [Entry(rows)]


def _read(folder: Path, name: str) -> Device:
    reader = Reader(folder, name, _QUESTIONS)
    four, six = reader.text(_ROUTES, _routes), reader.text(_ROUTES6, _routes)
    return reader.device(
        Told(
            reader.json("nxos-interfaces.json", _interfaces),
            four,
            six,
            reader.json("nxos-lldp.json", _lldp),
            reader.json("nxos-arp.json", _arp),
            system=reader.json("nxos-hostname.json", lambda top: Entry(top).text("hostname")) or "",
            hash_in_words=reader.text("nxos-hash.text", _hash) or "",
            default_table=True,
        )
    )


def _interfaces(top: Source) -> list[Interface]:
    ports = []
    for row in _rows(Entry(top), "interface"):
        name = port_name(row.text("interface"), row.place)
        kind = "svi" if "svi_line_proto" in row else "eth"
        state = row.text("svi_line_proto" if kind == "svi" else "state")
        addresses = []
        if f"{kind}_ip_addr" in row:
            length = row.text(f"{kind}_ip_mask")
            addresses.append(own_address(row.text(f"{kind}_ip_addr"), length, row.place))
        physical = row.text("svi_mac" if kind == "svi" else "eth_hw_addr", "")
        bundle = row.text("eth_bundle", "")
        ports.append(
            Interface(
                name,
                mac(physical, row.place),
                tuple(addresses),
                one_of(state, {"up", "down"}, "state", row.place) == "up",
                f"port-channel{bundle.removeprefix('port-channel')}" if bundle else "",
                "management" if name.startswith("mgmt") else "",
                "vxlan" if name.startswith("nve") else "",
                rate(row.values.get("eth_bw"), _KBIT),  # that of a VLAN is only a nominal one
            )
        )
    if not ports:
        raise top.wrong("expected rows of TABLE_interface")
    return ports


def _lldp(top: Source) -> list[Advertised]:
    if Entry(top).text("neigh_count", "?") != "0":
        Entry(top).at("TABLE_nbor_detail")
    return [
        Advertised(
            _long(row.text("l_port_id"), row.place),
            "" if row.text("sys_name", "") in ("not advertised", "null") else row.text("sys_name"),
            mac_or_text(row.text("chassis_id")),
            _long(row.text("port_id"), row.place)
            if _SHORT.fullmatch(row.text("port_id"))
            else mac_or_text(row.text("port_id")),
            tuple(a for a in (row.text("mgmt_addr", ""),) if a and a != "not advertised"),
        )
        for row in _rows(Entry(top), "nbor_detail")
    ]


def _arp(top: Source) -> list[Resolved]:
    return [
        Resolved(_long(row.text("intf-out"), row.place), mac(row.text("mac"), row.place))
        for vrf in _rows(Entry(top), "vrf")
        for row in _rows(vrf, "adj")
        if row.text("mac", "") not in ("", "INCOMPLETE")
    ]


def _routes(lines: Lines) -> tuple[list[Route], list[str]]:
    """The routes of the first line card, and remarks."""
    cards = _cards(lines)
    if not cards:
        raise lines.first.wrong("expected 'routes for table'")
    routes = [Route(net, tuple(hops), None, at) for net, (hops, at) in cards[0].items()]
    remarks = []
    tables = [{net: hops for net, (hops, _) in card.items()} for card in cards]
    if any(table != tables[0] for table in tables):
        remarks.append("its line cards have different tables: only the table of the first is used")
    tunnels = sum(any(not h.device for h in route.hops) for route in routes)
    if tunnels:
        remarks.append(f"{tunnels} routes add a label or a tunnel header: not used")
    return routes, remarks


def _cards(lines: Lines) -> list[dict[Network, tuple[list[NextHop], str]]]:
    """The table of every line card: next hops and place of each route."""
    cards: list[dict[Network, tuple[list[NextHop], str]]] = []
    now: Network | None = None
    for line in lines:
        head = _HEAD.fullmatch(line.text.strip())
        if head:
            one_of(head[2], {"default/base"}, "table", line)
            cards.append({})
            now = None
            continue
        if _IGNORED.fullmatch(line.text):
            continue
        row = _ROW.fullmatch(line.text)
        if row is None or not cards or not (row["dest"] or now):
            raise line.wrong(f"expected prefix, next hop and port, found {line.text[:60]!r}")
        if row["dest"]:
            now = network(row["dest"], line)
        assert now is not None
        if row["to"] == "Receive":
            continue  # an address of the switch itself
        hops = cards[-1].setdefault(now, ([], line.where))[0]
        if row["to"] != "Drop":
            hops.append(_hop(row, line))
    return cards


def _hop(row: re.Match[str], line: Line) -> NextHop:
    if row["rest"] and re.search(r"vni|PUSH|SWAP|POP|tunnel", row["rest"]):
        return NextHop(None, "", usable=False)
    port = _long(row["port"], line)
    return NextHop(None if row["to"] == "Attached" else address(row["to"], line), port)


def _hash(lines: Lines) -> str:
    return ", ".join(" ".join(line.text.split()) for line in lines if _SEED.fullmatch(line.text))


def _counters(folder: Path, name: str, suffix: str) -> dict[Port, Bytes]:
    return {
        Port(name, port_name(row.text("interface"), row.place)): Bytes(
            octets(row.at("eth_outbytes")), octets(row.at("eth_inbytes"))
        )
        for row in _rows(Entry(load_json(folder / f"{name}.{suffix}")), "interface")
        if "eth_outbytes" in row
    }


_ANSWER = re.compile(rb"Out Interface:\s*([A-Za-z][A-Za-z0-9/.-]{0,47})")
_ASK = "show routing hash {src} {dst} ip-proto 17 {sport} {dport} in-interface {port}"


def _answer(output: bytes) -> str | None:
    name = _SHORT.fullmatch(match_only(_ANSWER, output) or "")
    return None if name is None else _LONG.get(name[1], name[1]) + name[2]


NXOS = Dialect(
    "nxos",
    _QUESTIONS,
    _read,
    mark=_ROUTES,
    forwarding=(_ROUTES, _ROUTES6),
    calculator=Calculator(_ASK, _answer),
    counters=("nxos-interfaces.json", _counters),
    role=nxos_role,
)
