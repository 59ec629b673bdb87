"""Lower bounds against the paper's figure, and against runs that nothing disturbs."""

from __future__ import annotations

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.bounds import bounds, permutation_bound_ps
from rocescope.replay.packets.event_driven import run_event_driven
from rocescope.replay.packets.failures import SLOW, Failures, LinkEvent
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import NO_WAITS, Model, Workload
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies.registry import parse_packet_strategy
from rocescope.replay.traffic.traffic import ON_RECEIVED

TREE = parse_fabric("fat-tree:k=4,rate=800G,delay=500ns")


def messages(ends: list[tuple[int, int]], size: int, model: Model, **columns: object) -> Workload:
    src, dst = (np.array(side) for side in zip(*ends, strict=True))
    return workload_of(src, dst, np.full(len(ends), size), None, model, **columns)  # type: ignore[arg-type]


def test_the_papers_permutation() -> None:
    # arXiv 2507.21372, appendix B: 256 packets of 4096 + 62 B, ACKs of 64 B, gaps of 20 B,
    # 800 Gb/s, 6 links of 0.5 us; the figure is checked in the notes on the paper.
    assert permutation_bound_ps(256, 41_580, 640, 200, 3_000_000, 6) == 17_056_740


def test_bound_of_a_permutation_is_met_where_nobody_shares_a_link() -> None:
    model = Model(pfc=None)
    one_leaf = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2,rate=800G,delay=500ns")
    load = messages([(0, 2), (2, 0), (1, 3), (3, 1)], 1 << 20, model)
    bound = bounds(load, one_leaf, model)
    assert bound.kind == "data and ACKs of a host"
    static = parse_packet_strategy("switch-rr:reshuffle=0")
    found = run_open_loop(load, one_leaf, static, model).completion_ps
    # ACKs and data meet at other moments than in the ideal order: less than two packets later.
    assert found is not None and 0 <= found - bound.completion_ps < 2 * 41_600


def test_one_message_alone_takes_its_bound() -> None:
    for size, every in ((1, 1), (8192, 1), (102_400, 3)):
        model = Model(gap_bytes=20, ack_every=every, pfc=None)
        load = messages([(0, 15)], size, model)
        result = run_open_loop(load, TREE, parse_packet_strategy("switch-random"), model)
        assert bounds(load, TREE, model).message_ps.tolist() == result.completed_ps.tolist()


def test_chain_by_receipt_takes_its_bound_and_the_acks_that_go_first() -> None:
    model = Model(pfc=None)
    after, on = np.array([-1, 0, 1]), np.full(3, ON_RECEIVED)
    load = messages(
        [(0, 5), (5, 9), (9, 0)], 8192, model, after=after, on=on, release_ps=np.array([7, 5, 3])
    )
    result = run_open_loop(load, TREE, parse_packet_strategy("switch-random"), model)
    assert result.completion_ps is not None
    late = result.completion_ps - bounds(load, TREE, model).completion_ps
    assert late == (640 - 5) + (640 - 3)  # each answer waits for the ACK of what it answers


def test_incast_is_bound_by_the_receiver_and_nothing_is_below_its_bound() -> None:
    model = Model(pfc=None)
    load = messages([(s, 15) for s in range(12)], 50_000, model)
    bound = bounds(load, TREE, model)
    found = run_open_loop(load, TREE, parse_packet_strategy("host-dr"), model).completion_ps
    assert bound.kind == "transmission of the busiest host"
    assert found is not None and bound.completion_ps <= found < 1.02 * bound.completion_ps


def test_all_to_all_counts_the_acks_too() -> None:
    model = Model(pfc=None)
    ends = [(s, (s + shift) % 16) for shift in range(1, 16) for s in range(16)]
    load = messages(ends, 40 * 4096, model)
    bound = bounds(load, TREE, model).completion_ps
    # 600 packets and almost as many ACKs a host, then the shortest way (2 links) and back.
    assert 600 * 41_600 + 500 * 640 < bound < 600 * 42_240 + 2 * (1_000_000 + 2 * 41_600)
    found = run_open_loop(load, TREE, parse_packet_strategy("ofan"), model).completion_ps
    assert found is not None and bound <= found < 1.2 * bound


def test_a_message_over_all_ports_takes_its_bound() -> None:
    planes = parse_fabric("multi-plane:planes=4,leaves=2,spines=2,hosts=2,rate=100G,delay=500ns")
    model = Model(pfc=None)
    for packets in (1, 3, 4, 5, 9):
        load = messages([(0, 3)], packets * 4096, model)
        found = run_open_loop(load, planes, parse_packet_strategy("host-spray"), model)
        bound = bounds(load, planes, model)
        # A packet takes 332.8 ns per link; the ports send in rounds of four.
        rounds = -(-packets // 4) - 1
        assert found.completion_ps == 4_000_000 + rounds * 332_800 + 4 * (332_800 + 5_120)
        least = max(0, packets - 4) * 332_800 // 4  # without knowing that packets go in rounds
        assert bound.completion_ps == found.completion_ps - rounds * 332_800 + least


def test_hosts_below_line_rate_meet_their_own_bound() -> None:
    """Half the rate: a packet of 832 B takes 8,320 ps at 800 Gb/s, and leaves every 16,640 ps."""
    model = Model(payload_bytes=768, ack_every=1, pfc=None)
    alone = messages([(0, 15)], 768 * 40, model)
    crossed = messages([(0, 15), (15, 0)], 768 * 40, model)
    last = 39 * 2 * 8_320 + 12 * 500_000 + 6 * (8_320 + 640)
    for load in (alone, crossed):
        found = run_event_driven(
            load,
            TREE,
            parse_packet_strategy("switch-random"),
            model,
            transport=Transport(rate_share=0.5),
        ).engine
        bound = bounds(load, TREE, model, 0.5).completion_ps
        assert bound == last and bound > bounds(load, TREE, model).completion_ps
        assert found.completion_ps is not None and 0 <= found.completion_ps - last <= 640


def test_short_last_packets_may_leave_last() -> None:
    """Two messages of a full and a short packet each take turns at a host: the full packets leave
    first, so that the way of the last one, a short one, counts."""
    model = Model(pfc=None)
    star = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=3,rate=100G,delay=500ns")
    load = messages([(0, 1), (0, 2)], 4500, model)
    full, short, ack = 332_800, 37_440, 5_120
    bound = bounds(load, star, model).completion_ps
    assert bound == 2 * full + 2_000_000 + full + 2 * ack  # the short packets are faster
    found = run_open_loop(load, star, parse_packet_strategy("jsq"), model).completion_ps
    assert found is not None and bound <= found < 2 * (full + short) + 2_000_000 + full + 2 * ack


@examples(40)
@given(
    st.sampled_from(
        (
            "leaf-spine:leaves=2,spines=3,hosts=2,rate=400G,delay=7ns,uplink_rate=133G",
            "fat-tree:k=4,rate=800G,delay=500ns,slow=leaf3-spine3:70G",
            "multi-plane:planes=2,leaves=2,spines=2,hosts=2,rate=100G,delay=30ns",
        )
    ),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9000)), min_size=1),
    st.sampled_from((256, 4096)),
    st.sampled_from((0, 20)),
    st.sampled_from(("jsq", "switch-random", "host-spray")),
)
def test_no_run_beats_its_bound(
    where: str, sent: list[tuple[int, int, int]], payload: int, gap: int, name: str
) -> None:
    model = Model(payload_bytes=payload, gap_bytes=gap, pfc=None)
    sent = [(a, b, n) for a, b, n in sent if a != b] or [(0, 3, 4500)]
    src, dst, size = (np.array(column) for column in zip(*sent, strict=True))
    load = workload_of(src, dst, size, None, model)  # type: ignore[arg-type]
    fabric = parse_fabric(where)
    result = run_open_loop(load, fabric, parse_packet_strategy(name), model)
    bound = bounds(load, fabric, model)
    assert result.completion_ps is not None and result.completion_ps >= bound.completion_ps
    assert (result.completed_ps - result.started_ps >= bound.message_ps).all()


def test_computations_count_in_the_first_phase_alone() -> None:
    model, work = Model(pfc=None), 20_000_000
    load = messages([(0, 5), (5, 0)], 4096, model, phase=np.array([0, 1]))
    waits = NO_WAITS._replace(host=np.array([7], np.int32), takes_ps=np.array([work]))
    strategy = parse_packet_strategy("switch-random")
    plain, worked = load, load._replace(waits=waits)
    found = run_open_loop(worked, TREE, strategy, model).completion_ps
    alone = bounds(plain, TREE, model).message_ps
    assert bounds(worked, TREE, model).completion_ps == max(work, alone[0]) + alone[1]
    assert found is not None and found >= bounds(worked, TREE, model).completion_ps


def test_links_that_get_faster_or_routes_that_change_do_not_beat_the_bound() -> None:
    model = Model(pfc=None)
    load = messages([(0, 15)], 1 << 20, model)
    raised = Failures(tuple(LinkEvent(0, link, SLOW, 1.6e12) for link in range(96)))
    plain, faster = (bounds(load, TREE, model, failures=f).completion_ps for f in (None, raised))
    found = run_event_driven(
        load, TREE, parse_packet_strategy("switch-random"), model, failures=raised
    ).engine.completion_ps
    assert found is not None and faster <= found < plain
