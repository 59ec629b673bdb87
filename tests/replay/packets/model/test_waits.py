"""The graph of messages and computations: its order, and when nodes begin at the earliest."""

from __future__ import annotations

import graphlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.packets.model.waits import Edges, earliest


@given(st.data())
def test_nodes_begin_after_the_longest_way_to_them(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    number = st.integers(0, n - 1)
    pairs = sorted(data.draw(st.sets(st.tuples(number, number), max_size=30)))
    on = data.draw(st.lists(st.integers(0, 1), min_size=len(pairs), max_size=len(pairs)))
    times = st.lists(st.integers(0, 9), min_size=n, max_size=n)
    release, takes = data.draw(times), [data.draw(times), data.draw(times)]
    node, after = np.array(pairs, np.int32).reshape(-1, 2).T
    begin, order = earliest(
        n, Edges(node, after, np.array(on, np.uint8)), np.array(release), np.array(takes)
    )
    before: dict[int, list[tuple[int, int]]] = {i: [] for i in range(n)}
    for (one, other), end in zip(pairs, on, strict=True):
        before[one].append((other, end))
    free: set[int] = set()  # what a circle does not hold up
    while more := {i for i in range(n) if {b for b, _ in before[i]} <= free} - free:
        free |= more
    assert set(order.tolist()) == free and len(order) == len(free)
    wanted: dict[int, int] = {}
    graph = {i: [b for b, _ in before[i]] for i in free}
    for i in graphlib.TopologicalSorter(graph).static_order():
        ends = (wanted[b] + takes[end][b] for b, end in before[i])
        wanted[i] = release[i] + max(ends, default=0)
        assert begin[i] == wanted[i]
    place = {i: at for at, i in enumerate(order.tolist())}
    assert all(place[b] < place[i] for i in free for b in graph[i])
