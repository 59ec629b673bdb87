"""Cisco NX-OS: `show ... | json`, and the forwarding table of the line cards as text.

A table of one row is an object in place of a list. Port names are short in some answers
(`Eth1/1`): they are written out. Shapes: the NX-API reference, genie's tests for `show forwarding
ipv4`, napalm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...analyzer.errors import UsageError
from ...analyzer.saved_file import MAX_BYTES
from ...replay.fabrics.devices import Advertised, Device, Interface, NextHop, Resolved, Route
from ...replay.fabrics.fabric import Network
from ...replay.fabrics.sources import Source, load_json
from ..port_counters import Bytes, Port
from .dialect import Calculator, Dialect, Question, nxos_role
from .reading import (
    UNKNOWN_HOP,
    Entry,
    Line,
    Lines,
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
_ROW = re.compile(
    r"\*?(?P<dest>[0-9a-fA-F.:]+/\d+)?(?:\s+(?P<to>\S+)"
    r"(?:\s+(?P<port>(?!(?:Yes|No|PUSH|SWAP|POP)\b|\w+:\s)\S+))?(?P<rest>\s.*)?)?"
)
_DEST = re.compile(r"\*?([0-9a-fA-F.:]+/\d+)(?:\s|$)")
_PARTIAL = re.compile(r"(?:.*\s)?Yes\s*", re.IGNORECASE)
_IGNORED = re.compile(r"\s*|slot +\d+|=+|[-+]+|Prefix +\|.*|'\*' .*")
_SEED = re.compile(r"(?i).*(?:universal-id|seed|load-share mode|address family).*")
_KBIT = 1000


def _long(text: str, place: Place) -> str:
    """The name of a port, written out as the ports themselves do."""
    match = _SHORT.fullmatch(text)
    return port_name(_LONG.get(match[1], match[1]) + match[2] if match else text, place)


def _rows(entry: Entry, name: str) -> list[Source]:
    """The rows of a table; an empty table may be missing or empty text."""
    if f"TABLE_{name}" not in entry or entry.at(f"TABLE_{name}").is_empty:
        return []
    table = entry.at(f"TABLE_{name}")
    if table.is_list:  # one table per row
        return [row for one in table.items("tables") for row in _listed(Entry(one), name)]
    return _listed(Entry(table), name)


def _listed(table: Entry, name: str) -> list[Source]:
    rows = table.at(f"ROW_{name}")
    return rows.items("rows") if rows.is_list else [rows]


def _read(folder: Path, name: str, most_bytes: int = MAX_BYTES) -> Device:
    reader = Reader(folder, name, _QUESTIONS, most_bytes)
    ports = reader.json_rows("nxos-interfaces.json", _interfaces)
    four, six = (
        reader.text_rows(suffix, lambda lines, rows: _routes(lines, rows, ports or ()))
        for suffix in (_ROUTES, _ROUTES6)
    )
    return reader.device(
        Told(
            ports,
            four,
            six,
            reader.json_rows("nxos-lldp.json", _lldp),
            reader.json_rows("nxos-arp.json", _arp),
            system=reader.json("nxos-hostname.json", lambda top: Entry(top).text("hostname")) or "",
            hash_in_words=reader.text("nxos-hash.text", _hash) or "",
            default_table=True,
        )
    )


def _interfaces(top: Source, rows: Rows) -> list[Interface]:
    listed = _rows(Entry(top), "interface")
    if not listed:
        raise top.wrong("expected rows of TABLE_interface")
    return rows.each(listed, partial(_interface, rows=rows))


def _interface(row: Entry, rows: Rows) -> Interface:
    name = port_name(row.text("interface"), row.place)
    kind = "svi" if any(key.startswith("svi_") for key in row.values) else "eth"
    state = row.text("svi_line_proto", "")
    state = state or row.text("svi_admin_state" if kind == "svi" else "state")
    addresses = []
    if f"{kind}_ip_addr" in row:
        with rows:
            length = row.text(f"{kind}_ip_mask")
            addresses.append(own_address(row.text(f"{kind}_ip_addr"), length, row.place))
    physical = row.text("svi_mac" if kind == "svi" else "eth_hw_addr", "")
    bundle = row.text("eth_bundle", "")
    return Interface(
        name,
        rows.value(lambda: mac(physical, row.place), ""),
        tuple(addresses),
        is_up(state, row.place),
        f"port-channel{bundle.removeprefix('port-channel')}" if bundle else "",
        "management" if name.startswith("mgmt") else "",
        "vxlan" if name.startswith("nve") else "",
        # that of a VLAN is only a nominal one
        rows.value(lambda: rate(row.values.get("eth_bw"), _KBIT), 0),
    )


def _lldp(top: Source, rows: Rows) -> list[Advertised]:
    if Entry(top).text("neigh_count", "?") != "0":
        Entry(top).at("TABLE_nbor_detail")
    return rows.each(_rows(Entry(top), "nbor_detail"), _neighbour)


def _neighbour(row: Entry) -> Advertised:
    far = row.text("port_id")
    return Advertised(
        _long(row.text("l_port_id"), row.place),
        "" if row.text("sys_name", "") in ("", "not advertised", "null") else row.text("sys_name"),
        mac_or_text(row.text("chassis_id")),
        _long(far, row.place) if _SHORT.fullmatch(far) else mac_or_text(far),
        tuple(a for a in (row.text("mgmt_addr", ""),) if a and a != "not advertised"),
    )


def _arp(top: Source, rows: Rows) -> list[Resolved]:
    def resolved(row: Entry) -> Resolved:
        known = row.text("mac", "") not in ("", "INCOMPLETE")
        own_mac = mac(row.text("mac"), row.place) if known else ""
        return Resolved(_long(row.text("intf-out"), row.place), own_mac)

    Entry(top).at("TABLE_vrf")
    vrfs = rows.each(_rows(Entry(top), "vrf"), lambda vrf: _rows(vrf, "adj"))
    listed = rows.each([row for vrf in vrfs for row in vrf], resolved)
    return [entry for entry in listed if entry.mac]


def _routes(lines: Lines, rows: Rows, ports: Sequence[Interface]) -> tuple[list[Route], list[str]]:
    """The routes of the first line card, and remarks. ports: an attached network whose row names no
    port is on the port with an address in it."""
    cards, partly = _cards(lines, rows)
    if not cards:
        raise lines.first.wrong("expected 'routes for table'")
    own = {address.network: port.name for port in ports if port.up for address in port.addresses}
    routes, lost = [], []
    for net, (listed, at) in cards[0].items():
        hops = [hop._replace(device=own.get(net, ""), weight=1) if hop == _NO_PORT else hop
                for hop in listed]  # fmt: skip
        if _NO_PORT in listed and net not in own:
            lost.append(str(net))
            hops = []
        routes.append(Route(net, tuple(hops) if UNKNOWN_HOP not in hops else (), None, at))
    remarks = []
    tables = [{net: hops for net, (hops, _) in card.items()} for card in cards]
    if any(table != tables[0] for table in tables):
        remarks.append("its line cards have different tables: only the table of the first is used")
    tunnels = sum(any(not h.device for h in route.hops) for route in routes)
    if tunnels:
        remarks.append(f"{tunnels} routes add a label or a tunnel header: not used")
    if lost:
        remarks.append(f"{len(lost)} attached networks, such as {lost[0]}, are on no known port")
    if partly:
        remarks.append(f"hardware has {len(partly)} routes only in part, such as {partly[0]}")
    return routes, remarks


_Card = dict[Network, tuple[list[NextHop], str]]
_NO_PORT = NextHop(None, "", weight=0)
"""Of an attached network whose row names no port."""


def _cards(lines: Lines, rows: Rows) -> tuple[list[_Card], list[str]]:
    """The table of every line card, next hops and place of each route; and the networks that
    hardware has only in part."""
    cards: list[_Card] = []
    partly: dict[str, None] = {}
    now: Network | None = None
    left_out = False
    for line in lines:
        head = _HEAD.fullmatch(line.text.strip())
        if _IGNORED.fullmatch(line.text) or (left_out and not head):
            continue
        with rows:
            if head:
                left_out, now = True, None
                one_of(head[2], {"default/base"}, "table", line)
                left_out = False
                cards.append({})
                continue
            start = _DEST.match(line.text)
            if start or not line.text[0].isspace():
                now = network(start[1], line) if start and cards else None
            if now is None:
                raise _odd_row(line)
            hops = cards[-1].setdefault(now, ([], line.where))[0]
            hops.append(UNKNOWN_HOP)
            row = _ROW.fullmatch(line.text)
            if row is None:
                raise _odd_row(line)
            if row["to"] is None:  # the next line has the rest of a long row
                hops.pop()
            elif row["to"] == "Receive":
                del cards[-1][now]  # an address of the switch itself
            elif row["to"] == "Drop":
                hops.pop()
            else:
                hops[-1] = _hop(row, line)
                if row["rest"] and _PARTIAL.fullmatch(row["rest"]):
                    partly[str(now)] = None
    return cards, list(partly)


def _odd_row(line: Line) -> UsageError:
    return line.wrong(f"expected prefix, next hop and port, found {line.text[:60]!r}")


def _hop(row: re.Match[str], line: Line) -> NextHop:
    if row["rest"] and re.search(r"vni|PUSH|SWAP|POP|tunnel", row["rest"]):
        return NextHop(None, "", usable=False)
    attached, known = row["to"] == "Attached", row["port"] not in (None, "-", "--")
    if attached and not known:
        return _NO_PORT
    if not known:
        raise _odd_row(line)
    return NextHop(None if attached else address(row["to"], line), _long(row["port"], line))


def _hash(lines: Lines) -> str:
    return ", ".join(" ".join(line.text.split()) for line in lines if _SEED.fullmatch(line.text))


def _counters(folder: Path, name: str, suffix: str) -> dict[Port, Bytes]:
    return {
        Port(name, port_name(row.text("interface"), row.place)): Bytes(
            octets(row.at("eth_outbytes")), octets(row.at("eth_inbytes"))
        )
        for row in map(Entry, _rows(Entry(load_json(folder / f"{name}.{suffix}")), "interface"))
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
