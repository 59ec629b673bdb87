"""Flows that share a fault: those of one source or one destination."""

from __future__ import annotations

from collections.abc import Iterable

from ...results.flow import Flow
from ..case import Case


def by_hosts(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Groups of flows joined by a common source or a common destination.

    One fault before or after a tap hits what one host sends or what one host receives; flows of
    both directions between two hosts are never one group.
    """
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    flows = list(flows)
    for flow in flows:
        parent[root(("from", flow.src))] = root(("to", flow.dst))
    groups: dict[tuple[str, str], list[Flow]] = {}
    for flow in flows:
        groups.setdefault(root(("from", flow.src)), []).append(flow)
    return list(groups.values())


def of_same_hosts(case: Case, group: Iterable[Flow]) -> list[Flow]:
    """All flows with the sources and destinations of a group, hit or not."""
    ways = {(flow.src, flow.dst) for flow in group}
    return [flow for flow in case.flows if (flow.src, flow.dst) in ways]
