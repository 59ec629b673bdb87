"""The growth of port counters against the bytes that the traced paths put on every link.

Counters also contain routing protocols, LLDP and neighbour discovery: what all ports have in
excess, their median, is this background. A port disagrees if its excess leaves the background by
more than the spread of all ports explains, or if it grew by less than the prediction: no background
makes a counter smaller. Where background and spread could hide a flow, agreement says nothing:
such a link is not checked.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...kernels.kernel import Floats, Int32s, Ints, kernel
from ...replay.fabrics.fabric import Fabric
from ...replay.flows.spread import even_loads
from ...replay.traffic.traffic import Traffic
from ..port_counters import Port, Reading
from .paths import TracedPaths
from .results import CounterCheck, PortDisagreement

_SPREADS = 9.0
"""Median deviations from the median: 6 standard deviations of a normal distribution."""
_SHARE = 0.02
_LEAST_BYTES = 2000
"""A few frames of neighbour discovery on one port."""


def verify_counters(
    traffic: Traffic, fabric: Fabric, paths: TracedPaths, grown: Reading
) -> CounterCheck:
    """Compare the growth of counters with the prediction.

    A link is checked if one of its ports was read, no path that may use it is open, and other
    traffic is too small to hide a flow. Disagreement counts as checked in any case.
    """
    links = len(fabric.links.source)
    predicted, largest = np.zeros(links, np.int64), np.zeros(links, np.int64)
    _add(paths.placement.links, traffic.wire_bytes, predicted, largest)
    open_ = np.zeros(links, np.bool_)
    if paths.placement.dropped.any():
        rest = replace(traffic, windows=None, messages=None, seen=None)
        rest = rest.take(paths.placement.dropped)
        open_ = even_loads(rest, fabric, np.ones(len(rest), np.int64)) > 0
    ports = [_port(fabric, link, grown) for link in range(links)]
    checked = np.array([port is not None for port in ports], np.bool_) & ~open_
    measured = np.array([0 if port is None else port[1] for port in ports], np.int64)
    rows = np.flatnonzero(checked)
    # A flow that moves to a link without one may be any.
    flow = np.where(largest > 0, largest, traffic.wire_bytes.max(initial=0))[rows]
    own_slack = _SHARE * predicted[rows]
    excess = measured[rows] - predicted[rows]
    background = max(0.0, float(np.median(excess))) if len(rows) else 0.0
    spread = _SPREADS * float(np.median(np.abs(excess - background))) if len(rows) else 0.0
    slack = _LEAST_BYTES + own_slack + spread
    wrong = (np.abs(excess - background) > slack) | (-excess > _LEAST_BYTES + own_slack)
    hidden = _LEAST_BYTES + background + spread > np.maximum(flow, own_slack)
    decided = wrong | ~hidden
    vague = np.zeros(links, np.bool_)
    vague[rows[~decided]] = True
    return CounterCheck(
        links_checked=int(np.count_nonzero(decided)),
        links_agreeing=int(np.count_nonzero(decided & ~wrong)),
        links_not_checked=[
            fabric.link_name(int(link))
            for link in np.flatnonzero((~checked & ((predicted > 0) | open_)) | vague)
        ],
        background_bytes=int(background),
        flows_too_small=_too_small(paths, traffic, rows[~hidden], slack[~hidden]),
        disagreements=[
            PortDisagreement(
                link=fabric.link_name(link),
                device=port[0].device,
                port=port[0].name,
                predicted_bytes=int(predicted[link]),
                measured_bytes=int(measured[link]),
            )
            for link in rows[wrong].tolist()
            if (port := ports[link]) is not None
        ],
    )


def _too_small(paths: TracedPaths, traffic: Traffic, rows: Ints, slack: Floats) -> int:
    """Units that no checked link of their path would show if they took another one."""
    most = np.full(int(paths.placement.links.max(initial=-1)) + 2, np.inf)
    inside = rows < len(most) - 1
    most[rows[inside]] = slack[inside]
    visible = (traffic.wire_bytes[:, None] > most[paths.placement.links]).any(1)
    return int(np.count_nonzero(~visible))


def _port(fabric: Fabric, link: int, grown: Reading) -> tuple[Port, int] | None:
    """The port that measured a link, and its bytes: the sender's, else the receiver's."""
    if fabric.origin is None or link // 2 >= len(fabric.origin.ports):
        return None
    ports = fabric.origin.ports[link // 2]
    near, far = ports if link % 2 == 0 else ports[::-1]
    names = fabric.nodes.names
    sender = Port(names[int(fabric.links.source[link])], near)
    if sender in grown:
        return sender, grown[sender].sent
    receiver = Port(names[int(fabric.links.target[link])], far)
    return (receiver, grown[receiver].received) if receiver in grown else None


@kernel
def _add(links: Int32s, unit_bytes: Ints, loads: Ints, largest: Ints) -> None:
    """The bytes of all units on every link, and those of the largest unit."""
    for unit in range(links.shape[0]):
        for hop in range(links.shape[1]):
            link = links[unit, hop]
            if 0 <= link < len(loads):
                loads[link] += unit_bytes[unit]
                largest[link] = max(largest[link], unit_bytes[unit])
