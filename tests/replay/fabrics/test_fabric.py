"""Names of links, ports of hosts, links that go down."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric


def names(fabric, links):
    return [fabric.link_name(int(link)) for link in links]


def test_links_are_found_by_name():
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=1,uplinks=2")
    assert names(fabric, fabric.find_links("leaf1>spine2")) == ["leaf1>spine2", "leaf1>spine2#2"]
    assert names(fabric, fabric.find_links("leaf1-spine2#2")) == [
        "leaf1>spine2#2",
        "spine2>leaf1#2",
    ]
    assert names(fabric, fabric.find_links("host2")) == ["host2>leaf2", "leaf2>host2"]
    assert len(fabric.find_links("spine1")) == 8


@pytest.mark.parametrize(
    "name", ["leaf1-spine3", "leaf1-leaf2", "leaf1-spine1#3", "leaf1-spine1#x", ""]
)
def test_a_link_that_is_not_there(name):
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=1,uplinks=2")
    with pytest.raises(UsageError, match="no link"):
        fabric.find_links(name)


def test_names_may_contain_dashes(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_text(
        "nodes: {tor-a: , gpu-1: {kind: host}, gpu-2: {kind: host}}\n"
        "links: [[gpu-1, tor-a], [gpu-2, tor-a]]\n"
    )
    fabric = parse_fabric(str(file))
    assert names(fabric, fabric.find_links("gpu-1-tor-a")) == ["gpu-1>tor-a", "tor-a>gpu-1"]


def test_addresses_count_hosts_in_port_order():
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=4")
    assert [str(fabric.address_of(h)) for h in (0, 3, 4)] == ["10.0.0.1", "10.0.0.4", "10.0.0.5"]
    assert [fabric.host_of(a) for a in ("10.0.0.8", "10.0.0.9", "fd10::2")] == [7, None, 1]
    assert fabric.host_name(4) == "host5"
    assert fabric.attachments.switch[4, 0] == 1  # leaf2
    assert fabric.host_of("::ffff:10.0.0.8") == 7


def test_ports_of_a_host_in_every_plane():
    fabric = parse_fabric("multi-plane:planes=3,leaves=2,spines=1,hosts=1")
    assert fabric.ports == 3
    src, dst = np.array([0], np.int32), np.array([1], np.int32)
    assert fabric.usable_ports(src, dst).tolist() == [[True, True, True]]
    # Without the destination's port in the second plane the first and third remain.
    lost = fabric.down(["host2-plane2.leaf2"])
    assert lost.usable_ports(src, dst).tolist() == [[True, False, True]]
    # Hosts keep their ports in order; host2 now has two, to the leaves of planes 1 and 3.
    assert [lost.nodes.names[s] for s in lost.attachments.switch[1, :2]] == [
        "plane1.leaf2",
        "plane3.leaf2",
    ]
    back = lost.usable_ports(dst, src)
    assert back.tolist() == [[True, True, False]]


def test_exit_links_lead_to_the_host():
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=2")
    switch, host = np.array([0, 1, 1], np.int32), np.array([1, 3, 0], np.int32)
    links = fabric.exit_link_at(switch, host)
    assert [fabric.link_name(int(link)) for link in links[:2]] == ["leaf1>host2", "leaf2>host4"]
    assert links[2] == -1


def test_a_host_without_a_link():
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=2,down=host1-leaf1")
    assert fabric.attachments.edge.tolist() == [-1, 0, 1, 1]
    usable = fabric.usable_ports(np.array([0, 1], np.int32), np.array([1, 0], np.int32))
    assert not usable.any()


def test_a_slow_link():
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=1,slow=leaf1>spine2:100G+spine1:10G")
    rates = {
        fabric.link_name(i): int(rate) // 10**9
        for i, rate in enumerate(fabric.links.rate_bits_per_second)
    }
    assert (rates["leaf1>spine2"], rates["spine2>leaf1"]) == (100, 400)
    assert (rates["leaf1>spine1"], rates["spine1>leaf2"], rates["leaf1>spine3"]) == (10, 10, 400)
