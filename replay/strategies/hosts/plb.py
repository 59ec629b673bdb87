"""PLB: a host gives its flow a new label when too many packets of a round trip come back marked.

Source: Linux (tcp_plb.c, ip-sysctl) and "Flowlet" of arXiv 2507.21372; see transport/plb.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...fabrics.fabric import Fabric
from ...packets.model.model import Workload
from ...packets.model.round_trip import round_trip_ps
from ...packets.model.rules import Rules
from ..base import known_options, whole_number
from .host_spray import HostSpray, on_all_ports
from .plb_labels import plb

LABELS = 1 << 20
"""IPv6 flow labels."""


@dataclass(frozen=True)
class Plb:
    """Options: `percent` of marked packets that makes a round congested (40, the study; Linux: 50);
    `rounds` in a row before a new label (1, assumed; Linux: 12), `idle` when nothing is in flight
    (1, assumed; Linux: 3)."""

    options: Mapping[str, str]
    name: str = "plb"
    reacts: bool = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        known_options(self.name, self.options, ("percent", "rounds", "idle"))
        percent = whole_number(self.name, self.options, "percent", 40, 1, 100)
        rounds = whole_number(self.name, self.options, "rounds", 1, 1, 1000)
        idle = whole_number(self.name, self.options, "idle", min(rounds, 3), 1, 1000)
        evs = on_all_ports(self.name, LABELS, fabric)
        round_ps = round_trip_ps(fabric, int(workload.packet_bytes.max(initial=64)))
        hosts = plb(len(workload.src), seed, fabric.ports, evs, round_ps, percent, rounds, idle)
        base = HostSpray({"evs": str(evs)}).rules(workload, fabric, seed)
        parameters = {"percent": str(percent), "rounds": str(rounds), "idle": str(idle)}
        return replace(base, hosts=hosts, parameters=parameters)
