"""`--fabric` of `analyze` and `tui`: the links of a fabric as the analyzer needs them."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network

from ...analyzer.measures.hops.vantage import FabricLinks


def fabric_links(spec: str) -> FabricLinks:
    """The links that are up, and the hosts with their addresses. UsageError as `parse_fabric`."""
    from ...replay.fabrics.parse import parse_fabric

    fabric = parse_fabric(spec)
    names, links, plan = fabric.nodes.names, fabric.links, fabric.addresses
    networks: dict[IPv4Network | IPv6Network, str] = {
        network: fabric.host_name(host) for network, host in plan.subnets.items()
    }
    for host in range(fabric.hosts):
        given = plan.explicit.get(host) or [plan.address_of(host, ipv6) for ipv6 in (False, True)]
        networks |= {ip_network(address): fabric.host_name(host) for address in given}
    ends = zip(links.source[links.up].tolist(), links.target[links.up].tolist(), strict=True)
    return FabricLinks(
        links=[(names[source], names[target]) for source, target in ends],
        hosts=frozenset(names[fabric.switches :]),
        networks=networks,
        spec=spec,
    )
