"""A leaf-spine fabric of Linux routers in network namespaces, and what each uplink carried.

Frames are sent and captured with AF_PACKET sockets: packets of UDP sockets carry
their socket's own hash across a veth, and the router would use that.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rocescope.probes.hooks.interfaces import in_namespace
from rocescope.replay.hashing.keys import PacketKeys

ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
OUTGOING = 4
SENT_AT_ONCE = 250
_FABRICS = itertools.count()


class LeafSpine:
    """Leaf l (from 1) owns 10.l.0.0/16 and fd10:l::/32; its uplink to spine s is `up<s>`."""

    def __init__(self, leaves: int, spines: int) -> None:
        self.leaves = range(1, leaves + 1)
        self.spines = range(1, spines + 1)
        self.uplinks = [f"up{s}" for s in self.spines]
        self._prefix = f"roce{os.getpid()}n{next(_FABRICS)}"
        self._names: list[str] = []
        self._taps: dict[int, socket.socket] = {}
        self._senders: dict[int, socket.socket] = {}

    def name(self, node: str) -> str:
        return self._prefix + node

    def leaf(self, leaf: int) -> str:
        return self.name(f"leaf{leaf}")

    def build(self) -> None:
        nodes = ["hosts", *(f"leaf{i}" for i in self.leaves), *(f"spine{s}" for s in self.spines)]
        for node in nodes:
            subprocess.run(["ip", "netns", "add", self.name(node)], check=True)
            self._names.append(self.name(node))
            self._sysctls(self.name(node))
        links = [
            f"link add host netns {self.leaf(i)} address {mac(i, 0)} type veth"
            f" peer name leaf{i} netns {self.name('hosts')} address {mac(i, 1)}"
            for i in self.leaves
        ] + [
            f"link add up{s} netns {self.leaf(i)} address {mac(i, s, 2)} type veth"
            f" peer name leaf{i} netns {self.name(f'spine{s}')} address {mac(i, s, 3)}"
            for i in self.leaves
            for s in self.spines
        ]
        ip(links)
        ip([f"link set leaf{i} up" for i in self.leaves], self.name("hosts"))
        for i in self.leaves:
            ip(self._leaf_commands(i), self.leaf(i))
        for s in self.spines:
            ip(self._spine_commands(s), self.name(f"spine{s}"))
        for i in self.leaves:
            self.set_routes(i)
            self._taps[i] = in_namespace(self.leaf(i), open_tap)
            self._senders[i] = in_namespace(self.name("hosts"), lambda i=i: open_sender(f"leaf{i}"))

    def remove(self) -> None:
        for opened in [*self._taps.values(), *self._senders.values()]:
            opened.close()
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def _sysctls(self, namespace: str) -> None:
        for path, value in [
            ("ipv4/ip_forward", 1),
            ("ipv6/conf/all/forwarding", 1),
            ("ipv6/conf/all/accept_dad", 0),
            ("ipv6/conf/default/accept_dad", 0),
            ("ipv4/conf/all/rp_filter", 0),
            ("ipv4/conf/default/rp_filter", 0),
        ]:
            sysctl(namespace, path, value)

    def _leaf_commands(self, i: int) -> list[str]:
        commands = ["link set lo up", "link set host up", f"address add 10.{i}.255.1/24 dev host"]
        commands += [f"address add fd10:{i}:ff::1/64 dev host nodad"]
        for via, prefix in (
            (f"10.{i}.255.2", f"10.{i}.0.0/16"),
            (f"fd10:{i}:ff::2", f"fd10:{i}::/32"),
        ):
            commands.append(f"neighbour add {via} lladdr {mac(i, 1)} dev host nud permanent")
            commands.append(f"route add {prefix} via {via} dev host")
        for s in self.spines:
            commands += self._uplink_commands(i, s)
        return commands

    def _uplink_commands(self, i: int, s: int) -> list[str]:
        """What a leaf's uplink needs, also after it was down (addresses may still be there)."""
        return [
            f"link set up{s} up",
            f"address replace 172.16.{i * 16 + s}.0/31 dev up{s}",
            f"address replace fd00:{i}:{s}::/127 dev up{s} nodad",
            *(
                f"neighbour replace {self.via(i, s, family)} lladdr {mac(i, s, 3)}"
                f" dev up{s} nud permanent"
                for family in (4, 6)
            ),
        ]

    def _spine_commands(self, s: int) -> list[str]:
        commands = ["link set lo up"]
        for i in self.leaves:
            commands += [
                f"link set leaf{i} up",
                f"address add {self.via(i, s, 4)}/31 dev leaf{i}",
                f"address add {self.via(i, s, 6)}/127 dev leaf{i} nodad",
            ]
            for back, prefix in (
                (f"172.16.{i * 16 + s}.0", f"10.{i}.0.0/16"),
                (f"fd00:{i}:{s}::", f"fd10:{i}::/32"),
            ):
                commands.append(
                    f"neighbour add {back} lladdr {mac(i, s, 2)} dev leaf{i} nud permanent"
                )
                commands.append(f"route add {prefix} via {back} dev leaf{i}")
        return commands

    def via(self, leaf: int, spine: int, family: int) -> str:
        """The spine's address on a link."""
        return f"172.16.{leaf * 16 + spine}.1" if family == 4 else f"fd00:{leaf}:{spine}::1"

    def remote_prefixes(self, leaf: int, family: int) -> list[str]:
        return [
            f"10.{other}.0.0/16" if family == 4 else f"fd10:{other}::/32"
            for other in self.leaves
            if other != leaf
        ]

    def set_routes(self, leaf: int, weights: Sequence[int] | None = None) -> None:
        """One multipath route over all uplinks to every other leaf, in the order of spines."""
        for family in (4, 6):
            hops = " ".join(
                f"nexthop via {self.via(leaf, s, family)} dev up{s}"
                f" weight {weights[s - 1] if weights else 1}"
                for s in self.spines
            )
            commands = [f"route replace {p} {hops}" for p in self.remote_prefixes(leaf, family)]
            ip(commands, self.leaf(leaf))

    def hash_by(self, leaf: int, policy: int, seed: int, fields: int = 7) -> None:
        """Set the leaf's multipath hash policy, seed and custom fields."""
        for version in ("ipv4", "ipv6"):
            sysctl(self.leaf(leaf), f"{version}/fib_multipath_hash_policy", policy)
            sysctl(self.leaf(leaf), f"{version}/fib_multipath_hash_fields", fields)
        sysctl(self.leaf(leaf), "ipv4/fib_multipath_hash_seed", seed)

    def uplinks_taken(self, leaf: int, keys: PacketKeys) -> tuple[np.ndarray, np.ndarray]:
        """Send one packet of every unit from the leaf's host.

        int[n] each: the number (from 0) of the leaf's uplink it left by, and of the
        uplink it reached another leaf by; -1: not seen. Fails when one is seen twice.
        """
        left, reached = np.full(keys.units, -1), np.full(keys.units, -1)
        for tap in self._taps.values():
            list(waiting(tap))
        sending = frames(keys, mac(leaf, 0))
        # Few at a time: the queue between two namespaces holds a thousand packets.
        for end in range(SENT_AT_ONCE, keys.units + SENT_AT_ONCE, SENT_AT_ONCE):
            for frame in itertools.islice(sending, SENT_AT_ONCE):
                self._senders[leaf].send(frame)
            self._collect(leaf, left, reached, min(end, keys.units))
        return left, reached

    def _collect(self, leaf: int, left: np.ndarray, reached: np.ndarray, sent: int) -> None:
        """Note what the taps saw until all that was sent is seen, or nothing comes for 2 s."""
        while True:
            for at, tap in self._taps.items():
                for interface, kind, frame in waiting(tap):
                    if not interface.startswith("up") or (number := number_of(frame)) is None:
                        continue
                    seen = left if at == leaf and kind == OUTGOING else reached
                    assert seen[number] == -1, f"packet {number} was seen twice"
                    seen[number] = self.uplinks.index(interface)
            if (left[:sent] >= 0).all() and (reached[:sent] >= 0).all():
                return
            if not select.select(list(self._taps.values()), [], [], 2)[0]:
                return

    def link_down(self, leaf: int, spine: int) -> None:
        ip([f"link set up{spine} down"], self.leaf(leaf))

    def link_up(self, leaf: int, spine: int) -> None:
        """Bring an uplink back; routes take it in again by themselves, nexthop groups do not."""
        ip(self._uplink_commands(leaf, spine), self.leaf(leaf))

    def route_get(self, leaf: int, src: str, dst: str, sport: int) -> int:
        """Which uplink `ip route get` names for a UDP packet from the leaf's hosts."""
        found = ip_json(
            f"route get {dst} from {src} iif host ipproto udp sport {sport} dport 4791",
            self.leaf(leaf),
        )
        return self.uplinks.index(found[0]["dev"])


def mac(*numbers: int) -> str:
    """An address that no other interface of the fabric has."""
    return ":".join(f"{n:02x}" for n in (2, 0, 0, *([0] * (3 - len(numbers))), *numbers))


def ip(commands: Sequence[str], namespace: str | None = None) -> None:
    where = ["-n", namespace] if namespace else []
    done = subprocess.run(
        ["ip", *where, "-batch", "-"],
        input="\n".join(commands) + "\n",
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr} in {commands}"


def ip_json(command: str, namespace: str) -> Any:
    arguments = ["ip", "-n", namespace, "-json", *command.split()]
    return json.loads(subprocess.run(arguments, capture_output=True, check=True, text=True).stdout)


def sysctl(namespace: str, path: str, value: int) -> None:
    """Write net/`path` of a namespace."""
    in_namespace(namespace, lambda: Path("/proc/sys/net", path).write_text(str(value)))


def open_tap() -> socket.socket:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 27)
    return tap


def open_sender(interface: str) -> socket.socket:
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind((interface, 0))
    return sender


def waiting(tap: socket.socket) -> Iterator[tuple[str, int, bytes]]:
    """(interface, packet type, frame) of all the tap holds now."""
    with contextlib.suppress(BlockingIOError):
        while True:
            frame, address = tap.recvfrom(256, socket.MSG_DONTWAIT)
            yield address[0], address[2], frame


def frames(keys: PacketKeys, to: str) -> Iterator[bytes]:
    """A RoCEv2 RC SEND Only of every unit; its number is the PSN."""
    hardware = bytes.fromhex(to.replace(":", "")) + bytes.fromhex("020000ffffff")
    for i in range(keys.units):
        bth = struct.pack(">BBHII", 4, 0x40, 0xFFFF, keys.dest_qp[i], i) + b"ICRC"
        udp = struct.pack(">HHHH", keys.sport[i], keys.dport[i], 8 + len(bth), 0)
        src, dst = keys.src[i].tobytes(), keys.dst[i].tobytes()
        if keys.ipv6[i]:
            network = struct.pack(
                ">IHBB", 6 << 28 | int(keys.flow_label[i]), len(udp + bth), 17, 64
            )
            yield hardware + b"\x86\xdd" + network + src + dst + udp + bth
        else:
            network = struct.pack(
                ">BBHHHBBH", 0x45, 2, 28 + len(bth), i & 0xFFFF, 0x4000, 64, 17, 0
            )
            network += src[12:] + dst[12:]
            total = sum(struct.unpack(">10H", network))
            total = (total & 0xFFFF) + (total >> 16)
            checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
            network = network[:10] + struct.pack(">H", checksum) + network[12:]
            yield hardware + b"\x08\x00" + network + udp + bth


def number_of(frame: bytes) -> int | None:
    """The PSN of a frame of `frames`, None for another."""
    start = {b"\x08\x00": 34, b"\x86\xdd": 54}.get(frame[12:14])
    if start is None or frame[start + 2 : start + 4] != b"\x12\xb7" or len(frame) < start + 24:
        return None
    return int.from_bytes(frame[start + 17 : start + 20], "big")


@contextlib.contextmanager
def leaf_spine(leaves: int, spines: int) -> Iterator[LeafSpine]:
    """A fabric that is removed whatever happens."""
    fabric = LeafSpine(leaves, spines)
    try:
        fabric.build()
        time.sleep(0.1)
        yield fabric
    finally:
        fabric.remove()
