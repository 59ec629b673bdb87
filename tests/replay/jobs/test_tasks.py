"""Traffic of a pattern beside jobs."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs import pairs_of
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.jobs.collectives import PLAIN
from rocescope.replay.jobs.graph import MOST_PS
from rocescope.replay.jobs.offered import offer_jobs
from rocescope.replay.jobs.tasks import FreeHosts, Tasks, background, training
from rocescope.replay.packets.model.model import Model

# Traffic of a pattern beside jobs.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,rate=100G")


def test_messages_begin_at_the_times_of_the_pattern_on_their_queue_pairs() -> None:
    pairs, _ = pairs_of("trace-like:flows=40,messages=2,message-size=1kB", FABRIC)
    load = offer_jobs([background("trace-like", pairs, 8)], FABRIC, Model(pfc=None), 1).workload
    assert len(load.src) == 40 and len(load.flow) == 80
    assert sorted(load.release_ps[::2].tolist()) == sorted((pairs.start_ns * 1000).tolist())
    assert np.bincount(load.src).sum() == 40 and load.at_once.all()


# Hosts of jobs.

PLACING_FABRIC = parse_fabric("leaf-spine:leaves=3,spines=1,hosts=2,rate=100G")


def test_packed_spread_and_random_hosts() -> None:
    free = FreeHosts(PLACING_FABRIC)
    assert free.take(2, "spread", "a", 1).tolist() == [0, 2]
    assert free.take(2, "packed", "b", 1).tolist() == [1, 3]
    assert sorted(free.take(2, "random", "c", 1).tolist()) == [4, 5]
    with pytest.raises(UsageError, match="d has 1 workers, but .* has 0 free hosts"):
        free.take(1, "packed", "d", 1)
    drawn = {
        tuple(FreeHosts(PLACING_FABRIC).take(4, "random", "e", seed).tolist()) for seed in range(9)
    }
    assert len(drawn) > 1


# Iterations: compute, then collectives layer by layer.


def test_layers_follow_their_computation_and_iterations_follow_both() -> None:
    slowness = np.array([[1.0, 2.0], [1.0, 1.0]])
    graph = training(2, [600, 300], 2, 900, slowness, PLAIN["ring"])
    nodes, edges = graph.nodes(), graph.edges()
    # A third forward; the rest evenly over both layers.
    first = [(0, 600), (1, 1200)]
    assert list(zip(nodes.rank.tolist(), nodes.size.tolist(), strict=True))[:2] == first
    work = np.flatnonzero(nodes.to < 0)
    assert nodes.size[work].tolist() == [600, 1200, 300, 600, 600, 600, 300, 300]
    assert nodes.iteration[work].tolist() == [0] * 4 + [1] * 4
    after = {n: set(edges.after[edges.node == n].tolist()) for n in range(graph.count)}
    # Two steps of a ring of two per layer: messages 2 to 5, then 8 to 11.
    assert work.tolist() == [0, 1, 6, 7, 12, 13, 18, 19]
    assert after[2] == {0} and after[6] == {0} and after[8] == {6, 4, 5}
    assert after[12] == {6, 10, 11} and after[13] == {7, 10, 11}


def test_without_computing_there_are_only_messages() -> None:
    graph = training(3, [900], 1, 0, np.ones((1, 3)), PLAIN["ring"])
    assert (graph.nodes().to >= 0).all() and graph.count == 12


# Tasks as the graph of a job.


def test_receives_take_messages_in_order_and_processors_do_one_thing_at_a_time() -> None:
    tasks = Tasks("x", 2)
    late = tasks.compute(0, 900, "late", 0)
    slow = tasks.compute(0, 100, "slow", 0)
    wait = tasks.compute(0, 50, "wait", 0)
    tasks.wait(wait, slow)
    sent = [tasks.send(0, 1, size, "send", 7) for size in (10, 20)]
    tasks.wait(sent[0], wait)
    got = [tasks.receive(1, 0, 7, "recv") for _ in range(2)]
    tasks.wait(got[1], got[0])
    graph = tasks.graph()
    nodes, edges = graph.nodes(), graph.edges()
    by_size = {int(nodes.size[i]): i for i in range(graph.count) if nodes.size[i]}
    pairs = set(zip(edges.node.tolist(), edges.after.tolist(), strict=True))
    # Both could begin at once: in the order of the file; the third could begin at 100 ps.
    assert (by_size[100], by_size[900]) in pairs and (by_size[50], by_size[100]) in pairs
    assert (by_size[10], by_size[50]) in pairs
    ends = [i for i in range(graph.count) if nodes.to[i] < 0 and not nodes.size[i]]
    assert {(end, by_size[size]) for end, size in zip(ends, (10, 20), strict=True)} <= pairs or {
        (end, by_size[size]) for end, size in zip(ends, (20, 10), strict=True)
    } <= pairs
    assert late == 0 and (edges.after < edges.node).all()


def test_collectives_begin_and_end_at_every_member() -> None:
    tasks = Tasks("x", 4)
    entries = [tasks.compute(rank, 5, "in") for rank in (1, 3)]
    ends = tasks.collective([1, 3], entries, 100, PLAIN["ring"], "all-reduce")
    after = tasks.compute(3, 9, "after")
    tasks.wait(after, ends[1])
    nodes = tasks.graph().nodes()
    messages = nodes.to >= 0
    assert sorted(set(nodes.rank[messages].tolist())) == [1, 3] and messages.sum() == 4


@pytest.mark.parametrize(
    ("size", "to", "words"),
    [
        (-1, 1, "task: -1 bytes are not 0 to"),
        (1 << 41, 1, "bytes are not 0 to"),
        (1, 5, "task: there is no rank 5; there are 2 ranks"),
        (1, 0, "task: rank 0 sends to itself"),
    ],
)
def test_impossible_messages_are_named(size: int, to: int, words: str) -> None:
    with pytest.raises(UsageError, match=f"--jobs: x: .*{words}"):
        Tasks("x", 2).send(0, to, size, "task")


def test_circles_and_messages_without_a_receive_are_named() -> None:
    tasks = Tasks("x", 2)
    one, other = tasks.compute(0, 1, "one"), tasks.compute(0, 1, "other")
    tasks.wait(one, other)
    tasks.wait(other, one)
    with pytest.raises(UsageError, match="x: 2 tasks form a dependency cycle: one, other"):
        tasks.graph()
    alone = Tasks("x", 2)
    alone.send(0, 1, 5, "send a", 3)
    with pytest.raises(
        UsageError, match="send a: messages from rank 0 to rank 1 with tag 3: 1 sent"
    ):
        alone.graph()
    with pytest.raises(UsageError, match="there is no rank 2"):
        alone.receive(0, 2, 1, "recv")


def test_computations_of_more_than_int64_in_a_row_keep_their_order() -> None:
    tasks = Tasks("x", 2)
    last = tasks.compute(0, MOST_PS, "first", 0)
    for number in range(3000):
        task = tasks.compute(0, MOST_PS, f"{number}", 0)
        tasks.wait(task, last)
        last = task
    edges = tasks.graph().edges()
    assert (edges.after < edges.node).all()
