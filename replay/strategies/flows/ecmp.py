"""ECMP: every switch hashes header fields and picks one of its equal-cost next hops."""

from __future__ import annotations

from typing import Self

from ...fabrics.fabric import Fabric
from ...fabrics.switch_hashing import hash_known, hash_records, switch_hashing
from ...flows.placement import place
from ...traffic.traffic import Traffic
from ..base import Configured, FlowStrategy
from ..placed import Outcome


class Hashed(Configured):
    """Strategies whose switches hash: every run of several has its own hash seeds."""

    def in_run(self, number: int, fabric: Fabric) -> Self:
        """Seeds derived from `number`; those of the options or the fabric stay."""
        if number == 0 or any(hash_known(own) for own in fabric.hash_settings):
            return self
        return self.with_default("seed", str(number % (1 << 32)))


class Ecmp(Hashed, FlowStrategy):
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
