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
from pathlib import Path

from ...replay.fabrics.devices import Advertised, Device, Interface, NextHop, Resolved, Route
from ...replay.fabrics.sources import Source
from .dialect import Dialect, Question
from .reading import (
    Reader,
    Told,
    address,
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
_Objects = Mapping[str, tuple[dict[str, Source], Source]]
"""(attributes, place) of objects by their id."""


def _read(folder: Path, name: str) -> Device:
    reader = Reader(folder, name, _QUESTIONS)
    appl = reader.json(_APPL, _of_appl) or Told()
    lags = reader.json(_APPL, _lag_members) or {}
    asic = reader.json(_ASIC, lambda top: _of_asic(top, lags)) or Told()
    return reader.device(
        appl._replace(
            table=asic.table,
            table6=asic.table6,
            hash_in_words=asic.hash_in_words,
            chassis=appl.chassis or asic.chassis,
        )
    )


SONIC = Dialect("sonic", _QUESTIONS, _read, mark=_ASIC, forwarding=(_ASIC,))


def _entries(top: Source, prefix: str) -> Iterator[tuple[str, dict[str, Source], Source]]:
    """(key without its prefix, fields, place) of the hashes of a dump."""
    for key, place in top.mapping("keys of a database").items():
        if key.startswith(prefix):
            entry = place.mapping("type and value")
            one_of(part(entry, "type", place).text("a type"), {"hash"}, "type", place)
            fields = part(entry, "value", place).mapping("fields")
            yield key.removeprefix(prefix), fields, place


def _of_appl(top: Source) -> Told:
    ports: dict[str, Interface] = {}
    for table in ("PORT_TABLE:", "LAG_TABLE:"):
        for name, fields, place in _entries(top, table):
            if name in ("PortConfigDone", "PortInitDone"):
                continue
            state = part(fields, "oper_status", place) if "oper_status" in fields else None
            up = state is not None and (
                one_of(state.text("a state"), {"up", "down"}, "oper_status", state) == "up"
            )
            own_rate = rate(fields.get("speed"), _MBIT)
            alias = fields["alias"].text("a name") if "alias" in fields else ""
            ports[port_name(name, place)] = Interface(
                name, "", (), up, bits_per_second=own_rate, alias=alias
            )
    for name, _, place in _entries(top, "LAG_MEMBER_TABLE:"):
        lag, _, member = name.partition(":")
        if member in ports:
            ports[member] = ports[member]._replace(master=port_name(lag, place))
    vrfs = {}
    for name, fields, place in _entries(top, "INTF_TABLE:"):
        port, colon, prefix = name.partition(":")
        if port.startswith(("Loopback", "lo")):
            continue
        known = ports.setdefault(port_name(port, place), Interface(port, "", (), True))
        if colon:
            ip, _, length = prefix.partition("/")
            ports[port] = known._replace(
                addresses=(*known.addresses, own_address(ip, length, place))
            )
        elif "vrf_name" in fields and fields["vrf_name"].text("a name"):
            vrfs[port] = fields["vrf_name"].text("a name")
    for name, _, place in _entries(top, "VLAN_MEMBER_TABLE:"):
        vlan, _, member = name.partition(":")
        if member in ports:
            ports[member] = ports[member]._replace(master=port_name(vlan, place))
    for port, vrf in vrfs.items():
        ports[port] = ports[port]._replace(vrf=vrf)
    tunnels = [Interface(name, "", (), True, kind="vxlan")
               for name, _, _ in _entries(top, "VXLAN_TUNNEL_TABLE:")]  # fmt: skip
    chassis = [fields for _, fields, _ in _entries(top, "LLDP_LOC_CHASSIS")]
    local = {key: value.text(key) for fields in chassis for key, value in fields.items()}
    return Told(
        interfaces=[*ports.values(), *tunnels],
        advertised=list(_neighbours(top)),
        resolved=[
            Resolved(
                port_name(key.partition(":")[0], place),
                mac(part(fields, "neigh", place).text("a MAC"), place),
            )
            for key, fields, place in _entries(top, "NEIGH_TABLE:")
        ],
        system=local.get("lldp_loc_sys_name", ""),
        chassis=mac_or_text(local.get("lldp_loc_chassis_id", "")),
    )


def _neighbours(top: Source) -> Iterator[Advertised]:
    for port, fields, place in _entries(top, "LLDP_ENTRY_TABLE:"):
        texts = {key: value.text(key) for key, value in fields.items()}
        far = part(fields, "lldp_rem_port_id", place).text("a port")
        yield Advertised(
            port,
            texts.get("lldp_rem_sys_name", ""),
            mac_or_text(texts.get("lldp_rem_chassis_id", "")),
            mac_or_text(far),
            tuple(a for a in texts.get("lldp_rem_man_addr", "").split(",") if a),
        )


def _lag_members(top: Source) -> dict[str, str]:
    """The LAG of every member."""
    keys = (key.partition(":") for key, _, _ in _entries(top, "LAG_MEMBER_TABLE:"))
    return {member: lag for lag, _, member in keys}


def _of_asic(top: Source, lag_of: Mapping[str, str]) -> Told:
    """Routes of the virtual router of the switch, and its hash."""

    def objects(kind: str) -> _Objects:
        entries = _entries(top, f"{_SAI}{kind}:")
        return {key: (fields, place) for key, fields, place in entries}

    switches = objects("SWITCH")
    if len(switches) != 1:
        raise top.wrong(f"expected one {_SAI}SWITCH, found {len(switches)}")
    ((switch, switch_place),) = switches.values()
    names = {
        part(fields, "SAI_HOSTIF_ATTR_OBJ_ID", place).text("an id"): part(
            fields, "SAI_HOSTIF_ATTR_NAME", place
        ).text("a name")
        for fields, place in objects("HOSTIF").values()
        if "SAI_HOSTIF_ATTR_OBJ_ID" in fields
    }
    for fields, place in objects("LAG_MEMBER").values():
        lag = part(fields, "SAI_LAG_MEMBER_ATTR_LAG_ID", place).text("an id")
        port = part(fields, "SAI_LAG_MEMBER_ATTR_PORT_ID", place).text("an id")
        if names.get(port) in lag_of:
            names[lag] = lag_of[names[port]]
    for number, (fields, place) in objects("VLAN").items():
        names[number] = f"Vlan{part(fields, 'SAI_VLAN_ATTR_VLAN_ID', place).text('a number')}"
    tables = _Tables(objects, names)
    four: list[Route] = []
    six: list[Route] = []
    entries = objects("ROUTE_ENTRY")
    routers = {_key(key, place, "vr") for key, (_, place) in entries.items()}
    default = min(routers, key=lambda number: (len(number), number), default="")
    for key, (fields, place) in entries.items():
        if _key(key, place, "vr") != default:
            continue
        route = tables.route(_key(key, place, "dest"), fields, place)
        if route is not None:
            (four if route.network.version == 4 else six).append(route)
    own_mac = switch.get("SAI_SWITCH_ATTR_SRC_MAC_ADDRESS")
    remarks = []
    if len(routers) > 1:
        remarks.append(
            f"{len(routers)} virtual routers: {default}, the first, is read as the main table; "
            "other VRFs are not used"
        )
    if any(_entries(top, f"{_SAI}ARS:")):
        remarks.append("adaptive routing (SAI ARS): its groups have no fixed next hop per flow")
    return Told(
        table=(four, remarks),
        table6=(six, []),
        hash_in_words=_hash(switch, objects("HASH")),
        chassis=mac(own_mac.text("a MAC"), switch_place) if own_mac is not None else "",
    )


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

    def __init__(self, objects: Callable[[str], _Objects], names: Mapping[str, str]) -> None:
        self._hops: _Objects = objects("NEXT_HOP")
        self._groups: _Objects = objects("NEXT_HOP_GROUP")
        self._interfaces: _Objects = objects("ROUTER_INTERFACE")
        self._names = names
        self._members: dict[str, list[tuple[dict[str, Source], Source]]] = defaultdict(list)
        for fields, place in objects("NEXT_HOP_GROUP_MEMBER").values():
            key = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID"
            self._members[part(fields, key, place).text("an id")].append((fields, place))

    def route(self, dest: str, fields: dict[str, Source], place: Source) -> Route | None:
        """A route; None for addresses of the switch itself."""
        net = network(dest, place)
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
        kind = part(fields, "SAI_NEXT_HOP_GROUP_ATTR_TYPE", place)
        one_of(kind.text("a type"), _GROUPS, "type of a group", place)
        prefix = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_"
        for member_fields, where in self._members[number]:
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


def _hash(switch: dict[str, Source], hashes: _Objects) -> str:
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
