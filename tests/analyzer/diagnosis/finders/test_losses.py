"""Losses on hops, before the first tap, after the last one, and of flows that ended."""

from __future__ import annotations

import dataclasses
import math
import random
import tempfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import dpkt
import msgspec
import pytest
from cases import case_of
from conformance_traces import NAK, answer, last, write
from examples import examples
from fabric_captures import (
    BASE,
    DURATION,
    JITTER,
    LEAF,
    LINKS,
    MS,
    START_NS,
    US,
    Pair,
    address,
    between,
    by_port,
    diagnosis,
    drop,
    fabric_links,
    flows_hit,
    flows_of,
    names,
    place_of,
    queue,
    severe,
    simulate,
    some,
    usual_pairs,
    warnings,
    wire_bytes,
)
from fabric_captures import write as write_taps
from factories import Pcapng
from hypothesis import given
from hypothesis import strategies as st
from traffic import ACK, NAK_SEQUENCE_ERROR, packets
from traffic import START_NS as START_NS_ended

from rocescope.analyzer.diagnosis.diagnose import diagnose
from rocescope.analyzer.diagnosis.finders.losses import (
    CHANCE,
    RARE,
    dscp_selection,
    losses_after,
    losses_before,
    losses_of_unpaired,
    lost_before,
    seldom,
    selection,
    unlikely,
)
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.results.captures import Ended
from rocescope.analyzer.wire.packets import HAS_AETH, ICRC_BAD, ICRC_OK, IPV6
from rocescope.report.notes import place, reaches

NEAR, FAR = "leaf1-spine2", "leaf2-spine2"
SPINE = (NEAR, FAR, "spine2", "leaf1 to leaf2")
TO_H3 = (None, "H3-leaf2", "leaf2", None)
FROM, UNTIL = 100 * MS, 160 * MS
FEW_FLOWS = {0x101}


def around(packet, now):
    """Routes change some time after spine 2 is dead."""
    spine = by_port(packet, now)
    return spine if spine != 2 or now < UNTIL else (1, 3, 4)[packet.sport % 3]


def incast():
    bursts = [
        Pair(src, 3, 0x200 + src, 50000 + src, start=150 * MS, stop=250 * MS, gap=300 * US)
        for src in (1, 2, 4)
    ]
    return usual_pairs(seed=5) + bursts


@pytest.mark.parametrize(
    ("taps", "dead", "place"),
    [
        (("leaf1-*", "leaf2-*"), (NEAR, FAR), SPINE),
        (("H1-*", "leaf1-*"), ("H1-leaf1", "leaf1-*"), ("H1-leaf1", None, None, None)),
    ],
)
def test_the_fabric_file_tells_the_next_tap(taps, dead, place, tmp_path):
    """One queue pair whose packets all vanish: no other packet tells where they were going."""
    pair = Pair(1, 3, 0x101, 50001)
    run = simulate([pair], between(dead[0], dead[1], drop), lambda packet, now: 2)
    kept = {tap: seen for tap, seen in run.taps.items() if any(fnmatch(tap, t) for t in taps)}
    paths = write_taps(tmp_path, kept)
    assert [finding.kind for finding in warnings(diagnosis(paths))] == ["stalled"]
    (finding,) = warnings(diagnosis(paths, fabric_links()))
    assert (finding.kind, place_of(finding)) == ("blackhole", place)
    assert "(next tap by the fabric file)" in finding.sentence
    assert flows_of(finding) == flows_hit(run.hits)
    # The last packets may be in flight when the captures end.
    assert len(run.hits) - 2 <= finding.packets <= len(run.hits)
    whole = simulate([Pair(1, 3, 0x101, 50001)], route=lambda packet, now: 2).taps
    clean = write_taps(tmp_path, {tap: whole[tap] for tap in kept})
    assert warnings(diagnosis(clean, fabric_links())) == []


@pytest.fixture(scope="module")
def lossy():
    return simulate(fault=between(NEAR, FAR, drop, FROM, which=some(0.1)))


def test_where_the_capture_at_the_receiver_ended_before_a_loss_nobody_is_named(tmp_path):
    """NAKs come to the link of a leaf first, after a router, and do not show that packets reached
    the link of the receiver."""
    fault = between("leaf1-spine2", "H1-leaf1", drop, FROM, which=some(0.1))
    run = simulate(fault=fault, route=lambda packet, now: 2)
    ended = START_NS + FROM - 20 * MS
    for tap in ("H1-leaf1", "H2-leaf1", "H3-leaf2", "H4-leaf2"):
        run.taps[tap] = [seen for seen in run.taps[tap] if seen.time_ns < ended]
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("loss", (None, None, None, "after the tap"))
    assert "lost or late" in one.sentence


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("pairs", "ipv6"),
    [
        (usual_pairs(), False),
        (usual_pairs(), True),
        (usual_pairs(hosts=[(1, 2), (1, 3), (4, 3), (2, 4)]), False),
        (incast(), False),
    ],
)
def test_no_fault_no_finding(tmp_path, pairs, ipv6):
    assert severe(tmp_path, simulate(pairs), ipv6) == []


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(
    ("kind", "fault", "route"),
    [
        ("loss", lambda: between(NEAR, FAR, drop, FROM, which=some(0.1)), by_port),
        ("outage", lambda: between(NEAR, FAR, drop, FROM, UNTIL), by_port),
        ("link-down", lambda: between(NEAR, FAR, drop, FROM), around),
        ("blackhole", lambda: between(NEAR, FAR, drop, FROM), by_port),
        (
            "blackhole",
            lambda: between(
                NEAR, FAR, drop, FROM, which=lambda packet: packet.dest_qp in FEW_FLOWS
            ),
            by_port,
        ),
    ],
    ids=["loss", "outage", "link-down", "dead for ever", "some flows"],
)
def test_packets_lost_at_a_spine(tmp_path, kind, fault, route, ipv6):
    run = simulate(fault=fault(), route=route)
    assert len(run.hits) > 20
    (one,) = severe(tmp_path, run, ipv6)
    names(one, kind, SPINE, run.hits, ipv6)


def test_a_swallowed_flow_is_told_from_all_packets(tmp_path):
    """Other flows pass: only those that are swallowed could have been hit."""
    which = lambda packet: packet.dest_qp in FEW_FLOWS  # noqa: E731
    run = simulate(fault=between(NEAR, FAR, drop, FROM, which=which))
    (one,) = severe(tmp_path, run)
    entered = [s for s in run.taps[NEAR] if s.packet.src < 3 and which(s.packet)]
    assert one.of_packets == len(entered)


def test_a_few_packets_tell_swallowed_flows_from_random_loss(tmp_path):
    """Three quiet queue pairs that end with two or three lost packets each."""
    quiet = [Pair(1, 3, 0x900 + n, 40_001 + 4 * n, gap=40 * MS) for n in range(3)]
    pairs = [*usual_pairs(), *quiet]
    ports = {pair.sport for pair in quiet}
    which = lambda packet: packet.sport in ports and packet.src == 1  # noqa: E731
    route = lambda packet, now: 2 if packet.sport in ports else by_port(packet, now)  # noqa: E731
    run = simulate(pairs, between(NEAR, FAR, drop, 325 * MS, which=which), route)
    (one,) = severe(tmp_path, run)
    names(one, "blackhole", SPINE, run.hits)
    assert "all packets from leaf1 to leaf2 of 3 flows" in one.sentence
    assert one.packets < 10


def test_a_flow_with_few_lost_packets_beside_swallowed_ones(tmp_path):
    """Two packets in a row of a quiet queue pair prove nothing alone; the fault ends before it."""
    pairs = [
        Pair(1, 3, 0x900 + n, 40_001 + 4 * n, gap=gap) for n, gap in enumerate((4 * MS, 30 * MS))
    ]
    ports = [pair.sport for pair in pairs]
    which = lambda packet: packet.sport in ports and packet.src == 1  # noqa: E731
    route = lambda packet, now: 2 if packet.sport in ports else by_port(packet, now)  # noqa: E731
    run = simulate(
        [*usual_pairs(), *pairs], between(NEAR, FAR, drop, FROM, UNTIL, which=which), route
    )
    lost = Counter(hit.packet.sport for hit in run.lost)
    assert lost[ports[1]] == 2 and 2 > 0.1 * len(run.lost)
    (one,) = severe(tmp_path, run)
    names(one, "blackhole", SPINE, run.hits)


@pytest.mark.parametrize(("room", "bits"), [(12, 6e6), (2, 6e6)], ids=["queue", "policer"])
def test_a_slow_link_that_overflows(tmp_path, room, bits):
    run = simulate(fault=queue(NEAR, FAR, bits, FROM, 300 * MS, room))
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("rate-limit", SPINE)
    requests = [hit for hit in run.lost if hit.packet.payload_bytes]
    assert len(requests) <= one.packets <= len(run.lost)
    assert flows_hit(requests) <= flows_of(one) <= flows_hit(run.lost)
    assert one.from_ns - one.onset_uncertainty_ns <= START_NS + FROM + 4 * MS
    assert abs(one.from_ns - START_NS - FROM) <= 8 * MS
    assert one.details["bits_per_second"] == pytest.approx(bits, rel=0.15)


BURSTS = [(1, 50), (2, 150), (1, 250), (2, 330), (1, 350)]
"""Host and begin in ms of bursts over spine 2."""


@pytest.mark.parametrize(("share", "seed"), [(0.02, 2), (0.1, 1)])
@pytest.mark.parametrize(
    ("near", "far", "bits"), [(NEAR, FAR, 12e6), ("*", "H3-leaf2", 38e6)], ids=["spine", "port"]
)
def test_random_loss_at_a_port_with_bursts(near, far, bits, share, seed, tmp_path):
    """Packets pass that wait for longer than those beside the lost ones."""
    bursts = [
        Pair(src, 3, 0x300 + n, 50_000 + n, start=begin * MS, stop=(begin + 20) * MS, gap=400 * US)
        for n, (src, begin) in enumerate(BURSTS)
    ]
    waiting, random_loss = queue(near, far, bits), between(near, far, drop, which=some(share, seed))
    run = simulate(
        usual_pairs() + bursts + incast()[-3:],
        lambda *packet: [] if random_loss(*packet) == [] else waiting(*packet),
        lambda packet, now: 2 if 50_000 <= packet.sport < 50_005 else by_port(packet, now),
    )
    losses = [one for one in severe(tmp_path, run) if one.kind != "queueing"]
    assert [one.kind for one in losses] == ["loss"]
    # What is lost within the longest delay before the end of the captures may be in flight.
    assert 0.85 * len(run.lost) <= losses[0].packets <= len(run.lost)
    assert losses[0].from_ns - run.lost[0].time_ns <= 100 * MS


@pytest.mark.parametrize("last", [DURATION, 300 * MS], ids=["to the end", "for a while"])
def test_the_share_is_that_of_the_packets_in_the_time_of_the_loss(last, tmp_path):
    run = simulate(fault=between(NEAR, FAR, drop, 200 * MS, last, some(0.2)))
    (one,) = severe(tmp_path, run)
    entered = [s for s in run.taps[NEAR] if s.packet.src < 3 and s.time_ns >= one.from_ns]
    until = START_NS + (last if one.until_ns is not None else DURATION)
    entered = [s for s in entered if s.time_ns <= until]
    assert one.of_packets == pytest.approx(len(entered), rel=0.1)
    assert one.share_low_percent < one.share_percent < one.share_high_percent
    assert one.share_low_percent < 20 < one.share_high_percent
    assert f"({one.packets} of {one.of_packets})" in one.sentence


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1])
def test_a_loss_after_the_tap_has_bounds(share, tmp_path):
    """Only the hosts that send have a tap: go-back-N hides how many of a run are lost."""
    run = simulate(fault=between(NEAR, FAR, drop, which=some(share)))
    lost = sum(hit.packet.payload_bytes > 0 for hit in run.lost)
    paths = write_taps(tmp_path, {tap: run.taps[tap] for tap in ("H1-leaf1", "H2-leaf1")})
    (one,) = [one for one in warnings(diagnosis(paths)) if one.kind == "loss"]
    assert 0 < one.packets <= lost <= one.details["at_most_packets"]
    assert one.sentence.startswith("at least ")
    assert f"(at most {one.details['at_most_packets']:,})" in one.sentence


@pytest.mark.parametrize("share", [0.01, 0.1, 0.4])
def test_a_loss_before_the_tap_is_at_least_what_leaves_a_gap(share, tmp_path):
    run = simulate(fault=between(NEAR, FAR, drop, which=some(share)))
    lost = sum(hit.packet.payload_bytes > 0 and hit.packet.dst == 3 for hit in run.lost)
    paths = write_taps(tmp_path, {"H3-leaf2": run.taps["H3-leaf2"]})
    (one,) = [one for one in warnings(diagnosis(paths)) if one.kind == "loss"]
    assert one.packets <= lost
    assert one.sentence.startswith("at least ") == (one.packets < lost)


def test_a_queue_that_loses_nothing_is_no_onset(tmp_path):
    """It is long before the one that overflows."""
    early = queue(NEAR, FAR, 8e6, 20 * MS, 60 * MS)
    late = queue(NEAR, FAR, 6e6, 200 * MS, 300 * MS, 12)
    fault = lambda packet, near, far, now: (early if now < 150 * MS else late)(  # noqa: E731
        packet, near, far, now
    )
    run = simulate(fault=fault)
    assert any(hit.time_ns < START_NS + FROM for hit in run.hits)
    (one,) = [one for one in severe(tmp_path, run) if one.kind == "rate-limit"]
    assert START_NS + 200 * MS <= one.from_ns <= run.lost[0].time_ns
    assert one.from_ns - one.onset_uncertainty_ns >= START_NS + 195 * MS


def test_a_long_queue_that_drops_the_rest_of_some_flows_is_no_blackhole(tmp_path):
    """Nothing of these flows passes after the first loss, because the captures end."""
    slow = queue(NEAR, FAR, 6e6)

    def overflowing(packet, before, after, now):
        full = (before, after) == (NEAR, FAR) and now >= 300 * MS and packet.dest_qp & 4
        return [] if full else slow(packet, before, after, now)

    run = simulate(fault=overflowing)
    found = severe(tmp_path, run)
    assert [(one.kind, place_of(one)) for one in found] == [("rate-limit", SPINE)]


def test_a_spine_that_dies_just_before_the_end(tmp_path):
    """No sender has noticed it yet: nothing is retransmitted, and nothing is acknowledged."""
    run = simulate(fault=between(NEAR, FAR, drop, 390 * MS))
    (one,) = severe(tmp_path, run)
    names(one, "blackhole", SPINE, run.hits)


def test_a_link_that_fails_again_and_again(tmp_path):
    """Nothing passes for a while, three times."""
    dark = [(60 * MS, 100 * MS), (180 * MS, 210 * MS), (270 * MS, 320 * MS)]
    faults = [between(NEAR, FAR, drop, *span) for span in dark]
    run = simulate(
        fault=lambda *args: next((f for each in faults if (f := each(*args)) == []), None)
    )
    (one,) = severe(tmp_path, run)
    names(one, "outage", SPINE, run.hits)
    assert one.details == {"outages": 3}
    assert "for a while, 3 times" in one.sentence


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_much_random_loss_is_no_row_of_outages(tmp_path, share):
    run = simulate(usual_pairs(), between(NEAR, FAR, drop, which=some(share)))
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("loss", SPINE)


def test_three_sources_overload_one_port(tmp_path):
    run = simulate(incast(), queue("*", "H3-leaf2", 60e6, room=16))
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("incast", TO_H3)
    assert one.packets == len(run.lost)
    assert flows_of(one) == flows_hit(run.lost)
    assert one.sentence.startswith("3 sources overload leaf2 towards H3-leaf2")
    assert abs(one.from_ns - START_NS - 150 * MS) <= 4 * MS


def test_an_overload_is_one_finding_without_the_tap_of_a_sender_beside_the_receiver(tmp_path):
    run = simulate(incast(), queue("*", "H3-leaf2", 60e6, room=16))
    paths = [path for path in write_taps(tmp_path, run.taps) if path.name != "H4-leaf2.pcap"]
    (one,) = warnings(diagnosis(paths))
    assert (one.kind, place_of(one)) == ("incast", TO_H3)
    assert one.sentence.startswith("3 sources overload leaf2 towards H3-leaf2")
    assert flows_of(one) == flows_hit(run.lost)
    assert one.packets <= len(run.lost)


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0, 330 * MS], ids=["all the time", "later"])
def test_losses_of_a_sender_beside_the_receiver_at_another_time_are_a_fault_of_their_own(
    tmp_path, first
):
    pairs = [pair for pair in incast() if pair.number != 0x204]
    pairs += [Pair(4, 3, 0x304, 50304, gap=500 * US)]
    slow = queue("leaf2-*", "H3-leaf2", 45e6, room=16)
    own = between("H4-leaf2", "H3-leaf2", drop, first, 370 * MS, some(0.2))
    run = simulate(pairs, lambda *now: own(*now) if now[1] == "H4-leaf2" else slow(*now))
    paths = [path for path in write_taps(tmp_path, run.taps) if path.name != "H4-leaf2.pcap"]
    by_kind = {one.kind: one for one in warnings(diagnosis(paths))}
    assert set(by_kind) == {"rate-limit", "loss"}
    of_slow = [hit for hit in run.lost if hit.packet.src != 4]
    assert place_of(by_kind["rate-limit"]) == TO_H3
    assert by_kind["rate-limit"].packets == len(of_slow)
    assert by_kind["loss"].place.host == address(4)
    assert 0 < by_kind["loss"].packets <= len(run.lost) - len(of_slow)


@pytest.fixture
def third_sender(monkeypatch):
    """Host 5 at leaf1."""
    monkeypatch.setitem(LEAF, 5, 1)
    monkeypatch.setattr("fabric_captures.LINKS", [*LINKS, "H5-leaf1"])


@pytest.mark.parametrize("kept", ["*", "leaf*"], ids=["all links", "uplinks"])
@pytest.mark.parametrize(
    ("receivers", "answers"),
    [((3, 4), True), ((3,), True), ((3,), False)],
    ids=["several receivers", "one receiver", "no answers"],
)
def test_a_slow_uplink_of_three_senders_is_no_incast(
    third_sender, receivers, answers, kept, tmp_path
):
    hosts = [(src, dst) for src in (1, 2, 5) for dst in receivers]
    slow = queue(NEAR, FAR, 6e6, FROM, 300 * MS, 12)
    run = simulate(usual_pairs(hosts=hosts, per_hosts=8 // len(receivers)), slow)
    taps = {
        tap: [s for s in seen if answers or s.packet.src not in receivers]
        for tap, seen in run.taps.items()
        if fnmatch(tap, kept)
    }
    (one,) = warnings(diagnosis(write_taps(tmp_path, taps)))
    assert len({hit.packet.src for hit in run.lost}) == 3
    assert (one.kind, place_of(one)) == ("rate-limit", SPINE)


def test_two_sources_are_no_incast(tmp_path):
    bursts = [pair for pair in incast() if pair.number not in (0x202, 0x204)]
    hosts = [pair for pair in bursts if pair.dst != 3 or pair.src == 1]
    run = simulate(hosts, queue("*", "H3-leaf2", 25e6, room=16))
    (one,) = severe(tmp_path, run)
    assert (one.kind, one.packets) == ("rate-limit", len(run.lost))


def test_lost_acknowledgements_are_lost_packets(tmp_path):
    """The ACK of a whole message: the requester repeats the message."""
    acks = between(FAR, NEAR, drop, FROM, which=lambda packet: packet.opcode == 0x11)
    run = simulate(fault=acks)
    (one,) = severe(tmp_path, run)
    assert (one.packets, flows_of(one)) == (len(run.hits), flows_hit(run.hits))
    assert place_of(one) == (FAR, NEAR, "spine2", "leaf2 to leaf1")


@pytest.mark.parametrize("host_tap", [True, False])
def test_acknowledgements_that_later_ones_replace(tmp_path, host_tap):
    """Nothing is retransmitted because of them. They had no other way if the link of their host has
    a tap; without it another link of the host could have carried them."""
    which = some(0.4)
    acks = between("leaf1-spine*", "H1-leaf1", drop, which=lambda p: p.opcode == 0x11 and which(p))
    run = simulate(usual_pairs(seed=5, gap=8 * MS), acks)
    taps = {tap: seen for tap, seen in run.taps.items() if host_tap or tap != "H1-leaf1"}
    found = warnings(diagnosis(write_taps(tmp_path, taps)))
    if not host_tap:
        assert {one.kind for one in found} <= {"timeout-recovery"}
        return
    (one,) = found
    end = START_NS + DURATION - 20 * MS  # those at the end may be in flight
    least = [hit for hit in run.hits if hit.time_ns < end]
    assert (one.kind, place_of(one)) == ("loss", (None, "H1-leaf1", "leaf1", None))
    assert len(least) <= one.packets <= len(run.hits)


def test_both_directions_are_two_findings(tmp_path):
    both = {(NEAR, FAR), (FAR, NEAR)}
    run = simulate(
        fault=lambda p, near, far, now: [] if (near, far) in both and FROM <= now < UNTIL else None
    )
    found = severe(tmp_path, run)
    assert sorted(one.kind for one in found) == ["outage", "outage"]
    assert {one.place.direction for one in found} == {"leaf1 to leaf2", "leaf2 to leaf1"}
    assert sum(one.packets for one in found) == len(run.hits)


def test_evidence_is_the_frames_before_the_loss(tmp_path, lossy):
    (one,) = severe(tmp_path, lossy)
    frames = [s.time_ns for s in lossy.taps[NEAR]]
    lost = [hit.time_ns for hit in lossy.hits]
    assert [e.time_ns for e in one.evidence] == lost[: len(one.evidence)]
    assert all(frames[e.frame_number - 1] == e.time_ns for e in one.evidence)
    assert one.confidence == "proven"


@pytest.mark.parametrize(("tap", "confidence"), [(FAR, "possible"), ("H2-leaf1", "proven")])
def test_frames_that_a_capture_dropped_may_be_the_lost_ones(tmp_path, lossy, tap, confidence):
    for path in write_taps(tmp_path, lossy.taps):
        if path.stem == tap:
            with path.open("rb") as file:
                rows = list(dpkt.pcap.Reader(file))
            capture = Pcapng().section().interface()
            for time, data in rows:
                capture.enhanced(round(time * 10**9), data)
            path.write_bytes(capture.statistics(0, {5: 7}).bytes())
    (one,) = warnings(diagnosis(tmp_path.iterdir()))
    assert (one.kind, one.confidence) == ("loss", confidence)


def test_the_order_of_files_does_not_matter(tmp_path, lossy):
    paths = write_taps(tmp_path, lossy.taps)
    (one,) = warnings(diagnosis(paths))
    random.Random(3).shuffle(paths)
    (other,) = warnings(diagnosis(paths))
    assert (one.sentence, one.place, one.packets) == (other.sentence, other.place, other.packets)
    names(other, "loss", SPINE, lossy.hits)


@pytest.mark.parametrize("gone", random.Random(11).sample(sorted({*LINKS} - {NEAR, FAR}), 2))
def test_a_missing_tap_elsewhere_changes_nothing(tmp_path, lossy, gone):
    taps = {tap: seen for tap, seen in lossy.taps.items() if tap != gone}
    (one,) = warnings(diagnosis(write_taps(tmp_path, taps)))
    names(one, "loss", SPINE, lossy.hits)


@pytest.mark.parametrize("gone", [NEAR, FAR])
def test_a_missing_tap_beside_the_fault_widens_the_place(tmp_path, lossy, gone):
    taps = {tap: seen for tap, seen in lossy.taps.items() if tap != gone}
    (one,) = warnings(diagnosis(write_taps(tmp_path, taps)))
    assert (one.kind, one.packets, flows_of(one)) == (
        "loss",
        len(lossy.hits),
        flows_hit(lossy.hits),
    )
    assert place_of(one) == (None, FAR, None, None) if gone == NEAR else (NEAR, None, None, None)
    assert one.sentence.startswith("the network between ")


HOPS = [(f"leaf{a}-spine{s}", f"leaf{3 - a}-spine{s}") for a in (1, 2) for s in range(1, 5)]
HOPS += [(f"leaf{a}-spine{s}", f"H{h}-leaf{a}") for a in (1, 2) for s in (1, 2) for h in (2 * a,)]
HOPS += [("H1-leaf1", f"leaf1-spine{s}") for s in range(1, 5)]


@pytest.mark.thorough
@examples(12)
@given(
    hop=st.sampled_from(HOPS),
    share=st.sampled_from([0.004, 0.02, 0.1]),
    seed=st.integers(0, 1 << 20),
    ipv6=st.booleans(),
)
def test_any_loss_is_one_finding_with_all_its_packets(hop, share, seed, ipv6):
    """At the end, a lost packet may look like one in flight: the fault ends earlier."""
    fault = between(hop[0], hop[1], drop, 0, DURATION - 20 * MS, some(share, seed))
    run = simulate(usual_pairs(seed), fault, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        found = severe(Path(folder), run, ipv6)
    assert len(found) == bool(run.hits)
    for one in found:
        assert place_of(one)[:2] == hop
        assert (one.packets, one.from_ns) == (len(run.hits), run.hits[0].time_ns)
        assert flows_of(one) == flows_hit(run.hits, ipv6)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("which", "says"),
    [
        (lambda packet: packet.sport & 4, "UDP source port bit 2 = 1"),
        (lambda packet: not packet.sport & 1 << 9, "UDP source port bit 9 = 0"),
        (lambda packet: packet.dest_qp & 2, "destination QP bit 1 = 1"),
    ],
)
def test_bits_that_a_spine_drops(tmp_path, which, says):
    pairs = usual_pairs(per_hosts=12, seed=3, gap=5 * MS)
    run = simulate(pairs, between(NEAR, FAR, drop, FROM, which=which))
    (one,) = severe(tmp_path, run)
    names(one, "selective-loss", SPINE, run.hits, least=0.85)
    assert one.details["selection"] == says


@pytest.mark.parametrize("first", [0, FROM])
def test_packets_that_are_too_long(tmp_path, first):
    """The last packet of every message is short enough; before the fault long ones pass."""
    pairs = usual_pairs(tail_bytes=256)
    fault = between(NEAR, FAR, drop, first, which=lambda packet: wire_bytes(packet) > 700)
    run = simulate(pairs, fault)
    last = run.taps[FAR][-1].time_ns - 2 * (BASE + JITTER)  # the capture of FAR tells no more
    hits = [hit for hit in run.hits if hit.time_ns <= last]
    (one,) = severe(tmp_path, run)
    names(one, "selective-loss", SPINE, hits)
    assert one.details == {"longest_passed_bytes": 54 + 12 + 256 - 8}


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0, FROM])
def test_flows_that_are_too_long(tmp_path, first):
    """Every packet of some flows is too long: they are no blackhole."""
    pairs = usual_pairs(per_hosts=6)
    for pair in (pair for n, pair in enumerate(pairs) if n // 4 % 2):
        pair.payload_bytes = pair.tail_bytes = 256
    fault = between(
        NEAR,
        FAR,
        drop,
        first,
        350 * MS,
        which=lambda packet: wire_bytes(packet) > 700,
    )
    run = simulate(pairs, fault)
    (one,) = severe(tmp_path, run)
    names(one, "selective-loss", SPINE, run.hits)
    assert one.details == {"longest_passed_bytes": 54 + 12 + 16 + 256 - 8}


@pytest.mark.parametrize("others", [16, 6])
def test_two_flows_that_are_too_long(tmp_path, others):
    """Among many flows two are the longest by chance once in a hundred times; among few often."""
    pairs = usual_pairs(hosts=[(1, 3)], per_hosts=others + 2)
    long = {pair.number for pair in pairs[4:6]}
    for pair in pairs:
        if pair.number not in long:
            pair.payload_bytes = pair.tail_bytes = 256
    fault = between(NEAR, FAR, drop, which=lambda packet: wire_bytes(packet) > 700)
    run = simulate(pairs, fault, route=lambda packet, now: 2)
    (one,) = severe(tmp_path, run)
    names(one, "selective-loss" if others == 16 else "blackhole", SPINE, run.hits)
    assert {flow[2] for flow in flows_hit(run.hits)} == long
    assert one.details == {"longest_passed_bytes": 54 + 12 + 16 + 256 - 8}
    assert others == 16 or "perhaps because of their length" in one.sentence


def test_two_flows_that_are_no_longer_than_others(tmp_path):
    """One long flow passes: the length is no reason."""
    pairs = usual_pairs(hosts=[(1, 3)], per_hosts=12)
    for pair in pairs[:9]:
        pair.payload_bytes = pair.tail_bytes = 256
    hit = {pair.number for pair in pairs[9:11]}
    fault = between(NEAR, FAR, drop, which=lambda packet: packet.dest_qp in hit)
    (one,) = severe(tmp_path, simulate(pairs, fault, route=lambda packet, now: 2))
    assert (one.kind, one.details) == ("blackhole", {})


def case(ports, qps, dscps):
    """One packet per flow; the same flow number as its place."""
    columns = zip(ports, qps, dscps, strict=True)
    rows = [
        {"psn": 1, "udp_sport": port, "dest_qp": qp, "traffic_class": dscp << 2}
        for port, qp, dscp in columns
    ]
    return case_of(table=packets(rows))


@given(
    field=st.sampled_from(["UDP source port", "destination QP", "DSCP"]),
    bit=st.integers(0, 5),
    flows=st.lists(st.booleans(), min_size=24, max_size=40),
    seed=st.integers(0, 1 << 20),
)
def test_one_bit_of_any_field(field, bit, flows, seed):
    """Either the bit that decides is named, or nothing: few flows of one kind prove no rule."""
    chance = random.Random(seed)

    def values(name, bits):
        drawn = [chance.randrange(1 << bits) for _ in flows]
        if name != field:
            return drawn
        return [v & ~(1 << bit) | hit << bit for v, hit in zip(drawn, flows, strict=True)]

    ports = [value | 0xC000 for value in values("UDP source port", 14)]
    qps = [n << 10 | v for n, v in enumerate(values("destination QP", 10))]
    made = case(ports, qps, values("DSCP", 6))
    swallowed = {n for n, hit in enumerate(flows) if hit}
    others = set(range(len(flows))) - swallowed
    found = selection(made, swallowed, others)
    if min(len(swallowed), len(others)) < 3:
        assert found is None
    else:
        assert found == f"{field} bit {bit} = 1"


def test_one_dscp():
    dscps = [26] * 5 + [0] * 5 + [48] * 2
    made = case([49152 + 7 * n for n in range(12)], range(12), dscps)
    hit = set(range(5))
    assert dscp_selection(made, hit, set(range(5, 12))) == "DSCP 26"
    assert dscp_selection(made, {5, 6, 7}, set(range(5)) | set(range(8, 12))) is None
    assert dscp_selection(made, hit | {5}, set(range(6, 12))) is None
    assert dscp_selection(made, {0, 1, 2}, {5, 6, 7}) is None  # chance: one draw of 20


def test_few_flows_prove_no_rule():
    made = case([49152 + n for n in range(12)], range(12), [26] * 12)
    odd = {n for n in range(12) if n & 1}
    assert selection(made, odd, set(range(12)) - odd) is None


def test_two_bits():
    numbers = range(64)
    made = case([49152 + n for n in numbers], numbers, [26] * 64)
    hit = {n for n in numbers if n & 3 == 1}
    assert selection(made, hit, set(numbers) - hit) == "UDP source port bit 0 = 1, bit 1 = 0"


def test_flows_without_a_common_bit():
    """A parity of three bits is no rule of two."""
    numbers = range(64)
    made = case([49152 + n for n in numbers], numbers, [n & 63 for n in numbers])
    hit = {n for n in numbers if (n & 7).bit_count() & 1}
    assert selection(made, hit, set(numbers) - hit) is None


def test_flows_with_several_ports_are_told_by_other_fields():
    """A flow that changes its port has none of its own."""
    numbers = range(30)
    rows = [
        {"psn": psn, "udp_sport": 50000 + (n & 1) + 2 * psn, "dest_qp": n, "traffic_class": 104}
        for n in numbers
        for psn in (0, 1)
    ]
    made = case_of(table=packets(rows))
    odd = {n for n in numbers if n & 1}
    assert selection(made, odd, set(numbers) - odd) == "destination QP bit 0 = 1"


@given(st.integers(0, 20), st.integers(1, 20), st.floats(0.001, 1), st.integers(0, 60))
def test_flows_that_random_loss_seldom_hits(others, hit, share, packets):
    chance = math.comb(others + hit, hit) * share**packets
    if not math.isclose(chance, CHANCE, rel_tol=1e-9):
        assert seldom(others, hit, share, packets) == (chance < CHANCE)


def test_more_ways_to_choose_flows_than_a_float_holds():
    assert not seldom(650, 650, 0.1, 300)
    assert seldom(650, 650, 0.1, 500)
    assert unlikely(set(range(650)), set(range(650, 1300)), tried=64)


BEGIN = [write(n, at=n, ip_id=n) for n in range(20)]
LOST = [
    *BEGIN,
    last(21, at=21, ip_id=21),
    answer(20, NAK, at=30),
    write(20, at=90, ip_id=22),
    last(21, at=91, ip_id=23),
    answer(21, at=99),
]


def losses(rows):
    case = case_of(rows)
    return list(losses_before(case, Known()))


def test_a_gap_then_its_retransmission():
    (one,) = losses(LOST)
    assert (one.packets, one.of_packets, one.flows) == (1, 24, [0])
    assert one.place.to_tap == "tap"
    assert one.place.direction == "before the tap"
    assert one.place.host == "10.0.0.1"
    assert one.confidence == "proven"
    assert "1 of 24 packets from 10.0.0.1 to 10.0.0.2 are lost before the tap" in one.sentence


def test_a_lost_retransmission_counts_too():
    again = [
        *BEGIN,
        *(write(n, at=n, ip_id=n) for n in range(21, 25)),
        answer(20, NAK, at=30),
        *(write(n, at=70 + n, ip_id=10 + n) for n in range(21, 25)),  # 20 is lost again
        answer(20, NAK, at=120),
        *(write(n, at=170 + n, ip_id=20 + n) for n in range(20, 24)),
        last(24, at=194, ip_id=44),
        answer(24, at=199),
    ]
    (one,) = losses(again)
    assert one.packets == 2
    assert "are lost before the tap, 1 as a retransmission, all" in one.sentence


def test_a_late_packet_is_not_lost():
    late = [
        *BEGIN,
        last(21, at=21, ip_id=21),
        write(20, at=22, ip_id=20),
        answer(21, at=30),
    ]
    assert losses(late) == []


def test_what_an_ack_covers_is_not_lost():
    """Go-back-N: the sender skips what was acknowledged while it retransmitted."""
    rows = [
        *BEGIN,
        last(20, at=20, ip_id=20),
        write(5, at=400, ip_id=30),
        write(6, at=401, ip_id=31),
        answer(20, at=402),
        last(21, at=403, ip_id=32),
        answer(21, at=410),
    ]
    assert losses(rows) == []


@pytest.mark.parametrize("icrc_state", [ICRC_OK, ICRC_BAD])
def test_an_ack_that_the_sender_drops_says_nothing_of_skipped_packets(icrc_state):
    """Where the tap sees ACKs that the sender does not, a run may skip what another one covers."""
    rows = [
        *BEGIN,
        last(20, at=20, ip_id=20),
        answer(3, at=30, icrc_state=icrc_state),
        *(write(n, at=400 + n, ip_id=30 + n) for n in range(4, 20) if n != 9),
        last(20, at=420, ip_id=50),
        answer(20, at=430, icrc_state=ICRC_OK),
    ]
    assert bool(losses(rows)) == (icrc_state == ICRC_OK)


def test_a_selective_sender_skips_what_arrived():
    """Only the lost packet is retransmitted; the next packets are new."""
    more = [write(n, at=100 + n, ip_id=n + 1) for n in range(22, 40)]
    (one,) = losses([*LOST[:-2], *more, last(40, at=150, ip_id=50), answer(40, at=160)])
    assert one.packets == 1


def test_uc_packets_that_never_come():
    rows = [write(n, at=n, opcode=0x27, ip_id=n) for n in range(20) if n not in (7, 8)]
    (one,) = losses(rows)
    assert one.packets == 2


SENT = [write(n, at=n, ip_id=n) for n in range(8)]
REPAIR = [write(8, at=90, ip_id=22), last(9, at=91, ip_id=23), answer(9, at=99)]
GAP = [*SENT, last(9, at=9, ip_id=9), answer(8, NAK, at=30), *REPAIR]
WHOLE = [*SENT, write(8, at=8, ip_id=8), last(9, at=9, ip_id=9), answer(9, at=30)]
DATAGRAMS = [write(n, at=n, opcode=0x64) for n in (1, 5, 9)]
UC = [write(n, at=n, opcode=0x27, ip_id=n) for n in range(20) if n not in (7, 8)]


@pytest.mark.parametrize(
    ("rows", "lost"),
    [(GAP, 1), (WHOLE, 0), (DATAGRAMS, 0), (UC, 2)],
    ids=["gap", "whole", "datagrams", "UC"],
)
def test_packets_of_the_sender_that_no_tap_saw_in_time(rows, lost):
    case = case_of(rows)
    assert lost_before(case, case.flows[0]) == lost


def test_a_sender_that_skips_what_was_acknowledged_out_of_sight_lost_nothing():
    """It goes back to PSN 0 and on to 12 after PSN 9: an ACK told it that 10 and 11 arrived."""
    begin = [write(n, at=n, ip_id=n) for n in range(12)]
    again = [write(n, at=900 + n, ip_id=100 + n) for n in (*range(10), *range(12, 16))]
    unseen, seen = case_of([*begin, *again]), case_of([*begin, *again, answer(15, at=999)])
    assert lost_before(unseen, unseen.flows[0]) == 0
    assert lost_before(seen, seen.flows[0]) == 2


NAKED = [
    *BEGIN,
    last(20, at=20, ip_id=20),
    answer(15, NAK, at=40),
    *(write(n, at=60 + n, ip_id=10 + n) for n in range(15, 20)),
    last(20, at=90, ip_id=40),
    answer(20, at=99),
]
LATE = [*BEGIN, last(20, at=20, ip_id=20), answer(15, NAK, at=40), answer(20, at=41)]


def found(rows, known=None):
    return list(losses_after(case_of(rows), known or Known()))


def test_a_nak_for_what_the_tap_saw():
    (one,) = found(NAKED)
    assert (one.kind, one.packets, one.flows) == ("loss", 1, [0])
    assert (one.place.from_tap, one.place.host) == ("tap", "10.0.0.2")
    assert (
        "1 of 27 packets from 10.0.0.1 to 10.0.0.2 are lost or late after the tap" in one.sentence
    )
    assert one.evidence[0].frame_number == 22


def test_a_nak_without_a_retransmission_is_a_late_packet():
    (one,) = found(LATE)
    assert one.kind == "reordering"
    assert "arrive late after the tap" in one.sentence


def sent_by(source, rows):
    return [row | ({"dst": source} if row.get("answer") else {"src": source}) for row in rows]


def test_several_hosts_that_lose_on_the_way_to_one_may_be_an_incast():
    rows = NAKED
    for source in (2, 3):
        rows = rows + sent_by(source, [row | {"at": row["at"] + 1000 * source} for row in NAKED])
    (one,) = found(rows)
    assert (one.kind, one.packets) == ("loss", 3)
    assert "3 hosts" in one.sentence
    assert "(incast) or a bad link" in one.next_step
    assert "incast" not in found(NAKED)[0].next_step


def test_late_packets_beside_many_that_seem_lost_are_one_finding():
    later = [row | {"at": row["at"] + 1000} for row in LATE]
    few = [*LATE, *sent_by(2, [row | {"at": row["at"] + 1000} for row in NAKED])]
    assert sorted(one.kind for one in found(few)) == ["loss", "reordering"]
    many = sent_by(7, later)
    for source in range(2, 7):
        many += sent_by(source, [row | {"at": row["at"] + 1000 * source} for row in NAKED])
    (one,) = found(many)
    assert (one.kind, one.packets) == ("loss", 7)


def test_a_nak_for_a_gap_at_the_tap_is_no_loss_after_it():
    rows = [
        *BEGIN,
        last(21, at=21, ip_id=21),
        answer(20, NAK, at=40),
        write(20, at=90, ip_id=22),
    ]
    assert found(rows) == []


def test_a_nak_for_packets_before_the_capture():
    assert found([*BEGIN, answer(0xFFFFF0, NAK, at=40)]) == []


@pytest.mark.parametrize("rows", [LATE, NAKED])
def test_of_a_flow_that_the_tap_sees_in_part_the_place_is_unknown(rows):
    case = case_of(rows)
    parts = [msgspec.structs.replace(case.flows[0], missing_packets=None), case.flows[1]]
    (one,) = losses_after(dataclasses.replace(case, flows=parts), Known())
    assert (one.place.from_tap, one.place.direction, one.place.host) == (None, None, "10.0.0.2")
    assert "after the tap" not in one.sentence


def test_a_known_cause_explains_it():
    (cause,) = found(NAKED)
    assert found(NAKED, Known([cause])) == []


def through_two_taps(rows):
    """Every packet at the sender's tap, then routed, at the receiver's; answers the other way."""
    both = []
    for row in rows:
        first = 1 if row.get("answer") else 0
        row = {"ip_id": row["at"] + 1000} | row
        both.append(row | {"tap": first, "hop_limit": 64, "at": 10 * row["at"]})
        both.append(row | {"tap": 1 - first, "hop_limit": 63, "at": 10 * row["at"] + 3})
    return both


def test_a_receiver_that_drops_a_few_is_a_note():
    more = [write(n, at=200 + 4 * n, ip_id=200 + n) for n in range(21, 3000)]
    rows = [*NAKED, *more, last(3000, at=12_200, ip_id=3200), answer(3000, at=12_300)]
    case = case_of(through_two_taps(rows), taps=("near", "far"))
    (one,) = losses_after(case, Known())
    assert one.severity == "note"
    assert one.place.from_tap == "far"
    assert "reach their link, but 10.0.0.2 drops them" in one.sentence
    few = case_of(through_two_taps(NAKED), taps=("near", "far"))
    (one,) = losses_after(few, Known())
    assert one.severity != "note"


@pytest.mark.parametrize(("rounds", "severity"), [(9, "note"), (12, "warning")])
def test_a_receiver_that_drops_a_few_now_and_then_and_makes_the_sender_wait(rounds, severity):
    """The NAK comes late, the retransmission later: it costs much of the time."""
    rows = []
    for n in range(rounds):
        psn, at = 800 * n, 9_000 * n
        rows += [write(psn + i, at=at + 5 * i) for i in range(799)]
        rows += [answer(psn + 795, NAK, at=at + 5_000)]
        rows += [write(psn + i, at=at + 8_000 + i) for i in range(795, 799)]
        rows += [last(psn + 799, at=at + 8_900), answer(psn + 799, at=at + 8_950)]
    rows = [row | {"ip_id": number + 1} for number, row in enumerate(rows)]
    (one,) = losses_after(case_of(through_two_taps(rows), taps=("near", "far")), Known())
    assert (one.packets, one.severity) == (rounds, severity)
    assert one.share_high_percent < 100 * RARE


CLEAN = [write(0), last(1), answer(1)]


def with_ended(**sums):
    case = case_of(CLEAN)
    case.measuring.ended = Ended(
        flows=1200, queue_pairs=1200, packets=36_000, request_packets=36_000,
        first_time_ns=START_NS_ended - 1_000_000, last_time_ns=START_NS_ended, **sums,
    )  # fmt: skip
    return diagnose(case)


@pytest.mark.parametrize("field", ["recovered_packets", "lost_between_taps"])
def test_their_losses_are_a_warning(field):
    found = with_ended(flows_in_trouble=1200, **{field: 1200})
    (loss,) = found.findings
    assert (loss.kind, loss.severity, loss.packets, loss.flows) == ("loss", "warning", 1200, [])
    assert (loss.from_ns, loss.until_ns) == (START_NS_ended - 1_000_000, START_NS_ended)
    assert "of 1,200 flows that were idle and were removed from memory are lost" in loss.sentence
    assert found.summary == loss.sentence
    assert reaches(found, "warning")
    assert place(loss.place) == ""
    assert not any("lost" in claim for claim in found.healthy)


def test_flows_that_left_without_trouble_are_no_finding():
    found = with_ended()
    assert found.findings == []
    assert found.summary == "No fault found in 36,003 packets of 1,201 queue pairs"


def retransmitting(selective, *, loss, ack_every, ids=True, packets=2000):
    """Rows at the sender's tap: all losses are after it, and each lost packet is NAKed.

    A selective sender repeats the NAKed packet alone, the other all that follow.
    """
    chance, rows, at, sent = random.Random(1), [], 0, 0
    kind = {} if ids else {"ip_id": 0, "decode_flags": IPV6 | HAS_AETH}

    def send(psn):
        nonlocal at, sent
        at, sent = at + 1, sent + 1
        rows.append({"psn": psn, "at": at, **(kind or {"ip_id": sent})})

    def reply(psn, syndrome):
        rows.append(
            {"answer": True, "psn": psn, "opcode": ACK, "syndrome": syndrome, "at": at, **kind}
        )

    lost = []
    for psn in range(packets):
        send(psn)
        if chance.random() < loss:
            lost.append((at + 8, psn))
        while lost and lost[0][0] <= at:
            naked = lost.pop(0)[1]
            reply(naked, NAK_SEQUENCE_ERROR)
            at += 5
            for again in range(naked, naked + 1 if selective else psn + 1):
                send(again)
            lost = [one for one in lost if selective or one[1] < naked]
        if psn % ack_every == 0:
            reply(min((one[1] for one in lost), default=psn + 1) - 1, 0x1F)
    return rows


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("loss", [0.02, 0.1])
@pytest.mark.parametrize("ack_every", [1, 4, 50])
@pytest.mark.parametrize("selective", [True, False])
def test_selective_senders_are_told_apart_by_what_they_repeat(selective, ack_every, loss, ids):
    case = case_of(retransmitting(selective, loss=loss, ack_every=ack_every, ids=ids))
    flow = case.flows[0]
    assert flow.recovery.retransmission == ("selective" if selective else "go-back-n")
    (finding,) = diagnose(case).findings
    assert finding.place.direction == "after the tap"
    naks = flow.recovery.naks["PSN sequence error"]
    assert 0.95 * naks <= finding.packets <= naks
    assert flow.recovered_packets == flow.missing_packets == 0
    if selective:
        assert flow.retransmitted_packets == naks


def test_naks_without_the_packets_that_they_are_about_give_no_share():
    (one,) = losses_of_unpaired(case_of([answer(5, NAK, at=0), answer(9, NAK, at=50)]), Known())
    assert one.sentence.startswith("at least 2 packets from 10.0.0.1 to 10.0.0.2 are lost or late")
