"""A veth pair in its own namespace, frames to send over it, and a capture that watches it."""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from rocescope.analyzer.wire.packets import PacketTable
from rocescope.probes.hooks.interfaces import in_namespace
from rocescope.probes.live import LiveSource

MAC = bytes.fromhex("020000000002020000000001")
ROCE = 4791


class Network:
    """A namespace with two linked interfaces, `left` and `right`; gone when it is closed."""

    def __init__(self, name: str, mtu: int = 1500) -> None:
        self.name = name
        self._mtu = mtu
        self._sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> Self:
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        try:
            lines = ["link add left type veth peer name right"]
            for interface in ("left", "right"):  # a process of `ip` for every line takes longer
                lines.append(f"link set {interface} addrgenmode none")
                lines.append(f"link set {interface} mtu {self._mtu} up")
            command = ["ip", "-n", self.name, "-batch", "-"]
            subprocess.run(command, input="\n".join(lines), text=True, check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._sockets.values():
            handle.close()
        subprocess.run(["ip", "netns", "del", self.name], check=True)

    def ip(self, *arguments: str) -> str:
        """What `ip` says inside the namespace."""
        command = ["ip", "-n", self.name, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def run(self, *command: str) -> str:
        """What a command says inside the namespace."""
        command = ("ip", "netns", "exec", self.name, *command)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """A process inside the namespace."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command])

    def interface(self, name: str) -> str:
        """The interface as a capture takes it."""
        return f"{self.name}:{name}"

    def send(self, frames: Iterable[bytes], interface: str = "left") -> None:
        """Send frames out of an interface."""
        if interface not in self._sockets:
            self._sockets[interface] = in_namespace(self.name, lambda: _raw_socket(interface))
        for frame in frames:
            self._sockets[interface].send(frame)


def _raw_socket(interface: str) -> socket.socket:
    handle = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    handle.bind((interface, 0))
    return handle


def bth(psn: int, qp: int = 0x11, opcode: int = 0x04) -> bytes:
    return struct.pack(">BBHII", opcode, 0, 0xFFFF, qp, psn)


def udp(payload: bytes, sport: int = 50000, dport: int = ROCE) -> bytes:
    return struct.pack(">HHHH", sport, dport, 8 + len(payload), 0) + payload


def ipv4(
    payload: bytes,
    source: str = "10.0.0.1",
    destination: str = "10.0.0.2",
    protocol: int = 17,
    options: bytes = b"",
) -> bytes:
    length = 20 + len(options)
    head = struct.pack(
        ">BBHHHBBH4s4s",
        0x40 | length // 4,
        2,
        length + len(payload),
        7,
        0,
        64,
        protocol,
        0,
        socket.inet_aton(source),
        socket.inet_aton(destination),
    )
    return head + options + payload


def ipv6(
    payload: bytes,
    source: str = "fd00::1",
    destination: str = "fd00::2",
    next_header: int = 17,
) -> bytes:
    addresses = socket.inet_pton(socket.AF_INET6, source)
    addresses += socket.inet_pton(socket.AF_INET6, destination)
    return struct.pack(">IHBB", 0x60012345, len(payload), next_header, 64) + addresses + payload


def ethernet(
    payload: bytes, ethertype: int = 0x0800, tags: Sequence[tuple[int, int]] = ()
) -> bytes:
    """An Ethernet frame; `tags` are (TPID, TCI)."""
    head = MAC + b"".join(struct.pack(">HH", *tag) for tag in tags)
    return head + struct.pack(">H", ethertype) + payload


def roce(psn: int, payload_bytes: int = 64, qp: int = 0x11, opcode: int = 0x04) -> bytes:
    """A RoCEv2 frame over IPv4 with a payload and an (arbitrary) ICRC."""
    return ethernet(ipv4(udp(bth(psn, qp, opcode) + bytes(payload_bytes + 4))))


def roce_frames(count: int, **options: int) -> list[bytes]:
    """RoCEv2 frames with PSNs from 0 on."""
    return [roce(psn, **options) for psn in range(count)]


class Watched:
    """Everything a live source hands on, collected while something else happens."""

    def __init__(self, source: LiveSource) -> None:
        self.source = source
        self.tables: list[PacketTable] = []
        self.frames: list[bytes] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._collect)

    def __enter__(self) -> Self:
        self.source.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.source.stop()
        self._thread.join(300)
        assert not self._thread.is_alive()
        self.source.__exit__(None, None, None)
        if self.error is not None:
            raise self.error

    def _collect(self) -> None:
        try:
            for batches in self.source.polls():
                for batch in batches:
                    pairs = zip(batch.offset.tolist(), batch.captured.tolist(), strict=True)
                    self.frames += [batch.data[a : a + n].tobytes() for a, n in pairs]
                    self.tables.append(self.source.decoder.decode(batch))
        except BaseException as error:
            self.error = error

    def column(self, name: str, tap: int | None = None) -> list[int]:
        """A column of all packets, of those of one tap, in order of time."""
        if not self.tables:
            return []
        times = np.concatenate([table.time_ns for table in self.tables])
        values = np.concatenate([getattr(table, name) for table in self.tables])
        taps = np.concatenate([table.tap for table in self.tables])
        order = np.argsort(times, kind="stable")
        if tap is not None:
            order = order[taps[order] == tap]
        return values[order].tolist()
