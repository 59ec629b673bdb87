"""Fabrics from the tables of Linux routers: addresses, neighbours, routes.

A folder with NAME.route.json (`ip -j route`), and optionally NAME.route6.json
(`ip -6 -j route`), NAME.nexthop.json (`ip -j nexthop`), NAME.bucket.json (`ip -j nexthop bucket`),
NAME.sysctl (`sysctl -a`, or lines of it), NAME.addr.json (`ip -j -d addr`), NAME.neigh.json
(`ip -j neigh`), NAME.rule.json and NAME.rule6.json (`ip -j rule`, `ip -6 -j rule`) and
NAME.lldp.json (`lldpctl -f json0`); or one JSON file
`{NAME: {"route": [...], "nexthop": [...], "bucket": [...], "sysctl": "..."}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from ...analyzer.capture.rings import natural
from ...analyzer.errors import UsageError
from ...analyzer.saved_file import MAX_BYTES, check_size, decoded, read_saved
from ...analyzer.words import printable
from ..hashing.settings import HashSettings
from .devices import (
    Advertised,
    Device,
    Interface,
    NextHop,
    Resolved,
    Route,
    Routes,
    limits_of,
)
from .fabric import Address, Fabric, Network, parse_address, parse_interface, parse_network
from .sources import JsonItems, JsonSource, Source, load_json, load_yaml
from .topology import assemble

_T = TypeVar("_T")

# Interfaces and neighbours of a Linux device: `ip -j -d addr`, `ip -j neigh`, `lldpctl -f json0`.
#
# A file that is missing gives None: the device was not asked. UsageError names a file that
# does not hold what the command prints.


class _Address(msgspec.Struct):
    local: str = ""
    prefixlen: int = 0


class _Kind(msgspec.Struct):
    info_kind: str = ""
    info_slave_kind: str = ""


class _Link(msgspec.Struct):
    ifname: str
    flags: list[str]
    address: str = ""
    permaddr: str = ""
    """The address of a member of a bond, which as a member has that of the bond."""
    link: str | None = None
    master: str = ""
    addr_info: list[_Address] = []
    linkinfo: _Kind = msgspec.field(default_factory=_Kind)


class _Entry(msgspec.Struct):
    dev: str = ""
    lladdr: str = ""


class _Value(msgspec.Struct):
    value: str = ""


class _Chassis(msgspec.Struct):
    id: list[_Value] = []
    name: list[_Value] = []
    mgmt_ip: list[_Value] = msgspec.field(default_factory=list, name="mgmt-ip")


class _Port(msgspec.Struct):
    id: list[_Value] = []


class _Heard(msgspec.Struct):
    name: str
    chassis: list[_Chassis] = []
    port: list[_Port] = []


class _Lldp(msgspec.Struct):
    interface: list[_Heard] = []


class _Answer(msgspec.Struct):
    lldp: list[_Lldp]


_KINDS = ("vxlan", "bridge", "bond", "team", "vlan")

Odd: TypeAlias = Callable[[UsageError], None]
"""Takes the error of a row that is not as documented; the others are read if it returns."""


def _refuse(error: UsageError) -> None:
    raise error


def _listed(file: Path, kind: type[_T], what: str, odd: Odd) -> list[_T] | None:
    """The entries of an answer that is a list; None without the file."""
    entries = decoded(file, list[msgspec.Raw], what, b"[]")
    if entries is None:
        return None
    listed = []
    for i, entry in enumerate(entries):
        try:
            listed.append(msgspec.json.decode(entry, type=kind))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            odd(UsageError(f"{file}: not {what}: [{i}]: {error}"))
    return listed


def interfaces_of(file: Path, odd: Odd = _refuse) -> tuple[Interface, ...] | None:
    """The interfaces of `ip -j -d addr`; without -d a master is taken for a bond or bridge."""
    links = _listed(file, _Link, "the output of `ip -j -d addr`", odd)
    if links is None:
        return None
    try:
        return tuple(
            Interface(
                link.ifname,
                (link.permaddr or link.address).lower(),
                tuple(
                    parse_interface(f"{a.local}/{a.prefixlen}") for a in link.addr_info if a.local
                ),
                "LOWER_UP" in link.flags,
                "" if link.linkinfo.info_slave_kind == "vrf" else link.master,
                link.master if link.linkinfo.info_slave_kind == "vrf" else "",
                link.linkinfo.info_kind if link.linkinfo.info_kind in _KINDS else "",
                parent=(link.link or "") if link.linkinfo.info_kind == "vlan" else "",
            )
            for link in links
        )
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None


def resolved_of(file: Path, odd: Odd = _refuse) -> tuple[Resolved, ...] | None:
    """The entries of `ip -j neigh` with a MAC address."""
    entries = _listed(file, _Entry, "the output of `ip -j neigh`", odd)
    if entries is None:
        return None
    return tuple(Resolved(e.dev, e.lladdr.lower()) for e in entries if e.dev and e.lladdr)


def advertised_of(file: Path) -> tuple[Advertised, ...] | None:
    """The neighbours of `lldpctl -f json0`.

    Their age is no measure: it counts from the last change of what they say, and lldpd itself
    removes neighbours after their time to live. One that fails leaves an empty file.
    """
    answer = decoded(file, _Answer, "the output of `lldpctl -f json0`")
    if answer is None:
        return None
    return tuple(
        Advertised(
            heard.name,
            _first(heard.chassis[0].name),
            _first(heard.chassis[0].id),
            _first(heard.port[0].id),
            tuple(address.value for address in heard.chassis[0].mgmt_ip),
        )
        for lldp in answer.lldp
        for heard in lldp.interface
        if heard.chassis and heard.port
    )


def policies_of(file: Path, family: str) -> list[str]:
    """What the rules of `ip -j rule` do beside the ones of every system, in words; one line."""
    rules = decoded(file, list[dict[str, object]], "the output of `ip -j rule`") or []
    unusual = [rule for rule in rules if not _usual(rule)]
    if not unusual:
        return []
    keys = ("src", "srclen", "dst", "dstlen", "fwmark", "iif", "table")
    shown = " ".join(f"{key} {unusual[0][key]}" for key in keys if key in unusual[0])
    return [
        f"policy routing: {len(unusual)} {family} rules choose other tables, which are not read, "
        f"such as `{printable(shown)[:60]}`"
    ]


def _usual(rule: dict[str, object]) -> bool:
    """Whether a rule is one that every system has, or that of VRFs."""
    if rule.get("table") in ("local", "main", "default"):
        return set(rule) <= {"priority", "src", "table", "protocol"} and rule.get("src") == "all"
    return "l3mdev" in rule


def _first(values: list[_Value]) -> str:
    return values[0].value if values else ""


_SHOWN = 300
"""Most characters of a problem."""
TABLES = ("route", "route6", "nexthop", "bucket")
_SYSCTLS = ("multipath", "linkdown", "forwarding", "ip_forward")
_HIGHEST = {
    "fib_multipath_hash_policy": 3,
    "fib_multipath_hash_seed": (1 << 32) - 1,
    "fib_multipath_hash_fields": 0xFFF,
}
"""Linux Documentation/networking/ip-sysctl.rst"""


def read_devices(path: Path) -> list[Device]:
    """All devices of a folder or file. UsageError names file and line."""
    if path.is_dir():
        names = (file.name.removesuffix(".route.json") for file in path.glob("*.route.json"))
        devices = [read_device(path, name) for name in sorted(names, key=natural)]
    else:
        top = load_yaml(path, "a folder or JSON file with the tables of routers")
        devices = [
            _device(name, place.mapping("the tables of a router"), path)
            for name, place in top.mapping("router names").items()
        ]
    if not devices:
        raise UsageError(f"{path} has no NAME.route.json; save `ip -j route` of every router there")
    return devices


def read_device(
    folder: Path, name: str, *, strict: bool = True, most_bytes: int = MAX_BYTES
) -> Device:
    """One device of a folder. UsageError names file and line.

    strict: also of answers that the forwarding of IPv4 does not need, and of single rows; else they
    are told in `Device.unexpected`, as if they had not been given. most_bytes: of an answer.
    """
    tables: dict[str, Source] = {}
    beside = _Beside(folder, strict, most_bytes)
    for table in TABLES:
        file = folder / f"{name}.{table}.json"
        if not file.exists():
            continue
        six = table == "route6"
        if not six:
            check_size(file, most_bytes)
        load = partial(load_json, kind=list[_Row] if table in ("route", "route6") else Any)
        table_source = beside.read(load, file) if six else load(file)
        if table_source is not None:
            tables[table] = table_source
    sysctl = folder / f"{name}.sysctl"
    return _device(name, tables, folder, sysctl if sysctl.exists() else None, beside)


class _Beside:
    """Answers without which a device is still known."""

    def __init__(self, folder: Path, strict: bool, most_bytes: int = MAX_BYTES) -> None:
        self.problems: list[str] = []
        self._folder, self._strict, self._most_bytes = folder, strict, most_bytes

    def read(self, parse: Callable[[Path], _T], file: Path) -> _T | None:
        """What an answer says; None if it is damaged and the reading is not strict."""
        try:
            check_size(file, self._most_bytes)
            return parse(file)
        except UsageError as error:
            if self._strict:
                raise
            self._problem(str(error))
            return None

    def rows(self, parse: Callable[[Path, Odd], _T], file: Path) -> _T | None:
        """The same; if the reading is not strict, an odd row costs this row."""
        odd: list[UsageError] = []
        contents = self.read(lambda path: parse(path, self.odd(odd)), file)
        self.left_out(odd)
        return contents

    def odd(self, errors: list[UsageError]) -> Odd:
        """What takes the odd rows of an answer."""
        return _refuse if self._strict else errors.append

    def left_out(self, errors: list[UsageError]) -> None:
        """Note the odd rows of an answer."""
        if errors:
            more = f" and {len(errors) - 1:,} more" if len(errors) > 1 else ""
            self._problem(str(errors[0]), f"; this row{more} left out")

    def _problem(self, text: str, after: str = "") -> None:
        text = printable(text.removeprefix(f"{self._folder}/"))[:_SHOWN]
        self.problems.append(text + after)


def _device(
    name: str,
    tables: dict[str, Source],
    path: Path,
    sysctl_file: Path | None = None,
    beside: _Beside | None = None,
) -> Device:
    beside = beside or _Beside(path, True)
    for key, place in tables.items():
        if key not in (*TABLES, "sysctl"):
            raise place.wrong(f"unknown table {key!r}; give {', '.join(TABLES)} or sysctl")
    if "route" not in tables:
        raise UsageError(f"{path}: {name} has no table route (`ip -j route`)")
    if sysctl_file is not None:
        text, where = read_saved(sysctl_file).decode("utf-8", "replace"), str(sysctl_file)
    else:
        text = tables["sysctl"].text("the text of sysctl") if "sysctl" in tables else ""
        where = tables["sysctl"].where if "sysctl" in tables else ""
    sysctl = _Sysctl(text, where)
    nexthops = _nexthops(tables, sysctl)

    def routes_of(table: str, odd: Odd) -> Routes:
        routes, errors = Routes(), []
        top = tables[table]
        entries: Sequence[Source]
        if isinstance(top, JsonSource) and top.is_list:
            entries, rows = JsonItems(top), top.value
        else:
            entries = top.items("routes")
            rows = [None] * len(entries)
        group_of: dict[Hashable, int] = {}
        """The groups of the ways that were met."""
        for i, row in enumerate(rows):
            way = _way(row, nexthops)
            if way in group_of and (network := _network(row.dst)) is not None:
                routes.add(network, group_of[way])
                continue
            entry = entries[i]
            try:
                route = _route(entry, nexthops, sysctl)
            except UsageError as error:
                odd(error)
                errors.append(error)
                route = _nowhere(entry, "::/0" if table == "route6" else "0.0.0.0/0")
                way = None
            if route is None:
                continue
            group = routes.append(route)
            if way is not None:
                group_of[way] = group
        if errors and len(errors) == len(entries):
            raise errors[0]
        return routes

    errors: list[UsageError] = []
    routes = routes_of("route", beside.odd(errors))
    beside.left_out(errors)
    if "route6" in tables:
        routes.extend(beside.rows(lambda _, odd: routes_of("route6", odd), path) or Routes())
    group, per_group = routes.group, np.array([_tunnels(r) for r in routes.firsts], np.int64)
    tunnels = int(per_group[group].sum())
    offloaded = sysctl.offloaded
    interfaces = beside.rows(interfaces_of, path / f"{name}.addr.json")
    limits = list(limits_of(interfaces or ()))
    if tunnels:
        limits.append(f"{tunnels} next hops add a label or a tunnel header: not used")
    for suffix, family in (("rule.json", "IPv4"), ("rule6.json", "IPv6")):
        if sysctl.forwards is not False:
            policies = partial(policies_of, family=family)
            limits += beside.read(policies, path / f"{name}.{suffix}") or []
    return Device(
        name,
        routes,
        None if offloaded else sysctl.hash,
        bool(sysctl.remarks),
        sysctl.forwards,
        interfaces,
        beside.read(advertised_of, path / f"{name}.lldp.json"),
        beside.rows(resolved_of, path / f"{name}.neigh.json"),
        (
            *sysctl.remarks,
            *([_OFFLOADED] if offloaded else []),
            *limits,
        ),
        unexpected=tuple(beside.problems),
    )


_OFFLOADED = "routes are offloaded: the hardware forwards, and the kernel does not show its hash"


class _Sysctl:
    """Settings of the kernel."""

    def __init__(self, text: str, where: str) -> None:
        self._values: dict[str, int] = {}
        self.offloaded = False
        """Set by the first route in hardware."""
        for number, line in enumerate(text.splitlines(), 1):
            key, equals, value = (part.strip() for part in line.partition("="))
            if not equals or not any(word in key for word in _SYSCTLS):
                continue
            try:
                self._values[key] = int(value, 0)
            except ValueError:
                raise UsageError(f"{where}:{number}: {key} is not a number: {value!r}") from None
            highest = _HIGHEST.get(key.rpartition(".")[2])
            if highest is not None and not 0 <= self._values[key] <= highest:
                raise UsageError(f"{where}:{number}: {key} must be 0 to {highest:,}, not {value}")

    def _number(self, key: str, default: int) -> int:
        return self._values.get(key, default)

    @property
    def ignores_linkdown(self) -> bool:
        """Whether next hops without link leave their groups."""
        return bool(self._number("net.ipv4.conf.all.ignore_routes_with_linkdown", 0))

    @property
    def forwards(self) -> bool | None:
        """Whether the device is a router; None: the sysctls do not tell."""
        keys = (
            "net.ipv4.ip_forward",
            "net.ipv4.conf.all.forwarding",
            "net.ipv6.conf.all.forwarding",
        )
        known = [self._values[key] for key in keys if key in self._values]
        return any(known) if known else None

    @property
    def hash(self) -> HashSettings | None:
        """Seed, policy and fields of multipath routes; None: the sysctls do not tell."""
        if "net.ipv4.fib_multipath_hash_policy" not in self._values:
            return None
        return HashSettings(
            model="linux",
            seed=self._number("net.ipv4.fib_multipath_hash_seed", 0),
            extra={
                "policy": self._number("net.ipv4.fib_multipath_hash_policy", 0),
                "fields": self._number("net.ipv4.fib_multipath_hash_fields", 7),
            },
        )

    @property
    def remarks(self) -> list[str]:
        """Settings that differ between IPv4 and IPv6."""
        remarks = []
        for name in ("policy", "fields"):
            four, six = (
                self._values.get(f"net.{f}.fib_multipath_hash_{name}") for f in ("ipv4", "ipv6")
            )
            if four is not None and six is not None and four != six:
                remarks.append(
                    f"fib_multipath_hash_{name} is {four} for IPv4 and {six} for IPv6; "
                    "the fabric has the value for IPv4"
                )
        return remarks


class _Object(NamedTuple):
    """An entry of `ip -j nexthop`."""

    hop: NextHop | None
    group: tuple[tuple[int, int], ...]
    """(id, weight) of the members of a group."""
    buckets: tuple[int, ...] | None
    """Ids by bucket."""


def _nexthops(tables: dict[str, Source], sysctl: _Sysctl) -> dict[int, _Object]:
    buckets: dict[int, dict[int, int]] = {}
    for place in tables["bucket"].items("buckets") if "bucket" in tables else ():
        entry = place.mapping("a bucket")
        inner = entry["bucket"].mapping("index and nhid") if "bucket" in entry else {}
        if "id" not in entry or "index" not in inner or "nhid" not in inner:
            raise place.wrong("not an entry of `ip -j nexthop bucket`")
        index = inner["index"].integer("index", 0, 65535)
        of_group = buckets.setdefault(_id(entry["id"]), {})
        of_group[index] = _id(inner["nhid"])
    objects: dict[int, _Object] = {}
    for place in tables["nexthop"].items("nexthops") if "nexthop" in tables else ():
        entry = place.mapping("a nexthop")
        if "id" not in entry:
            raise place.wrong("not an entry of `ip -j nexthop`")
        number = _id(entry["id"])
        members = []
        for member in entry["group"].items("members") if "group" in entry else ():
            values = member.mapping("a member")
            weight = values["weight"].integer("weight", 1, 65536) if "weight" in values else 1
            members.append((_id(_part(values, "id", member)), weight))
        table = buckets.get(number)
        if table is not None and sorted(table) != list(range(len(table))):
            raise place.wrong(f"the buckets of nexthop {number} are incomplete")
        objects[number] = _Object(
            None if members else _hop(entry, sysctl),
            tuple(members),
            tuple(table[i] for i in range(len(table))) if table else None,
        )
    return objects


def _part(entry: dict[str, Source], key: str, place: Source) -> Source:
    """A value without which an entry at `place` means nothing."""
    if key not in entry:
        raise place.wrong(f"it has no {key}")
    return entry[key]


def _id(place: Source) -> int:
    return place.integer("id", 0, (1 << 32) - 1)


def _hop(entry: dict[str, Source], sysctl: _Sysctl) -> NextHop:
    gateway: Address | None = None
    if "gateway" in entry:
        gateway = entry["gateway"].parsed("an address", parse_address)
    elif "via" in entry:  # a gateway of the other address family
        via = entry["via"]
        host = _part(via.mapping("family and host"), "host", via)
        gateway = host.parsed("an address", parse_address)
    flags = [f.text("a flag") for f in entry["flags"].items("flags")] if "flags" in entry else []
    sysctl.offloaded |= "offload" in flags
    if "encap" in entry:  # MPLS, SRv6, tunnels: another header decides where the packet goes
        return NextHop(None, "", usable=False)
    return NextHop(
        gateway,
        entry["dev"].text("a device") if "dev" in entry else "",
        entry["weight"].integer("weight", 1, 65536) if "weight" in entry else 1,
        "dead" not in flags and not ("linkdown" in flags and sysctl.ignores_linkdown),
    )


class _Row(msgspec.Struct):
    """An entry of `ip -j route`: what is read of it, unchecked but for `nhid`, which is 32 bits."""

    dst: Any = UNSET
    type: Any = UNSET
    prefsrc: Any = UNSET
    nhid: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] | UnsetType = UNSET
    nexthops: Any = UNSET
    gateway: Any = UNSET
    via: Any = UNSET
    dev: Any = UNSET
    weight: Any = UNSET
    flags: Any = UNSET
    encap: Any = UNSET


def _way(row: object, nexthops: Container[int]) -> Hashable:
    """What alone decides where the network of a plain row leads: a known next-hop object, or a
    gateway and its port. None of other rows."""
    if not isinstance(row, _Row) or row.dst == "default":
        return None
    if row.type is not UNSET or row.prefsrc is not UNSET:
        return None
    if row.nhid is not UNSET and row.nhid in nexthops:
        return row.nhid
    others = row.nexthops, row.via, row.weight, row.encap
    if row.flags not in (UNSET, []) or any(value is not UNSET for value in others):
        return None
    of_text = isinstance(row.gateway, str) and isinstance(row.dev, str)
    return (row.gateway, row.dev) if of_text else None


def _network(text: object) -> Network | None:
    """The network of a text; None without one."""
    try:
        return parse_network(text, strict=False) if isinstance(text, str) else None
    except ValueError:
        return None


def _tunnels(route: Route) -> int:
    """The next hops that add a header."""
    return sum(not hop.device and not hop.usable for hop in route.hops)


def _nowhere(place: Source, default: str) -> Route | None:
    """A route whose next hops are odd leads nowhere: without it, a shorter prefix would give wrong
    paths. None if its network is odd too."""
    try:
        text = _part(place.mapping("a route"), "dst", place).text("a network")
        network = parse_network(default if text == "default" else text, strict=False)
    except (UsageError, ValueError):
        return None
    return Route(network, (), None, place.where)


def _route(place: Source, nexthops: dict[int, _Object], sysctl: _Sysctl) -> Route | None:
    """The route of an entry; None for addresses of the router itself, multicast and similar."""
    entry = place.mapping("a route of `ip -j route`")
    if "dst" not in entry:
        raise place.wrong("not an entry of `ip -j route`: it has no dst")
    kind = entry["type"].text("a type") if "type" in entry else "unicast"
    if kind in ("local", "broadcast", "multicast", "anycast"):
        return None
    text = entry["dst"].text("a network")
    preferred = entry.get("prefsrc")
    source = None if preferred is None else preferred.parsed("an address", parse_address)
    hops: list[NextHop] = []
    buckets: tuple[int, ...] | None = None
    if kind == "unicast":
        hops, buckets = _hops(place, entry, nexthops, sysctl)
    try:
        six = any(h.gateway is not None and h.gateway.version == 6 for h in hops)
        default = "::/0" if six else "0.0.0.0/0"
        network = parse_network(default if text == "default" else text, strict=False)
    except ValueError:
        raise entry["dst"].wrong(f"{text!r} is not a network") from None
    return Route(network, tuple(hops), source, place.where, buckets)


def _hops(
    place: Source, entry: dict[str, Source], nexthops: dict[int, _Object], sysctl: _Sysctl
) -> tuple[list[NextHop], tuple[int, ...] | None]:
    if "nhid" in entry and _id(entry["nhid"]) in nexthops:
        nexthop = nexthops[_id(entry["nhid"])]
        if nexthop.hop is not None:
            return [nexthop.hop], None
        hops, order = [], []
        for number, weight in nexthop.group:
            member = nexthops.get(number)
            if member is None or member.hop is None:
                raise place.wrong(f"there is no nexthop {number} in the table nexthop")
            hops.append(member.hop._replace(weight=weight))
            order.append(number)
        if nexthop.buckets is None:
            return hops, None
        unknown = set(nexthop.buckets) - set(order)
        if unknown:
            raise place.wrong(f"a bucket names nexthop {min(unknown)}, which is not in its group")
        return hops, tuple(order.index(b) for b in nexthop.buckets)
    if "nexthops" in entry:
        members = entry["nexthops"].items("next hops")
        return [_hop(h.mapping("a next hop"), sysctl) for h in members], None
    if "gateway" in entry or "via" in entry or "dev" in entry:
        return [_hop(entry, sysctl)], None
    raise place.wrong("the route has no next hop (with nhid, save `ip -j nexthop` too)")


# A fabric from the tables of its Linux routers, `linux:FOLDER`.

COMMANDS = "ip -j route, sysctl"
"""What the forwarding of a Linux device is read from."""


def linux_fabric(path: Path, rate_bits_per_second: int, delay_ns: int) -> Fabric:
    """The fabric of a folder or file with the tables of routers. UsageError names the place."""
    devices = read_devices(path)
    assembled = assemble(str(path), devices, rate_bits_per_second, delay_ns, COMMANDS, strict=True)
    return assembled.fabric
