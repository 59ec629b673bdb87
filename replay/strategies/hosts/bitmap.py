"""The bitmap balancer of Ultra Ethernet's reference simulator: penalties per entropy value.

Source: ultraethernet/uet-htsim; see transport/bitmap.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ....analyzer.errors import UsageError
from ...fabrics.fabric import Fabric
from ...packets.model.model import Workload
from ...packets.model.rules import Rules
from ..base import known_options, whole_number
from .bitmap_labels import bitmap
from .host_spray import HostSpray

ENTROPY_VALUES = 256


@dataclass(frozen=True)
class Bitmap:
    """Option: `evs`, entropy values, a power of two (256)."""

    options: Mapping[str, str]
    name: str = "bitmap"
    reacts: bool = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        known_options(self.name, self.options, ("evs",))
        evs = whole_number(self.name, self.options, "evs", ENTROPY_VALUES, 2, 1 << 16)
        if evs & (evs - 1) or evs < fabric.ports:
            raise UsageError(f"{self.name}: evs={evs}: use a power of two from {fabric.ports} on")
        base = HostSpray({"evs": str(evs)}).rules(workload, fabric, seed)
        hosts = bitmap(len(workload.src), seed, fabric.ports, evs)
        return replace(base, hosts=hosts, parameters={"evs": str(evs)})
