"""What the interfaces of a device do that a fabric does not represent: VRFs, bonds, VXLAN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from .device import Interface

_MOST_NAMED = 256
"""VRFs or bonds of a device with a line each."""


def limits_of(interfaces: Sequence[Interface]) -> Iterator[str]:
    """One line per VRF and bond, one for all VXLAN ports; one for all VRFs or bonds of many."""
    vrfs = _by(interfaces, "vrf")
    if len(vrfs) > _MOST_NAMED:
        ports = sum(map(len, vrfs.values()))
        yield f"{len(vrfs):,} VRFs are left out with {ports:,} ports: only the main table was read"
    else:
        for vrf, names in vrfs.items():
            yield f"VRF {vrf} is left out with {', '.join(names)}: only the main table was read"
    bonds = _by(interfaces, "master")
    if len(bonds) > _MOST_NAMED:
        ports = sum(map(len, bonds.values()))
        yield f"{len(bonds):,} bonds join {ports:,} ports: which a packet takes is not known"
    else:
        for bond, names in bonds.items():
            yield f"{bond} joins {', '.join(names)}: which of them a packet takes is not known"
    tunnels = [port.name for port in interfaces if port.kind == "vxlan"]
    if tunnels:
        yield (
            f"VXLAN on {', '.join(tunnels)}: the tables of the underlay place the outer packets, "
            "and overlay routes are not read"
        )


def _by(interfaces: Sequence[Interface], key: Literal["vrf", "master"]) -> dict[str, list[str]]:
    """The names of ports by their VRF or bond."""
    found: dict[str, list[str]] = {}
    for port in interfaces:
        if name := getattr(port, key):
            found.setdefault(name, []).append(port.name)
    return found
