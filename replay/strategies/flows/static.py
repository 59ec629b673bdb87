"""Static routing: the source or destination of a unit determines its path, without a hash.

destination: at every level the next digit of the destination's number selects the link
(D-mod-k routing, as in InfiniBand fat trees); source: the same with the source's number;
round-robin: every switch assigns its units to its links in turn, in the order of source,
destination and unit.
Source: Zahavi et al., "Optimized InfiniBand fat-tree routing for shift all-to-all
communication patterns", Concurrency and Computation 2009 (D-mod-k).
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int32s, UInt16s
from ...fabrics.fabric import Fabric
from ...flows.placement import Choose, place_by
from ...traffic.traffic import Traffic
from ..base import Configured, FlowStrategy
from ..placed import Outcome


class Static(Configured, FlowStrategy):
    """Option: `by`."""

    name = "static"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        self.known("by")
        by = self.word("by", "round-robin", "destination", "source")
        if by == "round-robin":
            choose = _in_turn(traffic, fabric)
        else:
            choose = by_digits(
                traffic.dst_host if by == "destination" else traffic.src_host, fabric
            )
        return Outcome(traffic, place_by(traffic, fabric, choose), {"by": by})


def by_digits(number: Int32s, fabric: Fabric) -> Choose:
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
    order = np.lexsort((np.arange(len(traffic)), traffic.dst_host, traffic.src_host))

    def choose(_node: Int32s, _came_by: Int32s, group: Int32s, member: UInt16s) -> None:
        by_group = order[np.argsort(group[0][order], kind="stable")]
        ordered = group[0][by_group]
        turn = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        member[0][by_group] = turn % sizes[ordered]

    return choose
