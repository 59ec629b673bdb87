"""Linux routers: iproute2, FRR, Cumulus.

Programs in sbin have their path: it is not on the PATH of commands over SSH on all systems.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from ...analyzer.errors import UsageError
from ...analyzer.saved_file import MAX_BYTES, decoded
from ...replay.fabrics.devices import Device
from ...replay.fabrics.fabric import Network, parse_network
from ...replay.fabrics.linux_tables import read_device
from ...replay.fabrics.sources import Source
from ..port_counters import COMMAND
from ..port_counters import SUFFIX as LINUX_SUFFIX
from .dialect import Calculator, Dialect, Question
from .reading import Entry, Lines, Reader, match_whole, number, one_of

QUEUE_PAIRS = "qp.json"
RDMA_LINKS = "rdma.json"
AGENT = "agent.json"


def read_known(folder: Path, name: str, most_bytes: int = MAX_BYTES) -> Device:
    """A device, without the answers that are damaged and not needed."""
    return read_device(folder, name, strict=False, most_bytes=most_bytes)


LINUX = Dialect(
    "linux",
    (
        Question("route.json", "ip -j route", "IPv4 routes"),
        Question("route6.json", "ip -6 -j route", "IPv6 routes"),
        Question("nexthop.json", "ip -j nexthop", "weights of next-hop groups"),
        Question("bucket.json", "ip -j nexthop bucket", "buckets of resilient groups"),
        Question("rule.json", "ip -j rule", "policy routing of IPv4"),
        Question("rule6.json", "ip -6 -j rule", "policy routing of IPv6"),
        Question("addr.json", "ip -j -d addr", "ports, MAC addresses, link-local addresses"),
        Question("neigh.json", "ip -j neigh", "neighbour MAC addresses"),
        Question("sysctl", "/sbin/sysctl -a", "hash policy and seed", partial=True),
        Question(LINUX_SUFFIX, COMMAND, "byte counters of ports", counts=True),
        Question("lldp.json", "/usr/sbin/lldpctl -f json0", "LLDP neighbours", root=True),
    ),
    read_known,
    needed="route.json",
    mark="route.json",
    forwarding=("route.json", "sysctl"),
    met="iproute2 6.1, lldpd 1.0.16, Linux 6.18",
    of_hosts=(
        Question(QUEUE_PAIRS, "rdma -j resource show qp", "queue pairs and processes"),
        Question(
            AGENT,
            "curl -qsSf --noproxy 127.0.0.1 --max-time 10 "
            "'http://127.0.0.1:9791/queue-pairs?top=4096'",
            "queue pairs and processes, from rocescope agent",
            instead_of=QUEUE_PAIRS,
        ),
        Question(RDMA_LINKS, "rdma -j link show", "network ports of RDMA devices"),
    ),
)


# FRR on Linux: the kernel's tables, and what FRR believes about them.
#
# FRR's routing table is no substitute for the kernel's: FRR 8.4.4 shows next hops as installed that
# the kernel's group has lost.

SUFFIX = "frr-route.json"
FRR = LINUX._replace(
    name="frr",
    questions=(
        *LINUX.questions,
        Question(SUFFIX, "vtysh -c 'show ip route json'", "FRR's view of the routes", root=True),
    ),
    mark=SUFFIX,
    met="FRR 8.4.4",
)


class _Hop(msgspec.Struct):
    interfaceName: str = ""  # noqa: N815 - FRR's name
    fib: bool = False


class _Entry(msgspec.Struct):
    selected: bool = False
    nexthops: list[_Hop] = []


def installed_of(file: Path) -> dict[Network, frozenset[str]]:
    """The ports of the next hops that FRR calls installed, by network; UsageError names the file.

    A missing or empty file has no routes.
    """
    what = "the output of show ip route json"
    routes = decoded(file, dict[str, list[_Entry]], what) or {}
    try:
        return {
            parse_network(network): frozenset(
                hop.interfaceName
                for entry in entries
                if entry.selected
                for hop in entry.nexthops
                if hop.fib and hop.interfaceName
            )
            for network, entries in routes.items()
        }
    except ValueError as error:
        raise UsageError(f"{file}: not {what}: {error}") from None


# Cumulus Linux with NVUE: the kernel's tables, which switchd copies into the chip.
#
# The chip hashes in its own way: the kernel's hash settings are never used. Shapes: NVIDIA's user
# guide of Cumulus Linux 5 (NVUE, equal cost multipath, adaptive routing).

_FORWARDING, _TRAFFIC = "cumulus-forwarding.json", "cumulus-traffic"
_ADAPTIVE = "cumulus-adaptive.json"
_OWN = (
    Question(_FORWARDING, "nv show system forwarding -o json", "hash fields"),
    Question(_TRAFFIC, "cat /etc/cumulus/datapath/traffic.conf", "hash seed"),
    Question(_ADAPTIVE, "nv show router adaptive-routing -o json", "adaptive routing"),
)
_ON = {"on": True, "enabled": True, "off": False, "disabled": False}
_SEED = re.compile(r"\s*(?:hash_config\.)?ecmp_hash_seed\s*=\s*(.*)")


def _read(folder: Path, name: str, most_bytes: int = MAX_BYTES) -> Device:
    device = read_known(folder, name, most_bytes)
    reader = Reader(folder, name, _OWN, most_bytes)
    words = [reader.text(_TRAFFIC, _seed), reader.json(_FORWARDING, _fields)]
    remarks = reader.json(_ADAPTIVE, _adaptive) or []
    return replace(
        device,
        hash=None,
        hash_in_words=", ".join(word for word in words if word),
        remarks=(*device.remarks, *remarks),
        unexpected=(*device.unexpected, *reader.problems),
    )


def _seed(lines: Lines) -> str:
    """The seed; without a line the switch has drawn one."""
    for line in lines:
        match = _SEED.fullmatch(line.text)
        if match:
            return f"seed {number(match[1], 'a seed', (1 << 32) - 1, line)}"
    return "seed random"


def _fields(top: Source) -> str:
    entry = Entry(top)
    chosen = [
        name
        for name, value in entry.inner("ecmp-hash").values.items()
        if _ON[one_of(value.text("on or off"), _ON, "setting", value)]
    ]
    return f"fields {' '.join(chosen)}"


def _adaptive(top: Source) -> list[str]:
    entry = Entry(top)
    state = one_of(entry.text("enable"), _ON, "enable", entry.place)
    if not _ON[state]:
        return []
    return ["adaptive routing is on: its groups have no fixed next hop per flow"]


_ANSWER = re.compile(rb"(?:ecmpcalc: will query hardware\s+)?([A-Za-z][A-Za-z0-9._-]{0,14})\s*")
_ASK = "sudo -n cl-ecmpcalc -i {port} -s {src} -d {dst} -p udp --sport {sport} --dport {dport}"

CUMULUS = LINUX._replace(
    name="cumulus",
    questions=(*LINUX.questions, *_OWN),
    read=_read,
    mark=_FORWARDING,
    forwarding=("route.json",),
    met="",
    calculator=Calculator(_ASK, partial(match_whole, _ANSWER)),
)
