"""Completion times of jobs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.jobs.collectives import MOST_PS, Graph, Job
from rocescope.replay.jobs.offered import alone_ps, job_times, offer_jobs
from rocescope.replay.jobs.spec import COLLECTIVES, parse_jobs
from rocescope.replay.packets.bounds import bounds
from rocescope.replay.packets.event_driven import run_event_driven
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.packets.runs import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

# Completion times of jobs.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns")


def test_jobs_end_with_their_last_message_and_are_alone_as_fast_as_beside_idle_ones() -> None:
    model, strategy = Model(pfc=None), parse_packet_strategy("host-spray")
    jobs = parse_jobs(["workers=4,size=64kB,iterations=3,compute=20us", "workers=4,start=1ms"])(
        FABRIC, 1
    )
    alone = alone_ps(jobs, FABRIC, model, 1.0)
    offered = offer_jobs(jobs, FABRIC, model, 1)
    result = run_packets(offered.workload, FABRIC, strategy, model, 1)
    one, two = job_times(jobs, alone, offered, result)
    assert one.end is not None and two.end is not None
    assert one.start == 0 and two.start == 10**9 and one.workers == 4
    assert one.iterations[-1] == one.end and len(one.iterations) == 3
    assert one.end >= one.bound >= 3 * 20_000_000 and two.end - two.start >= two.bound
    assert two.end == int(result.completed_ps.max())
    own = offer_jobs(jobs[:1], FABRIC, model, 1)
    single = run_packets(own.workload, FABRIC, strategy, model, 1)
    assert int(single.completed_ps.max()) == one.end  # the other job has hosts and leaf of its own


# Jobs as workloads: alone they meet their bounds, both drivers agree, circles are named.

OFFERED_FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns")
SPRAY = parse_packet_strategy("host-spray")


def test_a_ring_takes_its_steps_one_after_the_other() -> None:
    """Each step: the packets of a chunk, four links, and no wait for ACKs."""
    chunk, n = 1 << 16, 4
    (job,) = parse_jobs([f"workers={n},size={n * chunk},compute=10us"])(OFFERED_FABRIC, 1)
    offered = offer_jobs([job], OFFERED_FABRIC, Model(pfc=None), 1)
    result = run_open_loop(offered.workload, OFFERED_FABRIC, SPRAY, Model(ack_bytes=1, pfc=None), 1)
    packet = 4160 * 80  # ps at 100 Gb/s
    step = 16 * packet + 1 * packet + 2 * 500_000  # hosts of one leaf
    last = int(result.received_ps.max())
    assert 0 <= last - (10_000_000 + 2 * (n - 1) * step) < 12 * 80 * 6  # ACKs of a byte go first


@examples(30)
@given(
    st.lists(st.sampled_from(COLLECTIVES), min_size=1, max_size=2),
    st.sampled_from(["packed", "spread", "random"]),
    st.integers(1, 3),
    st.integers(0, 1 << 20),
)
def test_both_drivers_complete_every_collective_above_its_bound(
    names: list[str], place: str, qps: int, seed: int
) -> None:
    more = f"workers=4,size=50kB,iterations=2,layers=2,compute=3us,jitter=20%,qps={qps}"
    specs = [
        f"collective={name},{more},place={place}" + ",group=2" * (name == "hierarchical")
        for name in names
    ]
    jobs = parse_jobs(specs)(OFFERED_FABRIC, seed)
    offered, model = offer_jobs(jobs, OFFERED_FABRIC, Model(pfc=None), seed), Model(pfc=None)
    one = run_open_loop(offered.workload, OFFERED_FABRIC, SPRAY, model, seed)
    two = run_event_driven(offered.workload, OFFERED_FABRIC, SPRAY, model, seed).engine
    assert one.completed_ps.tolist() == two.completed_ps.tolist()
    assert one.computed_ps.tolist() == two.computed_ps.tolist()
    assert one.completion_ps is not None and (one.computed_ps >= 0).all()
    assert one.completion_ps >= bounds(offered.workload, OFFERED_FABRIC, model).completion_ps
    # Nothing begins before what it waits for is done.
    load = offered.workload
    ends = np.stack([one.completed_ps, one.received_ps])
    done = np.concatenate([ends, np.stack([one.computed_ps] * 2)], axis=1)
    begins = np.concatenate([one.started_ps, one.computed_ps - load.waits.takes_ps])
    edges = load.edges
    assert (begins[edges.node] >= done[edges.on, edges.after]).all()


def test_messages_are_split_over_queue_pairs_and_keep_their_bytes() -> None:
    (job,) = parse_jobs(["workers=2,size=1000,qps=3"])(OFFERED_FABRIC, 1)
    load = offer_jobs([job], OFFERED_FABRIC, Model(pfc=None), 1).workload
    assert len(load.src) == 6 and len(load.flow) == 12
    payload = load.last_bytes - 64
    assert sorted(payload.tolist()) == [166] * 4 + [167] * 8
    assert len(load.waits.node) == 2 * 3 * 3  # every part waits for all parts of the step before


def _by_hand(edges: list[tuple[int, int]], to: list[int]) -> Job:
    graph = Graph(3)
    graph.messages(np.arange(len(to)) % 3, np.array(to), 10)
    graph.wait(*np.array(edges).T)
    return Job("job1 by hand", graph, np.arange(3, dtype=np.int32))


def test_circles_and_waits_for_other_hosts_are_named() -> None:
    with pytest.raises(UsageError, match="job1 by hand: 3 messages .*dependency cycle"):
        offer_jobs(
            [_by_hand([(0, 2), (1, 0), (2, 1)], [1, 2, 0])], OFFERED_FABRIC, Model(pfc=None), 1
        )
    with pytest.raises(UsageError, match="job1 by hand: a node waits for a node of other hosts"):
        offer_jobs([_by_hand([(0, 1)], [1, 2, 1])], OFFERED_FABRIC, Model(pfc=None), 1)
    # Message 3 follows message 0 on their queue pair.
    with pytest.raises(UsageError, match="2 messages .*dependency cycle"):
        offer_jobs([_by_hand([(0, 3)], [1, 2, 1, 1])], OFFERED_FABRIC, Model(pfc=None), 1)
    with pytest.raises(UsageError, match="idle sends no message"):
        idle = Graph(2)
        idle.computations(np.arange(2), 5)
        busy = _by_hand([(2, 1)], [1, 2, 0])
        offer_jobs(
            [busy, Job("idle", idle, np.arange(2, dtype=np.int32))],
            OFFERED_FABRIC,
            Model(pfc=None),
            1,
        )


def _with_computations(takes_ps: list[int]) -> Job:
    """A message, then computations one after the other."""
    graph = Graph(2)
    before = graph.messages(np.array([0]), np.array([1]), 10)
    for takes in takes_ps:
        work = graph.computations(np.array([1]), takes)
        graph.wait(work, before)
        before = work
    return Job("job1 long", graph, np.arange(2, dtype=np.int32))


def test_a_run_ends_with_its_last_computation() -> None:
    load = offer_jobs(
        [_with_computations([5 * 10**9])], OFFERED_FABRIC, Model(pfc=None), 1
    ).workload
    model = Model(pfc=None)
    bound = bounds(load, OFFERED_FABRIC, model).completion_ps
    one = run_open_loop(load, OFFERED_FABRIC, SPRAY, model)
    for engine in (one, run_event_driven(load, OFFERED_FABRIC, SPRAY, model).engine):
        assert engine.completion_ps == int(engine.computed_ps[0]) >= bound > 5 * 10**9


def test_the_bound_of_messages_beside_a_computation_is_not_below_it() -> None:
    graph = Graph(2)
    graph.messages(np.array([0]), np.array([1]), 10)
    graph.computations(np.array([1]), 7 * 10**9)
    job = Job("job1", graph, np.arange(2, dtype=np.int32))
    load = offer_jobs([job], OFFERED_FABRIC, Model(pfc=None), 1).workload
    assert bounds(load, OFFERED_FABRIC, Model(pfc=None)).completion_ps == 7 * 10**9


def test_times_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="job1 long: its computations take longer than 26 days"):
        offer_jobs([_with_computations([MOST_PS] * 3000)], OFFERED_FABRIC, Model(pfc=None), 1)
    offer_jobs([_with_computations([MOST_PS] * 600)], OFFERED_FABRIC, Model(pfc=None), 1)


def test_too_many_parts_of_messages_are_refused_before_they_take_memory() -> None:
    graph = Graph(2)
    graph.messages(np.zeros(1 << 15, np.int64), np.ones(1 << 15, np.int64), 4096)
    job = Job("job1", graph, np.arange(2, dtype=np.int32), qps=1024)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="too many messages"):
            offer_jobs([job], OFFERED_FABRIC, Model(pfc=None), 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_no_tree_of_an_all_reduce_waits_for_the_other() -> None:
    """Both use the whole line: a rank sends its data twice, up and down, in both trees together.
    On queue pairs that both trees share it would take 1.6 times as long."""
    for workers in (3, 4, 7, 8):
        size, model = 4_096_000, Model(pfc=None)
        (job,) = parse_jobs([f"collective=tree,workers={workers},size={size}"])(OFFERED_FABRIC, 1)
        offered = offer_jobs([job], OFFERED_FABRIC, model, 1)
        src, dst = offered.workload.src, offered.workload.dst
        assert len(np.unique(np.stack([src, dst]), axis=1).T) < len(src)  # some pairs are in both
        found = run_open_loop(offered.workload, OFFERED_FABRIC, SPRAY, model, 1).completion_ps
        busiest = np.bincount(src[offered.workload.flow], offered.workload.message_bytes()).max()
        assert found is not None and 1 < found / (busiest * 80) < 1.15
