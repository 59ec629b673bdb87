"""The tables of Linux routers as their own tools print them.

A folder with NAME.route.json (`ip -j route`), and optionally NAME.route6.json
(`ip -6 -j route`), NAME.nexthop.json (`ip -j nexthop`), NAME.bucket.json (`ip -j nexthop bucket`)
and NAME.sysctl (`sysctl -a`, or lines of it); or one JSON file
`{NAME: {"route": [...], "nexthop": [...], "bucket": [...], "sysctl": "..."}}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import NamedTuple

from ....analyzer.errors import UsageError
from ..addressing import Address, Network
from .yaml_source import Source, load_yaml

TABLES = ("route", "route6", "nexthop", "bucket")
_UNUSABLE = frozenset(("dead",))


class NextHop(NamedTuple):
    """One next hop of a route."""

    gateway: Address | None
    device: str
    weight: int
    usable: bool
    """False for a dead next hop; routers remove it from the group."""
    linkdown: bool


@dataclass(frozen=True, slots=True)
class RouterRoute:
    """One route."""

    network: Network
    hops: tuple[NextHop, ...]
    """In table order; empty for routes without next hop, such as blackholes."""
    source: Address | None
    """The router's own address on a connected network."""
    where: str
    buckets: tuple[int, ...] | None = None
    """Resilient groups: the next hop of every bucket, as an index into `hops`."""

    @property
    def connected(self) -> bool:
        """Whether the network is on a link of the router itself."""
        return len(self.hops) == 1 and self.hops[0].gateway is None


@dataclass(frozen=True, slots=True)
class Router:
    """The tables of one router."""

    name: str
    routes: tuple[RouterRoute, ...]
    sysctl: dict[str, str] = field(default_factory=dict)

    def number(self, key: str, default: int) -> int:
        """A number among the sysctls."""
        text = self.sysctl.get(key, "")
        return int(text, 0) if text else default


def read_routers(path: Path) -> list[Router]:
    """All routers of a folder or file. UsageError names file and line."""
    if path.is_dir():
        found = list(_of_folder(path))
    else:
        top = load_yaml(path, "a folder or JSON file with the tables of routers")
        found = [
            _router(name, place.mapping("the tables of a router"), path)
            for name, place in top.mapping("router names").items()
        ]
    if not found:
        raise UsageError(f"{path} has no NAME.route.json; save `ip -j route` of every router there")
    return found


def _of_folder(folder: Path) -> Iterator[Router]:
    for file in sorted(folder.glob("*.route.json")):
        name = file.name.removesuffix(".route.json")
        tables = {
            table: load_yaml(found)
            for table in TABLES
            if (found := folder / f"{name}.{table}.json").exists()
        }
        sysctl = folder / f"{name}.sysctl"
        yield _router(name, tables, folder, sysctl if sysctl.exists() else None)


def _router(
    name: str, tables: dict[str, Source], path: Path, sysctl_file: Path | None = None
) -> Router:
    for key, place in tables.items():
        if key not in (*TABLES, "sysctl"):
            raise place.wrong(f"unknown table {key!r}; give {', '.join(TABLES)} or sysctl")
    if "route" not in tables:
        raise UsageError(f"{path}: {name} has no table route (`ip -j route`)")
    nexthops = _nexthops(tables)
    routes = [
        route
        for table in ("route", "route6")
        if table in tables
        for entry in tables[table].items("routes")
        if (route := _route(entry, nexthops)) is not None
    ]
    if sysctl_file is not None:
        text, where = sysctl_file.read_text("utf-8", "replace"), str(sysctl_file)
    else:
        text = tables["sysctl"].text("the text of sysctl") if "sysctl" in tables else ""
        where = tables["sysctl"].where if "sysctl" in tables else ""
    return Router(name, tuple(routes), _sysctl(text, where))


def _sysctl(text: str, where: str) -> dict[str, str]:
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or ("multipath" not in key and "linkdown" not in key):
            continue
        try:
            int(value, 0)
        except ValueError:
            raise UsageError(f"{where}:{number}: {key} is not a number: {value!r}") from None
        values[key] = value
    return values


class _Object(NamedTuple):
    """An entry of `ip -j nexthop`."""

    hop: NextHop | None
    group: tuple[tuple[int, int], ...]
    """(id, weight) of the members of a group."""
    buckets: tuple[int, ...] | None
    """Ids by bucket."""


def _nexthops(tables: dict[str, Source]) -> dict[int, _Object]:
    buckets: dict[int, dict[int, int]] = {}
    for place in tables["bucket"].items("buckets") if "bucket" in tables else ():
        entry = place.mapping("a bucket")
        inner = entry["bucket"].mapping("index and nhid") if "bucket" in entry else {}
        if "id" not in entry or "index" not in inner or "nhid" not in inner:
            raise place.wrong("not an entry of `ip -j nexthop bucket`")
        index = inner["index"].integer("index", 0, 65535)
        of_group = buckets.setdefault(_id(entry["id"]), {})
        of_group[index] = _id(inner["nhid"])
    found: dict[int, _Object] = {}
    for place in tables["nexthop"].items("nexthops") if "nexthop" in tables else ():
        entry = place.mapping("a nexthop")
        if "id" not in entry:
            raise place.wrong("not an entry of `ip -j nexthop`")
        number = _id(entry["id"])
        members = []
        for member in entry["group"].items("members") if "group" in entry else ():
            values = member.mapping("a member")
            weight = values["weight"].integer("weight", 1, 65536) if "weight" in values else 1
            members.append((_id(values["id"]), weight))
        table = buckets.get(number)
        if table is not None and sorted(table) != list(range(len(table))):
            raise place.wrong(f"the buckets of nexthop {number} are incomplete")
        found[number] = _Object(
            None if members else _hop(entry),
            tuple(members),
            tuple(table[i] for i in range(len(table))) if table else None,
        )
    return found


def _id(place: Source) -> int:
    return place.integer("id", 0, (1 << 32) - 1)


def _hop(entry: dict[str, Source]) -> NextHop:
    gateway: Address | None = None
    if "gateway" in entry:
        gateway = _address(entry["gateway"])
    elif "via" in entry:  # a gateway of the other address family
        gateway = _address(entry["via"].mapping("family and host")["host"])
    flags = [f.text("a flag") for f in entry["flags"].items("flags")] if "flags" in entry else []
    return NextHop(
        gateway,
        entry["dev"].text("a device") if "dev" in entry else "",
        entry["weight"].integer("weight", 1, 65536) if "weight" in entry else 1,
        not _UNUSABLE.intersection(flags),
        "linkdown" in flags,
    )


def _address(place: Source) -> Address:
    try:
        return ip_address(place.text("an address"))
    except ValueError:
        raise place.wrong(f"{place.text('an address')!r} is not an address") from None


def _route(place: Source, nexthops: dict[int, _Object]) -> RouterRoute | None:
    """The route of an entry; None for addresses of the router itself, multicast and similar."""
    entry = place.mapping("a route of `ip -j route`")
    if "dst" not in entry:
        raise place.wrong("not an entry of `ip -j route`: it has no dst")
    kind = entry["type"].text("a type") if "type" in entry else "unicast"
    if kind in ("local", "broadcast", "multicast", "anycast"):
        return None
    text = entry["dst"].text("a network")
    source = _address(entry["prefsrc"]) if "prefsrc" in entry else None
    hops: list[NextHop] = []
    buckets: tuple[int, ...] | None = None
    if kind == "unicast":
        hops, buckets = _hops(place, entry, nexthops)
    try:
        six = any(h.gateway is not None and h.gateway.version == 6 for h in hops)
        default = "::/0" if six else "0.0.0.0/0"
        network = ip_network(default if text == "default" else text, strict=False)
    except ValueError:
        raise entry["dst"].wrong(f"{text!r} is not a network") from None
    return RouterRoute(network, tuple(hops), source, place.where, buckets)


def _hops(
    place: Source, entry: dict[str, Source], nexthops: dict[int, _Object]
) -> tuple[list[NextHop], tuple[int, ...] | None]:
    if "nhid" in entry and _id(entry["nhid"]) in nexthops:
        found = nexthops[_id(entry["nhid"])]
        if found.hop is not None:
            return [found.hop], None
        hops, order = [], []
        for number, weight in found.group:
            member = nexthops.get(number)
            if member is None or member.hop is None:
                raise place.wrong(f"there is no nexthop {number} in the table nexthop")
            hops.append(member.hop._replace(weight=weight))
            order.append(number)
        if found.buckets is None:
            return hops, None
        unknown = set(found.buckets) - set(order)
        if unknown:
            raise place.wrong(f"a bucket names nexthop {min(unknown)}, which is not in its group")
        return hops, tuple(order.index(b) for b in found.buckets)
    if "nexthops" in entry:
        return [_hop(h.mapping("a next hop")) for h in entry["nexthops"].items("next hops")], None
    if "gateway" in entry or "via" in entry or "dev" in entry:
        return [_hop(entry)], None
    raise place.wrong("the route has no next hop (with nhid, save `ip -j nexthop` too)")
