"""ECMP: every switch hashes header fields and picks one of its equal-cost next hops."""

from __future__ import annotations

from ...fabrics.fabric import Fabric
from ...fabrics.switch_hashing import hash_records, switch_hashing
from ...flows.placement import place
from ...traffic.traffic import Traffic
from ..base import Configured, FlowStrategy
from ..placed import Outcome


class Ecmp(Configured, FlowStrategy):
    """Options: see `switch_hashing`."""

    name = "ecmp"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        hashing = switch_hashing(fabric, self.options, self.name)
        return Outcome(
            traffic,
            place(traffic, fabric, hashing.settings),
            hashing.parameters,
            switches=hash_records(fabric, hashing),
        )
