"""Segments between taps in series: packets seen at one tap and not at the next."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...results.paths import Hop
from .spraying import PathUsage

FLOWS_NAMED = 5


def hops(
    usage: PathUsage,
    places: NDArray[np.int64],
    tap_names: Sequence[str],
    flow_name: Callable[[int], str],
) -> list[Hop]:
    """Every segment between two consecutive places of flows, busiest first.

    `usage` has the key `tap`; `places` are those of `tapsets.tap_places`, so
    parallel taps count as one. A flow passes its places in the order of its first packet there (a
    common clock is assumed). Duplicates and losses on the same segment cancel; captures with
    different start or end times look like loss.
    """
    records = usage.records()
    seen: dict[int, dict[int, list[int]]] = defaultdict(dict)  # flow -> place -> packets, first
    taps = records.paths["key"].astype(np.int64)
    for flow, tap, packets, first in zip(
        records.flow.tolist(),
        taps.tolist(),
        records.paths["packets"].tolist(),
        records.paths["first_ns"].tolist(),
        strict=True,
    ):
        at = seen[flow].setdefault(int(places[tap]), [0, first])
        at[0] += packets
        at[1] = min(at[1], first)
    before: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
    for flow, passed in seen.items():
        order = sorted(passed, key=lambda place: passed[place][1])
        for near, far in itertools.pairwise(order):
            before[near, far][flow] = (passed[near][0], passed[far][0])
    found = [
        Hop(
            from_taps=_names(places, near, tap_names),
            to_taps=_names(places, far, tap_names),
            flows=len(flows),
            packets_before=sum(b for b, _ in flows.values()),
            packets_after=sum(a for _, a in flows.values()),
            lost_packets=sum(max(b - a, 0) for b, a in flows.values()),
            added_packets=sum(max(a - b, 0) for b, a in flows.values()),
            lost_by_flow=_worst(flows, flow_name),
        )
        for (near, far), flows in before.items()
    ]
    return sorted(found, key=lambda hop: -hop.packets_before)


def _worst(flows: dict[int, tuple[int, int]], flow_name: Callable[[int], str]) -> dict[str, int]:
    """The flows with the most losses, and their losses."""
    lost = sorted(((b - a, flow) for flow, (b, a) in flows.items() if b > a), reverse=True)
    return {flow_name(flow): n for n, flow in lost[:FLOWS_NAMED]}


def _names(places: NDArray[np.int64], place: int, tap_names: Sequence[str]) -> list[str]:
    return [tap_names[tap] for tap in np.flatnonzero(places == place).tolist()]
