"""Fabrics as tests look at them: by names, and against networkx."""

from __future__ import annotations

import networkx as nx


def hops(fabric, switch, host):
    """Names of the next nodes of a switch towards a host, in order, with weights."""
    names = fabric.nodes.names
    node = names.index(switch)
    edge = int(fabric.attachments.edge[names.index(host) - fabric.switches])
    links, weights = fabric.group(node, edge)
    return [
        (names[int(fabric.links.target[link])], int(w))
        for link, w in zip(links, weights, strict=True)
    ]


def next_nodes(fabric, switch, host):
    """The same without weights."""
    return [name for name, _ in hops(fabric, switch, host)]


def graph(fabric):
    """The links that are up as a networkx graph of node numbers."""
    made = nx.MultiDiGraph()
    made.add_nodes_from(range(len(fabric.nodes.names)))
    links = fabric.links
    for link in range(len(links.source)):
        if links.up[link]:
            made.add_edge(int(links.source[link]), int(links.target[link]), link)
    return made


def shortest_groups(fabric):
    """(switch, host) -> links of all shortest paths to the host, found by networkx."""
    everything = graph(fabric)
    switches = range(fabric.switches)
    found = {}
    for host in range(fabric.hosts):
        node = fabric.switches + host
        # Hosts are no transit.
        inside = everything.subgraph([*switches, node])
        distance = nx.single_source_shortest_path_length(inside.reverse(), node)
        for s in switches:
            found[s, host] = [
                link
                for link in range(len(fabric.links.source))
                if fabric.links.source[link] == s
                and fabric.links.up[link]
                and s in distance
                and distance.get(int(fabric.links.target[link])) == distance[s] - 1
            ]
    return found


def forwarded(fabric):
    """The same as the fabric forwards."""
    found = {}
    for host in range(fabric.hosts):
        for s in range(fabric.switches):
            edge = int(fabric.attachments.edge[host])
            column = fabric.attachments.switch[host].tolist()
            if edge >= 0 and s in column:
                found[s, host] = [int(fabric.attachments.exit_link[host, column.index(s)])]
            else:
                found[s, host] = fabric.group(s, edge)[0].tolist() if edge >= 0 else []
    return found
