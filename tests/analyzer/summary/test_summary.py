"""The record of a flow: what its figures cover, and null where they cannot be known."""

from __future__ import annotations

import factories_results as factories
import numpy as np
import pytest
import traffic
from captures import data
from cases import case_of
from msgspec import structs

from rocescope.analyzer.decode.merge import MergeCounts
from rocescope.analyzer.measures.mrc import EV, LANES
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.captures import CaptureSummary, Ended
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.summary.mrc import Planes
from rocescope.analyzer.summary.names import Names, PlaneBy
from rocescope.analyzer.summary.trust import as_hidden, gaps_in, gaps_of, warnings_of
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Gap, Tap, Taps

# The record of a flow: what its figures cover, and null where they cannot be known.


def request(psn, opcode, **more):
    return {"psn": psn, "opcode": opcode, "payload_bytes": 0, **more}


def response(psn, opcode=traffic.ATOMIC_ACK, **more):
    return {"psn": psn, "opcode": opcode, "answer": True, "payload_bytes": 0, **more}


CLEAN = [row for p in range(10) for row in (request(p, traffic.FETCH_ADD), response(p))]
AGAIN = [
    *(request(p, traffic.FETCH_ADD) for p in range(10, 13)),
    *(response(p) for p in range(10, 13)),
    *(request(p, traffic.FETCH_ADD, at=50_000 + p) for p in range(10, 13)),
    *(response(p, at=60_000 + p) for p in range(10, 13)),
]


def test_retransmitted_responses_have_no_rewinds_of_their_own():
    """Three atomics are repeated after a timeout; the responder answers them again."""
    asks, answers = case_of(CLEAN + AGAIN).flows
    assert (asks.retransmitted_packets, answers.retransmitted_packets) == (3, 3)
    assert asks.recovery.retransmitted_by == {"timeout": 3}
    assert asks.recovery.rewinds == 1 and asks.recovery.rewound_bytes
    own = answers.recovery
    assert own.retransmitted_by is own.rewinds is own.rewound_bytes is None
    assert any("3 retransmitted packets answer READs or atomics" in n for n in answers.notes)


def test_without_a_retransmission_zero_is_the_true_figure():
    _, answers = case_of(CLEAN).flows
    recovery = answers.recovery
    assert (recovery.retransmitted_by, recovery.rewinds, recovery.rewound_bytes) == ({}, 0, 0)
    assert not answers.notes


def test_a_flow_of_both_has_the_rewinds_of_its_requests():
    """The responder sends WRITEs too; none of them is retransmitted."""
    writes = [request(p, traffic.WRITE_ONLY, answer=True) for p in range(500, 503)]
    _, both = case_of(CLEAN + writes + AGAIN).flows
    assert both.retransmitted_packets == 3
    assert (both.recovery.retransmitted_by, both.recovery.rewinds) == ({}, 0)
    assert any("those of the requests only" in note for note in both.notes)


# What gaps in the captures of taps hide of flows.


@pytest.fixture(scope="module")
def flow() -> Flow:
    """From 100 to 200 ns at two taps, with a loss."""
    flows = analyze([str(data("c10"))], AnalyzeOptions()).flows
    first = next(flow for flow in flows if flow.reordering is not None)
    return structs.replace(
        first,
        taps={"up1": 10, "up2": 10},
        first_time_ns=100,
        last_time_ns=200,
        missing_packets=1,
        recovered_packets=2,
        capture_loss_suspected_packets=0,
        lost_between_taps=3,
        reordered_between_taps=0,
        reordered_packets=0,
    )


@pytest.mark.parametrize(
    ("from_ns", "until_ns", "hidden"),
    [
        (0, 99, False),
        (0, 100, True),
        (120, 130, True),
        (200, 300, True),
        (201, 300, False),
        (None, 99, False),
        (None, 150, True),
        (150, None, True),
        (201, None, False),
        (None, None, True),
    ],
)
def test_gaps_while_the_flow_lives(
    flow: Flow, from_ns: int | None, until_ns: int | None, hidden: bool
) -> None:
    gaps = {"up2": [Gap(from_ns, until_ns, "lost")], "up3": [Gap(101, None, "lost")]}
    assert gaps_in(flow, gaps) == (["up2"] if hidden else [])
    found = as_hidden(flow, gaps)
    assert found.missing_packets == (None if hidden else 1)
    assert found.lost_between_taps == (None if hidden else 3)
    assert found.reordered_packets == (None if hidden else 0)
    assert (found.reordering is None) == hidden
    assert found.recovered_packets == 2
    assert bool(found.notes[len(flow.notes) :]) == hidden


def without_losses(flow: Flow) -> Flow:
    return structs.replace(
        flow, missing_packets=0, recovered_packets=0, lost_between_taps=None, notes=[]
    )


def test_a_flow_whose_packets_were_all_seen(flow: Flow) -> None:
    whole = without_losses(flow)
    assert as_hidden(whole, {"up1": [Gap(120, 130, "lost")]}) is whole


def test_packets_late_at_another_tap_may_be_late_between_taps(flow: Flow) -> None:
    late = as_hidden(
        structs.replace(without_losses(flow), reordered_packets=4),
        {"up1": [Gap(120, 130, "lost")]},
    )
    assert (late.reordered_packets, late.reordering, late.missing_packets) == (None, None, 0)


@pytest.mark.parametrize(
    ("from_ns", "until_ns", "hidden"),
    [(100, 200, True), (None, 200, True), (99, None, True), (101, None, False), (0, 199, False)],
)
def test_a_flow_that_lives_only_during_a_gap_of_another_tap(
    flow: Flow, from_ns: int | None, until_ns: int | None, hidden: bool
) -> None:
    """The tap may have missed all of its packets."""
    gaps = {"up3": [Gap(from_ns, until_ns, "lost")]}
    assert gaps_in(flow, gaps) == (["up3"] if hidden else [])
    found = as_hidden(flow, gaps)
    if hidden:
        assert found.missing_packets is found.lost_between_taps is found.reordered_packets is None
    else:
        assert found is flow
    whole = without_losses(flow)
    assert as_hidden(whole, gaps) is whole


def test_a_flow_without_order(flow: Flow) -> None:
    unknown = dict.fromkeys(("missing_packets", "recovered_packets", "reordered_packets"))
    datagrams = structs.replace(flow, **unknown, lost_between_taps=None)
    assert as_hidden(datagrams, {"up1": [Gap(120, 130, "lost")]}) is datagrams


def test_a_session_has_the_gaps_of_the_tap_that_carries_it() -> None:
    gap = Gap(1, 2, "lost")
    taps = Taps([Tap("up1", 1), Tap("up2", 1, gaps=[gap]), Tap("session", 1, carrier=1)])
    assert gaps_of(taps) == {"up2": [gap], "session": [gap]}


# What is said about captures before anything else.


def warnings(captures: list[CaptureSummary], flows: list[Flow]) -> list[str]:
    return warnings_of(captures, flows, MergeCounts(), True, False)


@pytest.mark.parametrize(("frames", "text"), [(1, "1 record is"), (7, "7 records are")])
def test_records_out_of_time_order(frames: int, text: str) -> None:
    capture = factories.capture(out_of_order_frames=frames)
    assert warnings([capture], [factories.flow(0, 10)]) == []
    late = factories.flow(0, 10, reordered_packets=1)
    (doubt,) = warnings([capture], [late])
    assert doubt.startswith(f"leaf1.pcap.gz: {text} out of time order: some of the reordering")


def test_flows_without_a_sequence_are_not_seen_in_part() -> None:
    """ACKs and datagrams have notes and no counts, which makes nothing doubtful."""
    acks = factories.ack_flow(1, 10, retransmitted_packets=None, missing_packets=None)
    part = factories.flow(2, 10, missing_packets=None, notes=["40 PSNs were never seen here"])
    assert warnings([factories.capture()], [factories.flow(0, 10), acks]) == []
    assert warnings([factories.capture()], [acks, part]) == [
        "1 flow was seen only in part: losses and reordering are unknown there"
    ]


def test_packets_before_the_first_mirror_session() -> None:
    (line,) = warnings_of([factories.capture()], [], MergeCounts(), True, False, 6)
    assert line.startswith("6 packets precede the first mirror session")


def test_what_ended_flows_leave_unknown_counts_in_words() -> None:
    ended = Ended(flows=3, flows_in_trouble=1, untracked_packets=1)
    beyond, trouble = warnings_of([], [], MergeCounts(), True, False, ended=ended)
    assert beyond.endswith("1 packet of other flows counted, not analysed")
    assert trouble.startswith("1 idle flow with losses")


# Which taps are planes: the ports of one sender, not the links of different senders.


@pytest.mark.parametrize(
    ("seen", "by"),
    [
        ([(0, 0), (0, 1), (1, 0), (1, 1)], "tap"),
        ([(0, 0), (0, 0), (1, 1), (1, 1)], ""),
        ([(0, 3), (1, 3)], ""),
    ],
    ids=["ports of each sender", "a link of each sender", "one tap"],
)
def test_taps_are_planes_if_a_sender_has_several(seen, by):
    sent = np.zeros(len(seen), EV)
    sent["lane"] = [LANES * flow for flow, _ in seen]
    sent["tap"] = [tap for _, tap in seen]
    assert Planes(sent, Names(FlowTracker(), Registry()), PlaneBy()).by == by
