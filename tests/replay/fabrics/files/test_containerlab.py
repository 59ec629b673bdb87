"""Topologies of containerlab."""

from __future__ import annotations

import pytest
from fabric_walking import next_nodes

from rocescope.analyzer.errors import UsageError

CLAB = """\
name: srl02
topology:
  kinds: {nokia_srlinux: {image: ghcr.io/nokia/srlinux}}
  nodes:
    leaf1: {kind: nokia_srlinux}
    leaf2: {kind: nokia_srlinux, group: leaf}
    spine1: {kind: nokia_srlinux, labels: {tier: spine}}
    client1: {kind: linux}
    gpu: {kind: linux, group: server}
  links:
    - endpoints: ["leaf1:e1-49", "spine1:e1-1"]
    - endpoints: ["leaf2:e1-49", "spine1:e1-2"]
    - endpoints: ["client1:eth1", "leaf1:e1-1"]
    - endpoints: ["gpu:eth1", "leaf2:e1-1"]
    - endpoints: ["leaf1:e1-9", "host:leaf1-e9"]
"""


def test_containerlab(parse):
    fabric = parse(CLAB, "srl02.clab.yml", ",rate=25G,down=leaf2-spine1")
    assert fabric.nodes.names == ("leaf1", "leaf2", "spine1", "client1", "gpu")
    assert fabric.nodes.tier.tolist() == [1, 1, 2, 0, 0]
    assert set(fabric.links.rate_bits_per_second.tolist()) == {25 * 10**9}
    assert next_nodes(fabric, "leaf1", "gpu") == []
    assert next_nodes(parse(CLAB, "x.yml"), "leaf1", "gpu") == ["spine1"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("leaf1:e1-49", "leaf7:e1-49", r"clab.yml:11: there is no node 'leaf7'"),
        ('"leaf1:e1-49", ', "", r"clab.yml:11: a link has two endpoints"),
        ("endpoints", "ends", r"clab.yml:11: a link needs endpoints"),
        ("  links:", "  wires:", r"clab.yml:\d+: the topology has no links"),
    ],
)
def test_mistakes_in_containerlab(old, new, message, parse):
    with pytest.raises(UsageError, match=message):
        parse(CLAB.replace(old, new, 1), "x.clab.yml")


def test_containerlab_without_hosts(parse):
    with pytest.raises(UsageError, match="no node is a host: give hosts the group 'host'"):
        parse(CLAB.replace("client1", "a").replace("gpu", "b").replace("server", "x"))
