"""Hops with one fault."""

from __future__ import annotations

import numpy as np
import pytest
from fabric_captures import MS

from rocescope.analyzer.diagnosis.hop_groups import groups, hits_by_flow
from rocescope.analyzer.measures.hops import state
from rocescope.analyzer.measures.hops.hops import LOST, TapHop, TapHops
from rocescope.analyzer.measures.hops.state import DELAY_LEAST, DELAY_MOST, PACKETS_IN, WINDOWS
from rocescope.analyzer.measures.hops.vantage import device_between

NAMED = ["H1-leaf1", "H2-leaf1", "leaf1-spine1", "leaf1-spine2", "leaf2-spine1", "H3-leaf2"]
NAMELESS = list("abcdef")
WIDTH = MS


def ways(hops, names=NAMED):
    devices = {
        (hop.from_tap, hop.to_tap): device
        for hop in hops
        if hop.to_tap >= 0 and (device := device_between(names[hop.from_tap], names[hop.to_tap]))
    }
    return TapHops(
        hops=hops,
        missed=[],
        visits=np.zeros(0, state.VISIT),
        window_ns=WIDTH,
        origin_ns=0,
        newest_ns=WINDOWS * WIDTH,
        undecided=0,
        elsewhere=0,
        hurried=0,
        names=list(names),
        devices=devices,
    )


def grouped(taps, names=NAMED):
    """The groups of hops between these taps, as sets; with name, way and direction."""
    found = groups(ways([TapHop(*pair) for pair in taps], names), lambda hop: True)
    return [
        ({(hop.from_tap, hop.to_tap) for hop in group.hops}, group.name(), group.way())
        for group in found
    ]


@pytest.mark.parametrize(
    ("taps", "name", "way"),
    [
        ([(2, 4)], "spine1", " from leaf1 to leaf2"),
        ([(0, 2), (1, 2)], "leaf1", " towards leaf1-spine1"),
        ([(0, 2), (0, 3)], "leaf1", " from H1-leaf1"),
        ([(0, 2), (0, 3), (1, 2)], "leaf1", ""),
        ([(0, 4)], "the network between H1-leaf1 and leaf2-spine1", ""),
        ([(0, 4), (1, 4)], "the network between 2 taps and leaf2-spine1", ""),
        ([(0, 4), (0, 5)], "the network between H1-leaf1 and 2 taps", ""),
        ([(0, -1)], "the network after H1-leaf1", ""),
    ],
)
def test_hops_of_one_fault(taps, name, way):
    assert grouped(taps) == [(set(taps), name, way)]


@pytest.mark.parametrize(
    "taps",
    [
        [(2, 4), (4, 2)],  # both directions of a spine
        [(0, 2), (2, 4)],  # one after the other
        [(0, 2), (2, 0)],
        [(0, 2), (1, 3)],  # neither begin nor end together
    ],
)
@pytest.mark.parametrize("names", [NAMED, NAMELESS])
def test_hops_of_two_faults(taps, names):
    assert [hops for hops, _, _ in grouped(taps, names)] == [{pair} for pair in taps]


def test_names_that_a_terminal_would_obey_are_escaped():
    (group,) = groups(ways([TapHop(0, 1)], ["\x1b[31ma", "b"]), lambda hop: True)
    assert "\x1b" not in group.name()


def test_packets_of_a_flow_on_several_hops_add_up():
    assert hits_by_flow(np.array([3, 5, 3, 7]), np.array([1, 2, 4, 0])) == {3: 5, 5: 2}


def hop(taps, delays):
    """A hop with one (least, longest) delay per window, None for windows without packets."""
    windows = np.zeros((WINDOWS, state.WINDOW_VALUES), np.int64)
    for at, delay in enumerate(delays):
        if delay is not None:
            windows[at, [PACKETS_IN, DELAY_LEAST, DELAY_MOST]] = 1, *delay
    whole = np.zeros(1, state.EDGE)[0]
    whole["delay_min"] = min(delay[0] for delay in delays if delay is not None)
    return TapHop(*taps, total=whole, windows=windows)


def test_the_span_of_a_queue_is_that_of_its_windows():
    made = ways([hop((2, 4), [(5, 9)] * 10 + [(5, 900)] * 3 + [(5, 9)] * 10)])
    (group,) = groups(made, lambda hop: True)
    assert group.queues(500) == [(10 * WIDTH, 13 * WIDTH)]
    assert group.queues(5_000) == []


def with_flows(taps, *flows):
    passed = np.zeros(len(flows), state.EDGE)
    passed["flow"] = flows
    return TapHop(*taps, passed=passed)


@pytest.mark.parametrize(
    ("hops", "joined"),
    [
        # leaf2-spine2 has no tap: what comes from leaf1-spine2 ends at H3 as well
        ([((4, 5), 1), ((3, 5), 2)], True),
        ([((0, 2), 1), ((0, 5), 2)], True),
        # the packets continue through leaf1: the hop ends before it
        ([((0, 2), 1), ((4, 2), 2), ((2, 1), 2)], False),
        ([((2, 0), 1), ((2, 4), 2), ((1, 2), 2)], False),
        ([((4, 5), 1), ((0, 2), 2)], False),
    ],
)
def test_a_hop_over_several_devices_belongs_to_the_one_at_its_end(hops, joined):
    made = ways([with_flows(taps, flow) for taps, flow in hops])
    two = {taps for taps, _ in hops[:2]}
    hit = [{(h.from_tap, h.to_tap) for h in g.hops} for g in groups(made, lambda h: True)]
    assert (two in hit) == joined


def losing(taps, flow, *times):
    hop = with_flows(taps, flow)
    hop.lost = np.zeros(len(times), LOST)
    hop.lost["flow"], hop.lost["time"] = flow, times
    return hop


@pytest.mark.parametrize(("times", "joined"), [((5, 9), True), ((20, 30), False)])
def test_losses_at_other_times_are_another_fault(times, joined):
    made = ways([losing((4, 5), 1, 1, 10), losing((3, 5), 2, *times)])
    found = groups(made, lambda hop: True)
    assert (len(found) == 1) == joined
    assert found[0].device == "leaf2"
    assert found[0].name() == "leaf2"


def swallowing(tap, *times):
    """A hop from a tap to an unknown one; other packets from there pass leaf1."""
    hop = losing((tap, -1), tap, *times)
    hop.lost["hop_limit"] = 64
    beside = TapHop(tap, 2, total=np.zeros(1, state.EDGE)[0])
    beside.total["limit_min"] = beside.total["limit_max"] = 64
    return hop, beside


@pytest.mark.parametrize(("times", "joined"), [((5, 9), True), ((20, 30), False)])
def test_losses_of_one_device_on_unknown_ways_are_one_fault(times, joined):
    (one, passed), (other, beside) = swallowing(0, 1, 10), swallowing(1, *times)
    made = ways([one, other, passed, beside])
    found = groups(made, lambda hop: len(hop.lost) > 0)
    assert (len(found) == 1) == joined
    assert {group.name() for group in found} == {"leaf1"}


@pytest.mark.parametrize("second", [None, (4, 0)])
def test_losses_on_an_unknown_way_join_the_only_other_fault_of_the_device(second):
    one, passed = swallowing(0, 1, 10)
    hops = [one, passed, losing((1, 3), 1, 4, 5)]
    if second is not None:
        hops.append(losing((2, 0), 2, 4, 5))
    found = groups(ways(hops), lambda hop: len(hop.lost) > 0)
    assert len(found) == (1 if second is None else 3)
