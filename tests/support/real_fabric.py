"""A leaf-spine fabric of real FRR, lldpd and sshd, one namespace of each kind per device.

leaf1 and the spines speak BGP unnumbered; between leaf2 and the spines all links have IPv4 and
IPv6 addresses. Two parallel links join each leaf and spine. All devices have `eth0` in a
management network, in which the tests are, too. Every device is a process namespace: it ends
with its first process, with all that it mounted and configured.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from processes import children_of
from sshd import CONFIG, new_key, run, write_users
from waiting import until

SEEDS = {"leaf1": 1000, "leaf2": 1077, "spine1": 1154, "spine2": 1231}
HOSTS = ("h1", "h2", "h3", "h4")
DEVICES = (*SEEDS, *HOSTS)
LEAVES, SPINES, PARALLEL = ("leaf1", "leaf2"), ("spine1", "spine2"), 2
_SECONDS = 240
"""For BGP on a busy machine; it takes a few seconds on an idle one."""

_BEGIN = """\
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/frr /run/sshd /run/lldpd /run/lab
mount --bind {folder} /run/lab
for part in hosts passwd shadow; do mount --bind {folder}/$part /etc/$part; done
hostname {name}
ip link set lo up
touch {folder}/ready
until [ -e {folder}/go ]; do sleep 0.02; done
"""
_ROUTER = """\
chown -R frr:frr /run/frr {folder}/frr
mount --bind {folder}/frr /etc/frr
/usr/lib/frr/zebra -P 0 -f /etc/frr/zebra.conf &
until [ -e /run/frr/zserv.api ]; do sleep 0.02; done
/usr/lib/frr/bgpd -P 0 -f /etc/frr/bgpd.conf &
"""
_SERVICES = """\
/usr/sbin/sshd -D -e -f {folder}/sshd_config 2>{folder}/sshd.log &
mount -t tmpfs tmpfs /etc/lldpd.d
cp {folder}/lldpd.conf /etc/lldpd.d/
/usr/sbin/lldpd -d -I 'swp*' -M 4 >{folder}/lldpd.log 2>&1 &
wait
"""
_LLDPD = """\
configure system hostname {name}
configure lldp portidsubtype ifname
configure lldp tx-interval 1
"""


class Device:
    """A device, which exists while its first process does."""

    def __init__(self, folder: Path, name: str, address: str) -> None:
        self.name, self.folder, self.address = name, folder, address
        folder.mkdir()
        (folder / "hosts").write_text(f"127.0.0.1 localhost {name}\n")
        write_users(folder)
        (folder / "lldpd.conf").write_text(_LLDPD.format(name=name))
        (folder / "sshd_config").write_text(
            CONFIG.format(address=address, port=22, folder=folder, startups="10:30:100")
        )
        self.host_key = new_key(folder / "key")

    def start(self, script: str) -> None:
        """Start its first process; `script` runs in it."""
        text = script.format(folder=self.folder, name=self.name)
        (self.folder / "start").write_text(text)
        self._process = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "--pid", "--fork",
             "--kill-child", "--mount-proc", "sh", str(self.folder / "start")],
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "log").open("wb"),
            stderr=subprocess.STDOUT,
        )  # fmt: skip

    def wait(self) -> None:
        """Until its namespaces are there."""
        until((self.folder / "ready").exists)
        (self.pid,) = children_of(self._process.pid)

    def go(self) -> None:
        """Its links are there: start its services."""
        (self.folder / "go").touch()

    def stop(self) -> None:
        """End all its processes."""
        self._process.kill()  # unshare ignores SIGTERM; what it started ends with it
        self._process.wait()

    def run(self, *command: str) -> str:
        """What a command prints inside."""
        return run("nsenter", "-t", str(self.pid), "-n", "-m", "-u", "-p", *command)


class RealFabric:
    """The fabric, and a client in its management network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices = {
            name: Device(folder / name, name, f"192.168.100.{i}")
            for i, name in enumerate(DEVICES, 1)
        }
        self.client = Device(folder / "client", "client", "192.168.100.254")
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True)
        self.key = self.home / ".ssh" / "id_ed25519"
        self.public_key = new_key(self.key)
        self.write_ssh_config("root")

    def write_ssh_config(self, user: str) -> None:
        """The client's ssh_config and known_hosts."""
        known, config = [], []
        for device in self.devices.values():
            known.append(f"{device.address} {device.host_key}")
            config.append(f"Host {device.name}\n  HostName {device.address}\n  User {user}\n")
            (device.folder / "authorized_root").write_text(f"{self.public_key}\n")
        (self.home / ".ssh" / "known_hosts").write_text("\n".join(known) + "\n")
        (self.home / ".ssh" / "config").write_text("".join(config))

    def start(self) -> None:
        """Start all devices and wait until BGP and LLDP know all neighbours."""
        for device in self.devices.values():
            router = device.name in SEEDS
            if router:
                self._configure(device)
            device.start(_BEGIN + (_ROUTER if router else "") + _SERVICES)
        self.client.start(_BEGIN + "while :; do sleep 1000; done\n")
        for device in (*self.devices.values(), self.client):
            device.wait()
        self._wire()
        for device in self.devices.values():
            device.go()
        until(self._converged, _SECONDS)

    def stop(self) -> None:
        for device in (*self.devices.values(), self.client):
            with contextlib.suppress(AttributeError):  # never started
                device.stop()

    def rocescope(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command line in the management network, with the client's ssh_config."""
        with self.started(*arguments) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def started(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """The same, without waiting for its end."""
        command = ["nsenter", "-t", str(self.client.pid), "-n", sys.executable, "-m", "rocescope"]
        return subprocess.Popen(
            [*command, *(str(argument) for argument in arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "XDG_CACHE_HOME": str(Path.home() / ".cache"),  # compiled kernels
                **os.environ,
                "HOME": str(self.home),
                "COLUMNS": "200",
                "SSH_AUTH_SOCK": "",
            },
        )

    def inventory(self, **other: str) -> Path:
        """An inventory of all devices; `other` replaces the line of a device."""
        lines = ["switches:"]
        lines += [f"  {name}: {other.pop(name, '{dialect: frr}')}" for name in SEEDS]
        lines += ["hosts:"]
        lines += [f"  {name}: {other.pop(name, '{}')}" for name in HOSTS]
        lines += [f"  {name}: {line}" for name, line in other.items()]
        file = self.folder / "inventory.yaml"
        file.write_text("\n".join(lines) + "\n")
        return file

    def flap(self, device: str, port: str) -> None:
        """Take a link down until BGP has seen it, and up until BGP is back."""
        inside = self.devices[device]
        before = self._routes(device)
        inside.run("ip", "link", "set", port, "down")
        until(lambda: self._routes(device) != before, _SECONDS)
        inside.run("ip", "link", "set", port, "up")
        until(lambda: self._sessions(device) and self._lldp_complete(device), _SECONDS)

    def _configure(self, device: Device) -> None:
        folder = device.folder / "frr"
        folder.mkdir()
        (folder / "vtysh.conf").touch()
        (folder / "zebra.conf").write_text(f"hostname {device.name}\n")
        (folder / "bgpd.conf").write_text(_bgp(device.name))

    def _wire(self) -> None:
        pids = {device.name: device.pid for device in self.devices.values()}
        lines = ["link add br0 type bridge", "link set br0 up"]
        lines += [
            "address add 192.168.100.254/24 dev br0",
            "link set br0 address 02:aa:00:00:00:fe",
        ]
        for i, name in enumerate(DEVICES, 1):
            lines.append(f"link add m{i} type veth peer name eth0 netns {pids[name]}")
            lines.append(f"link set m{i} master br0 up")
        for a, port_a, b, port_b in cables():
            lines.append(
                f"link add {port_a} netns {pids[a]} type veth peer name {port_b} netns {pids[b]}"
            )
        _batch(self.client.pid, lines)
        for i, name in enumerate(DEVICES, 1):
            self._settings(name)
            addresses = [f"address add 192.168.100.{i}/24 dev eth0", "link set eth0 up"]
            _batch(pids[name], [*addresses, *_addressing(name)])

    def _settings(self, name: str) -> None:
        values = {
            "ipv4/conf/all/rp_filter": 0,
            "ipv4/conf/default/rp_filter": 0,
            "ipv6/conf/all/accept_dad": 0,
            "ipv6/conf/default/accept_dad": 0,
        }
        if name in SEEDS:
            values |= {
                "ipv4/ip_forward": 1,
                "ipv6/conf/all/forwarding": 1,
                "ipv4/fib_multipath_hash_policy": 1,
                "ipv6/fib_multipath_hash_policy": 1,
                "ipv4/fib_multipath_hash_seed": SEEDS[name],
                "ipv4/conf/all/ignore_routes_with_linkdown": 1,
            }
        words = " ".join(f"net.{k.replace('/', '.')}={v}" for k, v in values.items())
        self.devices[name].run("sh", "-c", f"/sbin/sysctl -qw {words}")

    def _converged(self) -> bool:
        """Whether every router has all routes, and every device all its LLDP neighbours."""
        return all(self._sessions(name) for name in SEEDS) and all(
            self._lldp_complete(name) for name in DEVICES
        )

    def _sessions(self, name: str) -> bool:
        """Whether all sessions are up; whether all networks have routes."""
        try:
            told = self.devices[name].run("vtysh", "-c", "show bgp ipv4 unicast summary")
            told += self.devices[name].run("vtysh", "-c", "show bgp ipv6 unicast summary")
        except subprocess.CalledProcessError:
            return False
        rows = [line.split() for line in told.splitlines() if line.startswith(("swp", "10.", "fd"))]
        ready = len(rows) == 8 and all(row[9].isdecimal() and row[9] != "0" for row in rows)
        if ready:
            routes = self._routes(name)
            ready = all(f"10.{n}.0/24" in routes for n in ("1.1", "1.2", "2.3", "2.4"))
        return ready

    def _routes(self, name: str) -> str:
        return self.devices[name].run("ip", "route") + self.devices[name].run("ip", "-6", "route")

    def _lldp_complete(self, name: str) -> bool:
        wanted = sum((a == name) + (b == name) for a, _, b, _ in cables())
        try:
            told = self.devices[name].run("lldpctl", "-f", "keyvalue")
        except subprocess.CalledProcessError:
            return False
        return told.count(".chassis.name=") == wanted


def cables() -> list[tuple[str, str, str, str]]:
    """(device, port, device, port) of all links of the fabric."""
    found = []
    for i, leaf in enumerate(LEAVES):
        for j, spine in enumerate(SPINES):
            for k in range(PARALLEL):
                found.append(
                    (leaf, f"swp{j * PARALLEL + k + 1}", spine, f"swp{i * PARALLEL + k + 1}")
                )
        for k in range(2):
            found.append((leaf, f"swp{len(SPINES) * PARALLEL + k + 1}", HOSTS[2 * i + k], "swp0"))
    return found


def _addressing(name: str) -> list[str]:
    """Addresses of a device and, of hosts, default routes."""
    lines = []
    for number, (a, port_a, b, port_b) in enumerate(cables()):
        port = {a: port_a, b: port_b}.get(name)
        if port is None:
            continue
        lines.append(f"link set {port} up")
        first = name == a
        if b in HOSTS:
            leaf, host = LEAVES.index(a) + 1, HOSTS.index(b) + 1
            end = 1 if first else 10
            lines.append(f"address add 10.{leaf}.{host}.{end}/24 dev {port}")
            lines.append(f"address add fd10:{leaf}:{host}::{end}/64 dev {port} nodad")
            if not first:
                lines.append(f"route add default via 10.{leaf}.{host}.1")
                lines.append(f"-6 route add default via fd10:{leaf}:{host}::1")
        elif a == "leaf2":
            lines.append(f"address add 10.99.{number}.{0 if first else 1}/31 dev {port}")
            lines.append(f"address add fd99:{number}::{0 if first else 1}/127 dev {port} nodad")
    return lines


def _bgp(name: str) -> str:
    """The configuration of bgpd."""
    index = list(SEEDS).index(name)
    asn = 65100 if name in SPINES else 65001 + index
    lines = [
        f"router bgp {asn}",
        f" bgp router-id 1.1.1.{index + 1}",
        " no bgp ebgp-requires-policy",
        " bgp bestpath as-path multipath-relax",
        # A short hold time would end sessions on a busy machine, and FRR 8.4.4 then loses members.
        " timers bgp 3 60",
    ]
    four, six = [], []
    for number, (a, port_a, b, port_b) in enumerate(cables()):
        port = {a: port_a, b: port_b}.get(name)
        if port is None:
            continue
        if b in HOSTS:
            leaf, host = LEAVES.index(a) + 1, HOSTS.index(b) + 1
            four.append(f"  network 10.{leaf}.{host}.0/24")
            six.append(f"  network fd10:{leaf}:{host}::/64")
        elif a == "leaf1":
            lines.append(f" neighbor {port} interface remote-as external")
            lines.append(f" neighbor {port} advertisement-interval 0")
            six.append(f"  neighbor {port} activate")
        else:
            far = 1 if name == a else 0
            for peer, family in ((f"10.99.{number}.{far}", four), (f"fd99:{number}::{far}", six)):
                lines.append(f" neighbor {peer} remote-as external")
                lines.append(f" neighbor {peer} advertisement-interval 0")
                family.append(f"  neighbor {peer} activate")
            six.append(f"  no neighbor 10.99.{number}.{far} activate")
            four.append(f"  no neighbor fd99:{number}::{far} activate")
    lines += [" address-family ipv4 unicast", *four, "  maximum-paths 64", " exit-address-family"]
    lines += [" address-family ipv6 unicast", *six, "  maximum-paths 64", " exit-address-family"]
    return "\n".join(lines) + "\n"


def _batch(pid: int, lines: Sequence[str]) -> None:
    """`ip` commands inside the network of a process."""
    plain = [line for line in lines if not line.startswith("-6 ")]
    for words, text in (((), plain), (("-6",), [x[3:] for x in lines if x.startswith("-6 ")])):
        if text:
            subprocess.run(
                ["nsenter", "-t", str(pid), "-n", "ip", *words, "-batch", "-"],
                input="\n".join(text) + "\n", text=True, check=True,
            )  # fmt: skip


@contextlib.contextmanager
def real_fabric(folder: Path) -> Iterator[RealFabric]:
    """The fabric, which is gone at the end."""
    fabric = RealFabric(folder)
    try:
        fabric.start()
        yield fabric
    finally:
        fabric.stop()
