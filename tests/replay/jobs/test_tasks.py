"""Traffic of a pattern beside jobs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs import pairs_of
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.jobs import collectives as graphs
from rocescope.replay.jobs.collectives import MODELS, MOST_PS, PLAIN, Graph
from rocescope.replay.jobs.offered import offer_jobs
from rocescope.replay.jobs.spec import parse_jobs
from rocescope.replay.jobs.tasks import FreeHosts, Tasks, background, training
from rocescope.replay.packets.model.model import Model

# Traffic of a pattern beside jobs.

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


# Nodes and edges of jobs.

# Nodes and edges of jobs.


def test_nodes_are_numbered_and_edges_are_kept_once() -> None:
    graph = Graph(3)
    sent = graph.messages(np.arange(3), np.array([1, 2, 0]), 100)
    graph.iteration = 1
    work = graph.computations(np.arange(2), np.array([5, 6]))
    graph.wait(work, sent[:2])
    graph.wait(work, np.array([0, -1]))
    assert sent.tolist() == [0, 1, 2] and work.tolist() == [3, 4]
    assert graph.nodes().to.tolist() == [1, 2, 0, -1, -1]
    assert graph.nodes().size.tolist() == [100, 100, 100, 5, 6]
    assert graph.nodes().iteration.tolist() == [0, 0, 0, 1, 1]
    assert list(zip(*graph.edges(), strict=True)) == [(3, 0), (4, 1)]
    assert not len(Graph(2).nodes().rank) and not len(Graph(2).edges().node)


def test_graphs_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_NODES", 10)
    monkeypatch.setattr(graphs, "MOST_EDGES", 3)
    graph = Graph(2)
    graph.messages(np.zeros(10, int), np.ones(10, int), 1)
    with pytest.raises(UsageError, match="more than 10 messages"):
        graph.messages(np.zeros(1, int), np.ones(1, int), 1)
    with pytest.raises(UsageError, match="more than 3 dependencies"):
        graph.wait(np.arange(4) + 1, np.arange(4))


# Sizes of models are the published ones.


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("alexnet", 61_100_840),
        ("vgg16", 138_357_544),
        ("resnet50", 25_557_032),
        ("bert-base", 109_482_240),
    ],
)
def test_layers_add_up_to_the_published_number(model, parameters):
    assert sum(MODELS[model]) == parameters


# `--jobs`: keys and their mistakes.

SPEC_FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,rate=100G")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("collective=star", "there is no collective 'star'"),
        ("wrkers=4", "has no key 'wrkers' at column 1; did you mean workers"),
        ("workers=1", "workers '1' is not a whole number from 2 to"),
        ("size=0", "size must be more than 0"),
        ("model=gpt9", "there is no model 'gpt9'"),
        ("model=vgg16,size=1MB", "size cannot be combined with model=vgg16"),
        ("compute=2h", "compute"),
        ("compute=1ms,ratio=2", "give compute or ratio"),
        ("slowdown=0.5", "slowdown '0.5' is not a number from 1 to 100"),
        ("jitter=5", "jitter '5' is not a share of 0% to 1000%"),
        ("place=near", "place is packed, spread, random"),
        ("group=4", "group is for collective=hierarchical"),
        ("skew=1", "skew is for collective=moe"),
        ("expert=1us", "expert is for collective=moe"),
        ("count=999", "count '999' is not a whole number from 1 to 256"),
        ("qps=0", "qps '0' is not a whole number from 1 to 64"),
    ],
)
def test_mistakes_name_the_key(spec: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_jobs([spec])
    assert words in str(error.value) and "\n" not in str(error.value)


def test_jobs_that_do_not_fit_are_named() -> None:
    for spec, words in (
        ("workers=9", "job1 ring has 9 workers"),
        ("workers=4,count=3", "job3 ring has 4 workers"),
        ("workers=4,stragglers=5", "4 workers have no 5 stragglers"),
        ("collective=hierarchical,workers=6,group=4", "group=4 does not divide 6 workers"),
    ):
        with pytest.raises(UsageError, match=words):
            parse_jobs([spec])(SPEC_FABRIC, 1)
    with pytest.raises(UsageError, match="at most 256 jobs"):
        parse_jobs(["count=200", "count=200"])


def test_models_stragglers_and_starts() -> None:
    bert, ring = parse_jobs(
        ["model=bert-base,scale=0.001,workers=2,ratio=2", "count=1,workers=4,size=1kB,start=5us"]
    )(SPEC_FABRIC, 1)
    sizes = bert.graph.nodes().size[bert.graph.nodes().to >= 0]
    assert 2 * sizes.sum() == pytest.approx(2 * 2 * 109_482_240 * 4 * 0.001, rel=0.001)
    work = bert.graph.nodes().size[bert.graph.nodes().to < 0]
    line = 109_482_240 * 4 * 0.001 * 80
    assert work.sum() == pytest.approx(2 * line / 2, rel=0.001)
    assert ring.start_ps == 5_000_000 and ring.hosts.tolist() == [2, 3, 4, 5]
    slow = parse_jobs(["workers=4,compute=9us,stragglers=1,slowdown=3"])(SPEC_FABRIC, 1)[
        0
    ].graph.nodes()
    assert slow.size[slow.to < 0].tolist() == [9_000_000] * 3 + [27_000_000]
    two = parse_jobs(["workers=2,count=2,start=1us,stagger=7us"])(SPEC_FABRIC, 1)
    assert [job.start_ps for job in two] == [1_000_000, 8_000_000]
    assert [job.name for job in two] == ["job1 ring", "job2 ring"]


def test_the_class_of_a_job(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    node = {"id": "a", "rank": 0, "to": 1, "bytes": 100}
    file.write_text(json.dumps({"ranks": 2, "nodes": [node], "priority": "bulk"}))
    specs = ["workers=2", "workers=2,priority=bulk", f"file={file}", f"file={file},priority=data"]
    jobs = parse_jobs(specs, classes=("data", "bulk"))(SPEC_FABRIC, 1)
    assert [job.priority for job in jobs] == [0, 1, 1, 0]
    with pytest.raises(UsageError, match="--jobs: priority: there is no class 'x'; .*: data, bulk"):
        parse_jobs(["workers=2,priority=x"], classes=("data", "bulk"))
    with pytest.raises(UsageError, match=r"--jobs: x\.json: priority: there is no class 'bulk'"):
        parse_jobs([f"file={file}"])
