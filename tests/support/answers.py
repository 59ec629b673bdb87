"""Answers of devices: recorded ones of real FRR routers, and small ones made by hand."""

from __future__ import annotations

import json
import tarfile
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Any

from rocescope.replay.fabrics.addressing import Address
from rocescope.replay.fabrics.devices.device import (
    Advertised,
    Device,
    Interface,
    NextHop,
    Resolved,
    Route,
)


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
    return Device(name, routes, **more)


def resolved(port: str, mac: str) -> Resolved:
    return Resolved(port, mac)
