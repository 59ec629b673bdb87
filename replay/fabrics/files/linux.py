"""A fabric from the tables of its Linux routers, `linux:FOLDER`."""

from __future__ import annotations

from pathlib import Path

from ..devices.assemble import assemble
from ..fabric import Fabric
from .linux_tables import read_devices

COMMANDS = "ip -j route, sysctl"
"""What the forwarding of a Linux device is read from."""


def linux_fabric(path: Path, rate_bits_per_second: int, delay_ns: int) -> Fabric:
    """The fabric of a folder or file with the tables of routers. UsageError names the place."""
    devices = read_devices(path)
    found = assemble(str(path), devices, rate_bits_per_second, delay_ns, COMMANDS, strict=True)
    return found.fabric
