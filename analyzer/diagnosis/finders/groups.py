"""Flows that share a fault: those of one source or one destination."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...results.flow import Flow
from ..case import Case


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
    ways = {(flow.src, flow.dst) for flow in group}
    return [flow for flow in case.flows if (flow.src, flow.dst) in ways]
