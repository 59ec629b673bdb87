"""Leaves and spines with parallel links in network namespaces, the ways of sent frames at every
router, and the fabric that `discover` reads from their answers."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from router_namespaces import (
    OUTGOING,
    SENT_AT_ONCE,
    frames,
    ip,
    mac,
    number_of,
    open_sender,
    open_tap,
    sysctl,
    waiting,
)

from rocescope.discovery.discover import discover_folder
from rocescope.probes.hooks.interfaces import in_namespace
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.mapping import map_hosts
from rocescope.replay.hashing.keys import PacketKeys, address_text, packet_keys
from rocescope.replay.traffic.traffic import Traffic

ADDRESSES = 8
"""Addresses of hosts in every network: .2 and so on."""
RATE = 10**10
_TABLES = {
    "route.json": "-j route",
    "route6.json": "-6 -j route",
    "nexthop.json": "-j nexthop",
    "addr.json": "-j -d addr",
    "neigh.json": "-j neigh",
    "link.json": "-j -s link",
}
_LABS = itertools.count()


class Cable(NamedTuple):
    """A link between a leaf and a spine; its number is part of addresses."""

    leaf: int
    spine: int
    parallel: int
    number: int


class Lab:
    """Leaf l has the networks 10.l.h.0/24 and fd10:l:h::/64 on its port `swp<h>`."""

    def __init__(self, leaves: int = 2, spines: int = 2, parallel: int = 2, hosts: int = 2) -> None:
        self.prefix = f"rstrace{os.getpid()}n{next(_LABS)}"
        self.leaves, self.spines = range(1, leaves + 1), range(1, spines + 1)
        self.hosts = range(1, hosts + 1)
        each = itertools.product(self.leaves, self.spines, range(1, parallel + 1))
        self.cables = [Cable(*ends, number) for number, ends in enumerate(each)]
        self.routers = [*(f"leaf{i}" for i in self.leaves), *(f"spine{s}" for s in self.spines)]
        self._made: list[str] = []
        self._taps: dict[str, socket.socket] = {}
        self._senders: dict[int, socket.socket] = {}

    def name(self, node: str) -> str:
        """The namespace of a node."""
        return self.prefix + node

    def up(self, cable: Cable) -> str:
        """The leaf's port."""
        return f"up{cable.spine}-{cable.parallel}"

    def down(self, cable: Cable) -> str:
        """The spine's port."""
        return f"down{cable.leaf}-{cable.parallel}"

    def build(self) -> None:
        for node in (*self.routers, "hosts"):
            subprocess.run(["ip", "netns", "add", self.name(node)], check=True)
            self._made.append(self.name(node))
            for path, value in (
                ("ipv4/ip_forward", 1), ("ipv6/conf/all/forwarding", 1),
                ("ipv6/conf/all/accept_dad", 0), ("ipv6/conf/default/accept_dad", 0),
                ("ipv4/conf/all/rp_filter", 0), ("ipv4/conf/default/rp_filter", 0),
                ("ipv4/conf/all/ignore_routes_with_linkdown", 1),
                ("ipv6/conf/all/ignore_routes_with_linkdown", 1),
            ):  # fmt: skip
                sysctl(self.name(node), path, value)
        ip([
            f"link add swp{h} netns {self.name(f'leaf{leaf}')} address {mac(leaf, h, 1)} type veth"
            f" peer name leaf{leaf}-{h} netns {self.name('hosts')} address {mac(leaf, h, 9)}"
            for leaf in self.leaves
            for h in self.hosts
        ])  # fmt: skip
        ip([
            f"link add {self.up(c)} netns {self.name(f'leaf{c.leaf}')}"
            f" address {mac(c.number, 1, 2)} type veth peer name {self.down(c)}"
            f" netns {self.name(f'spine{c.spine}')} address {mac(c.number, 1, 3)}"
            for c in self.cables
        ])  # fmt: skip
        ip(
            [f"link set leaf{i}-{h} up" for i in self.leaves for h in self.hosts],
            self.name("hosts"),
        )
        for node in self.routers:
            ip(self._commands(node), self.name(node))
            self.hash_by(node, 1, 1000 + self.routers.index(node))
        self.set_routes()
        for node in self.routers:
            self._taps[node] = in_namespace(self.name(node), open_tap)
        for leaf in self.leaves:
            self._senders[leaf] = in_namespace(
                self.name("hosts"), lambda leaf=leaf: open_sender(f"leaf{leaf}-1")
            )

    def remove(self) -> None:
        for opened in (*self._taps.values(), *self._senders.values()):
            opened.close()
        for name in self._made:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def _commands(self, node: str) -> list[str]:
        commands = ["link set lo up"]
        if node.startswith("leaf"):
            leaf = int(node[4:])
            for h in self.hosts:
                commands += [
                    f"link set swp{h} up",
                    f"address add 10.{leaf}.{h}.1/24 dev swp{h}",
                    f"address add fd10:{leaf}:{h}::1/64 dev swp{h} nodad",
                ]
                for i in range(2, 2 + ADDRESSES):
                    for address in (f"10.{leaf}.{h}.{i}", f"fd10:{leaf}:{h}::{i}"):
                        commands.append(
                            f"neighbour add {address} lladdr {mac(leaf, h, 9)} dev swp{h}"
                            " nud permanent"
                        )
        for cable in self.cables:
            if node in (f"leaf{cable.leaf}", f"spine{cable.spine}"):
                commands += self._port(cable, node.startswith("leaf"))
        return commands

    def _port(self, cable: Cable, at_leaf: bool) -> list[str]:
        port = self.up(cable) if at_leaf else self.down(cable)
        own, other = (0, 1) if at_leaf else (1, 0)
        commands = [f"link set {port} up"]
        for family, width in ((4, 31), (6, 127)):
            flags = " nodad" if family == 6 else ""
            commands += [
                f"address replace {self.address(cable, own, family)}/{width} dev {port}{flags}",
                f"neighbour replace {self.address(cable, other, family)}"
                f" lladdr {mac(cable.number, 1, 2 + other)} dev {port} nud permanent",
            ]
        return commands

    def address(self, cable: Cable, end: int, family: int) -> str:
        """Of the leaf (0) or the spine (1)."""
        if family == 4:
            return f"172.16.{cable.number}.{end}"
        return f"fd00:{cable.number:x}::{end}"

    def set_routes(self, weight: Callable[[Cable], int] = lambda _: 1) -> None:
        """Routes to the networks of all other leaves, over all links, on leaves and spines."""
        for node in self.routers:
            commands = [
                self._route(node, leaf, h, family, weight)
                for leaf in self.leaves
                for h in self.hosts
                for family in (4, 6)
                if node != f"leaf{leaf}"
            ]
            ip(commands, self.name(node))

    def _route(
        self, node: str, leaf: int, h: int, family: int, weight: Callable[[Cable], int]
    ) -> str:
        network = f"10.{leaf}.{h}.0/24" if family == 4 else f"fd10:{leaf}:{h}::/64"
        at_leaf = node.startswith("leaf")
        hops = " ".join(
            f"nexthop via {self.address(c, 1 if at_leaf else 0, family)}"
            f" dev {self.up(c) if at_leaf else self.down(c)} weight {weight(c)}"
            for c in self.cables
            if (node == f"leaf{c.leaf}" if at_leaf else (node, leaf) == (f"spine{c.spine}", c.leaf))
        )
        return f"route replace {network} {hops}"

    def hash_by(self, node: str, policy: int, seed: int) -> None:
        """The multipath hash of a router."""
        for version in ("ipv4", "ipv6"):
            sysctl(self.name(node), f"{version}/fib_multipath_hash_policy", policy)
        sysctl(self.name(node), "ipv4/fib_multipath_hash_seed", seed)

    def command(self, node: str, *words: str) -> bytes:
        """The output of a command in a router."""
        run = ["ip", "netns", "exec", self.name(node), *words]
        return subprocess.run(run, capture_output=True, check=True).stdout

    def save(self, folder: Path) -> Path:
        """The answers of all routers."""
        folder.mkdir(exist_ok=True)
        for node in self.routers:
            for suffix, command in _TABLES.items():
                told = self.command(node, "ip", *command.split())
                (folder / f"{node}.{suffix}").write_bytes(told)
            # sysctl of procps 4.0.7 ends with 1, because an unset stable_secret is unreadable.
            told = self.command(node, "sh", "-c", "sysctl -a || true")
            (folder / f"{node}.sysctl").write_bytes(told)
        return folder

    def fabric(self, folder: Path) -> Fabric:
        """The fabric of the answers."""
        return discover_folder(self.save(folder), RATE, 500).fabric

    def flows(self, count: int, family: int, seed: int = 1, source: int = 1) -> PacketKeys:
        """Flows from the first network of a leaf to those of others; random ports, labels, QPs."""
        rng = np.random.default_rng([seed, source, family])
        others = [leaf for leaf in self.leaves if leaf != source]
        pattern = "10.{}.{}.{}" if family == 4 else "fd10:{}:{}::{}"

        def hosts(leaves: Sequence[int], networks: Sequence[int]) -> list[str]:
            return [
                pattern.format(
                    rng.choice(leaves), rng.choice(networks), rng.integers(2, 2 + ADDRESSES)
                )
                for _ in range(count)
            ]

        return packet_keys(
            hosts([source], [1]),
            hosts(others, self.hosts),
            rng.integers(1, 65536, count),
            flow_label=rng.integers(0, 1 << 20, count) if family == 6 else 0,
            dest_qp=rng.integers(0, 1 << 24, count),
        )

    def ways(self, keys: PacketKeys, source: int = 1) -> list[list[tuple[str, str]]]:
        """Send one frame of every flow from a leaf's host: routers and ports that it left by."""
        seen: list[dict[str, str]] = [{} for _ in range(keys.units)]
        for tap in self._taps.values():
            list(waiting(tap))
        sending = frames(keys, mac(source, 1, 1))
        for _ in range(0, keys.units, SENT_AT_ONCE):
            for frame in itertools.islice(sending, SENT_AT_ONCE):
                self._senders[source].send(frame)
            while select.select(list(self._taps.values()), [], [], 0.2)[0]:
                self._collect(seen)
        order = {
            node: i for i, node in enumerate((f"leaf{source}", *self.routers[len(self.leaves) :]))
        }
        return [sorted(way.items(), key=lambda hop: order.get(hop[0], len(order))) for way in seen]

    def _collect(self, seen: list[dict[str, str]]) -> None:
        for node, tap in self._taps.items():
            for port, kind, frame in waiting(tap):
                if kind == OUTGOING and (number := number_of(frame)) is not None:
                    assert node not in seen[number], f"frame {number} left {node} twice"
                    seen[number][node] = port


def ways_of(links: np.ndarray, fabric: Fabric) -> list[list[tuple[str, str]]]:
    """The routers and ports of traced links."""
    assert fabric.origin is not None
    names = fabric.nodes.names
    port = [
        (names[int(fabric.links.source[link])], fabric.origin.ports[link // 2][link % 2])
        for link in range(len(fabric.links.source))
    ]
    return [
        [port[link] for link in row if link >= 0 and fabric.links.source[link] < fabric.switches]
        for row in links.tolist()
    ]


def units_of(keys: PacketKeys, fabric: Fabric, wire_bytes: int | Sequence[int] = 1000) -> Traffic:
    """One unit of one packet per key."""
    n = keys.units
    src, dst = ([address_text(row) for row in end] for end in (keys.src, keys.dst))
    zeros = np.zeros(n, np.int64)
    return Traffic(
        keys,
        map_hosts(src, fabric).hosts,
        map_hosts(dst, fabric).hosts,
        np.arange(n, dtype=np.int32),
        zeros + 1,
        zeros + np.asarray(wire_bytes),
        zeros,
        zeros,
    )


@contextlib.contextmanager
def lab(**options: int) -> Iterator[Lab]:
    """A lab that is removed whatever happens."""
    made = Lab(**options)
    try:
        made.build()
        time.sleep(0.1)
        yield made
    finally:
        made.remove()
