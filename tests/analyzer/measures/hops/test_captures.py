"""Lost packets that a tap with gaps may have seen are unknown; others stay lost."""

from __future__ import annotations

import numpy as np

from rocescope.analyzer.measures.hops import captures as module
from rocescope.analyzer.measures.hops.hops import GRACE_NS, LOST, TapHop, TapHops
from rocescope.analyzer.measures.hops.state import EDGE, VISIT
from rocescope.analyzer.wire.taps import Gap

BEGIN, END, DELAY = 1_000_000_000, 2_000_000_000, 5_000_000
GAP = Gap(BEGIN, END, "a file is missing")


def way(from_tap, to_tap, passed=(), lost=()):
    """passed: flows; lost: (flow, time)."""
    edges, packets = np.zeros(len(passed), EDGE), np.zeros(len(lost), LOST)
    edges["flow"] = passed
    for packet, (flow, time) in zip(packets, lost, strict=True):
        packet["flow"], packet["time"] = flow, time
    whole = np.zeros((), EDGE) if len(passed) else None
    if whole is not None:
        whole["packets"], whole["delay_min"], whole["delay_max"] = 10, -DELAY, DELAY // 2
    return TapHop(from_tap, to_tap, total=whole, passed=edges, lost=packets)


def ways(*hops, visits=()):
    names = ["a", "b", "c", "d"]
    table = np.zeros(len(visits), VISIT)
    for row, (flow, tap, first, last) in zip(table, visits, strict=True):
        row["flow"], row["tap"], row["moves"] = flow, tap, 2
        row["first_next_tap"], row["next_tap"] = first, last
    return TapHops(list(hops), [], table, 1, 0, END, 0, 0, 0, names, {}, unknown={0: 1})


def without_hidden(ways, gaps, lives=()):
    """lives: (first, last time) of flows; of all others, longer than any gap."""
    first, last = np.full((2, 9), [[0], [20 * END]])
    for flow, (begin, end) in dict(lives).items():
        first[flow], last[flow] = begin, end
    return module.without_hidden(ways, gaps, first, last)


def lost(found):
    return {(w.from_tap, w.to_tap): w.lost["time"].tolist() for w in found.hops if len(w.lost)}


def test_no_next_tap_is_known_where_packets_went_to_a_tap_with_gaps():
    hops = way(0, 1, passed=[5]), way(0, -1, lost=[(0, 1), (0, END * 2)]), way(2, -1, lost=[(0, 1)])
    found = without_hidden(ways(*hops), {1: [GAP]})
    assert lost(found) == {(2, -1): [1]}
    assert {(w.from_tap, w.to_tap) for w in found.hops} == {(2, -1)}
    assert (found.hidden, found.unknown) == (2, {0: 3})


def test_flows_that_also_went_to_a_tap_with_gaps():
    hops = way(0, 1, passed=[5]), way(0, 2, passed=[5, 6], lost=[(5, 1), (6, 1), (6, BEGIN)])
    found = without_hidden(ways(*hops), {1: [GAP]})
    assert lost(found) == {(0, 2): [1, BEGIN]}
    assert (found.hidden, found.unknown[5]) == (1, 1)


def test_the_edges_of_a_gap_are_as_wide_as_the_longest_delay():
    times = [BEGIN - DELAY - 1, BEGIN - DELAY, BEGIN, END, END + DELAY, END + DELAY + 1]
    hops = way(0, 2, passed=[6], lost=[(5, time) for time in times])
    found = without_hidden(ways(hops), {3: [GAP]})
    assert lost(found) == {(0, 2): [times[0], times[-1]]}
    alone = without_hidden(ways(way(0, 2, lost=[(5, END + GRACE_NS + 1)])), {3: [GAP]})
    assert lost(alone) == {(0, 2): [END + GRACE_NS + 1]}


def test_a_gap_without_begin_or_end():
    hops = way(0, 2, passed=[6], lost=[(5, 1), (5, 10 * END)])
    assert lost(without_hidden(ways(hops), {3: [Gap(None, BEGIN, "")]})) == {(0, 2): [10 * END]}
    assert lost(without_hidden(ways(hops), {3: [Gap(BEGIN, None, "")]})) == {(0, 2): [1]}


def test_moves_beside_a_tap_with_gaps_are_unknown():
    visits = [(5, 0, 2, 2), (6, 0, 2, 2), (5, 3, 2, 2), (6, 2, 1, 3)]
    found = without_hidden(ways(way(0, 1, passed=[5]), visits=visits), {1: [GAP]})
    assert found.visits["moves"].tolist() == [0, 2, 2, 0]


def test_a_flow_that_lives_only_during_a_gap_may_have_passed_the_tap():
    """It is sprayed over taps b and c, and the packets to b are in the gap."""
    lives = {5: (BEGIN + 1, END - 1), 6: (BEGIN - DELAY - 1, END)}
    hops = way(0, 2, passed=[5, 6, 7], lost=[(5, BEGIN + 2), (6, BEGIN + 2), (7, BEGIN + 2)])
    found = without_hidden(ways(hops), {1: [GAP]}, lives)
    assert lost(found) == {(0, 2): [BEGIN + 2, BEGIN + 2]}
    assert (found.hidden, found.unknown[5]) == (1, 1)
    # Where other flows show that the tap follows the first one: the same. After another: no.
    follows, elsewhere = way(0, 1, passed=[8]), way(3, 1, passed=[8])
    assert without_hidden(ways(hops, follows), {1: [GAP]}, lives).hidden == 1
    assert without_hidden(ways(hops, elsewhere), {1: [GAP]}, lives).hidden == 0
