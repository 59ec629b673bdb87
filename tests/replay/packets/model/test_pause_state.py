"""Buffers of switches before the first packet."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.failures.changes import LINK_DOWN, LINK_RATE
from rocescope.replay.packets.failures.schedule import Scheduled
from rocescope.replay.packets.model import pause_state as ps
from rocescope.replay.packets.model.arrays import fabric_arrays
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.model.pause_state import Pauses, new_pauses, reverse_links
from rocescope.replay.packets.model.pfc import Pfc
from rocescope.replay.packets.model.wheel import new_wheel

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=3,uplinks=2,rate=100G,delay=500ns")
"""A leaf has seven ports of 100 Gb/s."""


def _new(
    pfc: Pfc,
    flows: int = 3,
    rows: Sequence[tuple[int, int, int, int]] = (),
    ecn: int | None = None,
    fabric: Fabric = FABRIC,
) -> Pauses:
    arrays = fabric_arrays(fabric)
    source = fabric.links.source
    plan = Scheduled(fabric, arrays.route[None], np.array(rows, np.int64).reshape(-1, 4))
    rates = plan.rates(arrays.ps_per_byte_q20)
    wheel, names = new_wheel(1, 1, 1), fabric.nodes.names
    model = Model(pfc=pfc, ecn_low_bytes=ecn, ecn_high_bytes=ecn)
    return new_pauses(arrays, source, model, 4160, flows, wheel, rates, names)


def test_parallel_cables_keep_their_order() -> None:
    source, target = FABRIC.links.source, FABRIC.links.target
    back = reverse_links(source, target)
    assert (source[back] == target).all() and (target[back] == source).all()
    assert (back[back] == np.arange(len(back))).all()
    one_way = reverse_links(source[:1], target[:1])
    assert one_way.tolist() == [-1]


def test_headroom_is_taken_from_the_buffer() -> None:
    needed = 4 * 4160 + 64 + (2 * 500_000 + 100_000) // 80 + 1
    pauses = _new(Pfc())
    into = FABRIC.links.target < FABRIC.switches
    assert (pauses.rows["room"][into] == needed).all()
    assert (pauses.rows["room"][~into] == 0).all()
    assert pauses.pools["size"][0] == 7 * 100 * 3_200 - 7 * needed
    assert pauses.held.shape == (len(into), 3)


def test_slow_links_have_room_for_packets() -> None:
    """Ports of 100 Mb/s: 3.2 kB per Gb/s is less than one packet."""
    slow = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=3,uplinks=2,rate=100M,delay=500ns")
    pauses = _new(Pfc(), fabric=slow)
    assert pauses.pools["size"][0] + 7 * pauses.rows["room"][0] == 7 * 16 * 4160


def test_headroom_is_enough_for_every_rate_of_its_cable() -> None:
    link = int(FABRIC.find_links("leaf1>spine1")[0])
    back = int(_new(Pfc()).rows["reverse"][link])
    ways = ((800, 100), (100, 10))  # rates of the link and of the frames at some time, Gb/s
    for forward, frames in ways:
        q20 = [round(8e3 * (1 << 20) / rate) for rate in (forward, frames)]
        rows = [(7, LINK_RATE, link, q20[0]), (8, LINK_RATE, back, q20[1]), (9, LINK_DOWN, 0, 0)]
        needed = 4 * 4160 + 64 + 1_100_000 * forward // 8000 + 1
        needed += int((forward / frames - 1) * (4160 + 64))
        pauses = _new(Pfc(), rows=rows)
        assert pauses.rows["needed"][link] == pauses.rows["room"][link] == needed
        short = _new(Pfc(headroom_bytes=20_000), rows=rows).rows[link]
        assert short["room"] == 20_000 and short["needed"] == needed


def test_victims_of_very_many_flows_are_not_counted() -> None:
    assert _new(Pfc(), ps.MOST_CELLS).held.shape == (1, 1)


@pytest.mark.parametrize(
    ("pfc", "words"),
    [
        (
            Pfc(shared_bytes=100_000),
            "leaf1: .*headroom of 7 ports, with links of up to 0.5 us, takes",
        ),
        (Pfc(xoff_bytes=10**7), "xoff .* exceeds the shared buffer.*--lossless pfc:xoff="),
        (Pfc(xon_bytes=10**7), "xon .* exceeds the shared buffer.*--lossless pfc:xon="),
        (Pfc(headroom_bytes=10**6), "is too small: .*pfc:buffer=16MB.*smaller headroom="),
    ],
)
def test_thresholds_must_fit_the_buffer(pfc: Pfc, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _new(pfc)


def test_the_buffer_that_an_error_names_is_enough() -> None:
    long = parse_fabric("leaf-spine:leaves=4,spines=2,hosts=2,rate=100G,delay=100us")
    with pytest.raises(UsageError, match=r"leaf1: .*pfc:buffer=(\d+)MB\)$") as caught:
        _new(Pfc(), fabric=long)
    found = re.search(r"buffer=(\d+)MB", str(caught.value))
    assert found is not None
    _new(Pfc(shared_bytes=int(found[1]) * 10**6), fabric=long)


def test_marks_that_never_come_are_an_error() -> None:
    free = int(_new(Pfc()).pools["size"].min())
    _new(Pfc(), ecn=free)
    with pytest.raises(UsageError, match=r"spine1: Kmin of --model ecn= .* exceeds .*pfc:buffer="):
        _new(Pfc(), ecn=free + 1)
