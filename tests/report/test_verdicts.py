"""The sentences: right numbers, right words, and never a claim about what is unknown."""

from __future__ import annotations

import factories_results as factories
import msgspec
import pytest

from rocescope.analyzer.results.captures import Ended
from rocescope.analyzer.results.diagnosis import LOST_AGAIN, Diagnosis
from rocescope.report import verdicts


def test_clean_capture() -> None:
    analysis = factories.clean_analysis()
    assert verdicts.is_orderly(analysis)
    assert (
        verdicts.trust(analysis) == "The capture dropped no frame; none was damaged or undecodable."
    )
    assert verdicts.spraying(analysis) == "The only data flow uses one source port."
    assert verdicts.reordering(analysis) == "No packet arrived out of order."
    assert verdicts.loss(analysis) == "No packet was lost, retransmitted or duplicated."
    assert verdicts.congestion(analysis) == "No packet was marked CE; no CNP was sent."


def test_a_capture_that_does_not_count_its_drops_claims_nothing_about_them() -> None:
    capture = factories.capture(taps=[factories.tap("leaf1", 100, dropped=None)])
    assert verdicts.trust(factories.analysis(captures=[capture])) == (
        "No frame was damaged or undecodable; the capture does not say whether it dropped frames."
    )


def test_spraying_names_how_many_spray_and_what_the_others_carry() -> None:
    flows = [factories.sprayed_flow(i, 30_000) for i in range(3)]
    flows += [factories.flow(i, 20_000) for i in range(3, 8)]
    flows.append(factories.ack_flow(8, 10**6))  # carries no data, so it does not count
    # 5 * 20,000 of 3 * 30,000 + 5 * 20,000 packets of one size
    assert verdicts.spraying(factories.analysis(flows=flows)) == (
        "3 of 8 flows spray over 8 source ports (width 8.0); "
        "5 use one path and carry 52.6 % of the bytes."
    )


def test_spraying_by_tap_speaks_of_taps() -> None:
    flow = factories.sprayed_flow(0)
    by_tap = factories.spraying([factories.path("leaf1", 40_000, 0.5)] * 2, 2.0)
    taps = factories.msgspec.structs.replace(by_tap, path_by="tap")
    flow = factories.msgspec.structs.replace(
        flow, paths=taps.paths, spraying=[*flow.spraying, taps], spraying_width=2.0
    )
    text = verdicts.spraying(factories.analysis(flows=[flow]))
    assert text == "1 of 1 flow sprays over 2 taps (width 2.0)."


def test_a_flow_that_leaves_its_path_for_good_moves_and_does_not_spray() -> None:
    start, later = factories.START_NS, factories.START_NS + 250_000_000
    replace = factories.msgspec.structs.replace
    halves = [factories.path("spine2", 50, 0.5), factories.path("spine3", 50, 0.5)]
    halves[1] = replace(halves[1], first_time_ns=later)
    record = replace(factories.spraying(halves, 2.0), path_by="tap", switches=1)
    moved = factories.flow(0, 100, paths=halves, spraying=[record], spraying_width=2.0)
    assert halves[0].first_time_ns == start
    both = factories.analysis(flows=[moved, factories.flow(1, 100)])
    text = "None of 2 flows sprays: 1 moved to another tap (after 250 ms), 1 used one tap."
    assert verdicts.spraying(both) == text
    back = replace(moved, spraying=[replace(record, switches=2)])
    assert verdicts.spraying(factories.analysis(flows=[back])) == (
        "1 of 1 flow sprays over 2 taps (width 2.0)."
    )


def test_spraying_that_only_the_taps_show_is_not_passed_over() -> None:
    replace = factories.msgspec.structs.replace
    flow = factories.flow(0, 100)
    taps = factories.spraying([factories.path("spine2", 50, 0.5)] * 2, 2.0)
    by_tap = replace(taps, path_by="tap")
    flow = replace(flow, spraying=[*flow.spraying, by_tap])
    assert verdicts.spraying(factories.analysis(flows=[flow])) == (
        "1 of 1 flow sprays over several taps (--path-by tap), each with one source port."
    )
    moved = replace(flow, spraying=[*flow.spraying[:-1], replace(by_tap, switches=1)])
    text = verdicts.spraying(factories.analysis(flows=[flow, moved]))
    assert text == (
        "1 of 2 flows sprays over several taps (--path-by tap), each with one source port. "
        "But 1 flow moved to another tap; add --path-by tap."
    )


def test_a_window_longer_than_the_capture_gives_no_rate() -> None:
    replace = factories.msgspec.structs.replace
    one = replace(factories.series(1), window_ns=10**9)
    assert "peak rate" in verdicts.overview(factories.analysis())
    assert "peak rate" not in verdicts.overview(factories.analysis(series=one))


def test_icrc_is_told_where_it_was_asked_for() -> None:
    assert verdicts.icrc(factories.analysis()) is None
    assert verdicts.icrc(factories.doubtful_analysis()) == (
        "ICRC: 100 correct, 2 wrong; 142,706 packets truncated, not verified."
    )


def test_reordering_names_the_path_and_the_buffer() -> None:
    assert verdicts.reordering(factories.analysis()) == (
        "6,400 of 138,636 packets (4.6 %) arrived late, in 1 of 4 flows, all of them over "
        "source port 50007. A receiver must buffer 12 packets (12.3 kB) to restore the order."
    )


def test_unknown_order_is_not_good_order() -> None:
    unknown = factories.flow(1, 100, reordered_packets=None, reordering=None, missing_packets=None)
    analysis = factories.analysis(flows=[factories.flow(0, 100), unknown])
    assert not verdicts.is_orderly(analysis)
    assert verdicts.reordering(analysis) == (
        "No packet arrived out of order. The order of 1 flow is unknown."
    )
    assert verdicts.loss(analysis) == (
        "No packet was lost, retransmitted or duplicated. Loss in 1 flow is unknown."
    )
    alone = factories.analysis(flows=[unknown])
    assert verdicts.reordering(alone) == "Packet order cannot be judged in any flow."


def test_loss_tells_its_kinds_apart() -> None:
    assert verdicts.loss(factories.analysis()) == (
        "2,100 packets were retransmitted in 1 of 4 flows; "
        "100 packets were lost before the tap and recovered; "
        "3 packets were never seen (2 of them acknowledged: most likely not captured); "
        "4 packets were duplicated by the network; 98 NAKs and 2 RNR NAKs; "
        "the slowest retransmission came after 537 ms of silence."
    )


def test_loss_beyond_the_tap_is_not_called_loss_before_it() -> None:
    flow = factories.flow(0, 100, retransmitted_packets=7)
    assert verdicts.loss(factories.analysis(flows=[flow])) == (
        "7 packets were retransmitted in 1 of 1 flow, although none was lost before the tap."
    )


def test_loss_between_taps_is_loss_though_nothing_was_retransmitted() -> None:
    gone = factories.analysis(flows=[factories.flow(0, 100, lost_between_taps=60)])
    assert verdicts.loss(gone) == "60 packets were lost between taps."
    assert not verdicts.is_orderly(gone)
    assert verdicts.is_orderly(factories.analysis(flows=[factories.flow(0, 100)]))


def test_fatal_naks_are_named() -> None:
    flow = factories.flow(0, 100)
    kinds = {"PSN sequence error": 1, "remote access error": 2}
    recovery = factories.msgspec.structs.replace(flow.recovery, naks=kinds)
    flow = factories.msgspec.structs.replace(flow, recovery=recovery)
    analysis = factories.analysis(flows=[flow, factories.ack_flow(1, 5, naks=3)])
    assert verdicts.loss(analysis) == "3 NAKs (2 remote access error, 1 PSN sequence error)."


def test_several_taps_are_judged_at_the_first() -> None:
    analysis = factories.analysis(flows=[factories.flow(0, 100, tap_copies=100)])
    assert verdicts.reordering(analysis) == (
        "No packet arrived out of order. Each packet is judged at the tap that saw it first; "
        "to judge the order at the receiver, analyse only the tap next to it."
    )


@pytest.mark.parametrize(
    ("late", "says"),
    [
        (0, "between taps none was overtaken."),
        (
            7,
            "7 packets of 1 flow were overtaken on the way to later taps, most of them from a to"
            " b; none was late at the tap that saw it first.",
        ),
    ],
)
def test_packets_overtaken_between_taps(late: int, says: str) -> None:
    flow = factories.flow(0, 100, tap_copies=100, reordered_between_taps=late)
    hops = [
        factories.hop(id=n, from_tap=ends[0], to_tap=ends[1], reordered_packets=packets)
        for n, (ends, packets) in enumerate((("bc", 0), ("ab", late and 4), ("ac", late and 3)))
    ]
    analysis = factories.analysis(flows=[flow], hops=hops)
    assert verdicts.reordering(analysis).endswith(says)
    assert ("No packet" in verdicts.reordering(analysis)) == (not late)
    assert verdicts.is_orderly(analysis) == (not late)


@pytest.mark.parametrize("field", ["naks", "rnr_naks"])
def test_a_nak_alone_is_not_good_order(field: str) -> None:
    analysis = factories.analysis(
        flows=[factories.flow(0, 100), factories.ack_flow(1, 5, **{field: 1})]
    )
    assert not verdicts.is_orderly(analysis)
    assert "1 " in verdicts.loss(analysis)


def test_congestion() -> None:
    assert verdicts.congestion(factories.doubtful_analysis()) == (
        "400 of 142,808 ECN-capable packets (0.28 %) were marked CE; 918 CNPs; "
        "77 pause frames (9.20 ms paused). Data packets carry DSCP 0 and 26; 1 flow mixes them."
    )
    flow = factories.flow(0, 100)
    never = factories.msgspec.structs.replace(flow.congestion, ecn_capable_packets=0)
    flow = factories.msgspec.structs.replace(flow, congestion=never)
    assert verdicts.congestion(factories.analysis(flows=[flow])) == (
        "No packet was ECN-capable, so no switch could mark congestion; no CNP was sent."
    )


def test_imbalance_stands_beside_chance() -> None:
    assert verdicts.imbalance(factories.imbalance()) == (
        "leaf1 uplinks: the busiest of 4 paths (leaf1-spine0) carries 1.60 times its fair "
        "share; FIM of 48 flows: 30.0 % (ideal hashing: 23.4 %)."
    )


def test_names_of_parallel_taps_without_what_all_have_in_common() -> None:
    replace, record = factories.msgspec.structs.replace, factories.imbalance()
    files = [replace(share, path=f"{share.path}.pcap.xz") for share in record.shares]
    record = replace(record, shares=files)
    assert verdicts.path_names(record)["leaf1-spine0.pcap.xz"] == "leaf1-spine0"
    assert "(leaf1-spine0) carries" in verdicts.imbalance(record)
    record = replace(record, path_by="entropy")
    assert verdicts.path_names(record)["leaf1-spine0.pcap.xz"] == "leaf1-spine0.pcap.xz"


def test_latency_without_the_other_direction() -> None:
    flow = factories.flow(0, 6_400)
    none = factories.msgspec.structs.replace(flow.message_statistics, completion_ns=None)
    flow = factories.msgspec.structs.replace(
        flow, message_statistics=none, latency=factories.Latency(None, None)
    )
    assert verdicts.latency(factories.analysis(flows=[flow])) == (
        "100 messages of 64 KiB; "
        "completion is unknown because the other direction was not captured."
    )


def test_messages_nobody_acknowledged_are_counted() -> None:
    flow = factories.flow(0, 6_400, connection=1)  # 100 messages, all acknowledged
    done = flow.message_statistics.completion_ns
    assert done is not None
    assert "never" not in verdicts.latency(factories.analysis(flows=[flow]))
    fewer = factories.msgspec.structs.replace(
        flow.message_statistics,
        completion_ns=factories.msgspec.structs.replace(done, count=done.count - 8),
    )
    flow = factories.msgspec.structs.replace(flow, message_statistics=fewer)
    assert "completion p50 60.0 us (p99 up to 120 us), 8 never acknowledged;" in verdicts.latency(
        factories.analysis(flows=[flow])
    )


def test_datagrams_have_no_order_to_break() -> None:
    datagrams = factories.flow(1, 100, transport="UD", reordered_packets=None, missing_packets=None)
    both = factories.analysis(flows=[factories.flow(0, 100), datagrams])
    assert verdicts.is_orderly(both)
    assert verdicts.reordering(both) == "No packet arrived out of order."
    alone = factories.analysis(flows=[datagrams])
    assert not verdicts.is_orderly(alone)
    assert verdicts.loss(alone) == "No flow has sequence numbers that show losses."


def test_the_sums_of_ended_flows_say_which_numbers_include_them() -> None:
    analysis = msgspec.structs.replace(
        factories.analysis(), ended=Ended(flows=2, packets=9, partial_flows=1)
    )
    said = verdicts.ended(analysis)
    assert said is not None
    assert said.startswith("2 flows were idle and removed from memory, with 9 packets")
    assert "1 flow was seen only in part: losses there are unknown." in said
    assert said.endswith("All numbers below exclude these flows, except the hops between taps.")


def test_the_sentence_about_loss_accounts_for_what_the_diagnosis_counts() -> None:
    """The diagnosis counts retransmissions that were lost too, columns of flows do not."""
    lost = factories.diagnosis().findings[0]
    again = msgspec.structs.replace(lost, details={LOST_AGAIN: 8})
    found = factories.analysis(diagnosis=Diagnosis("", [again], [], []))
    assert "lost before the tap and recovered, and 8 retransmissions lost too" in verdicts.loss(
        found
    )
    assert "lost too" not in verdicts.loss(factories.analysis())
