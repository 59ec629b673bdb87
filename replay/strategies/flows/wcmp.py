"""WCMP: ECMP with weights in proportion to the capacity behind every next hop.

Source: Zhou et al., "WCMP: Weighted Cost Multipathing for Improved Fairness in Data
Centers", EuroSys 2014.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....analyzer.errors import UsageError
from ...fabrics.fabric import Fabric
from ...fabrics.weights import with_capacity_weights
from ...traffic.traffic import Traffic
from ..base import FlowStrategy
from ..placed import Outcome
from .ecmp import Ecmp


@dataclass(frozen=True)
class Wcmp(FlowStrategy):
    """Options: those of ecmp."""

    options: Mapping[str, str]
    name: str = "wcmp"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        try:
            weighted = with_capacity_weights(fabric)
        except RecursionError:
            raise UsageError(f"wcmp: the routes of {fabric.name} form a loop") from None
        return Ecmp(self.options, self.name).place(traffic, weighted)
