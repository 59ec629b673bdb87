"""Tasks as the graph of a job."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.jobs.collectives import PLAIN
from rocescope.replay.jobs.graph import MOST_PS
from rocescope.replay.jobs.tasks import Tasks


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
