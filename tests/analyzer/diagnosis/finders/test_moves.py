"""Flows that change their way."""

from __future__ import annotations

import pytest
from fabric_captures import (
    MS,
    START_NS,
    Run,
    address,
    between,
    by_port,
    delay,
    diagnosis,
    drop,
    flows_of,
    place_of,
    severe,
    simulate,
    usual_pairs,
    write,
)

FROM, UNTIL = 100 * MS, 250 * MS
LAST = 10**12


def rehashed(src, first, last):
    """A route that depends on another seed for packets of hosts `src`, for a while."""

    def route(packet, now):
        return by_port(packet, now, salt=packet.src in src and first <= now < last)

    return route


def moved(run, leaf):
    """(source, destination, QP) of flows seen at two links from this leaf to spines, and when
    first."""
    links, first = {}, []
    sightings = sorted(
        (seen.time_ns, tap, seen.packet)
        for tap, all_seen in run.taps.items()
        if tap.startswith(f"leaf{leaf}-spine")
        for seen in all_seen
        if (seen.packet.src + 1) // 2 == leaf
    )
    for time_ns, tap, packet in sightings:
        flow = (address(packet.src), address(packet.dst), packet.dest_qp)
        if links.setdefault(flow, {tap}) != {tap} and len(links[flow]) == 1:
            first.append(time_ns)
        links[flow].add(tap)
    return {flow for flow, taps in links.items() if len(taps) > 1}, min(first, default=0)


@pytest.mark.parametrize("back", [False, True])
def test_a_rehash(tmp_path, back):
    run = simulate(route=rehashed((1, 2), FROM, UNTIL if back else LAST))
    (one,) = severe(tmp_path, run)
    flows, first_ns = moved(run, 1)
    assert (one.kind, place_of(one)) == ("rehash", (None, None, "leaf1", None))
    assert len(flows) > 8
    assert flows_of(one) == flows
    assert 0 <= first_ns - one.from_ns < 10_000
    assert (" and back, " in one.sentence) == back
    assert (one.until_ns is not None) == back


def test_the_links_left_and_taken(tmp_path):
    """Flows of spine 2 to spine 4, and back."""

    def route(packet, now):
        spine = by_port(packet, now)
        return 4 if spine == 2 and packet.src in (1, 2) and FROM <= now < UNTIL else spine

    (one,) = severe(tmp_path, simulate(route=route))
    assert "moves 4 flows from leaf1-spine2 to leaf1-spine4 and back, from 0.1" in one.sentence
    assert one.details == {"left": "leaf1-spine2", "taken": "leaf1-spine4"}


def test_a_flow_that_ends_before_the_others_go_back(tmp_path):
    pairs = usual_pairs()
    pairs[0].stop = pairs[1].stop = UNTIL - 40 * MS
    run = simulate(pairs, route=rehashed((1, 2), FROM, UNTIL))
    (one,) = severe(tmp_path, run)
    assert " and back, from 0.1" in one.sentence
    assert abs(one.until_ns - START_NS - UNTIL) < 20 * MS


def test_a_flow_that_stays_when_others_go_back(tmp_path):
    pairs = usual_pairs()

    def route(packet, now):
        last = LAST if packet.sport == pairs[0].sport else UNTIL
        return by_port(packet, now, salt=packet.src in (1, 2) and FROM <= now < last)

    (one,) = severe(tmp_path, simulate(pairs, route=route))
    assert " and back" not in one.sentence
    assert one.until_ns is None


@pytest.mark.parametrize("until", [UNTIL, LAST], ids=["back", "for good"])
def test_flows_that_overtake_themselves_when_they_move_are_not_sprayed(until, tmp_path):
    """Packets of the slow path arrive among those of the other one for a while."""
    slow = between("leaf*-spine3", "leaf*-spine3", delay(3 * MS), last=LAST)
    run = simulate(usual_pairs(gap=200_000), slow, rehashed((1, 2, 3, 4), FROM, until))
    found = diagnosis(write(tmp_path, run.taps)).findings
    assert {one.kind for one in found} == {"rehash", "delay-step"}
    assert {one.place.device for one in found if one.kind == "delay-step"} == {"spine3"}


@pytest.mark.parametrize("packets", [1, 100], ids=["packets", "flowlets"])
def test_flows_sprayed_over_unequal_paths(packets, tmp_path):
    slow = between("leaf*-spine3", "leaf*-spine3", delay(3 * MS), last=LAST)
    route = lambda packet, now: 1 + packet.ip_id // packets % 4  # noqa: E731
    found = diagnosis(write(tmp_path, simulate(usual_pairs(gap=200_000), slow, route).taps))
    assert "spraying" in {one.kind for one in found.findings}


def test_both_leaves_are_two_findings(tmp_path):
    run = simulate(route=rehashed((1, 2, 3, 4), FROM, LAST))
    found = severe(tmp_path, run)
    assert {(one.kind, one.place.device) for one in found} == {
        ("rehash", "leaf1"), ("rehash", "leaf2"),
    }  # fmt: skip
    for one in found:
        assert flows_of(one) == moved(run, int(one.place.device[-1]))[0]


def away_from_spine_2(*sources):
    """Routes change before a packet is lost."""

    def route(packet, now):
        spine = by_port(packet, now)
        left = spine == 2 and packet.src in sources and now >= FROM
        return (1, 3, 4)[packet.sport % 3] if left else spine

    return route


def test_flows_leave_a_link_for_good(tmp_path):
    run = simulate(route=away_from_spine_2(1, 2, 3, 4))
    found = {one.place.device: one for one in severe(tmp_path, run)}
    assert found.keys() == {"leaf1", "leaf2"}
    for device, one in found.items():
        place = (None, f"{device}-spine2", device, None)
        assert (one.kind, place_of(one)) == ("link-down", place)
        assert flows_of(one) == moved(run, int(device[-1]))[0]
        assert abs(one.from_ns - START_NS - FROM) < 8 * MS


def test_a_link_that_still_carries_packets_is_not_down(tmp_path):
    run = simulate(route=away_from_spine_2(1, 2))
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("rehash", (None, None, "leaf1", None))
    assert flows_of(one) == moved(run, 1)[0]


def test_one_flow_that_moves_is_no_rehash(tmp_path):
    pairs = usual_pairs()
    mine = pairs[3].sport

    def route(packet, now):
        return by_port(packet, now, salt=packet.sport == mine and now >= FROM)

    run = simulate(pairs, route=route)
    assert len(moved(run, 1)[0]) == 1
    assert severe(tmp_path, run) == []


def test_sprayed_flows_do_not_move(tmp_path):
    run = simulate(route=lambda packet, now: 1 + packet.ip_id % 4)
    found = diagnosis(write(tmp_path, run.taps)).findings
    assert [(one.kind, one.severity) for one in found] == [("spraying", "note")]


@pytest.mark.parametrize("leaf", [1, 2])
def test_the_uplinks_of_one_leaf_show_the_link_that_went_down(leaf, tmp_path):
    """No second tap is needed: the links of a leaf are parallel."""
    run = simulate(route=away_from_spine_2(2 * leaf - 1, 2 * leaf))
    uplinks = {tap: seen for tap, seen in run.taps.items() if f"leaf{leaf}-spine" in tap}
    (one,) = severe(tmp_path, Run(uplinks, run.hits))
    assert (one.kind, one.place.device) == ("link-down", f"leaf{leaf}")
    assert flows_of(one) == moved(run, leaf)[0]
    assert abs(one.from_ns - START_NS - FROM) < 8 * MS


@pytest.mark.parametrize(
    ("leaf", "place", "least"), [(1, ("leaf1-spine2", None), 2), (2, (None, "leaf2-spine2"), 70)]
)
def test_what_a_link_lost_before_flows_left_it_is_part_of_its_finding(leaf, place, least, tmp_path):
    """Nothing comes over the link before the routers notice: losses and timeouts have one cause."""
    noticed = FROM + 60 * MS
    away = away_from_spine_2(1, 2, 3, 4)
    run = simulate(
        route=lambda packet, now: (away if now >= noticed else by_port)(packet, now),
        fault=between("leaf1-spine2", "leaf2-spine2", drop, FROM, noticed + MS),
    )
    uplinks = {tap: seen for tap, seen in run.taps.items() if f"leaf{leaf}-spine" in tap}
    (one,) = severe(tmp_path, Run(uplinks, run.hits))
    assert (one.kind, place_of(one)[:2]) == ("link-down", place)
    assert least <= one.packets <= len(run.lost)
    assert f"at least {one.packets} packets lost" in one.sentence


def test_the_uplinks_of_one_leaf_show_a_rehash(tmp_path):
    run = simulate(route=rehashed((1, 2), FROM, LAST))
    uplinks = {tap: seen for tap, seen in run.taps.items() if "leaf1-spine" in tap}
    (one,) = severe(tmp_path, Run(uplinks, run.hits))
    assert (one.kind, one.place.device) == ("rehash", "leaf1")
    assert flows_of(one) == moved(run, 1)[0]


@pytest.mark.parametrize(
    ("leaf", "device", "direction"), [(1, "leaf1", None), (2, None, "before the tap")]
)
def test_uplinks_show_flows_that_move_and_come_back(leaf, device, direction, tmp_path):
    """The links of leaf 2 see the moves of leaf 1 from outside: before them, but not where."""
    run = simulate(route=rehashed((1, 2), FROM, UNTIL))
    uplinks = {tap: seen for tap, seen in run.taps.items() if f"leaf{leaf}-spine" in tap}
    (one,) = severe(tmp_path, Run(uplinks, run.hits))
    assert (one.kind, one.place.device, one.place.direction) == ("rehash", device, direction)
    assert flows_of(one) == moved(run, 1)[0]
    assert " to other links among leaf" in one.sentence
    assert " and back, " in one.sentence
    assert one.details["taken"].count(f"leaf{leaf}-spine") == 4


def until(run, last, which):
    """The run without what the captures of some taps see after a time."""
    taps = {
        tap: [each for each in seen if each.time_ns < START_NS + last or not which(tap)]
        for tap, seen in run.taps.items()
    }
    return Run(taps, run.hits)


def is_of_host(tap):
    return tap.startswith("H")


def test_flows_move_after_the_taps_before_the_links_ended(tmp_path):
    """The links are parallel, so that no tap before them is needed."""
    run = simulate(route=rehashed((1, 2), FROM, LAST))
    (one,) = severe(tmp_path, until(run, FROM - 20 * MS, is_of_host))
    flows, first_ns = moved(run, 1)
    assert (one.kind, place_of(one)) == ("rehash", (None, None, "leaf1", None))
    assert flows_of(one) == flows
    assert 0 <= first_ns - one.from_ns < 10_000


@pytest.mark.parametrize("ended", [False, True])
def test_a_link_whose_capture_ended_is_not_down(ended, tmp_path):
    """Flows leave spine 2 after the hosts' captures ended; that of its link may have ended too."""
    run = until(simulate(route=away_from_spine_2(1, 2)), FROM - 20 * MS, is_of_host)
    if ended:
        run = until(run, FROM - 20 * MS, lambda tap: tap == "leaf1-spine2")
    (one,) = severe(tmp_path, run)
    kind = "rehash" if ended else "link-down"
    assert (one.kind, one.place.device) == (kind, "leaf1")
    assert flows_of(one) == moved(run, 1)[0]


def test_sprayed_flows_do_not_move_when_taps_end(tmp_path):
    run = simulate(route=lambda packet, now: 1 + packet.ip_id % 4)
    ended = until(until(run, FROM, is_of_host), FROM + 20 * MS, lambda tap: "spine2" in tap)
    assert severe(tmp_path, ended) == []


def test_flows_that_move_to_a_link_without_a_tap_belong_to_the_same_move(tmp_path):
    """The taps after the spines show them, but not where they moved."""
    run = simulate(route=rehashed((1, 2), FROM, LAST))
    taps = {tap: seen for tap, seen in run.taps.items() if tap != "leaf1-spine4"}
    (one,) = severe(tmp_path, Run(taps, run.hits))
    assert (one.kind, one.place.device) == ("rehash", "leaf1")


def test_sprayed_flows_do_not_move_before_a_tap_begins_to_capture(tmp_path):
    """The few packets before that, seen at the links first, do not show that they are sprayed."""
    run = simulate(route=lambda packet, now: 1 + (packet.ip_id * 2654435761 >> 7) % 4)
    taps = {
        tap: [each for each in seen if each.time_ns >= START_NS + 40 * MS * is_of_host(tap)]
        for tap, seen in run.taps.items()
    }
    assert severe(tmp_path, Run(taps, run.hits)) == []
