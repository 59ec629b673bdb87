"""ECMP that also hashes the destination queue pair (Meta's E-ECMP): 3 bytes at offset 13 of UDP.

Source: Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta Scale",
SIGCOMM 2024; FBOSS configures it as a user-defined field with CRC16-CCITT.
"""

from __future__ import annotations

from ....analyzer.errors import UsageError
from ...fabrics.fabric import Fabric
from ...traffic.traffic import Traffic
from ..base import FlowStrategy
from ..placed import Outcome
from .ecmp import Ecmp, Hashed

DEFAULT_HASH = "crc16-ccitt"


class EcmpQpn(Hashed, FlowStrategy):
    """Options: those of ecmp except `fields`."""

    name = "ecmp-qpn"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        if "fields" in self.options:
            raise UsageError("ecmp-qpn hashes 5-tuple+qpn; use ecmp:fields=... for others")
        options = {"hash": DEFAULT_HASH, **self.options, "fields": "5-tuple+qpn"}
        return Ecmp(options, self.name).place(traffic, fabric)
