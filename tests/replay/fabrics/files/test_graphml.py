"""GraphML, as networkx reads and writes it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from fabric_walking import next_nodes

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.files.graphml import graphml_bytes
from rocescope.replay.fabrics.parse import parse_fabric

SPECS = (
    "leaf-spine:leaves=3,spines=2,hosts=2,uplinks=2,down=leaf1-spine2#2",
    "fat-tree:k=4,down=spine3",
    "multi-plane:planes=2,leaves=2,spines=2,hosts=2",
    "rail:rails=2,servers=2,pods=2,spines=3,delay=2us",
)


@pytest.mark.parametrize("spec", SPECS)
def test_graphml_is_what_networkx_reads(spec, tmp_path):
    fabric = parse_fabric(spec)
    file = tmp_path / "f.graphml"
    file.write_bytes(graphml_bytes(fabric))
    graph = nx.read_graphml(file)
    assert set(graph.nodes) == set(fabric.nodes.names)
    assert graph.number_of_edges() == len(fabric.links.source) // 2
    again = parse_fabric(str(file))
    assert again.nodes.names == fabric.nodes.names
    assert again.nodes.tier.tolist() == fabric.nodes.tier.tolist()
    assert np.count_nonzero(again.links.up) == np.count_nonzero(fabric.links.up)
    for switch in fabric.nodes.names[: fabric.switches]:
        for host in fabric.nodes.names[fabric.switches :]:
            if fabric.attachments.edge[fabric.nodes.names.index(host) - fabric.switches] >= 0:
                assert next_nodes(again, switch, host) == next_nodes(fabric, switch, host)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphml>", r"f.graphml:1: not GraphML"),
        ("", r"f.graphml:1: not GraphML"),
        ("<html></html>", "f.graphml: "),
    ],
)
def test_mistakes_in_graphml(text, message, parse):
    with pytest.raises(UsageError, match=message):
        parse(text, "f.graphml")
