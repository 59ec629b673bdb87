"""The highest rate at which a fabric carries all flows, without its failed links."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int32s
from ...fabrics.fabric import Fabric
from ...fabrics.weights import with_path_weights
from ..model.arrays import ATTACHED, fabric_arrays


def rho_max(fabric: Fabric, src: Int32s, dst: Int32s) -> float:
    """Share of the line rate at which every flow can send if flows are split evenly over their
    shortest paths: minimum over links of capacity over load (paper, section 6); at most 1.
    """
    fabric = with_path_weights(fabric)
    arrays = fabric_arrays(fabric)
    load = np.zeros(len(fabric.links.source))
    host_rate = fabric.links.rate_bits_per_second[arrays.access.max(1)].astype(np.float64)
    for s, d in zip(src.tolist(), dst.tolist(), strict=True):
        edge = int(arrays.host_edge[d])
        ports = [p for p in range(arrays.access.shape[1]) if arrays.access[s, p] >= 0]
        level: dict[int, float] = {}
        for port in ports:
            switch = int(arrays.host_switch[s, port])
            level[switch] = level.get(switch, 0.0) + host_rate[s] / len(ports)
        while level:
            below: dict[int, float] = {}
            for switch, amount in level.items():
                group = int(arrays.route[switch, edge]) if edge >= 0 else -1
                if group == ATTACHED or group < 0:
                    continue
                members, weights = fabric.group(switch, edge)
                for link, weight in zip(members.tolist(), weights.tolist(), strict=True):
                    part = amount * weight / int(weights.sum())
                    load[link] += part
                    target = int(fabric.links.target[link])
                    below[target] = below.get(target, 0.0) + part
            level = below
    busy = load > 0
    share = fabric.links.rate_bits_per_second[busy] / load[busy]
    return float(min(1.0, share.min(initial=1.0)))
