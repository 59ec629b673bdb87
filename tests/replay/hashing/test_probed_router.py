"""The hash model against what our own probes see on every uplink of a real router."""

from __future__ import annotations

import os

import numpy as np
import pytest
from router_namespaces import leaf_spine

from rocescope.probes.live import LiveOptions, LiveSource
from rocescope.replay.hashing import HashSettings, bind, equal_cost

from ...probes.network import Watched
from .test_linux_router import SEEDS, flows, need_seed_sysctl

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces take root")


@pytest.mark.parametrize("family", [4, 6])
def test_probes_on_the_uplinks_see_every_packet_where_it_was_predicted(family: int) -> None:
    need_seed_sysctl()
    keys = flows(1, 2, 3000, family, seed=9)
    with leaf_spine(2, 4) as fabric:
        fabric.hash_by(1, 1, SEEDS[1])
        interfaces = [f"{fabric.leaf(1)}:{uplink}" for uplink in fabric.uplinks]
        source = LiveSource(interfaces, LiveOptions(ring_bytes=1 << 20))
        with Watched(source) as seen:
            fabric.uplinks_taken(1, keys)
        names = [tap.name for tap in source.taps.items]
        loss = source.loss()
    out = {
        tap: fabric.uplinks.index(name.split(":")[1].removesuffix(" out"))
        for tap, name in enumerate(names)
        if name.endswith(" out")
    }
    assert (loss.ring_full, sorted(out.values())) == (0, [0, 1, 2, 3])
    taken = np.full(keys.units, -1)
    for psn, tap in zip(seen.column("psn"), seen.column("tap"), strict=True):
        if tap in out:
            assert taken[psn] == -1
            taken[psn] = out[tap]
    predicted = bind(keys, HashSettings("linux")).choose(SEEDS[1], equal_cost(4))[0]
    np.testing.assert_array_equal(taken, predicted)
    assert len(np.unique(predicted)) == 4
