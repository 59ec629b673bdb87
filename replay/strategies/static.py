"""Static routing: the source or destination of a unit determines its path, without a hash.

destination: at every level the next digit of the destination's number selects the link
(D-mod-k routing, as in InfiniBand fat trees); source: the same with the source's number;
round-robin: every switch assigns its units to its links in turn, in the order of source,
destination and unit; those with data first, or ACKs between them would take the turns of data.
Source: Zahavi et al., "Optimized InfiniBand fat-tree routing for shift all-to-all
communication patterns", Concurrency and Computation 2009 (D-mod-k).

Static SRv6: the entropy value (EV) of a unit names its path. Every switch with several links takes
the next digit of the EV, the lowest digit first: modulo the number of its links. In a leaf-spine
the EV modulo the uplinks is the spine, as in MRC, which copies the uplink's number from the EV into
the segment list (arXiv 2605.04333). The EV is the IPv6 flow label, or the UDP source port where the
label is 0 or the packet is IPv4. That the digits lie in this order is assumed: the layout of
production EVs is not public.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int32s, UInt16s
from ..fabrics.fabric import Fabric
from ..flows.placement import Choose, place_by
from ..traffic.traffic import Traffic
from .base import Configured, FlowStrategy, Outcome


class Static(Configured, FlowStrategy):
    """Option: `by`."""

    name = "static"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        self.known("by")
        by = self.word("by", "round-robin", "destination", "source")
        if by == "round-robin":
            choose = _in_turn(traffic, fabric)
        else:
            choose = _by_digits(
                traffic.dst_host if by == "destination" else traffic.src_host, fabric
            )
        return Outcome(traffic, place_by(traffic, fabric, choose), {"by": by})


class StaticSrv6(Configured, FlowStrategy):
    """No options."""

    name = "srv6"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        self.known()
        keys = traffic.keys
        value = np.where(keys.flow_label > 0, keys.flow_label, keys.sport).astype(np.int32)
        return Outcome(traffic, place_by(traffic, fabric, _by_digits(value, fabric)), {})


def _by_digits(number: Int32s, fabric: Fabric) -> Choose:
    """Digits of a mixed-radix number, the lowest digit at the first choice."""
    sizes = np.append(np.diff(fabric.forwarding.group_start), 1)  # item -1 serves group -1
    left = number.astype(np.int64).copy()

    def choose(_node: Int32s, _came_by: Int32s, group: Int32s, member: UInt16s) -> None:
        size = sizes[group[0]]
        member[0] = left % size
        left[:] = left // size

    return choose


def _in_turn(traffic: Traffic, fabric: Fabric) -> Choose:
    sizes = np.append(np.diff(fabric.forwarding.group_start), 1)
    unit, without_data = np.arange(len(traffic)), traffic.counted() == 0
    order = np.lexsort((unit, traffic.dst_host, traffic.src_host, without_data))

    def choose(_node: Int32s, _came_by: Int32s, group: Int32s, member: UInt16s) -> None:
        by_group = order[np.argsort(group[0][order], kind="stable")]
        ordered = group[0][by_group]
        turn = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        member[0][by_group] = turn % sizes[ordered]

    return choose
