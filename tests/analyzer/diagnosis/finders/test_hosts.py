"""Refusals, silence, timeouts, retries and odd traffic classes of queue pairs and hosts."""

from __future__ import annotations

import msgspec
import pytest
from cases import case_of
from cases import found as found_one_packet
from conformance_traces import NAK, answer, last, write
from fabric_captures import (
    ACKNOWLEDGE,
    START_NS,
    WRITE_MIDDLE,
    Pair,
    between,
    drop,
    place_of,
    queue,
    simulate,
    warnings,
)
from fabric_captures import diagnosis as diagnosis_of
from fabric_captures import write as write_taps
from factories_results import diagnosis

from rocescope.analyzer.diagnosis.finders.hosts import (
    fatal_naks,
    receivers_not_ready,
    refuses_one,
    retry_storms,
    rounds_of,
    stalled,
    timeout_recoveries,
    traffic_classes,
)
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.results.diagnosis import Place

BEGIN = [write(0, at=0), last(1, at=1), answer(1, at=9), last(2, at=10)]


def found(*rows):
    return list(fatal_naks(case_of([*BEGIN, *rows]), Known()))


@pytest.mark.parametrize(
    ("syndrome", "name"),
    [
        (0x61, "invalid request"),
        (0x62, "remote access error"),
        (0x63, "remote operational error"),
    ],
)
def test_the_code_is_named_and_the_queue_pair_dead(syndrome, name):
    (one,) = found(answer(2, syndrome, at=20))
    assert (one.kind, one.severity, one.packets, one.flows) == ("fatal-nak", "critical", 1, [0])
    assert f"10.0.0.2 refuses requests: 1 NAK {name}" in one.sentence
    assert one.sentence.endswith("1 of 1 QP dead")
    assert [e.frame_number for e in one.evidence] == [5]


def test_a_sender_that_goes_on_is_not_dead():
    (one,) = found(answer(2, 0x61, at=20), write(3, at=30), last(4, at=31), answer(4, at=40))
    assert one.severity == "warning"


def test_sequence_errors_are_not_fatal():
    assert found(answer(2, NAK, at=20)) == []


RNR = 0x2E
ACKED = [write(0, at=0), last(1, at=1), answer(1, at=9)]


def test_one_finding_per_host():
    rows = [
        *ACKED,
        last(2, at=10),
        answer(2, RNR, at=20),
        last(2, at=900, ip_id=80),
    ]
    rows += [answer(2, RNR, at=910), last(2, at=1800, ip_id=81), answer(2, at=1810)]
    (one,) = receivers_not_ready(case_of(rows), Known())
    assert (one.kind, one.packets, one.flows, one.place.host) == (
        "receiver-not-ready", 2, [0], "10.0.0.2",
    )  # fmt: skip
    assert "10.0.0.2 is not ready to receive: 2 RNR NAKs" in one.sentence
    assert one.confidence == "proven"


def test_acks_are_no_finding():
    assert list(receivers_not_ready(case_of(ACKED), Known())) == []


MS = 1000
DEAD = [*ACKED, last(2, at=10), *(last(2, at=60 * MS * n, ip_id=80 + n) for n in (1, 2, 3))]


def test_a_sender_that_nobody_answers():
    (one,) = stalled(case_of(DEAD), Known())
    assert (one.kind, one.severity, one.packets, one.until_ns) == ("stalled", "critical", 3, None)
    assert (one.place.host, one.place.dest_qp) == ("10.0.0.2", 0x11)
    assert "10.0.0.1 to 10.0.0.2 QP 0x000011 retransmits without an answer" in one.sentence
    assert (one.place.from_tap, one.place.direction) == ("tap", "after the tap")


def test_silence_is_only_a_possible_fault():
    other = last(7, at=5000 * MS, dest_qp=0x77)
    (one,) = stalled(case_of([*ACKED, last(2, at=10), other]), Known())
    assert one.confidence == "possible"


def test_a_known_blackhole_explains_it():
    case = case_of(DEAD)
    cause = msgspec.structs.replace(
        diagnosis().findings[0], kind="blackhole", flows=[0], from_ns=case.first_ns
    )
    assert list(stalled(case, Known([cause]))) == []


def test_who_waits_in_a_long_queue_is_not_dead(tmp_path):
    """The last requests wait for longer than several timeouts when the captures end."""
    run = simulate(fault=queue("leaf1-spine2", "leaf2-spine2", 3e6))
    taps = {
        tap: [s for s in sightings if s.time_ns < START_NS + 380_000_000]
        for tap, sightings in run.taps.items()
    }
    found = diagnosis_of(write_taps(tmp_path, taps))
    assert [one.kind for one in warnings(found)] == ["queueing"]
    assert "dead" not in found.findings[0].sentence


def test_answered_senders():
    assert list(stalled(case_of([*DEAD, answer(2, at=200 * MS)]), Known())) == []


@pytest.mark.parametrize(("limit", "far"), [(64, False), (62, True)])
def test_without_a_tap_on_the_link_of_the_receiver_it_may_be_the_network(limit, far):
    """The hop limit tells whether a router forwarded the answers before the first tap."""
    rows = [row | {"hop_limit": limit if row.get("answer") else 64} for row in DEAD]
    (one,) = stalled(case_of(rows, taps=("a", "b")), Known())
    assert ("the receiver is dead, or packets are lost" in one.sentence) == far
    assert one.confidence == ("possible" if far else "likely")
    assert one.next_step.startswith("capture on the link of the receiver") == far
    (alone,) = stalled(case_of(rows), Known())
    assert alone.confidence == "likely"


def test_packets_that_a_device_swallows_where_nothing_tells_the_next_tap(tmp_path):
    """The only queue pair between these hosts: the finding says where its packets were last."""
    vanish = between("leaf1-spine2", "leaf2-spine2", drop)
    run = simulate([Pair(1, 3, 0x101, 50001)], vanish, lambda packet, now: 2)
    (one,) = warnings(diagnosis_of(write_taps(tmp_path, run.taps)))
    assert one.kind == "stalled"
    assert (
        "without an answer, never seen after leaf1-spine2: the receiver is dead, or" in one.sentence
    )
    assert "--fabric" in one.next_step


LOST = [*ACKED, last(2, at=10), last(2, at=4000, ip_id=80), answer(2, at=4010)]
LATE = [*LOST, answer(2, at=4011)]
LOST_ACK = [
    *ACKED,
    last(2, at=10),
    answer(2, at=15),
    last(2, at=4000, ip_id=80),
    answer(2, at=4010),
]


def found_timeout_recovery(rows, known=None):
    return list(timeout_recoveries(case_of(rows), known or Known()))


def test_a_timeout_without_a_nak():
    (one,) = found_timeout_recovery(LOST)
    assert (one.kind, one.packets, one.flows) == ("timeout-recovery", 1, [0])
    assert "no NAK came" in one.sentence
    assert one.cost_ns == 3_990_000


def test_two_answers_to_one_packet_show_a_late_ack():
    (one,) = found_timeout_recovery(LATE)
    assert "the ACKs arrived late" in one.sentence


def test_an_ack_that_the_sender_did_not_get():
    (one,) = found_timeout_recovery(LOST_ACK)
    assert "the ACKs were late or lost after the tap" in one.sentence


@pytest.mark.parametrize("taps", [("tap",), ("near", "far")])
def test_only_a_capture_that_is_missing_is_asked_for(taps):
    """Taps see the packets of both hosts before any router."""
    (one,) = timeout_recoveries(case_of(LOST_ACK, taps=taps), Known())
    assert ("a capture at the other host" in one.next_step) == (len(taps) == 1)


def test_retransmissions_whose_answers_pass_no_tap():
    rows = [write(0, at=0), last(1, at=1), last(2, at=10), last(2, at=4000, ip_id=80)]
    (one,) = found_timeout_recovery(rows)
    assert "lost or late after the tap; their answers are seen at no tap" in one.sentence
    assert one.confidence == "possible"


FROM, UNTIL = 100_000_000, 300_000_000


@pytest.mark.parametrize(
    ("leaf", "after", "before", "step"),
    [
        ("leaf1", None, "leaf1-spine2", "on the link of 10.0.1.1 and 2 more"),
        ("leaf2", "leaf2-spine2", None, "on the link of 10.0.1.1 and 2 more"),
    ],
)
def test_the_uplinks_of_a_leaf_show_where_acks_vanish(tmp_path, leaf, after, before, step):
    """Data goes over several links, the lost ACKs over one."""
    acks = between(
        "leaf2-spine2", "leaf1-spine2", drop, FROM, UNTIL, lambda p: p.opcode == ACKNOWLEDGE
    )
    taps = {tap: seen for tap, seen in simulate(fault=acks).taps.items() if tap.startswith(leaf)}
    uplinks = {tap: seen for tap, seen in taps.items() if "spine" in tap}
    (one,) = warnings(diagnosis_of(write_taps(tmp_path, uplinks)))
    assert one.kind == "timeout-recovery"
    assert place_of(one)[:2] == (after, before)
    assert f"lost before {before}" in one.sentence or f"lost after {after}" in one.sentence
    assert step in one.next_step


def test_the_end_of_messages_that_never_came_was_lost_before_the_first_tap(tmp_path):
    """No packet asks for an ACK; both directions over the link wait for timeouts."""

    def asks(packet):
        return packet.opcode != WRITE_MIDDLE

    lost = between("leaf1-spine2", "leaf2-spine2", drop, FROM, UNTIL, asks)
    taps = simulate(fault=lost).taps.items()
    uplinks = {tap: seen for tap, seen in taps if tap.startswith("leaf2-spine")}
    found = warnings(diagnosis_of(write_taps(tmp_path, uplinks)))
    assert {one.place.to_tap for one in found} == {"leaf2-spine2.pcap"}


@pytest.mark.parametrize("leaf", ["leaf1", "leaf2", ""])
def test_one_outage_is_one_finding_in_every_view(tmp_path, leaf):
    """Of data and of ACKs of other flows, which wait for timeouts."""
    down = between("leaf1-spine2", "leaf2-spine2", drop, FROM, UNTIL)
    taps = simulate(fault=down).taps.items()
    some = {tap: seen for tap, seen in taps if not leaf or tap.startswith(f"{leaf}-")}
    (one,) = warnings(diagnosis_of(write_taps(tmp_path, some)))
    assert one.kind == ("loss" if leaf else "outage")


def test_a_one_way_capture_of_a_flow_that_came_from_another_link_names_no_place():
    """Its sender goes back to packets that the tap has not seen: they were lost elsewhere."""
    rows = [write(5, at=0), last(6, at=10)]
    rows += [write(psn, at=4000 + psn, ip_id=80 + psn) for psn in (5, 6)]
    (one,) = timeout_recoveries(case_of(rows), Known())
    assert (one.place.from_tap, one.place.to_tap) == (None, None)


def test_the_end_of_a_message_that_was_lost_before_the_tap_names_no_place_after_it():
    """What the tap saw asked for no ACK; the receiver may have it, and the sender repeats it."""
    end = [last(3, at=4001, ip_id=81), answer(3, at=4010)]
    rows = [*ACKED, write(2, at=10), write(2, at=4000, ip_id=80), *end]
    (one,) = found_timeout_recovery(rows)
    assert (one.place.from_tap, one.place.to_tap) == (None, None)
    (asked,) = found_timeout_recovery(LOST)
    assert asked.place.from_tap == "tap"


@pytest.mark.parametrize(
    ("kind", "place", "later_ns", "explained"),
    [
        ("link-down", {"to_tap": "tap"}, 0, True),
        ("link-down", {"to_tap": "other"}, 0, False),
        ("link-down", {"to_tap": "tap"}, -6_000_000_000, False),
        ("outage", {"from_tap": "tap"}, 0, True),
        ("outage", {"from_tap": "tap", "to_tap": "other"}, 0, False),
        ("stalled", {"from_tap": "tap", "host": "10.0.0.2"}, 0, True),
        ("stalled", {"from_tap": "tap", "host": "10.0.0.9"}, 0, False),
        ("loss", {"from_tap": "tap", "direction": "after the tap"}, 0, True),
        ("loss", {"to_tap": "tap", "direction": "before the tap"}, 0, False),
    ],
)
def test_a_fault_at_the_same_place_explains_timeouts_of_other_flows(
    kind, place, later_ns, explained
):
    case = case_of(LOST)
    cause = msgspec.structs.replace(
        diagnosis().findings[0],
        kind=kind,
        severity="critical",
        flows=[],
        place=Place(**place),
        from_ns=case.first_ns + later_ns,
        until_ns=None,
    )
    assert (not list(timeout_recoveries(case, Known([cause])))) == explained


def test_a_known_loss_explains_it():
    case = case_of(LOST)
    cause = msgspec.structs.replace(
        diagnosis().findings[0], kind="loss", flows=[0], from_ns=case.first_ns
    )
    assert list(timeout_recoveries(case, Known([cause]))) == []


def test_one_that_costs_little_is_a_note():
    (one,) = found_timeout_recovery([*LOST, last(3, at=10**6, ip_id=81), answer(3, at=10**6 + 9)])
    assert one.severity == "note"


def test_the_host_that_all_share_is_named():
    """10.0.0.2 waits as a sender and as a receiver, with two other hosts."""
    there = [row | ({"dst": 3} if row.get("answer") else {"src": 3}) for row in LOST]
    back = [row | {"at": row["at"] + 20} for row in LOST]
    back = [
        row | ({"src": 4, "dst": 1} if row.get("answer") else {"src": 1, "dst": 4}) for row in back
    ]
    (one,) = found_timeout_recovery([*there, *back])
    assert one.place.host == "10.0.0.2"
    assert "between 10.0.0.2 and 2 hosts" in one.sentence


def test_clean_flows():
    assert found_timeout_recovery(ACKED) == []


def refused(rounds, others=0):
    """PSN 2 is NAKed so many times, although the tap sees it; then each of the others once."""
    rows = [write(n, at=n, ip_id=n) for n in range(4)]
    for n in range(rounds):
        at = 100 * n + 50
        rows += [answer(2, NAK, at=at), write(2, at=at + 20, ip_id=10 + 2 * n)]
        rows += [write(3, at=at + 21, ip_id=11 + 2 * n)]
    for n in range(others):
        psn, at = 4 + n, 10_000 + 100 * n
        rows += [write(psn, at=at, ip_id=200 + 2 * n), answer(psn, NAK, at=at + 20)]
        rows += [write(psn, at=at + 40, ip_id=201 + 2 * n)]
    return case_of([*rows, last(4 + others, at=99_000, ip_id=500), answer(4 + others, at=99_999)])


@pytest.mark.parametrize(
    ("rounds", "others", "one"), [(3, 0, False), (4, 0, True), (20, 0, True), (4, 8, False)]
)
def test_nearly_all_naks_are_for_one_packet(rounds, others, one):
    case = refused(rounds, others)
    assert rounds_of(case, 0) == rounds
    assert refuses_one(case, 0) == one


@pytest.mark.parametrize(("again", "one"), [(9, False), (2, True)])
def test_timeouts_of_another_packet_are_no_refusal(again, one):
    """Go-back-N receivers NAK a packet once, and the sender goes back to it after timeouts. PSN 2
    is NAKed; the timeouts are of it or of another one."""
    rows = [write(n, at=n, ip_id=n) for n in range(12)]
    rows += [answer(2, NAK, at=50), *(write(n, at=58 + n, ip_id=20 + n) for n in range(2, 12))]
    rows += [answer(again - 1, at=90)] * (again > 2)
    for n in range(8):
        at = 100 + 50 * n
        rows += [write(p, at=at + p, ip_id=50 + 12 * n + p) for p in range(again, 12)]
    case = case_of([*rows, last(12, at=90_000, ip_id=500), answer(12, at=99_999)])
    assert rounds_of(case, 0) >= 8
    assert refuses_one(case, 0) == one


def test_packets_naked_once_each_before_timeouts_of_one_are_lost():
    rows = [write(n, at=n, ip_id=n) for n in range(12)]
    for psn in (2, 4, 6, 8, 10):
        at = 100 * psn
        rows += [answer(psn, NAK, at=at)]
        rows += [write(n, at=at + n, ip_id=20 * psn + n) for n in range(psn, 12)]
    for n in range(8):
        rows += [write(p, at=2_000 + 50 * n + p, ip_id=500 + 2 * n + p) for p in (10, 11)]
    case = case_of([*rows, last(12, at=90_000, ip_id=900), answer(12, at=99_999)])
    assert rounds_of(case, 0) >= 8
    assert not refuses_one(case, 0)
    assert ("loss", 5) in [(kind, packets) for kind, _, packets in found_one_packet(case)]


def found_retry_storm(rounds):
    rows = [*BEGIN]
    for n in range(1, rounds + 1):
        rows += [answer(2, NAK, at=100 * n), last(2, at=100 * n + 50, ip_id=80 + n)]
    return list(retry_storms(case_of([*rows, answer(2, at=99_999)]), Known()))


def test_four_rounds_are_a_storm():
    (one,) = found_retry_storm(4)
    assert (one.kind, one.packets, one.flows) == ("retry-storm", 4, [0])
    assert "one PSN 4 times in a row" in one.sentence


def test_three_are_bad_luck():
    assert found_retry_storm(3) == []


ECT = 2


def case(classes, **more):
    """One flow per traffic class byte."""
    return case_of(
        [write(n, dest_qp=9 + i, traffic_class=c, **more) for i, c in enumerate(classes)
         for n in range(3)]
    )  # fmt: skip


def found_traffic_class(one):
    return [(f.kind, f.severity, f.flows) for f in traffic_classes(one, Known())]


def test_one_queue_pair_in_the_default_class():
    one = case([26 << 2, 26 << 2, 0, 26 << 2])
    assert found_traffic_class(one) == [("dscp-mismatch", "warning", [2])]
    (finding,) = traffic_classes(one, Known())
    assert "1 flow with DSCP 0, where 26 is usual between 10.0.0.1 and 10.0.0.2" in finding.sentence


def test_not_ect_beside_ect():
    assert found_traffic_class(case([ECT, ECT, 0, ECT])) == [("dscp-mismatch", "warning", [2])]


def test_classes_that_are_mixed_on_purpose():
    assert found_traffic_class(case([26 << 2, 0, 26 << 2 | ECT, ECT, 0, 26 << 2])) == []


def test_one_class_for_all():
    assert found_traffic_class(case([26 << 2 | ECT] * 4)) == []


def test_acks_may_have_a_class_of_their_own():
    rows = [write(0, traffic_class=26 << 2), answer(0, traffic_class=0)]
    assert found_traffic_class(case_of(rows)) == []


def test_other_hosts_are_a_note():
    rows = [
        write(n, src=2 * i, dst=2 * i + 1, traffic_class=c << 2)
        for i, c in enumerate((26, 26, 26, 0))
        for n in range(2)
    ]
    assert found_traffic_class(case_of(rows)) == [("dscp-mismatch", "note", [3])]
