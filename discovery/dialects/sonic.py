"""SONiC: the objects of the switch chip (ASIC_DB) and what SONiC knows of ports and neighbours.

ASIC_DB holds what was programmed: a next hop whose link is down has left its group there, while
APPL_DB still has the routes of the routing daemon. Shapes: sonic-swss doc/swss-schema.md, the SAI
headers, sonic-utilities' sonic-db-dump.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from ...analyzer.errors import UsageError
from ...analyzer.saved_file import MAX_BYTES
from ...replay.fabrics.devices import Advertised, Device, Interface, NextHop, Resolved, Route
from ...replay.fabrics.fabric import Network
from ...replay.fabrics.sources import Source
from .dialect import Dialect, Question
from .reading import (
    Reader,
    Rows,
    Told,
    address,
    is_up,
    mac,
    mac_or_text,
    network,
    one_of,
    own_address,
    part,
    port_name,
    rate,
    weight,
)

_ASIC, _APPL = "sonic-asic.json", "sonic-appl.json"
_QUESTIONS = (
    Question(_ASIC, "sonic-db-dump -n ASIC_DB -y", "routes, groups, weights and hash of the chip"),
    Question(_APPL, "sonic-db-dump -n APPL_DB -y", "ports, addresses, neighbours, LLDP"),
)
_SAI = "ASIC_STATE:SAI_OBJECT_TYPE_"
_GROUPS = {
    f"SAI_NEXT_HOP_GROUP_TYPE_{kind}"
    for kind in ("ECMP", "DYNAMIC_UNORDERED_ECMP", "DYNAMIC_ORDERED_ECMP", "FINE_GRAIN_ECMP")
}
_DROPS = {"SAI_PACKET_ACTION_DROP", "SAI_PACKET_ACTION_DENY"}
_TO_CPU = {"SAI_PACKET_ACTION_TRAP", "SAI_PACKET_ACTION_COPY"}
_FORWARDS = {"SAI_PACKET_ACTION_FORWARD", "SAI_PACKET_ACTION_TRANSIT", "SAI_PACKET_ACTION_LOG"}
_CPU_PORT = re.compile(r"oid:0x1[0-9a-f]{12}")
"""An object of type port: routes to addresses of the switch itself lead to its CPU."""
_MBIT = 1_000_000
_Fields = dict[str, Source]
_Objects = Mapping[str, tuple[_Fields, Source]]
"""(attributes, place) of objects by their id."""


def _read(folder: Path, name: str, most_bytes: int = MAX_BYTES) -> Device:
    reader = Reader(folder, name, _QUESTIONS, most_bytes)
    appl = reader.json_rows(_APPL, _of_appl) or Told()
    lags = {port.name: port.master for port in appl.interfaces or () if port.master}
    asic = reader.json_rows(_ASIC, partial(_of_asic, lag_of=lags)) or Told()
    return reader.device(
        appl._replace(
            table=asic.table,
            table6=asic.table6,
            hash_in_words=asic.hash_in_words,
            chassis=appl.chassis or asic.chassis,
        )
    )


SONIC = Dialect("sonic", _QUESTIONS, _read, mark=_ASIC, forwarding=(_ASIC,))


def _entries(top: Source, prefix: str, rows: Rows) -> Iterator[tuple[str, _Fields, Source]]:
    """(key without its prefix, fields, place) of the hashes of a dump; one without fields is
    `{"NULL": "NULL"}`."""
    for key, place in top.mapping("keys of a database").items():
        if not key.startswith(prefix):
            continue
        fields: _Fields | None = None
        with rows:
            entry = place.mapping("type and value")
            one_of(part(entry, "type", place).text("a type"), {"hash"}, "type", place)
            fields = part(entry, "value", place).mapping("fields")
        if fields is not None:
            fields.pop("NULL", None)
            yield key.removeprefix(prefix), fields, place


def _of_appl(top: Source, rows: Rows) -> Told:
    ports: dict[str, Interface] = {}
    for table in ("PORT_TABLE:", "LAG_TABLE:"):
        for name, fields, place in _entries(top, table, rows):
            if name not in ("PortConfigDone", "PortInitDone"):
                with rows:
                    ports[name] = _port(name, fields, place, rows)
    if not ports and not rows.odd:
        raise top.wrong("expected keys of PORT_TABLE")
    for name, fields, place in _entries(top, "INTF_TABLE:", rows):
        if not name.startswith(("Loopback", "lo")):
            with rows:
                _add_interface(ports, name, fields, place)
    for table in ("LAG_MEMBER_TABLE:", "VLAN_MEMBER_TABLE:"):
        for name, _, place in _entries(top, table, rows):
            master, _, member = name.partition(":")
            with rows:
                if member in ports and not ports[member].master:
                    ports[member] = ports[member]._replace(master=port_name(master, place))
    tunnels = [Interface(name, "", (), True, kind="vxlan")
               for name, _, _ in _entries(top, "VXLAN_TUNNEL_TABLE:", rows)]  # fmt: skip
    heard, resolved = [], []
    for name, fields, place in _entries(top, "LLDP_ENTRY_TABLE:", rows):
        with rows:
            heard.append(_neighbour(name, fields, place))
    for key, fields, place in _entries(top, "NEIGH_TABLE:", rows):
        with rows:
            own_mac = mac(part(fields, "neigh", place).text("a MAC"), place)
            resolved.append(Resolved(port_name(key.partition(":")[0], place), own_mac))
    local: dict[str, str] = {}
    for _, fields, _ in _entries(top, "LLDP_LOC_CHASSIS", rows):
        with rows:
            local |= {key: value.text(key) for key, value in fields.items()}
    return Told(
        interfaces=[*ports.values(), *tunnels],
        advertised=heard,
        resolved=resolved,
        system=local.get("lldp_loc_sys_name", ""),
        chassis=mac_or_text(local.get("lldp_loc_chassis_id", "")),
    )


def _port(name: str, fields: _Fields, place: Source, rows: Rows) -> Interface:
    state = fields.get("oper_status")
    aliases = (fields["alias"].text("a name"),) if "alias" in fields else ()
    return Interface(
        port_name(name, place),
        "",
        (),
        state is not None and is_up(state.text("a state"), state),
        bits_per_second=rows.value(lambda: rate(fields.get("speed"), _MBIT), 0),
        aliases=aliases,
    )


def _add_interface(ports: dict[str, Interface], name: str, fields: _Fields, place: Source) -> None:
    """What an entry of INTF_TABLE tells of a port: its VRF, or one of its addresses."""
    port, colon, prefix = name.partition(":")
    known = ports.get(port) or Interface(port_name(port, place), "", (), True)
    ports[port] = known
    if colon:
        ip, _, length = prefix.partition("/")
        ports[port] = known._replace(addresses=(*known.addresses, own_address(ip, length, place)))
    elif "vrf_name" in fields:
        ports[port] = known._replace(vrf=fields["vrf_name"].text("a name"))


def _neighbour(port: str, fields: _Fields, place: Source) -> Advertised:
    texts = {key: value.text(key) for key, value in fields.items()}
    far = part(fields, "lldp_rem_port_id", place).text("a port")
    return Advertised(
        port,
        texts.get("lldp_rem_sys_name", ""),
        mac_or_text(texts.get("lldp_rem_chassis_id", "")),
        mac_or_text(far),
        tuple(a for a in texts.get("lldp_rem_man_addr", "").split(",") if a),
    )


def _of_asic(top: Source, rows: Rows, lag_of: Mapping[str, str]) -> Told:
    """Routes of the virtual router of the switch, and its hash. lag_of: the LAG of every member."""

    def objects(kind: str) -> _Objects:
        entries = _entries(top, f"{_SAI}{kind}:", rows)
        return {key: (fields, place) for key, fields, place in entries}

    switches = objects("SWITCH")
    if len(switches) != 1:
        raise top.wrong(f"expected one {_SAI}SWITCH, found {len(switches)}")
    ((switch, switch_place),) = switches.values()
    names = dict(_pairs(objects("HOSTIF"), "HOSTIF", "OBJ_ID", "NAME", rows))
    for port, lag in _pairs(objects("LAG_MEMBER"), "LAG_MEMBER", "PORT_ID", "LAG_ID", rows):
        if names.get(port) in lag_of:
            names[lag] = lag_of[names[port]]
    for number, (fields, _) in objects("VLAN").items():
        if "SAI_VLAN_ATTR_VLAN_ID" in fields:
            with rows:
                names[number] = f"Vlan{fields['SAI_VLAN_ATTR_VLAN_ID'].text('a number')}"
    tables = _Tables(objects, names, rows)
    routers = {}
    entries = objects("ROUTE_ENTRY")
    for key, (_, place) in entries.items():
        with rows:
            routers[key] = _key(key, place, "vr")
    own_router = switch.get("SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID")
    numbers = set(routers.values())
    default = min(numbers, key=lambda number: (len(number), number), default="")
    if own_router is not None and own_router.text("an id") in numbers:
        default = own_router.text("an id")
    four: list[Route] = []
    six: list[Route] = []
    understood = 0
    for key, (fields, place) in entries.items():
        if routers.get(key) != default:
            continue
        with rows:
            net = network(_key(key, place, "dest"), place)
            family = four if net.version == 4 else six
            family.append(Route(net, (), None, place.where))  # stays if its next hops are odd
            route = tables.route(net, fields, place)
            family.pop()
            family += [] if route is None else [route]
            understood += 1
    if rows.odd and not understood:
        raise UsageError(rows.first)
    own_mac = switch.get("SAI_SWITCH_ATTR_SRC_MAC_ADDRESS")
    remarks = []
    if len(numbers) > 1:
        remarks.append(
            f"{len(numbers)} virtual routers: {default}, that of the switch, is read as the main "
            "table; other VRFs are not used"
        )
    if any(_entries(top, f"{_SAI}ARS:", rows)):
        remarks.append("adaptive routing (SAI ARS): its groups have no fixed next hop per flow")
    return Told(
        table=(four, remarks),
        table6=(six, []),
        hash_in_words=_hash(switch, objects("HASH")),
        chassis=mac(own_mac.text("a MAC"), switch_place) if own_mac is not None else "",
    )


def _pairs(
    objects: _Objects, kind: str, first: str, second: str, rows: Rows
) -> Iterator[tuple[str, str]]:
    """Two attributes of the objects that have both."""
    for fields, _ in objects.values():
        one, other = (fields.get(f"SAI_{kind}_ATTR_{name}") for name in (first, second))
        if one is not None and other is not None:
            with rows:
                pair = one.text("an attribute"), other.text("an attribute")
                yield pair


def _key(key: str, place: Source, name: str) -> str:
    """A part of the JSON that is the key of a route."""
    try:
        value = json.loads(key)[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise place.wrong(f"expected a key with {name!r}") from None
    if not isinstance(value, str):
        raise place.wrong(f"expected a text as {name!r}")
    return value


class _Tables:
    """Next hops and groups by id."""

    def __init__(
        self, objects: Callable[[str], _Objects], names: Mapping[str, str], rows: Rows
    ) -> None:
        self._hops: _Objects = objects("NEXT_HOP")
        self._groups: _Objects = objects("NEXT_HOP_GROUP")
        self._interfaces: _Objects = objects("ROUTER_INTERFACE")
        self._names = names
        self._members: dict[str, list[tuple[_Fields, Source]]] = defaultdict(list)
        for fields, place in objects("NEXT_HOP_GROUP_MEMBER").values():
            group = fields.get("SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID")
            if group is not None:
                with rows:
                    self._members[group.text("an id")].append((fields, place))

    def route(self, net: Network, fields: _Fields, place: Source) -> Route | None:
        """A route; None for addresses of the switch itself."""
        action = fields.get("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION")
        word = "SAI_PACKET_ACTION_FORWARD" if action is None else action.text("an action")
        one_of(word, _DROPS | _TO_CPU | _FORWARDS, "action", place)
        if word in _TO_CPU or net.is_link_local or net.is_multicast:
            return None
        target = fields.get("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID")
        number = "oid:0x0" if target is None else target.text("an id")
        if word in _DROPS or number == "oid:0x0":
            return Route(net, (), None, place.where)
        if number in self._groups:
            return Route(net, tuple(self._group(number)), None, place.where)
        if number in self._hops:
            return Route(net, (self._hop(number, 1),), None, place.where)
        if number in self._interfaces:
            port = self._port(number, place)
            return Route(net, (NextHop(None, port),), None, place.where) if port else None
        if not _CPU_PORT.fullmatch(number):
            raise place.wrong(f"unknown object {number[:40]!r} as next hop")
        return None

    def _group(self, number: str) -> Iterator[NextHop]:
        fields, place = self._groups[number]
        if number in self._members:
            kind = part(fields, "SAI_NEXT_HOP_GROUP_ATTR_TYPE", place)
            one_of(kind.text("a type"), _GROUPS, "type of a group", place)
        prefix = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_"
        for member_fields, where in self._members.get(number, ()):
            member = part(member_fields, f"{prefix}NEXT_HOP_ID", where).text("an id")
            if member not in self._hops:
                raise where.wrong(f"expected a next hop, found {member[:40]!r}")
            yield self._hop(member, weight(member_fields.get(f"{prefix}WEIGHT")))

    def _hop(self, number: str, own_weight: int) -> NextHop:
        fields, place = self._hops[number]
        kind = part(fields, "SAI_NEXT_HOP_ATTR_TYPE", place).text("a type")
        if kind == "SAI_NEXT_HOP_TYPE_TUNNEL_ENCAP":
            return NextHop(None, "", own_weight, usable=False)
        one_of(kind, {"SAI_NEXT_HOP_TYPE_IP"}, "type of a next hop", place)
        gateway = part(fields, "SAI_NEXT_HOP_ATTR_IP", place)
        interface = part(fields, "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID", place).text("an id")
        port = self._port(interface, place)
        return NextHop(address(gateway.text("an address"), gateway), port, own_weight)

    def _port(self, number: str, place: Source) -> str:
        """The port of a router interface; empty for a loopback."""
        if number not in self._interfaces:
            raise place.wrong(f"expected a router interface, found {number[:40]!r}")
        fields, where = self._interfaces[number]
        prefix = "SAI_ROUTER_INTERFACE_"
        kind = part(fields, f"{prefix}ATTR_TYPE", where).text("a type")
        kind = kind.removeprefix(f"{prefix}TYPE_")
        one_of(kind, {"PORT", "VLAN", "SUB_PORT", "LOOPBACK"}, "type of a router interface", where)
        if kind == "LOOPBACK":
            return ""
        port = part(fields, f"{prefix}ATTR_{'VLAN' if kind == 'VLAN' else 'PORT'}_ID", where)
        name = self._names.get(port.text("an id"))
        if name is None:
            raise port.wrong("no HOSTIF, LAG or VLAN has this id")
        if kind == "SUB_PORT":
            name += f".{part(fields, f'{prefix}ATTR_OUTER_VLAN_ID', where).text('a number')}"
        return port_name(name, where)


def _hash(switch: _Fields, hashes: _Objects) -> str:
    """Seed, algorithm and fields, as far as they were set."""
    prefix = "SAI_SWITCH_ATTR_ECMP_"
    words = []
    for name, key in (("seed", "DEFAULT_HASH_SEED"), ("algorithm", "DEFAULT_HASH_ALGORITHM")):
        if f"{prefix}{key}" in switch:
            value = switch[f"{prefix}{key}"].text(name).removeprefix("SAI_HASH_ALGORITHM_")
            words.append(f"{name} {value}")
    used = switch.get(f"{prefix}HASH") or switch.get(f"{prefix}HASH_IPV4")
    if used is not None and used.text("an id") in hashes:
        fields, _ = hashes[used.text("an id")]
        field_list = fields.get("SAI_HASH_ATTR_NATIVE_HASH_FIELD_LIST")
        if field_list is not None:
            names = field_list.text("fields").partition(":")[2]
            words.append(f"fields {names.replace('SAI_NATIVE_HASH_FIELD_', '')}")
    return ", ".join(words)
