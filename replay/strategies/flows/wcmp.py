"""WCMP: ECMP with weights proportional to the capacity beyond every next hop.

Source: Zhou et al., "WCMP: Weighted Cost Multipathing for Improved Fairness in Data
Centers", EuroSys 2014.
"""

from __future__ import annotations

from ....analyzer.errors import UsageError
from ...fabrics.fabric import Fabric
from ...fabrics.weights import with_capacity_weights
from ...traffic.traffic import Traffic
from ..base import FlowStrategy
from ..placed import Outcome
from .ecmp import Ecmp, Hashed


class Wcmp(Hashed, FlowStrategy):
    """Options: those of ecmp."""

    name = "wcmp"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        try:
            weighted = with_capacity_weights(fabric)
        except RecursionError:
            raise UsageError(f"wcmp: the routes of {fabric.name} form a loop") from None
        return Ecmp(self.options, self.name).place(traffic, weighted)
