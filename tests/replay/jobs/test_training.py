"""Iterations: compute, then collectives layer by layer."""

from __future__ import annotations

import numpy as np

from rocescope.replay.jobs.collectives import PLAIN
from rocescope.replay.jobs.training import training


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
