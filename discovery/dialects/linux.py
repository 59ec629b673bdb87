"""Linux routers and hosts: iproute2, sysctl and lldpd. All but lldpctl run unprivileged.

Programs in sbin have their path: it is not on the PATH of commands over SSH on all systems.
"""

from __future__ import annotations

from pathlib import Path

from ...replay.fabrics.devices.device import Device
from ...replay.fabrics.files.linux_tables import read_device
from ..port_counters import COMMAND, SUFFIX
from .dialect import Dialect, Question

QUEUE_PAIRS = "qp.json"
RDMA_LINKS = "rdma.json"
AGENT = "agent.json"


def read_known(folder: Path, name: str) -> Device:
    """A device, without the answers that are damaged and not needed."""
    return read_device(folder, name, strict=False)


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
        Question(SUFFIX, COMMAND, "byte counters of ports", counts=True),
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
