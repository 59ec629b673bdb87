"""Arrival order and ring steps, on traffic whose order is written out."""

from __future__ import annotations

import pytest
from captures import data
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rings import GAP_NS, HOLD_NS, LAST, ONLY, measured, message, ring

from rocescope.analyzer.pipeline.captures import open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.flow import Owner
from rocescope.analyzer.summary.ranks import ranks_of

MS = 1_000_000


def one_timing(rows, **options):
    (timing,) = measured(rows, **options).timing
    return timing


def test_the_rank_that_arrives_last_is_named_with_what_it_costs():
    """Rank 2 begins 5 ms after rank 0 and 4.7 ms after rank 3 in each of four collectives."""
    late = {0: 0, 1: 100_000, 2: 5 * MS, 3: 300_000}
    timing = one_timing(ring(4, 4, lambda rank, _: late[rank]))
    assert (timing.collectives, timing.partial, timing.slowest) == (4, 0, 2)
    worst = timing.ranks[0]
    assert (worst.rank, worst.last) == (2, 4)
    assert worst.late_ns.p50 == worst.late_ns.max == 5 * MS
    assert worst.others_wait_ns == 4 * (5 * MS - 300_000)
    assert [one.others_wait_ns for one in timing.ranks[1:]] == [0, 0, 0]
    assert timing.why == []


def test_the_rank_that_holds_messages_waits_least_for_others():
    """All arrive at once; rank 1 takes 2 ms to pass each message on."""
    hold = {0: HOLD_NS, 1: 2 * MS, 2: HOLD_NS, 3: HOLD_NS}
    timing = one_timing(ring(4, 3, lambda *_: 0, steps=7, hold=hold.__getitem__))
    assert timing.waits_least == 1 and timing.slowest is None
    by_rank = {one.rank: one for one in timing.ranks}
    for rank, one in by_rank.items():
        assert (one.ring_steps, one.holds_ns) == (3 * 6, 3 * 6 * hold[rank])
    assert by_rank[1].waits_ns == 0
    assert by_rank[2].waits_ns > by_rank[3].waits_ns > by_rank[0].waits_ns > 0


@settings(max_examples=25)
@given(
    st.lists(
        st.lists(st.integers(0, 5 * MS), min_size=3, max_size=3, unique=True),
        min_size=1,
        max_size=5,
    )
)
def test_last_late_and_waiting_are_those_of_the_arrivals(rounds):
    timing = one_timing(ring(3, len(rounds), lambda rank, number: rounds[number][rank]))
    assert timing.collectives == len(rounds)
    for one in timing.ranks:
        own = [arrivals[one.rank] for arrivals in rounds]
        assert one.last == sum(at == max(r) for at, r in zip(own, rounds, strict=True))
        assert one.late_ns.max == max(at - min(r) for at, r in zip(own, rounds, strict=True))
        cost = [max(r) - sorted(r)[-2] for r in rounds if r[one.rank] == max(r)]
        assert one.others_wait_ns == sum(cost)
    most = [one.rank for one in timing.ranks if 2 * one.last > len(rounds) >= 3]
    assert timing.slowest == (most[0] if most else None)


def test_two_collectives_are_too_few_to_name_a_rank():
    timing = one_timing(ring(3, 2, lambda rank, _: rank * MS))
    assert timing.slowest is None and timing.ranks[0].last == 2


def test_a_tree_tells_no_arrival():
    """Ranks 0 and 1 send to 2, which sends to 0: its first message may wait for theirs."""
    rows = [
        message(src, dst, number, ONLY, number * GAP_NS + at)
        for number in range(4)
        for at, (src, dst) in enumerate([(0, 2), (1, 2), (2, 0)])
    ]
    timing = one_timing(rows)
    assert (timing.collectives, timing.slowest, timing.ranks) == (0, None, [])
    assert "neither a ring nor all to all" in timing.why[0]


def test_clear_to_send_counts_as_arrival_and_not_as_data():
    """Rank 1 lets rank 0 send only when it is there: the first data of rank 0 comes later."""
    rows = []
    for number in range(3):
        begin = number * GAP_NS
        rows += [
            message(0, 2, number, ONLY, begin, qp=0x80) | {"payload_bytes": 16},
            message(2, 1, number, ONLY, begin, qp=0x81) | {"payload_bytes": 16},
            message(1, 0, number, ONLY, begin + 5 * MS, qp=0x82) | {"payload_bytes": 16},
            message(0, 1, number, ONLY, begin + 5 * MS + 10),
            message(1, 2, number, ONLY, begin + 5 * MS + 20),
            message(2, 0, number, ONLY, begin + 5 * MS + 30),
        ]
    timing = one_timing(rows)
    assert timing.slowest == 1


def test_sends_before_receives_are_no_ring_steps():
    rows = [
        message(src, 1 - src, 2 * number + at, ONLY, number * GAP_NS + at + 10 * src)
        for number in range(3)
        for src in range(2)
        for at in range(2)
    ]
    timing = one_timing(rows)
    assert timing.collectives == 3 and timing.waits_least is None
    assert {one.ring_steps for one in timing.ranks} == {None}
    assert "sends before it receives" in timing.why[0]


def test_a_collective_without_one_rank_does_not_count():
    rows = [row for row in ring(3, 4, lambda rank, _: rank) if row["time_ns"] < 10 * GAP_NS + 10**9]
    last = 1_000_000_000 + 3 * GAP_NS
    rows = [row for row in rows if not (row["time_ns"] >= last and row["src"] == 2)]
    timing = one_timing(rows)
    assert (timing.collectives, timing.partial) == (3, 1)


def test_a_capture_may_begin_and_end_within_a_collective():
    """The fast ranks wait 5 ms for rank 2 in each; the silences between collectives are longer."""
    rows = ring(3, 6, lambda rank, _: 5 * MS * (rank == 2), steps=5)
    rows.sort(key=lambda row: row["time_ns"])
    timing = one_timing(rows[7:-10])
    assert (timing.collectives, timing.partial, timing.slowest) == (4, 2, 2)
    assert timing.ranks[0].others_wait_ns == 4 * 5 * MS


def test_losses_come_first_and_a_full_log_is_said():
    rows = ring(3, 2, lambda rank, _: rank)
    skipped = [r for r in rows if not (r["src"] == 1 and r["psn"] == 3 and r["opcode"] == LAST)]
    ranks = measured(skipped, most=10)
    assert (ranks.pairs[0].sender, ranks.pairs[0].receiver) == (1, 2)
    assert ranks.pairs[0].missing_packets == 1
    assert "too many messages to keep" in ranks.timing[0].why[0]


def test_a_pair_has_the_sums_of_its_flows_and_what_is_unknown_for_one_is_unknown():
    with open_captures([str(data("i01_write_loss0.5_AtoB.atB"))], AnalyzeOptions()) as run:
        flows = run.conclude(run.read()).flows
    owner = Owner(1, None, 0, "source", comm="0xa", peer_rank=1)
    flows = [replace(flow, owner=owner) for flow in flows if flow.data_packets]
    flows += [replace(flow, id=100 + flow.id, packets=7, messages=5) for flow in flows]
    (pair,) = ranks_of(flows, None).pairs
    sums = ("packets", "wire_bytes", "messages")
    lost = ("retransmitted_packets", "recovered_packets", "missing_packets")
    for name in (*sums, *lost):
        assert getattr(pair, name) == sum(getattr(flow, name) for flow in flows)
    assert pair.flows == len(flows) and pair.retransmitted_packets and pair.messages
    unknown = replace(flows[0], **dict.fromkeys(lost))
    (pair,) = ranks_of([unknown, *flows[1:]], None).pairs
    assert [getattr(pair, name) for name in lost] == [None] * 3 and pair.packets


@pytest.mark.parametrize("unknown", [(None, 1), (0, None)])
def test_without_both_ranks_there_is_nothing(unknown):
    assert measured(ring(2, 1, lambda *_: 0), owner_of=lambda *_: unknown) is None
