"""What all comparisons share: traffic between hosts, its record and the fabric's, titles."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import NamedTuple
from ..fabrics.fabric import Fabric
from ..results import FabricSummary, StrategyResult, TrafficSummary
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
    note = f"{left_out:,} of {len(traffic):,} flows are left out: no host of the fabric is {names}"
    return traffic.take(inside), [*warnings, note]


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


# Titles of strategies: the name, with the parameters that distinguish it from others.

_ALWAYS = ("hash", "k", "by")
"""Parameters that are always in the title."""
_OF_FLOWS, _OF_PACKETS = ("seed",), ("evs", "reshuffle", "acks", "gap")
"""The same for strategies of whole flows, and for those packet by packet."""


def titled(strategies: Sequence[StrategyResult]) -> list[StrategyResult]:
    """The results with their titles; parameters in which results of one name differ are in them."""
    by_name: dict[str, list[StrategyResult]] = {}
    for result in strategies:
        by_name.setdefault(result.name, []).append(result)
    return [
        msgspec.structs.replace(result, title=_title(result, by_name[result.name]))
        for result in strategies
    ]


def _title(result: StrategyResult, of_name: Sequence[StrategyResult]) -> str:
    always = _ALWAYS + (_OF_FLOWS if result.packets is None else _OF_PACKETS)
    shown = [
        f"{key}={value}"
        for key, value in result.parameters.items()
        if key in always or any(other.parameters.get(key) != value for other in of_name)
    ]
    return f"{result.name} ({', '.join(shown)})" if shown else result.name
