"""RDMA devices in sysfs: addresses (GIDs) and counters of their ports.

Every function takes the folder of the devices. A missing folder is not an error: most
hosts have no RDMA device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from pathlib import Path

DEVICES = Path("/sys/class/infiniband")
_SETTINGS = {"lifespan"}  # a setting beside the counters, not one of them


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Counters of one port at one time, or their growth between two times.

    Names and units are the kernel's (Documentation/ABI/stable/sysfs-class-infiniband):
    port_xmit_data and port_rcv_data count words of four bytes.
    """

    device: str
    port: int
    counters: dict[str, int]
    hw_counters: dict[str, int]
    """Counters of the driver: rnr_nak_retry_err, out_of_sequence, np_cnp_sent and others."""
    restarted: list[str] = field(default_factory=list)
    """Counters that decreased: they were reset, so their growth is unknown."""


def devices(root: Path = DEVICES) -> list[str]:
    """Names of the RDMA devices."""
    try:
        return sorted(path.name for path in root.iterdir())
    except OSError:
        return []


def read_ports(root: Path = DEVICES) -> tuple[list[PortCounters], str | None]:
    """All ports, and the reason if there is nothing to read."""
    if not root.is_dir():
        return [], "no RDMA device: the kernel's RDMA modules are not loaded"
    ports = [
        PortCounters(device, port, _numbers(path / "counters"), _numbers(path / "hw_counters"))
        for device, port, path in _ports(root)
    ]
    if not ports:
        return [], "no RDMA device has a port"
    if not any(port.counters or port.hw_counters for port in ports):
        return ports, "the RDMA devices offer no counters"
    return ports, None


def growth(before: list[PortCounters], after: list[PortCounters]) -> list[PortCounters]:
    """The growth of the counters of ports that are present at both times."""
    earlier = {(port.device, port.port): port for port in before}
    grown = []
    for port in after:
        old = earlier.get((port.device, port.port))
        if old is None:
            continue
        counters, restarted = _difference(old.counters, port.counters)
        hw_counters, hw_restarted = _difference(old.hw_counters, port.hw_counters)
        grown.append(
            PortCounters(port.device, port.port, counters, hw_counters, restarted + hw_restarted)
        )
    return grown


def gid(device: str, port: int, index: int, root: Path = DEVICES) -> str | None:
    """One address of a port as text, IPv4 as a.b.c.d; None if the entry is empty.

    device: a name from outside, also from the memory of a process; only listed devices are read.
    """
    if device not in devices(root):
        return None
    return _address(root / device / "ports" / str(port) / "gids" / str(index))


def gids(device: str, root: Path = DEVICES) -> list[str]:
    """All addresses of a device, each once."""
    addresses: dict[str, None] = {}
    for name, _, path in _ports(root):
        if name == device:
            for file in _sorted(path / "gids"):
                address = _address(file)
                if address is not None:
                    addresses[address] = None
    return list(addresses)


def gid_text(raw: bytes) -> str:
    """A GID of 16 bytes as an address; ::ffff:a.b.c.d as the IPv4 address a.b.c.d."""
    address = IPv6Address(raw)
    return str(address.ipv4_mapped or address)


def _ports(root: Path) -> Iterator[tuple[str, int, Path]]:
    for device in devices(root):
        for path in _sorted(root / device / "ports"):
            if path.name.isdigit():
                yield device, int(path.name), path


def _sorted(folder: Path) -> list[Path]:
    """Entries in order of number or name."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return []
    return sorted(entries, key=lambda path: (len(path.name), path.name))


def _numbers(folder: Path) -> dict[str, int]:
    """Files that contain a number, without counters that the driver cannot read."""
    numbers = {}
    for path in _sorted(folder):
        if path.name in _SETTINGS:
            continue
        try:
            numbers[path.name] = int(path.read_text())
        except (OSError, ValueError):
            continue
    return dict(sorted(numbers.items()))


def _difference(before: dict[str, int], after: dict[str, int]) -> tuple[dict[str, int], list[str]]:
    both = [name for name in after if name in before]
    restarted = [name for name in both if after[name] < before[name]]
    grown = {name: after[name] - before[name] for name in both if name not in restarted}
    return grown, restarted


def _address(path: Path) -> str | None:
    try:
        raw = IPv6Address(path.read_text().strip()).packed
    except (OSError, ValueError):  # an unused entry reads as an error or as zeros
        return None
    return gid_text(raw) if any(raw) else None
