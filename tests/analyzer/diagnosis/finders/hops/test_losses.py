"""Loss on a hop: its kind, its place, its packets and its victims."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import dpkt
import pytest
from examples import examples
from fabric_captures import (
    DURATION,
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
    write,
)
from factories import Pcapng
from hypothesis import given
from hypothesis import strategies as st

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
    paths = write(tmp_path, kept)
    assert [finding.kind for finding in warnings(diagnosis(paths))] == ["stalled"]
    (finding,) = warnings(diagnosis(paths, fabric_links()))
    assert (finding.kind, place_of(finding)) == ("blackhole", place)
    assert "(next tap by the fabric file)" in finding.sentence
    assert flows_of(finding) == flows_hit(run.hits)
    # The last packets may be in flight when the captures end.
    assert len(run.hits) - 2 <= finding.packets <= len(run.hits)
    whole = simulate([Pair(1, 3, 0x101, 50001)], route=lambda packet, now: 2).taps
    clean = write(tmp_path, {tap: whole[tap] for tap in kept})
    assert warnings(diagnosis(clean, fabric_links())) == []


@pytest.fixture(scope="module")
def lossy():
    return simulate(fault=between(NEAR, FAR, drop, FROM, which=some(0.1)))


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
    paths = [path for path in write(tmp_path, run.taps) if path.name != "H4-leaf2.pcap"]
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
    paths = [path for path in write(tmp_path, run.taps) if path.name != "H4-leaf2.pcap"]
    by_kind = {one.kind: one for one in warnings(diagnosis(paths))}
    assert set(by_kind) == {"rate-limit", "loss"}
    of_slow = [hit for hit in run.lost if hit.packet.src != 4]
    assert place_of(by_kind["rate-limit"]) == TO_H3
    assert by_kind["rate-limit"].packets == len(of_slow)
    assert by_kind["loss"].place.host == address(4)
    assert 0 < by_kind["loss"].packets <= len(run.lost) - len(of_slow)


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
    found = warnings(diagnosis(write(tmp_path, taps)))
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
    for path in write(tmp_path, lossy.taps):
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
    paths = write(tmp_path, lossy.taps)
    (one,) = warnings(diagnosis(paths))
    random.Random(3).shuffle(paths)
    (other,) = warnings(diagnosis(paths))
    assert (one.sentence, one.place, one.packets) == (other.sentence, other.place, other.packets)
    names(other, "loss", SPINE, lossy.hits)


@pytest.mark.parametrize("gone", random.Random(11).sample(sorted({*LINKS} - {NEAR, FAR}), 2))
def test_a_missing_tap_elsewhere_changes_nothing(tmp_path, lossy, gone):
    taps = {tap: seen for tap, seen in lossy.taps.items() if tap != gone}
    (one,) = warnings(diagnosis(write(tmp_path, taps)))
    names(one, "loss", SPINE, lossy.hits)


@pytest.mark.parametrize("gone", [NEAR, FAR])
def test_a_missing_tap_beside_the_fault_widens_the_place(tmp_path, lossy, gone):
    taps = {tap: seen for tap, seen in lossy.taps.items() if tap != gone}
    (one,) = warnings(diagnosis(write(tmp_path, taps)))
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
