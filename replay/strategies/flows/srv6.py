"""Static SRv6: the entropy value (EV) of a unit names its path, and no switch hashes.

Every switch with several links takes the next digit of the EV, the lowest digit first: modulo the
number of its links. In a leaf-spine the EV modulo the uplinks is the spine, as in MRC, which copies
the uplink's number from the EV into the segment list (arXiv 2605.04333). The EV is the IPv6 flow
label, or the UDP source port where the label is 0 or the packet is IPv4. That the digits lie in
this order is assumed: the layout of production EVs is not public.
"""

from __future__ import annotations

import numpy as np

from ...fabrics.fabric import Fabric
from ...flows.placement import place_by
from ...traffic.traffic import Traffic
from ..base import Configured, FlowStrategy
from ..placed import Outcome
from .static import by_digits


class StaticSrv6(Configured, FlowStrategy):
    """No options."""

    name = "srv6"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        self.known()
        keys = traffic.keys
        value = np.where(keys.flow_label > 0, keys.flow_label, keys.sport).astype(np.int32)
        return Outcome(traffic, place_by(traffic, fabric, by_digits(value, fabric)), {})
