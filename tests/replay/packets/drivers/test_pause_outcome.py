"""Victims of pauses, and deadlocks, on fabrics where they can be told in advance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.drivers.event_driven import run_event_driven
from rocescope.replay.packets.drivers.pause_outcome import _circle
from rocescope.replay.packets.model.model import EngineResult, Model
from rocescope.replay.packets.model.pfc import PauseOutcome, Pfc
from rocescope.replay.packets.offers.offered import workload_of
from rocescope.replay.packets.run import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

RING = """
name: ring
defaults: {rate: 100G, delay: 500ns}
nodes:
  s1: {tier: 1}
  s2: {tier: 1}
  s3: {tier: 1}
  h1: {kind: host}
  h2: {kind: host}
  h3: {kind: host}
links: [[h1, s1], [h2, s2], [h3, s3], [s1, s2], [s2, s3], [s3, s1]]
routes:
  s1: {h1: [h1], h2: [s2], h3: [s2]}
  s2: {h1: [s3], h2: [h2], h3: [s3]}
  s3: {h1: [s1], h2: [s1], h3: [h3]}
"""


def _run(
    fabric: Fabric, model: Model, src: ArrayLike, dst: ArrayLike, size: int
) -> tuple[EngineResult, PauseOutcome]:
    many = np.full(len(np.asarray(src)), size)
    load = workload_of(np.asarray(src), np.asarray(dst), many, None, model)  # type: ignore[arg-type]
    result = run_packets(load, fabric, parse_packet_strategy("switch-random"), model, 1)
    assert result.pauses is not None
    return result, result.pauses


@pytest.mark.parametrize(("xoff", "locks"), [(20_000, True), (10_000_000, False)])
def test_a_circle_of_waits_is_named(tmp_path: Path, xoff: int, locks: bool) -> None:
    """Three flows, each over two links of a ring: with small buffers each link waits for the next.
    With buffers for everything in flight nothing waits."""
    (tmp_path / "ring.yaml").write_text(RING)
    fabric = parse_fabric(str(tmp_path / "ring.yaml"))
    model = Model(pfc=Pfc(xoff_bytes=xoff, shared_bytes=20_000_000))
    result, pauses = _run(fabric, model, [0, 1, 2], [2, 0, 1], 1_000_000)
    assert not result.link_drops.any()
    names = [fabric.link_name(link) for link in pauses.deadlock]
    if locks:
        assert result.completion_ps is None
        at = names.index("s1>s2")
        assert names[at:] + names[:at] == ["s1>s2", "s2>s3", "s3>s1"]
        assert (pauses.paused_ps[list(pauses.deadlock)] > 0).all()
        # These pauses never end, so they are storms, however soon nothing more happened.
        assert pauses.endless[list(pauses.deadlock)].all()
        assert (pauses.storm_ps[pauses.endless] >= pauses.storm_after_ps).all()
    else:
        assert result.completion_ps is not None and not names and not pauses.endless.any()


def test_the_victim_of_an_incast_shares_its_fate() -> None:
    """Seven hosts send to one; the eighth host of their leaf sends to an idle host. Without PFC it
    is as fast as alone; with PFC it waits for the pauses of its leaf's only uplink: the closed form
    of head-of-line blocking is an eighth of the incast's rate, so they end together."""
    fabric = parse_fabric(
        "leaf-spine:leaves=2,spines=1,hosts=8,rate=100G,delay=500ns,uplink_rate=800G"
    )
    src, dst, size = range(8), [8] * 7 + [9], 512_000
    assert _alone(fabric, size) < 1.2 * size * 80
    result, pauses = _run(fabric, Model(pfc=Pfc(xoff_bytes=20_000)), src, dst, size)
    ends = result.completed_ps
    assert ends[7] > 0.9 * ends[:7].max() > 5 * _alone(fabric, size)
    assert [fabric.link_name(int(x)) for x in np.flatnonzero(pauses.roots)] == ["leaf2>host9"]
    assert pauses.victims is not None and pauses.victim_flows == 1
    paused = {fabric.link_name(int(x)) for x in np.flatnonzero(pauses.pauses)}
    assert {"spine1>leaf2", "leaf1>spine1", "host8>leaf1"} <= paused  # three hops back
    at = fabric.find_links("host8>leaf1")[0]
    assert pauses.victims[at] == 1 and pauses.victims[fabric.find_links("host1>leaf1")[0]] == 0
    assert (pauses.longest_ps <= pauses.paused_ps).all() and not pauses.no_room.any()


def test_a_circle_at_the_time_limit_may_pass(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text(RING)
    fabric = parse_fabric(str(tmp_path / "ring.yaml"))
    model = Model(pfc=Pfc(xoff_bytes=20_000, shared_bytes=20_000_000))
    src, dst = np.array([0, 1, 2]), np.array([2, 0, 1])
    load = workload_of(src, dst, np.full(3, 1_000_000), None, model)  # type: ignore[arg-type]
    strategy = parse_packet_strategy("switch-random")
    whole = run_event_driven(load, fabric, strategy, model, 1).engine
    assert whole.pauses is not None and whole.pauses.deadlock and not whole.pauses.may_pass
    assert not whole.out_of_time
    early = run_event_driven(load, fabric, strategy, model, 1, until_ps=10_000_000).engine
    assert early.pauses is not None and early.out_of_time and early.pauses.may_pass
    assert not early.pauses.endless.any()


def _alone(fabric: Fabric, size: int) -> int:
    """Completion of the victim without the incast."""
    result, pauses = _run(fabric, Model(pfc=Pfc()), [7], [9], size)
    assert not pauses.pauses.any() and pauses.victim_flows == 0
    return int(result.completion_ps or 0)


def test_circles() -> None:
    assert _circle({}) == ()
    assert _circle({1: [2], 2: [3], 3: []}) == ()
    assert _circle({1: [2], 2: [3], 3: [2]}) == (2, 3)
    assert _circle({4: [4]}) == (4,)
    assert _circle({1: [2, 3], 2: [], 3: [5], 5: [1]}) == (1, 3, 5)
