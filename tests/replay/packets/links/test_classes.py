"""Shares of a link and pauses by class, in closed form; packet by packet in `test_pauses.py`."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.drivers.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.packets.hosts.parameters import Transport
from rocescope.replay.packets.model.classes import TrafficClass
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.model.pfc import Pfc
from rocescope.replay.packets.offers.offered import workload_of
from rocescope.replay.strategies.registry import parse_packet_strategy

FABRIC = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=3,rate=100G,delay=500ns")
SIZE = 400 * 4096


def _two_senders(classes: tuple[TrafficClass, ...], **options: object) -> FeedbackResult:
    """Two hosts send as much to a third one, each in a class of its own."""
    model = Model(classes=classes, pfc=Pfc(**options))  # type: ignore[arg-type]
    load = workload_of(
        np.array([0, 1]), np.array([2, 2]), np.full(2, SIZE), None, model  # type: ignore[arg-type]
    )._replace(priority=np.array([0, 1], np.uint8))  # fmt: skip
    strategy = parse_packet_strategy("switch-random")
    transport = Transport(recovery="sack", rto_ps=30_000_000)
    return run_event_driven(load, FABRIC, strategy, model, 1, transport=transport)


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (7, 2)])
def test_weights_share_a_link(weights: tuple[int, int]) -> None:
    """The heavier class has its share of the line, and is done when that has carried its data."""
    classes = TrafficClass("a", weights[0]), TrafficClass("b", weights[1])
    done = _two_senders(classes).engine.completed_ps
    line = 400 * 4160 * 80 / 1e6  # us
    assert done[0] / 1e6 == pytest.approx(line * sum(weights) / weights[0], rel=0.03)
    assert max(done) / 1e6 == pytest.approx(2 * line, rel=0.02)


def test_a_class_that_cannot_send_saves_nothing_at_its_host() -> None:
    """A flow of class `a` waits for ACKs most of the time. When more flows of `a` begin, they have
    half of the line, not what `a` did not use before."""
    model = Model(classes=(TrafficClass("a", 1), TrafficClass("b", 1)))
    packets = np.array([60, *[10] * 20, *[60] * 20])
    release = np.array([0, *[150_000_000] * 20, *[0] * 20])
    load = workload_of(
        np.zeros(41, np.int64), np.ones(41, np.int64), packets * 4096, None, model,  # type: ignore[arg-type]
        release_ps=release,
    )._replace(priority=np.repeat(np.array([0, 1], np.uint8), (21, 20)))  # fmt: skip
    strategy, transport = parse_packet_strategy("switch-random"), Transport(mpr_packets=1)
    done = run_event_driven(load, FABRIC, strategy, model, 1, transport=transport)
    late = (done.engine.completed_ps[1:21].max() - 150_000_000) / 1e6
    assert late == pytest.approx(2 * 200 * 4160 * 80 / 1e6, rel=0.1)


def test_a_class_without_a_weight_comes_first() -> None:
    found = _two_senders((TrafficClass("first"), TrafficClass("rest", 1)), xoff_bytes=20_000)
    done, pauses = found.engine.completed_ps, found.engine.pauses
    line = 400 * 4160 * 80 / 1e6
    assert done[0] / 1e6 == pytest.approx(line, rel=0.03)
    assert done[1] / 1e6 == pytest.approx(2 * line, rel=0.02)
    assert pauses is not None and not found.engine.link_drops.any()
    by_class = pauses.pauses.reshape(-1, 2).sum(0)
    assert by_class[0] == 0 and by_class[1] > 0  # only the class that waits is paused


def test_a_class_that_is_not_lossless_is_dropped_and_not_paused() -> None:
    classes = TrafficClass("data", 1), TrafficClass("lossy", 1, lossless=False, xoff_bytes=20_000)
    found = _two_senders(classes, xoff_bytes=20_000)
    pauses = found.engine.pauses
    assert pauses is not None and (found.engine.completed_ps >= 0).all()
    by_class = pauses.pauses.reshape(-1, 2).sum(0)
    assert by_class[0] > 0 and by_class[1] == 0
    assert found.engine.link_drops.any() and not pauses.no_room.any()
    tally = found.tally
    assert tally.data_sent == tally.data_received + tally.data_lost + found.data_under_way


def test_quanta_end_a_pause_that_is_not_repeated_in_time() -> None:
    """Frames are repeated at half of their quanta, which still come in time; with a quantum that
    is shorter than the cable, pauses end before they are repeated, and the headroom overflows."""
    classes = TrafficClass("a", 1), TrafficClass("b", 1)
    ample = _two_senders(classes, xoff_bytes=20_000, quanta=1000).engine
    plain = _two_senders(classes, xoff_bytes=20_000).engine
    assert ample.pauses is not None and plain.pauses is not None
    assert ample.completed_ps.tolist() == plain.completed_ps.tolist()
    assert ample.pauses.pauses.tolist() == plain.pauses.pauses.tolist()
    assert not ample.link_drops.any()
    brief = _two_senders(classes, xoff_bytes=20_000, quanta=1).engine
    assert brief.pauses is not None and brief.pauses.frames.sum() > plain.pauses.frames.sum()


def test_a_long_pause_is_a_storm() -> None:
    classes = TrafficClass("first"), TrafficClass("rest")
    found = _two_senders(classes, xoff_bytes=20_000, storm_ps=50_000_000).engine.pauses
    assert found is not None
    assert (found.longest_ps[found.storm_ps >= 0] >= 50_000_000).all()
    stormy = np.flatnonzero(found.storm_ps >= 0)
    assert [FABRIC.link_name(int(row) // 2) for row in stormy] == ["host2>leaf1"]
    assert (stormy % 2 == 1).all()
    calm = _two_senders(classes, xoff_bytes=20_000).engine.pauses
    assert calm is not None and (calm.storm_ps < 0).all()
