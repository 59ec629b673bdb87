"""Interfaces and neighbours of a Linux device: `ip -j -d addr`, `ip -j neigh`, `lldpctl -f json0`.

A file that is missing gives None: the device was not asked. UsageError names a file that
does not hold what the command prints.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ....analyzer.errors import UsageError
from ....analyzer.saved_file import decoded
from ....analyzer.words import printable
from ..addressing import parse_interface
from ..devices.device import Advertised, Interface, Resolved


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


def interfaces_of(file: Path) -> tuple[Interface, ...] | None:
    """The interfaces of `ip -j -d addr`; without -d a master is taken for a bond or bridge."""
    links = decoded(file, list[_Link], "the output of `ip -j -d addr`", b"[]")
    if links is None:
        return None
    try:
        return tuple(
            Interface(
                link.ifname,
                link.address.lower(),
                tuple(
                    parse_interface(f"{a.local}/{a.prefixlen}") for a in link.addr_info if a.local
                ),
                "LOWER_UP" in link.flags,
                "" if link.linkinfo.info_slave_kind == "vrf" else link.master,
                link.master if link.linkinfo.info_slave_kind == "vrf" else "",
                link.linkinfo.info_kind if link.linkinfo.info_kind == "vxlan" else "",
            )
            for link in links
        )
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None


def resolved_of(file: Path) -> tuple[Resolved, ...] | None:
    """The entries of `ip -j neigh` with a MAC address."""
    entries = decoded(file, list[_Entry], "the output of `ip -j neigh`", b"[]")
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
    own = [rule for rule in rules if not _usual(rule)]
    if not own:
        return []
    keys = ("src", "srclen", "dst", "dstlen", "fwmark", "iif", "table")
    shown = " ".join(f"{key} {own[0][key]}" for key in keys if key in own[0])
    return [
        f"policy routing: {len(own)} {family} rules choose other tables, which are not read, "
        f"such as `{printable(shown)[:60]}`"
    ]


def _usual(rule: dict[str, object]) -> bool:
    """Whether a rule is one that every system has, or that of VRFs."""
    if rule.get("table") in ("local", "main", "default"):
        return set(rule) <= {"priority", "src", "table", "protocol"} and rule.get("src") == "all"
    return "l3mdev" in rule


def _first(values: list[_Value]) -> str:
    return values[0].value if values else ""
