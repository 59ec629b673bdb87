"""Interfaces of this host, in any network namespace."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ...analyzer.errors import CaptureError, UsageError
from ..rights import ENTERING, ENTERING_PROCESS

# Run functions in another network namespace without moving the process there.

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_NAMED = "/run/netns"


def namespace_path(name: str) -> str:
    """The file of a namespace given by name (`ip netns`), path, or "pid:N"."""
    if name.startswith("pid:"):
        return f"/proc/{name[4:]}/ns/net"
    return name if "/" in name else f"{_NAMED}/{name}"


def privileges_to_enter(name: str | None) -> tuple[str, ...]:
    """Capabilities that `in_namespace` needs."""
    if name is None:
        return ()
    folder = os.path.realpath(os.path.dirname(namespace_path(name)))
    return ENTERING + (ENTERING_PROCESS if folder.startswith("/proc/") else ())


def in_namespace(name: str | None, work: Callable[[], T]) -> T:
    """The result of `work`, run by a thread inside the namespace; None: the current one.

    The thread ends after the work, so no namespace has to be restored. CaptureError
    if the namespace does not exist or may not be entered.
    """
    if name is None:
        return work()
    results: list[T] = []
    errors: list[BaseException] = []

    def enter_and_work() -> None:
        try:
            _enter(name)
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=enter_and_work, name=f"netns {name}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _enter(name: str) -> None:
    """Move this thread into the namespace."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe is not waited for
        handle = os.open(namespace_path(name), flags)
    except OSError as error:
        raise CaptureError(
            f"cannot open network namespace {name}: {(error.strerror or '').lower()}"
            " (`ip netns` lists names; pid:N is the namespace of a process)"
        ) from None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            what = os.strerror(ctypes.get_errno()).lower()
            raise CaptureError(
                f"cannot enter network namespace {name}: {what};"
                " this needs CAP_SYS_ADMIN: run with sudo"
            )
    finally:
        os.close(handle)


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
