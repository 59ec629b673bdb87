"""What counts as new, worse, better, gone or unchanged."""

from __future__ import annotations

from typing import Any

import factories_results as factories
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.compare import Comparison
from rocescope.analyzer.results.diagnosis import LOST_AGAIN, Diagnosis, Finding, Place
from rocescope.report.compare import compare, share_change

LOSS, SPRAYING = factories.diagnosis().findings


def changed(finding: Finding, **values: Any) -> Finding:
    return msgspec.structs.replace(finding, **values)


def found(*findings: Finding, **values: Any) -> Analysis:
    diagnosis = Diagnosis("", list(findings), [], [])
    return factories.analysis(diagnosis=diagnosis, **values)


def compared(before: Analysis, after: Analysis) -> Comparison:
    return compare(before, after, ("before", "after"))


def test_an_analysis_equals_itself() -> None:
    result = compared(factories.analysis(), factories.analysis())
    assert result.change == "unchanged"
    assert {one.change for one in result.findings} == {"unchanged"}
    assert {one.change for one in result.flows} == {"unchanged"}
    assert result.figures_before == result.figures_after
    assert result.worse == result.better == []


@pytest.mark.parametrize(
    ("before", "after", "change", "whole"),
    [
        ([], [LOSS], "new", "worse"),
        ([LOSS], [], "gone", "better"),
        ([], [SPRAYING], "new", "unchanged"),
        ([SPRAYING], [], "gone", "unchanged"),
        ([LOSS], [changed(LOSS, packets=790)], "worse", "worse"),
        ([LOSS], [changed(LOSS, packets=7)], "better", "better"),
        ([LOSS], [changed(LOSS, packets=75)], "unchanged", "unchanged"),
        ([LOSS], [changed(LOSS, severity="critical")], "worse", "worse"),
        ([LOSS], [changed(LOSS, severity="note")], "better", "better"),
        ([LOSS], [changed(LOSS, kind="blackhole")], "new", "worse"),
        ([LOSS], [changed(LOSS, place=Place("x", "y", "spine2", "leaf1 to leaf2"))],
         "unchanged", "unchanged"),
        ([LOSS], [changed(LOSS, place=Place("x", "y", "spine2", "leaf2 to leaf1"))],
         "new", "worse"),
    ],
)  # fmt: skip
def test_findings(before: list[Finding], after: list[Finding], change: str, whole: str) -> None:
    result = compared(found(*before), found(*after))
    assert result.findings[0].change == change
    assert result.change == whole


def test_two_findings_at_one_place_stay_two() -> None:
    result = compared(found(LOSS, LOSS), found(LOSS))
    assert [one.change for one in result.findings] == ["gone", "unchanged"]


def test_flows_are_matched_by_addresses_and_queue_pair_not_by_id() -> None:
    one, other = factories.flow(0, 10_000), factories.flow(1, 10_000)
    lossy = msgspec.structs.replace(one, id=1, recovered_packets=300, goodput_bits_per_second=1e6)
    third = factories.flow(7, 500)
    result = compared(found(flows=[one, other]), found(flows=[third, lossy]))
    changes = {(flow.dest_qp, flow.change) for flow in result.flows}
    assert changes == {(one.dest_qp, "worse"), (other.dest_qp, "gone"), (third.dest_qp, "new")}
    (worse,) = (flow for flow in result.flows if flow.change == "worse")
    assert worse.worse == ["lost_packets", "goodput_bits_per_second"]
    assert result.change == "worse" and "lost_packets" in result.worse


def test_what_only_the_capture_missed_is_not_lost() -> None:
    flow = factories.flow(0, 10_000, missing_packets=30, capture_loss_suspected_packets=30)
    assert compared(found(flows=[flow]), found(flows=[flow])).figures_before.lost_packets == 0


def test_unknown_figures_are_not_judged() -> None:
    flow = factories.flow(0, 10_000)
    unknown = msgspec.structs.replace(flow, missing_packets=None, goodput_bits_per_second=None)
    result = compared(found(flows=[flow]), found(flows=[unknown]))
    assert result.figures_after.lost_packets is None
    assert result.change == "unchanged"


def test_losses_between_taps_count() -> None:
    flow = factories.flow(0, 1_000)
    lossy = msgspec.structs.replace(flow, lost_between_taps=71, reordered_between_taps=9)
    result = compared(found(flows=[flow]), found(flows=[lossy]))
    assert result.figures_after.lost_packets == 71 + (result.figures_before.lost_packets or 0)
    assert result.figures_after.reordered_packets == 9
    assert "lost_packets" in result.worse


def test_the_goodput_of_flows_one_after_the_other_is_not_their_sum() -> None:
    second = 10**9
    flows = [
        msgspec.structs.replace(
            factories.flow(n, 1_000),
            first_time_ns=n * second,
            last_time_ns=(n + 1) * second,
            goodput_bits_per_second=1e9,
        )
        for n in range(4)
    ]
    result = compared(found(flows=flows), found(flows=flows))
    assert result.figures_after.goodput_bits_per_second == pytest.approx(1e9)


def test_goodput_does_not_outweigh_findings_that_are_gone() -> None:
    """Goodput depends on what was offered, too: alone it decides only where no finding does."""
    flow = factories.flow(0, 1_000)
    slow = msgspec.structs.replace(flow, goodput_bits_per_second=1e6)
    gone = compared(found(LOSS, flows=[flow]), found(flows=[slow]))
    assert gone.worse == ["goodput_bits_per_second"] and gone.change == "better"
    assert compared(found(flows=[flow]), found(flows=[slow])).change == "worse"
    lossy = msgspec.structs.replace(slow, lost_between_taps=71)
    assert compared(found(LOSS, flows=[flow]), found(flows=[lossy])).change == "worse"


def test_answers_lost_between_taps_count() -> None:
    """What was lost of answers before the first tap is never known."""
    answers = factories.flow(0, 1_000, missing_packets=None, lost_between_taps=71)
    assert compared(found(), found(flows=[answers])).figures_after.lost_packets == 71


@pytest.mark.parametrize(
    ("before", "after", "change", "worse", "better"),
    [
        ({}, {}, "unchanged", [], []),
        ({}, {"lost_packets": 790}, "worse", ["lost_packets"], []),
        ({}, {"lost_packets": 0, "ce_marked_packets": 200}, "worse",
         ["ecn_marked_packets"], ["lost_packets"]),
        ({"reordered_packets": 90, "duplicate_packets": 90}, {}, "better", [],
         ["reordered_packets", "duplicate_packets"]),
        ({"queueing_ns": factories.quantiles(7_833, 0, 300, 90_000)},
         {"queueing_ns": factories.quantiles(7_833, 0, 300, 195_000)}, "worse",
         ["queueing_p99_ns"], []),
        ({}, {"queueing_ns": factories.quantiles(7_833, 0, 300, 90_000)}, "unchanged", [], []),
        ({"packets": 150}, {"queueing_ns": factories.quantiles(150, 0, 300, 10**9)},
         "better", [], ["lost_packets"]),
        ({}, {"queueing_ns": None}, "unchanged", [], []),
    ],
)  # fmt: skip
def test_hops(
    before: dict[str, Any], after: dict[str, Any], change: str, worse: list[str], better: list[str]
) -> None:
    sides = [found(hops=[factories.hop(**values)]) for values in (before, after)]
    (hop,) = compared(*sides).hops
    assert (hop.change, hop.worse, hop.better) == (change, worse, better)
    assert compared(*sides).change == "unchanged"  # findings judge the whole


def test_hops_are_matched_by_the_names_of_taps() -> None:
    back = {"from_tap": "leaf2-spine2", "to_tap": "leaf1-spine2"}
    unknown = {"to_tap": None, "device": None}
    renamed = {"from_tap": "run7.leaf1-spine2.pcap", "to_tap": "run7.leaf2-spine2.pcap"}
    before = found(hops=[factories.hop(), factories.hop(**back)])
    after = found(
        hops=[
            factories.hop(**renamed),
            factories.hop(**(unknown | {"from_tap": renamed["from_tap"]})),
        ]
    )
    hops = {(hop.from_tap, hop.to_tap): hop.change for hop in compared(before, after).hops}
    assert hops == {
        ("leaf1-spine2", "leaf2-spine2"): "unchanged",
        ("leaf2-spine2", "leaf1-spine2"): "gone",
        ("leaf1-spine2", None): "new",
    }


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 10**6), st.integers(1, 10**6))
def test_better_is_the_reverse_of_worse(bad: int, other: int, of: int, of_other: int) -> None:
    reverse = {"worse": "better", "better": "worse", "unchanged": "unchanged"}
    there = share_change(min(bad, of), of, min(other, of_other), of_other)
    assert share_change(min(other, of_other), of_other, min(bad, of), of) == reverse[there]


def test_lost_retransmissions_are_a_figure_beside_the_lost_packets() -> None:
    """The finding counts them, the flows do not."""
    lossy = found(changed(LOSS, details={LOST_AGAIN: 8}))
    clean = [msgspec.structs.replace(flow, retransmitted_packets=0) for flow in lossy.flows]
    result = compared(found(flows=clean), lossy)
    before, after = result.figures_before, result.figures_after
    assert (before.lost_retransmissions, after.lost_retransmissions) == (0, 8)
    assert after.lost_packets == compared(found(), found()).figures_after.lost_packets
    assert "lost_retransmissions" in result.worse
    unknown = compared(found(LOSS), lossy)
    assert unknown.figures_before.lost_retransmissions is None
