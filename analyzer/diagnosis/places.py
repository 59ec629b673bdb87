"""Flows that share a fault, and words for the place of a finding that one tap shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..measures.troubles import NAK_SENT, Trouble
from ..results.flow import Flow
from ..wire.packets import FULL_HOP_LIMITS
from ..words import printable
from .case import Case


def by_hosts(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Groups of flows joined by a common source or a common destination.

    One fault before or after a tap hits what one host sends or what one host receives; flows of
    both directions between two hosts are never one group.
    """
    return _joined(flows, lambda flow: (("from", flow.src), ("to", flow.dst)))


def by_any_host(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Groups of flows joined by a common host, whatever the direction."""
    return _joined(flows, lambda flow: (("host", flow.src), ("host", flow.dst)))


_Node = tuple[str, str]


def _joined(flows: Iterable[Flow], ends: Callable[[Flow], tuple[_Node, _Node]]) -> list[list[Flow]]:
    """The connected components, in order of their first flow."""
    parent: dict[_Node, _Node] = {}

    def root(node: _Node) -> _Node:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    flows = list(flows)
    for flow in flows:
        one, other = ends(flow)
        parent[root(one)] = root(other)
    groups: dict[_Node, list[Flow]] = {}
    for flow in flows:
        groups.setdefault(root(ends(flow)[0]), []).append(flow)
    return list(groups.values())


def of_same_hosts(case: Case, group: Iterable[Flow]) -> list[Flow]:
    """All flows with the sources and destinations of a group, hit or not."""
    host_pairs = {(flow.src, flow.dst) for flow in group}
    return [flow for flow in case.flows if (flow.src, flow.dst) in host_pairs]


def only(values: Iterable[str]) -> str | None:
    """The value, if there is just one."""
    different = set(values)
    return next(iter(different)) if len(different) == 1 else None


def tap_of(case: Case, troubles: Iterable[Trouble]) -> str | None:
    """The tap that saw all of these packets first, if it is one."""
    names = case.registry.tap_names
    return only(names[tap] for trouble in troubles for _, _, tap in trouble.frames)


def before(case: Case, tap: str | None) -> str:
    """`before the tap`, `before leaf1-spine1`, `before the first tap`."""
    return f"before {called(case, tap, 'first')}"


def after(case: Case, tap: str | None) -> str:
    """`after the tap`, `after leaf1-spine1`, `after the last tap`."""
    return f"after {called(case, tap, 'last')}"


INCAST_SOURCES = 3
"""Loss from this many hosts on the way to one host may be an egress that they overload."""


LAST_SWITCH = (
    "check the last switch: an egress that these hosts overload (incast) or a bad link; taps "
    "before and after it show which"
)
"""The next step where it may be one."""


def may_be_incast(flows: Iterable[Flow]) -> bool:
    """Whether several hosts send these flows to one."""
    flows = list(flows)
    return len({f.src for f in flows}) >= INCAST_SOURCES and len({f.dst for f in flows}) == 1


def called(case: Case, tap: str | None, which: str) -> str:
    """The short name of a tap; `the tap` if there is one, `the first tap` if it is not known."""
    if not case.measuring.many_taps:
        return "the tap"
    if tap is None:
        return f"the {which} tap"
    short = [] if case.tap_hops is None else case.tap_hops.names
    return printable(short[case.registry.tap_names.index(tap)] if short else tap)


def link_of_receiver(case: Case, flow: Flow) -> str | None:
    """The tap on the link of the flow's receiver, which the packets of `flow` pass last.

    The receiver's NAKs come there first, with a hop limit that no router has lowered. None where
    that is not known, and where one tap sees the packets or the NAKs, unless a router has lowered
    the hop limit of the packets: without a router every tap looks like this.
    """
    peer = case.peers.get(flow.id)
    if peer is None or not case.measuring.many_taps:
        return None
    troubles = case.measuring.troubles
    naks = troubles.of(peer, NAK_SENT)
    if naks is None or int(troubles.progress(peer)["hop_limit"]) not in FULL_HOP_LIMITS:
        return None
    alone = len(flow.taps) == 1 or len(case.flows[peer].taps) == 1
    if alone and int(troubles.progress(flow.id)["hop_limit"]) in FULL_HOP_LIMITS:
        return None
    tap = tap_of(case, [naks])
    return tap if tap in flow.taps else None
