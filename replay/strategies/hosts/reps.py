"""REPS: hosts reuse the entropy values of packets that came through unmarked; switches hash them.

Source: Bonato et al., EuroSys 2026 (arXiv 2407.21625); see transport/reps.py for what is the
paper's and what the authors' simulator's. First BDP of a flow: random entropy values (paper).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ....analyzer.units import parse_duration
from ...fabrics.fabric import Fabric
from ...packets.model.model import PS, Workload
from ...packets.model.round_trip import bdp_packets
from ...packets.model.rules import Rules
from ..base import known_options, whole_number
from .host_spray import HostSpray, on_all_ports
from .reps_labels import FREEZE_PS, reps

ENTROPY_VALUES = 1 << 16


@dataclass(frozen=True)
class Reps:
    """Options: `evs`, entropy values (65,536); `freeze`, how long the ring stays frozen (10ms)."""

    options: Mapping[str, str]
    name: str = "reps"
    reacts: bool = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        known_options(self.name, self.options, ("evs", "freeze"))
        evs = whole_number(self.name, self.options, "evs", ENTROPY_VALUES, 2, 1 << 30)
        evs = on_all_ports(self.name, evs, fabric)
        freeze = FREEZE_PS
        if "freeze" in self.options:
            freeze = parse_duration(self.options["freeze"], f"{self.name}: freeze") * PS
        first = bdp_packets(fabric, int(workload.packet_bytes.max(initial=64)))
        hosts = reps(len(workload.src), seed, fabric.ports, evs, first, freeze)
        parameters = {"evs": str(evs), "freeze": f"{freeze // PS}ns", "first": str(first)}
        base = HostSpray({"evs": str(evs)}).rules(workload, fabric, seed)
        return replace(base, hosts=hosts, parameters=parameters)
