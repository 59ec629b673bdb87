"""Four hosts, two leaves and four spines of Linux routers, captured on every link.

Names of interfaces are the names of their neighbours: `spine2` in leaf1, `leaf1` in spine2,
`H1` in leaf1, `eth0` in a host. A host has no address in the kernel: its endpoint makes whole
frames, because packets of UDP sockets carry a hash of their own across a veth.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

from router_namespaces import ip, mac, sysctl

SNAP_BYTES = 128
LEAVES = (1, 2)
SPINES = (1, 2, 3, 4)
HOSTS = {1: 1, 2: 1, 3: 2, 4: 2}
"""Host number to the number of its leaf."""
LINKS = [f"H{h}-leaf{leaf}" for h, leaf in HOSTS.items()]
LINKS += [f"leaf{leaf}-spine{s}" for leaf in LEAVES for s in SPINES]
_FABRICS = itertools.count()


def address(host: int, family: int) -> str:
    return f"10.{HOSTS[host]}.{host}.10" if family == 4 else f"fd10:{HOSTS[host]}:{host}::10"


def host_mac(host: int) -> str:
    return mac(9, host, 1)


def leaf_mac(host: int) -> str:
    """The leaf's interface towards a host."""
    return mac(9, host, 0)


class Fabric:
    """Namespaces and links; gone when it is closed."""

    def __init__(self, hash_seeds: tuple[int, int]) -> None:
        self._prefix = f"lab{os.getpid()}n{next(_FABRICS)}"
        self._nodes = [f"H{h}" for h in HOSTS] + ["leaf1", "leaf2"] + [f"spine{s}" for s in SPINES]
        self._hash_seeds = hash_seeds

    def name(self, node: str) -> str:
        """The namespace of a node."""
        return self._prefix + node

    def __enter__(self) -> Self:
        try:
            for node in self._nodes:
                subprocess.run(["ip", "netns", "add", self.name(node)], check=True)
                self._settings(node)
            ip([*self._host_links(), *self._spine_links()])
            for h in HOSTS:
                ip(["link set eth0 mtu 9000 addrgenmode none up"], self.name(f"H{h}"))
            for leaf in LEAVES:
                ip(self._leaf_commands(leaf), self.name(f"leaf{leaf}"))
            for s in SPINES:
                ip(self._spine_commands(s), self.name(f"spine{s}"))
            for leaf in LEAVES:
                self.set_routes(leaf, SPINES)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            subprocess.run(["ip", "netns", "del", self.name(node)], check=False)

    def _settings(self, node: str) -> None:
        for path, value in [
            ("ipv4/ip_forward", int(node[0] != "H")),
            ("ipv6/conf/all/forwarding", int(node[0] != "H")),
            ("ipv6/conf/all/accept_dad", 0),
            ("ipv6/conf/default/accept_dad", 0),
            ("ipv6/conf/all/router_solicitations", 0),
            ("ipv4/conf/all/rp_filter", 0),
            ("ipv4/conf/default/rp_filter", 0),
            ("ipv4/conf/all/ignore_routes_with_linkdown", 1),
            ("ipv6/conf/all/ignore_routes_with_linkdown", 1),
            ("ipv4/fib_multipath_hash_policy", 1),
            ("ipv6/fib_multipath_hash_policy", 1),
        ]:
            sysctl(self.name(node), path, value)
        if node.startswith("leaf"):
            self.hash_by(int(node[4:]), self._hash_seeds[int(node[4:]) - 1])

    def hash_by(self, leaf: int, seed: int) -> None:
        """Set the seed of the leaf's choice of spines."""
        sysctl(self.name(f"leaf{leaf}"), "ipv4/fib_multipath_hash_seed", seed)

    def _host_links(self) -> list[str]:
        return [
            f"link add H{h} netns {self.name(f'leaf{leaf}')} address {leaf_mac(h)} type veth"
            f" peer name eth0 netns {self.name(f'H{h}')} address {host_mac(h)}"
            for h, leaf in HOSTS.items()
        ]

    def _spine_links(self) -> list[str]:
        return [
            f"link add spine{s} netns {self.name(f'leaf{leaf}')} address {mac(leaf, s, 2)}"
            f" type veth peer name leaf{leaf} netns {self.name(f'spine{s}')}"
            f" address {mac(leaf, s, 3)}"
            for leaf in LEAVES
            for s in SPINES
        ]

    def _leaf_commands(self, leaf: int) -> list[str]:
        commands = ["link set lo up"]
        for h in (h for h, at in HOSTS.items() if at == leaf):
            commands.append(f"link set H{h} mtu 9000 up")
            commands.append(f"address add 10.{leaf}.{h}.1/24 dev H{h}")
            commands.append(f"address add fd10:{leaf}:{h}::1/64 dev H{h} nodad")
            commands += [
                f"neighbour add {address(h, family)} lladdr {host_mac(h)} dev H{h} nud permanent"
                for family in (4, 6)
            ]
        for s in SPINES:
            commands.append(f"link set spine{s} mtu 9000 up")
            commands.append(f"address add 172.16.{leaf * 16 + s}.0/31 dev spine{s}")
            commands.append(f"address add fd00:{leaf}:{s}::/127 dev spine{s} nodad")
            commands += [
                f"neighbour add {_spine_address(leaf, s, family)} lladdr {mac(leaf, s, 3)}"
                f" dev spine{s} nud permanent"
                for family in (4, 6)
            ]
        return commands

    def _spine_commands(self, s: int) -> list[str]:
        commands = ["link set lo up"]
        for leaf in LEAVES:
            commands.append(f"link set leaf{leaf} mtu 9000 up")
            for family, length in ((4, 31), (6, 127)):
                at = _spine_address(leaf, s, family)
                commands.append(f"address add {at}/{length} dev leaf{leaf}")
            for back, prefix in (
                (f"172.16.{leaf * 16 + s}.0", f"10.{leaf}.0.0/16"),
                (f"fd00:{leaf}:{s}::", f"fd10:{leaf}::/32"),
            ):
                commands.append(
                    f"neighbour add {back} lladdr {mac(leaf, s, 2)} dev leaf{leaf} nud permanent"
                )
                commands.append(f"route add {prefix} via {back} dev leaf{leaf}")
        return commands

    def set_routes(self, leaf: int, spines: tuple[int, ...]) -> None:
        """The leaf reaches the other leaf over these spines, with equal cost."""
        other = 3 - leaf
        for family, prefix in ((4, f"10.{other}.0.0/16"), (6, f"fd10:{other}::/32")):
            hops = " ".join(
                f"nexthop via {_spine_address(leaf, s, family)} dev spine{s}" for s in spines
            )
            ip([f"route replace {prefix} {hops}"], self.name(f"leaf{leaf}"))

    def set_mtu(self, spine: int, leaf: int, mtu: int) -> None:
        """What the spine forwards to this leaf in IPv4 has at most so many bytes."""
        back = _spine_address(leaf, spine, 4).removesuffix(".1") + ".0"
        route = f"route replace 10.{leaf}.0.0/16 via {back} dev leaf{leaf} mtu lock {mtu}"
        ip([route], self.name(f"spine{spine}"))

    def tc(self, node: str, *arguments: str) -> str:
        """What `tc` says inside the namespace of a node."""
        command = ["ip", "netns", "exec", self.name(node), "tc", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _spine_address(leaf: int, spine: int, family: int) -> str:
    return f"172.16.{leaf * 16 + spine}.1" if family == 4 else f"fd00:{leaf}:{spine}::1"


class Captures:
    """tcpdump on the leaf's side of every link: LINK.pcap with nanoseconds; `drops` of each."""

    def __init__(self, fabric: Fabric, folder: Path, snap_bytes: int) -> None:
        self._fabric, self._folder, self._snap_bytes = fabric, folder, snap_bytes
        self._running: dict[str, subprocess.Popen[str]] = {}
        self.drops: dict[str, int] = {}

    def __enter__(self) -> Self:
        for link in LINKS:
            first, second = link.split("-")
            node, interface = (second, first) if first[0] == "H" else (first, second)
            command = ["ip", "netns", "exec", self._fabric.name(node), "tcpdump", "-i", interface]
            command += [
                "-s",
                str(self._snap_bytes),
                "--time-stamp-precision",
                "nano",
                "-n",
                "-Z",
                "root",
            ]
            command += ["-B", "16384", "-w", str(self._folder / f"{link}.pcap")]
            fragments = "(ip and ip[6:2] & 0x1fff != 0)"
            command += [f"udp dst port 4791 or {fragments} or ether proto 0x8808"]
            self._running[link] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for process in self._running.values():
            while "listening on" not in (line := process.stderr.readline()):
                assert line, "tcpdump ended"
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(1.2)  # the kernel hands over a block of packets within a second
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        for link, process in self._running.items():
            _, said = process.communicate(timeout=300)
            found = re.search(r"(\d+) packets? dropped by kernel", said)
            self.drops[link] = int(found[1]) if found else -1
