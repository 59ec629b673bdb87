"""Swift against algorithm 1 of its paper (SIGCOMM 2020), by hand, and on an incast."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.drivers.event_driven import run_event_driven
from rocescope.replay.packets.hosts.congestion import swift
from rocescope.replay.packets.hosts.congestion.algorithm import WINDOW, Heard, Line, congestion
from rocescope.replay.packets.hosts.congestion.swift import CWND, SWIFT
from rocescope.replay.packets.hosts.parameters import Transport
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.model.round_trip import RoundTrips
from rocescope.replay.packets.offers.offered import workload_of
from rocescope.replay.strategies.registry import parse_packet_strategy

MSS, RTT, RATE, HOPS = 4160, 8_000_000, 400_000_000_000, 4
TRIPS = RoundTrips(np.array([RTT]), np.array([RATE]), np.array([HOPS]))
BDP = RATE / 8e12 * RTT / MSS


def target(cwnd: float) -> float:
    alpha = 5 * RTT / (1 / np.sqrt(0.1) - 1 / np.sqrt(100))
    scaling = alpha / np.sqrt(cwnd) - alpha / np.sqrt(100)
    return float(RTT + HOPS * RTT / 6.55 + max(0.0, min(scaling, 5 * RTT)))


@pytest.mark.thorough
def test_grows_below_the_target_and_cuts_once_per_round_trip_above() -> None:
    control = congestion(SWIFT, 1, Line(MSS, TRIPS, False))
    rows, params = control.rows, control.params
    assert rows[0, CWND] == pytest.approx(1.5 * BDP)
    rows[0, CWND] = 50.0
    swift.on_ack(rows, params, Heard(0, 3 * MSS, int(target(50.0)) - 1, 1, HOPS, 10**8))
    assert rows[0, CWND] == pytest.approx(50 + 3 / 50)  # marks do not matter
    before, late = float(rows[0, CWND]), 20_000_000
    excess = (late - target(before)) / late
    for now in (2 * 10**8, 2 * 10**8 + late - 1):
        swift.on_ack(rows, params, Heard(0, MSS, late, 0, HOPS, now))
        assert rows[0, CWND] == pytest.approx(before * (1 - 0.8 * excess))
    swift.on_ack(rows, params, Heard(0, MSS, late, 0, HOPS, 2 * 10**8 + late))
    assert rows[0, CWND] < 0.9 * before
    rows[0, CWND] = 40.0
    swift.on_ack(rows, params, Heard(0, MSS, 10**9, 0, HOPS, 10**10))
    assert rows[0, CWND] == 20.0  # half at most


def test_more_links_and_smaller_windows_may_wait_longer() -> None:
    rows = congestion(SWIFT, 1, Line(MSS, TRIPS, False)).rows
    for cwnd in (0.05, 0.1, 1.0, 100.0, 400.0):
        rows[0, CWND] = cwnd
        assert swift.target_ps(rows, 0, HOPS) == pytest.approx(target(max(0.1, cwnd)))
    assert swift.target_ps(rows, 0, 6) - swift.target_ps(rows, 0, 4) == pytest.approx(
        2 * RTT / 6.55
    )


def test_below_one_packet_the_window_is_a_pace() -> None:
    control = congestion(SWIFT, 1, Line(MSS, TRIPS, False))
    rows, params = control.rows, control.params
    assert swift.on_send(rows, params, 0, MSS, 0) == 0
    for i in range(1, 30):
        swift.on_loss(rows, params, 0, MSS, 0, 10**9 * i)
    assert rows[0, CWND] == 0.01 and rows[0, WINDOW] == MSS
    assert swift.on_send(rows, params, 0, MSS, 0) == 100 * RTT


def test_an_incast_under_swift_has_a_queue_of_its_target() -> None:
    """Without control the queue holds seven of eight windows' worth of every message."""
    fabric = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=9,rate=100G,delay=1us")
    model = Model(pfc=None)
    load = workload_of(np.arange(8), np.full(8, 8), np.full(8, 4 << 20), None, model)  # type: ignore[arg-type]
    free, held = (
        run_event_driven(
            load, fabric, parse_packet_strategy("jsq"), model, transport=Transport(congestion=name)
        ).engine
        for name in ("none", "swift")
    )
    assert free.completion_ps is not None and held.completion_ps is not None
    assert held.completion_ps < 1.05 * free.completion_ps
    assert 20 * int(held.link_max_bytes.max()) < int(free.link_max_bytes.max())
