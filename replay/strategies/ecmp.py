"""ECMP: every switch hashes header fields and picks one of its equal-cost next hops.

Also with the destination queue pair among the fields (Meta's E-ECMP: 3 bytes at offset 13 of UDP;
source: Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta Scale", SIGCOMM
2024; FBOSS configures it as a user-defined field with CRC16-CCITT), and with weights proportional
to the capacity beyond every next hop (source: Zhou et al., "WCMP: Weighted Cost Multipathing for
Improved Fairness in Data Centers", EuroSys 2014).
"""

from __future__ import annotations

from typing import Self

from ...analyzer.errors import UsageError
from ..fabrics.fabric import Fabric
from ..fabrics.routes import with_capacity_weights
from ..fabrics.switch_hashing import hash_known, hash_records, switch_hashing
from ..flows.placement import place
from ..traffic.traffic import Traffic
from .base import Configured, FlowStrategy, Outcome

QPN_HASH = "crc16-ccitt"
"""The default hash of `ecmp-qpn`."""


class Hashed(Configured):
    """Strategies whose switches hash: every run of several has its own hash seeds."""

    def in_run(self, number: int, fabric: Fabric) -> Self:
        """Seeds derived from `number`; those of the options or the fabric stay."""
        if number == 0 or any(hash_known(settings) for settings in fabric.hash_settings):
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


class EcmpQpn(Hashed, FlowStrategy):
    """Options: those of ecmp except `fields`."""

    name = "ecmp-qpn"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        if "fields" in self.options:
            raise UsageError("ecmp-qpn hashes 5-tuple+qpn; use ecmp:fields=... for others")
        options = {"hash": QPN_HASH, **self.options, "fields": "5-tuple+qpn"}
        return Ecmp(options, self.name).place(traffic, fabric)


class Wcmp(Hashed, FlowStrategy):
    """Options: those of ecmp."""

    name = "wcmp"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        try:
            weighted = with_capacity_weights(fabric)
        except RecursionError:
            raise UsageError(f"wcmp: the routes of {fabric.name} form a loop") from None
        return Ecmp(self.options, self.name).place(traffic, weighted)
