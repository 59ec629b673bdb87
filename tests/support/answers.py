"""Answers of devices: recorded ones of real FRR routers, and small ones made by hand."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Any

import numpy as np

from rocescope.replay.fabrics.devices import (
    Advertised,
    Device,
    Interface,
    NextHop,
    Resolved,
    Route,
    Routes,
)
from rocescope.replay.fabrics.fabric import Address, Fabric
from rocescope.replay.fabrics.mapping import map_hosts
from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.traffic.traffic import Traffic


def recorded(folder: Path) -> Path:
    """The folder with `healthy` and `flapped`: 2 leaves, 2 spines, 2 parallel links each, 4 hosts.

    FRR 8.4.4 with BGP unnumbered, lldpd 1.0.16, Linux 6.18, a management LAN on all. In `flapped`
    leaf1's swp3 was down for four seconds before. NAME.truth.json: 256 flows, their ways as
    `ip route get` tells hop by hop.
    """
    archive = Path(__file__).parents[1] / "data" / "frr_unnumbered.tar.xz"
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / "frr_unnumbered"


def truth(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / f"{name}.truth.json").read_text())
    return found


def routers_of(topology: Mapping[str, Any], folder: Path) -> Path:
    """The tables of the routers of a `topology.json` as a file for `linux:`."""
    tables = {
        name: {
            "route": _routes_of(lines),
            "route6": _routes_of(topology["routes6"][name]),
            "sysctl": "\n".join(topology["sysctl"][name]),
        }
        for name, lines in topology["routes"].items()
    }
    file = folder / "routers.json"
    file.write_text(json.dumps(tables, indent=1))
    return file


def _routes_of(lines: Sequence[str]) -> list[dict[str, Any]]:
    """The text of `ip route` as `ip -j route` prints it."""
    routes: list[dict[str, Any]] = []
    for line in lines:
        words = line.split()
        flags = [word for word in words if word in ("dead", "linkdown")]
        if words[0] == "nexthop":
            hop = {"gateway": words[2], "dev": words[4], "weight": int(words[6]), "flags": flags}
            routes[-1].setdefault("nexthops", []).append(hop)
            continue
        names = {"via": "gateway", "dev": "dev", "scope": "scope", "src": "prefsrc"}
        found = {names[k]: words[words.index(k) + 1] for k in names if k in words}
        routes.append({"dst": words[0], **found, "flags": flags})
    return routes


def traffic_of(fabric: Fabric, flows: Sequence[Mapping[str, Any]]) -> Traffic:
    """One unit of 1000 bytes per flow of `truth`."""
    n = len(flows)
    src, dst = ([flow[end] for flow in flows] for end in ("src", "dst"))
    zeros = np.zeros(n, np.int64)
    return Traffic(
        packet_keys(src, dst, np.array([flow["sport"] for flow in flows])),
        map_hosts(src, fabric).hosts,
        map_hosts(dst, fabric).hosts,
        np.arange(n, dtype=np.int32),
        zeros + 10,
        zeros + 1000,
        zeros,
        zeros,
    )


def port(name: str, mac: str = "", *addresses: str, up: bool = True, **more: str) -> Interface:
    return Interface(name, mac, tuple(ip_interface(a) for a in addresses), up, **more)


def connected(network: str, device: str, source: str = "") -> Route:
    own = ip_address(source) if source else None
    return Route(ip_network(network), (NextHop(None, device, 1, True),), own, "here")


def route(network: str, *hops: tuple[str, str]) -> Route:
    """hops: (gateway, device)."""
    made = tuple(NextHop(_gateway(g), d, 1, True) for g, d in hops)
    return Route(ip_network(network), made, None, "here")


def _gateway(text: str) -> Address | None:
    return ip_address(text) if text else None


def heard(here: str, system: str, far: str, chassis: str = "", *addresses: str) -> Advertised:
    return Advertised(here, system, chassis, far, addresses)


def device(name: str, *routes: Route, **more: Any) -> Device:
    return Device(name, Routes(routes), **more)


def resolved(port: str, mac: str) -> Resolved:
    return Resolved(port, mac)
