"""Static routing: the way of a unit follows from where it comes from or goes to, without a hash.

destination: at every level the next digit of the destination's number picks the link
(D-mod-k routing, as in InfiniBand fat trees); source: the same with the source's number;
round-robin: every switch pins its units to its links in turn, in the order of source,
destination and unit.
Source: Zahavi et al., "Optimized InfiniBand fat-tree routing for shift all-to-all
communication patterns", Concurrency and Computation 2009 (D-mod-k).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Int32s, UInt16s
from ...fabrics.fabric import Fabric
from ...flows.placement import Choose, place_by
from ...traffic.traffic import Traffic
from ..base import FlowStrategy, known_options
from ..placed import Outcome

BY = ("round-robin", "destination", "source")


@dataclass(frozen=True)
class Static(FlowStrategy):
    """Option: `by`."""

    options: Mapping[str, str]
    name: str = "static"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        known_options(self.name, self.options, ("by",))
        by = self.options.get("by", BY[0])
        if by not in BY:
            raise UsageError(f"static: by={by}: use {', '.join(BY)}")
        if by == "round-robin":
            choose = _in_turn(traffic, fabric)
        else:
            choose = _by_digits(
                traffic.dst_host if by == "destination" else traffic.src_host, fabric
            )
        return Outcome(traffic, place_by(traffic, fabric, choose), {"by": by})


def _by_digits(number: Int32s, fabric: Fabric) -> Choose:
    """Digits of a mixed-radix number, the lowest at the first choice."""
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
