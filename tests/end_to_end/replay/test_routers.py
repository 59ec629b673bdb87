"""The hash model against what our own probes see on every uplink of a real router."""

from __future__ import annotations

import numpy as np
import pytest
from examples import thorough
from network import Watched
from router_namespaces import LeafSpine, ip, leaf_spine

from rocescope.probes.live import LiveOptions, LiveSource
from rocescope.replay.hashing.keys import PacketKeys
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.settings import Group, HashSettings, equal_cost

from .test_linux_router import SEEDS, bucket_table, flows, need_seed_sysctl

pytestmark = pytest.mark.usefixtures("root")


def check_by_probes(fabric: LeafSpine, leaf: int, keys: PacketKeys, group: Group) -> None:
    """Every packet is seen leaving by the predicted uplink, once, and none is lost."""
    interfaces = [f"{fabric.leaf(leaf)}:{uplink}" for uplink in fabric.uplinks]
    source = LiveSource(interfaces, LiveOptions(ring_bytes=1 << 20))
    with Watched(source) as seen:
        fabric.uplinks_taken(leaf, keys)
    out = {
        tap: fabric.uplinks.index(item.name.split(":")[1].removesuffix(" out"))
        for tap, item in enumerate(source.registry.taps.items)
        if item.name.endswith(" out")
    }
    assert (source.loss().ring_full, sorted(out.values())) == (0, [0, 1, 2, 3])
    taken = np.full(keys.units, -1)
    for psn, tap in zip(seen.column("psn"), seen.column("tap"), strict=True):
        if tap in out:
            assert taken[psn] == -1
            taken[psn] = out[tap]
    predicted = bind(keys, HashSettings("linux")).choose(SEEDS[leaf], group)[0]
    np.testing.assert_array_equal(taken, predicted)
    assert len(np.unique(predicted)) > 1


@pytest.mark.thorough
@pytest.mark.parametrize("family", [4, *thorough([6])])
def test_probes_on_the_uplinks_see_every_packet_where_it_was_predicted(family: int) -> None:
    """A seed per leaf, weights, a link down, and a resilient nexthop group."""
    need_seed_sysctl()
    keys = flows(1, 2, 3000, family, seed=9)
    with leaf_spine(2, 4) as fabric:
        for leaf in fabric.leaves:
            fabric.hash_by(leaf, 1, SEEDS[leaf])
        check_by_probes(fabric, 1, keys, equal_cost(4))
        check_by_probes(fabric, 2, flows(2, 1, 3000, family), equal_cost(4))
        fabric.set_routes(1, (10, 1, 1, 7))
        check_by_probes(fabric, 1, keys, Group(np.array([10, 1, 1, 7])))
        fabric.set_routes(1)
        fabric.link_down(1, 3)
        check_by_probes(fabric, 1, keys, Group(np.array([1, 1, 0, 1])))
        fabric.link_up(1, 3)
        leaf = fabric.leaf(1)
        hops = [
            f"nexthop add id {s} via {fabric.via(1, s, family)} dev up{s}" for s in (1, 2, 3, 4)
        ]
        ip([*hops, "nexthop add id 10 group 1,3/2,1/3,4/4,1 type resilient buckets 64"], leaf)
        ip([f"route replace {fabric.remote_prefixes(1, family)[0]} nhid 10"], leaf)
        check_by_probes(fabric, 1, keys, Group(np.array([3, 1, 4, 1]), bucket_table(leaf)))
