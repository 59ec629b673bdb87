"""Number of equal-cost paths from one host to another, without listing them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ....analyzer.errors import UsageError
from ....analyzer.results.base import about
from ....kernels.kernel import Bools
from ...fabrics.fabric import Fabric
from ..entering import MOST_HOPS


class PortPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The paths that start at one port of a host."""

    switch: Annotated[str, about("the switch at the port")]
    paths: int
    links: Annotated[int, about("links of the longest path, including links of hosts")]


class HostPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The paths from one host to another."""

    source: str
    destination: str
    paths: int
    longest_links: Annotated[int | None, about("null without a path")]
    ports: Annotated[list[PortPaths], about("ports that are up; paths may be 0")]


def paths_between(
    fabric: Fabric, source: int, destination: int, lost: Bools | None = None
) -> HostPaths:
    """Paths over the groups of the fabric, port by port.

    lost: bool[links], failed links that are still in the groups: the remaining paths
    are the static paths (MRC), or the paths that hashing uses before routing converges.
    UsageError for a path from a host to itself and for routing loops.
    """
    if source == destination:
        raise UsageError(f"paths need two different hosts, not twice {fabric.host_name(source)}")
    works = fabric.links.up if lost is None else fabric.links.up & ~lost
    exits = {
        int(switch): int(link)
        for switch, link in zip(
            fabric.attachments.switch[destination],
            fabric.attachments.exit_link[destination],
            strict=True,
        )
        if switch >= 0
    }
    edge = int(fabric.attachments.edge[destination])
    known = {switch: (int(works[link]), 1) for switch, link in exits.items()}

    def onwards(switch: int, hops: int) -> tuple[int, int]:
        """(paths, links of the longest) from a switch to the host."""
        if switch in known:
            return known[switch]
        if hops > MOST_HOPS:
            raise UsageError(f"the routes of {fabric.name} form a loop")
        paths = longest = 0
        for link in fabric.group(switch, edge)[0].tolist():
            more, length = onwards(int(fabric.links.target[link]), hops + 1)
            if more and works[link]:
                paths, longest = paths + more, max(longest, length + 1)
        known[switch] = paths, longest
        return known[switch]

    ports = []
    for switch, access in zip(
        fabric.attachments.switch[source].tolist(),
        fabric.attachments.access_link[source].tolist(),
        strict=True,
    ):
        if switch < 0:
            continue
        paths, longest = onwards(switch, 0) if edge >= 0 and works[access] else (0, 0)
        ports.append(
            PortPaths(
                switch=fabric.nodes.names[switch], paths=paths, links=longest + 1 if paths else 0
            )
        )
    return HostPaths(
        source=fabric.host_name(source),
        destination=fabric.host_name(destination),
        paths=sum(port.paths for port in ports),
        longest_links=max((port.links for port in ports if port.paths), default=None),
        ports=ports,
    )


def named_pair(fabric: Fabric, text: str) -> tuple[int, int]:
    """`host1,host300` as numbers of hosts; UsageError names the mistake."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2:
        raise UsageError(f"--paths takes two hosts, such as host1,host2, not {text!r}")
    hosts = fabric.nodes.names[fabric.switches :]
    numbers = []
    for name in names:
        if name not in hosts:
            raise UsageError(
                f"there is no host {name!r} in {fabric.name}; hosts are {hosts[0]} to {hosts[-1]}"
            )
        numbers.append(hosts.index(name))
    return numbers[0], numbers[1]
