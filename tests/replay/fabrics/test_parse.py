"""Spec strings: sizes, wiring, rates, and one clear line for every impossible value."""

from __future__ import annotations

import numpy as np
import pytest
from fabric_walking import next_nodes
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.words import parse_rate
from rocescope.replay.fabrics.parameters import (
    COUNT,
    RATE_AND_DELAY,
    UPLINKS,
    Parameter,
    checked,
    rate_text,
    split_options,
)
from rocescope.replay.fabrics.parse import KINDS, parameter_help, parse_fabric

# Spec strings: sizes, wiring, rates, and one clear line for every impossible value.


def rates(fabric, layer):
    here = fabric.links.layer == fabric.layers.index(layer)
    return set((fabric.links.rate_bits_per_second[here] // 10**9).tolist())


def test_leaf_spine():
    fabric = parse_fabric("leaf-spine:leaves=8,spines=16,hosts=16,rate=800G,delay=1us")
    assert (fabric.hosts, fabric.switches, len(fabric.links.source)) == (128, 24, 2 * (128 + 128))
    assert fabric.layers == ("host-leaf", "leaf-host", "leaf-spine", "spine-leaf")
    assert next_nodes(fabric, "leaf3", "host1") == [f"spine{i}" for i in range(1, 17)]
    assert next_nodes(fabric, "spine5", "host17") == ["leaf2"]
    assert rates(fabric, "leaf-spine") == rates(fabric, "host-leaf") == {800}
    assert set(fabric.links.delay_ns.tolist()) == {1000}


def test_fat_tree_of_the_paper():
    fabric = parse_fabric("fat-tree:k=8")
    assert (fabric.hosts, fabric.switches) == (128, 80)
    tiers = fabric.nodes.tier
    assert [int((tiers == t).sum()) for t in range(4)] == [128, 32, 32, 16]
    # In the pod over its four spines, elsewhere too; a spine's cores are the same in every pod.
    assert next_nodes(fabric, "leaf1", "host5") == ["spine1", "spine2", "spine3", "spine4"]
    assert next_nodes(fabric, "spine2", "host128") == ["core5", "core6", "core7", "core8"]
    assert next_nodes(fabric, "core5", "host128") == ["spine30"]


def test_multi_plane_planes_never_cross():
    fabric = parse_fabric("multi-plane:planes=4,leaves=2,spines=2,hosts=3,rate=100G")
    plane = fabric.nodes.plane
    between = (fabric.links.source < fabric.switches) & (fabric.links.target < fabric.switches)
    assert (plane[fabric.links.source[between]] == plane[fabric.links.target[between]]).all()
    assert fabric.attachments.switch.shape == (6, 4)
    assert (plane[fabric.attachments.switch] == np.arange(4)).all()
    assert next_nodes(fabric, "plane3.leaf1", "host4") == ["plane3.spine1", "plane3.spine2"]


def test_rail_wires_the_same_nic_of_every_server_to_one_leaf():
    fabric = parse_fabric("rail:rails=4,servers=3,pods=2,spines=2")
    leaf = fabric.nodes.names.index("pod2.rail3")
    hosts = np.flatnonzero(fabric.attachments.switch[:, 0] == leaf)
    assert [fabric.host_name(int(h)) for h in hosts] == [
        "server4.nic3",
        "server5.nic3",
        "server6.nic3",
    ]
    assert next_nodes(fabric, "pod1.rail1", "server1.nic2") == ["spine1", "spine2"]


@pytest.mark.parametrize(
    ("options", "uplink"),
    [
        ("hosts=8,spines=4,oversubscription=2", 400),  # 8 x 400 / (2 x 4)
        ("hosts=8,spines=4,uplinks=2,oversubscription=1", 400),
        ("hosts=8,uplink_rate=1.6T", 1600),
        ("hosts=8", 400),
    ],
)
def test_uplink_rates(options, uplink):
    assert rates(parse_fabric(f"leaf-spine:{options}"), "leaf-spine") == {uplink}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("leaf-spine:leaves=0", "leaves '0' is not a whole number from 1 to"),
        ("leaf-spine:leaves=-1", "leaves '-1' is not a whole number"),
        ("leaf-spine:leaves=1e3", "leaves '1e3' is not a whole number"),
        ("leaf-spine:leaves=99999999999999999999", "leaves '99999999999999999999' is not"),
        (
            "leaf-spine:leaf=2",
            "no parameter 'leaf' at column 12; did you mean leaves? It has leaves",
        ),
        ("leaf-spine:leaves", "'leaves' is not key=value"),
        ("leaf-spine:leaves=2,leaves=3", "leaves is given twice"),
        ("leaf-spine:rate=400", "rate '400' has no unit"),
        ("leaf-spine:rate=fast", "rate 'fast' is not a rate"),
        ("leaf-spine:rate=0G", "rate must be more than 0"),
        ("leaf-spine:delay=5", "delay '5' has no unit"),
        ("leaf-spine:oversubscription=0", "is not a ratio above 0"),
        ("leaf-spine:oversubscription=nan", "is not a ratio above 0"),
        ("leaf-spine:oversubscription=2,uplink_rate=1G", "cannot be combined"),
        ("leaf-spine:leaves=65536,hosts=16384", "hosts exceed the maximum"),
        ("leaf-spine:leaves=65536,spines=16384,hosts=1", "fit into memory"),
        ("leaf-spine:down=leaf9-spine1", "no link or node is called 'leaf9-spine1'"),
        ("leaf-spine:slow=leaf1-spine1", "has no rate; write slow="),
        ("fat-tree:k=7", "k must be even, not 7"),
        ("fat-tree:k=2000", "k '2000' is not a whole number from 2 to"),
        ("rail:spines=0,pods=2", "the pods are not connected"),
        ("torus:k=3", "is not a fabric: give leaf-spine, fat-tree"),
        ("nowhere.yaml", "there is no file nowhere.yaml"),
        ("linux:nowhere", "there is no file nowhere"),
    ],
)
def test_impossible_specs_name_what_is_wrong(spec, message):
    with pytest.raises(UsageError) as error:
        parse_fabric(spec)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_help_names_every_parameter(kind):
    text = parameter_help(kind)
    for key in (*KINDS[kind].parameters, "down", "slow"):
        assert f"  {key} " in text


def test_a_fabric_of_131072_nics_is_described_in_bounded_memory():
    fabric = parse_fabric("multi-plane:planes=2,leaves=512,spines=4,hosts=256")
    assert fabric.hosts == 131_072
    arrays = (*fabric.links, *fabric.attachments, *fabric.forwarding[:4])
    assert sum(a.nbytes for a in arrays) < 60 << 20


# Parameters of a fabric in a spec.

PARAMETERS = {"leaves": Parameter(COUNT, 2, "leaves", most=8), **RATE_AND_DELAY, **UPLINKS}


def test_changes_are_apart_and_add_up():
    text = "leaves=4, down=leaf1-spine2+host1,slow=a-b:100G+c>d:1.6T,down=7,"
    options, changes = split_options(text, "leaf-spine")
    assert options == {"leaves": "4"}
    assert changes.down == ("leaf1-spine2", "host1", "7")
    assert changes.slow == (("a-b", 100 * 10**9), ("c>d", 1600 * 10**9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("leaves", "'leaves' is not key=value"),
        ("leaves=1,leaves=2", "leaves is given twice"),
        ("slow=leaf1-spine2", "slow=leaf1-spine2 has no rate"),
        ("slow=leaf1-spine2:fast", "slow=leaf1-spine2"),
    ],
)
def test_mistakes_in_the_text(text, message):
    with pytest.raises(UsageError, match=f"leaf-spine: {message}"):
        split_options(text, "leaf-spine")


def test_values_and_defaults():
    values = checked("x", {"leaves": "8", "delay": "0", "rate": "1.5G"}, PARAMETERS)
    assert [values.count(key) for key in ("leaves", "delay", "rate")] == [8, 0, 1_500_000_000]
    assert values.uplink_rate(10**12, 4) == 1_500_000_000
    four = checked("x", {"oversubscription": "4:1"}, PARAMETERS)
    assert four.uplink_rate(10**12, 5) == 50 * 10**9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leafs": "1"}, "x has no parameter 'leafs'; .*leaves"),
        ({"leaves": "9"}, "x: leaves '9' is not a whole number from 1 to 8"),
        ({"leaves": "-1"}, "x: leaves '-1' is not a whole number"),
        ({"leaves": "²"}, "x: leaves '²' is not a whole number"),
        ({"rate": "fast"}, "x: .*rate"),
        ({"oversubscription": "0"}, "x: oversubscription '0' is not a ratio above 0"),
        ({"oversubscription": "inf"}, "x: oversubscription 'inf' is not a ratio"),
    ],
)
def test_mistakes_in_values(options, message):
    with pytest.raises(UsageError, match=message):
        checked("x", options, PARAMETERS)


def test_two_ways_to_give_the_rate_of_uplinks():
    both = checked("x", {"oversubscription": "2", "uplink_rate": "1G"}, PARAMETERS)
    with pytest.raises(UsageError, match="uplink_rate cannot be combined with oversubscription"):
        both.uplink_rate(10**12, 4)
    with pytest.raises(UsageError, match="leaves no uplink rate"):
        checked("x", {"oversubscription": "999999"}, PARAMETERS).uplink_rate(10**5, 4)


@given(st.integers(1, 10**15))
def test_a_rate_is_read_as_it_is_written(rate):
    assert parse_rate(rate_text(rate), "rate") == rate
