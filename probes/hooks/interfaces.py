"""Interfaces to capture on: by name, possibly in another network namespace."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...analyzer.errors import CaptureError, UsageError
from .namespaces import in_namespace

_SIOCGIFHWADDR, _SIOCETHTOOL = 0x8927, 0x8946
_ETHERNET_KINDS = (1, 772)  # ARPHRD_ETHER, ARPHRD_LOOPBACK


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface at the start of the capture."""

    name: str
    namespace: str | None
    ifindex: int
    """Number within its namespace: not unique in one capture."""
    speed_bits_per_second: int | None

    @property
    def label(self) -> str:
        """The name for users: namespace:name in other namespaces."""
        return f"{self.namespace}:{self.name}" if self.namespace else self.name


def find_interfaces(names: Sequence[str], namespace: str | None = None) -> list[Interface]:
    """The interfaces named `IFACE` or `NAMESPACE:IFACE`; `namespace` is for those without.

    CaptureError when one does not exist or carries no Ethernet frames.
    """
    interfaces: list[Interface] = []
    for text in names:
        where, _, name = text.rpartition(":")
        interface = in_namespace(where or namespace, partial(_find, name, where or namespace))
        if interface in interfaces:
            raise UsageError(f"interface {text} is given twice")
        interfaces.append(interface)
    return interfaces


def _find(name: str, namespace: str | None) -> Interface:
    try:
        ifindex = socket.if_nametoindex(name)
    except (OSError, ValueError):
        there = ", ".join(known for _, known in socket.if_nameindex())
        place = f" in namespace {namespace}" if namespace else ""
        raise CaptureError(f"there is no interface {name}{place}; there are: {there}") from None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16s24x", name.encode())
        answer = fcntl.ioctl(handle, _SIOCGIFHWADDR, request)
        kind = struct.unpack_from("H", answer, 16)[0]
        if kind not in _ETHERNET_KINDS:
            raise CaptureError(f"{name} carries no Ethernet frames; capture on the port below it")
    return Interface(name, namespace, ifindex, _speed(name))


def _speed(name: str) -> int | None:
    """Bits per second; None if the driver does not know. From ethtool's legacy request."""
    settings = array.array("B", struct.pack("I", 1).ljust(64, b"\0"))  # ETHTOOL_GSET
    address, _ = settings.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        try:
            fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sP16x", name.encode(), address))
        except OSError:
            return None
    data = settings.tobytes()
    low, high = struct.unpack_from("H", data, 12)[0], struct.unpack_from("H", data, 28)[0]
    megabits = high << 16 | low
    return None if megabits in (0, 0xFFFF, 0xFFFFFFFF) else megabits * 1_000_000
