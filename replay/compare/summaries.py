"""What all comparisons share: the traffic between hosts, the records of traffic and fabric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.named import NamedTuple
from ..fabrics.fabric import Fabric
from ..results.base import FabricSummary, TrafficSummary
from ..traffic.traffic import Traffic


class Listed(NamedTuple):
    """Most items of the lists of a result."""

    links: int = 5
    """Of `worst`."""
    flows: int = 10
    """Of each of these links."""
    paths: int = 0


SHORT = Listed()
ALL_PATHS = 1 << 16
"""`Listed.paths` for programs: a limit only for the largest fabrics."""


def mapped(traffic: Traffic, fabric: Fabric) -> tuple[Traffic, list[str]]:
    """The units between hosts of the fabric, and warnings about units left out."""
    inside = (traffic.src_host >= 0) & (traffic.dst_host >= 0)
    if not inside.any():
        names = ", ".join(traffic.unmapped[:5]) + (", ..." if len(traffic.unmapped) > 5 else "")
        raise UsageError(
            f"no flow runs between hosts of {fabric.name}; its first host is "
            f"{fabric.address_of(0)}, the capture has {names or 'none'}: "
            "use --map order or --map FILE"
        )
    warnings = list(traffic.warnings)
    if inside.all():
        return traffic, warnings
    left_out = int(np.count_nonzero(~inside))
    names = ", ".join(traffic.unmapped[:8]) + (", ..." if len(traffic.unmapped) > 8 else "")
    told = f"{left_out:,} of {len(traffic):,} flows are left out: no host of the fabric is {names}"
    return traffic.take(inside), [*warnings, told]


def traffic_summary(traffic: Traffic, sources: Sequence[str]) -> TrafficSummary:
    """The record of the traffic."""
    return TrafficSummary(
        sources=list(sources),
        flows=len(np.unique(traffic.flow)),
        units=len(traffic),
        packets=int(traffic.packets.sum()),
        wire_bytes=int(traffic.wire_bytes.sum()),
        hosts=len(np.unique(np.concatenate([traffic.src_host, traffic.dst_host]))),
        window_ns=traffic.windows.width_ns if traffic.windows else None,
        mapping=traffic.mapping,
    )


def fabric_summary(fabric: Fabric) -> FabricSummary:
    """The record of the fabric."""
    up = int(np.count_nonzero(fabric.links.up))
    return FabricSummary(
        spec=fabric.name,
        hosts=fabric.hosts,
        switches=fabric.switches,
        links=up,
        links_down=len(fabric.links.up) - up,
    )
