"""Collectives: what every rank's result contains, and how many bytes they move."""

from __future__ import annotations

import graphlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.jobs.collectives import (
    PLAIN,
    Collective,
    Graph,
    experts,
    hierarchical,
    uneven,
    uneven_sizes,
)


def _made(collective: Collective, ranks: int, size: int) -> tuple[Graph, list[set[int]]]:
    """(its graph, for each rank the ranks whose data its result waits for). Every rank computes
    first."""
    graph = Graph(ranks)
    first = graph.computations(np.arange(ranks), 1)
    done = collective(graph, size, first[:, None])
    nodes, edges = graph.nodes(), graph.edges()
    before: dict[int, set[int]] = {node: set() for node in range(graph.count)}
    for node, after in zip(*(column.tolist() for column in edges), strict=True):
        before[node].add(after)
        # What a node waits for is complete at its rank.
        assert nodes.rank[node] in (nodes.rank[after], nodes.to[after])
        assert after < node
    last_of: dict[tuple[int, int], int] = {}
    for node, ends in enumerate(zip(nodes.rank.tolist(), nodes.to.tolist(), strict=True)):
        if ends[1] >= 0:  # queue pairs send in the order of nodes
            before[node] |= {last_of[ends]} if ends in last_of else set()
            last_of[ends] = node
    known: dict[int, set[int]] = {}
    for node in graphlib.TopologicalSorter(before).static_order():
        own = {node} if node < ranks else set()
        known[node] = own.union(*(known[after] for after in before[node]))
    result: list[set[int]] = []
    for rank in range(ranks):
        last = [node for node in done[rank].tolist() if node >= 0]
        assert all(rank in (nodes.rank[node], nodes.to[node]) for node in last)
        result.append(set().union({rank}, *(known[node] for node in last)))
    return graph, result


def _sent(graph: Graph, ranks: int) -> list[int]:
    nodes = graph.nodes()
    rows = nodes.to >= 0
    assert (nodes.rank[rows] != nodes.to[rows]).all()
    return np.bincount(nodes.rank[rows], nodes.size[rows], ranks).astype(int).tolist()


@given(
    st.sampled_from(["ring", "tree", "halving-doubling", "all-to-all", "all-gather"]),
    st.integers(2, 13),
    st.integers(1, 1 << 20),
)
def test_every_rank_has_a_part_of_everyone(name: str, ranks: int, size: int) -> None:
    _, result = _made(PLAIN[name], ranks, size)
    assert result == [set(range(ranks))] * ranks


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 1 << 20))
def test_hierarchical_all_reduce_reaches_all_groups(group: int, groups: int, size: int) -> None:
    ranks = group * groups
    _, result = _made(hierarchical(group), ranks, size)
    assert result == [set(range(ranks))] * ranks


def test_bytes_of_a_rank() -> None:
    size = 1 << 20
    assert _sent(_made(PLAIN["ring"], 8, size)[0], 8) == [2 * 7 * size // 8] * 8
    assert _sent(_made(PLAIN["halving-doubling"], 8, size)[0], 8) == [2 * 7 * size // 8] * 8
    assert _sent(_made(PLAIN["reduce-scatter"], 8, size)[0], 8) == [7 * size // 8] * 8
    assert _sent(_made(PLAIN["all-to-all"], 8, size)[0], 8) == [7 * size // 8] * 8
    inside, across = 2 * 3 * size // 4, 2 * size // 4 // 2
    assert _sent(_made(hierarchical(4), 8, size)[0], 8) == [inside + across] * 8
    # Trees: all data goes up and down once, over n - 1 edges of each tree.
    assert sum(_sent(_made(PLAIN["tree"], 7, size)[0], 7)) == 2 * 6 * size
    # Folding: three ranks of seven hand over everything, and get it back.
    folded = _sent(_made(PLAIN["halving-doubling"], 7, size)[0], 7)
    assert sum(folded) == 3 * 2 * size + 4 * 2 * 3 * size // 4


@given(st.integers(2, 12), st.integers(1, 1 << 20))
def test_broadcast_and_reduce_have_a_root(ranks: int, size: int) -> None:
    assert all(0 in known for known in _made(PLAIN["broadcast"], ranks, size)[1])
    graph, result = _made(PLAIN["reduce"], ranks, size)
    assert result[0] == set(range(ranks))
    assert sum(_sent(graph, ranks)) == (ranks - 1) * size


def test_uneven_all_to_all_and_experts() -> None:
    sizes = uneven_sizes(4, 1000, 1.0, np.random.default_rng(1))
    wanted = sorted(round(1000 / k / (1 + 1 / 2 + 1 / 3 + 1 / 4)) for k in range(1, 5))
    assert sorted(sizes[0].tolist()) == wanted and (sizes == sizes[0]).all()
    assert uneven_sizes(4, 1000, 0.0, np.random.default_rng(1)).tolist() == [[250] * 4] * 4
    graph, result = _made(uneven(1.0, np.random.default_rng(1)), 4, 1000)
    assert result == [set(range(4))] * 4
    # Tokens go to their experts, which compute in proportion, and come back.
    graph, result = _made(experts(1.0, 1_000_000, np.random.default_rng(1)), 4, 1000)
    nodes = graph.nodes()
    work = nodes.size[4:][nodes.to[4:] < 0]
    assert result == [set(range(4))] * 4 and len(work) == 4
    assert sorted(work.tolist()) == [round(4 * part / sum(wanted) * 1e6) for part in wanted]
    there = nodes.size[4 : 4 + 12].sum()
    assert nodes.size[-12:].sum() == there


def test_groups_must_divide_the_workers() -> None:
    with pytest.raises(UsageError, match="group=3 does not divide 8 workers"):
        _made(hierarchical(3), 8, 1000)


def test_one_rank_alone_sends_nothing() -> None:
    for collective in (*PLAIN.values(), hierarchical(1), experts(1.0, 5, np.random.default_rng(1))):
        graph = Graph(1)
        assert collective(graph, 100, np.full((1, 1), -1)).max() == -1 and graph.count == 0
