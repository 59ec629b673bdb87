"""Losses on the last hop to a host, one of whose ports is down: they are the outage of the port."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from ....measures.hops.state import PACKETS_IN
from ....results.mrc import MrcPortOutage
from ...case import Case
from ...known import CLOCKS_NS
from .groups import HopGroup, groups

DECLARED_NS = 1_000_000_000
"""A host says that its port is down within this time after the first loss."""


def losing_groups(case: Case) -> list[HopGroup]:
    """Hops that lose packets, joined."""
    return [] if case.ways is None else groups(case.ways, lambda hop: len(hop.lost) > 0)


def of_ports(case: Case) -> Mapping[int, HopGroup]:
    """By number of the port outage, the hops whose losses it explains.

    Taps do not show the port that they lead to: losses that fit several outages, or share an outage
    with those of other hops, are not explained.
    """
    outages = [] if case.mrc is None else case.mrc.outages
    found: dict[int, list[HopGroup]] = defaultdict(list)
    ambiguous: set[int] = set()
    for group in losing_groups(case) if outages else ():
        fits = [i for i, one in enumerate(outages) if _explains(case, one, group)]
        for number in fits:
            found[number].append(group)
        if len(fits) > 1:
            ambiguous.update(fits)
    return {
        number: fitting[0]
        for number, fitting in found.items()
        if len(fitting) == 1 and number not in ambiguous
    }


def _explains(case: Case, outage: MrcPortOutage, group: HopGroup) -> bool:
    """Whether a group loses everything that comes over one path to the host, and only while its
    port is down."""
    if group.from_tap is None or group.to_tap is None:
        return False
    lost = group.lost()
    first, last = int(lost["time"][0]), int(lost["time"][-1])
    end = case.last_ns if outage.up_time_ns is None else outage.up_time_ns
    if first < outage.down_time_ns - DECLARED_NS or last > end + CLOCKS_NS:
        return False
    flows = set(lost["flow"].tolist()) | set(group.passed()["flow"].tolist())
    if any(case.flows[flow].dst != outage.host for flow in flows):
        return False
    onward = {
        flow
        for hop in group.ways.hops
        if hop.from_tap == group.to_tap
        for flow in hop.passed["flow"].tolist()
    }
    if onward & flows or _passed_meanwhile(group, first, last):
        return False
    fits, others = _of_retired_values(case, outage, group)
    return not others or others < fits


def _of_retired_values(case: Case, outage: MrcPortOutage, group: HopGroup) -> tuple[int, int]:
    """Lost packets with an entropy value (source port) that their sender stops to use because the
    port is down, and with another one; of senders that stop to use some."""
    fits = others = 0
    end = case.last_ns if outage.up_time_ns is None else outage.up_time_ns
    known = group.lost()[group.lost()["frame"] > 0]
    for number in np.unique(known["flow"]).tolist():
        mrc = case.flows[number].mrc
        if not mrc:
            continue
        retired = {
            int(value.ev.split("/")[0])
            for value in mrc.retirements
            if value.cause == "port_down"
            and value.ev != "other"
            and outage.down_time_ns - DECLARED_NS <= value.retired_time_ns <= end
        }
        if retired:
            fit = np.isin(known["udp_sport"][known["flow"] == number], list(retired))
            fits += int(np.count_nonzero(fit))
            others += int(np.count_nonzero(~fit))
    return fits, others


def _passed_meanwhile(group: HopGroup, first: int, last: int) -> bool:
    """Whether the hops passed packets in windows between the first and the last loss."""
    width, origin = group.ways.window_ns, group.ways.origin_ns
    begin, end = -((origin - first) // width), (last - origin) // width
    return any(
        bool(np.any(hop.windows[max(begin, 0) : max(end, 0), PACKETS_IN]))
        for hop in (*group.hops, *group.beside)
        if hop.whole is not None
    )
