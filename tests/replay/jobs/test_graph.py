"""Nodes and edges of jobs."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.jobs import graph as graphs
from rocescope.replay.jobs.graph import MODELS, Graph

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
