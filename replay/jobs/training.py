"""Training jobs: every worker computes layer by layer, and a collective follows each layer.

A third of the compute time is forward, the rest is spread evenly over the layers, from the back of
the model to its front (as in `aggregate`; assumed). The collective of a layer begins at a rank when
the rank has computed the layer and its previous collective is done there; the next iteration begins
when both are done.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.kernel import Floats
from .collectives import Collective
from .graph import Graph


def training(
    ranks: int,
    sizes: Sequence[int],
    iterations: int,
    compute_ps: int,
    slowness: Floats,
    collective: Collective,
) -> Graph:
    """The graph of a job. sizes: bytes of each layer, in the order in which they are computed.
    slowness: float64[iterations, ranks], compute time over `compute_ps`."""
    graph = Graph(ranks)
    every = np.arange(ranks)
    ready = np.full((ranks, 1), -1, np.int64)
    forward = compute_ps // 3
    for number in range(iterations):
        graph.iteration = number
        computed, done = ready, np.full((ranks, 1), -1, np.int64)
        for layer, size in enumerate(sizes):
            part = (compute_ps - forward) * (layer + 1) // len(sizes)
            part -= (compute_ps - forward) * layer // len(sizes)
            part += forward if layer == 0 else 0
            if compute_ps:
                work = graph.computations(every, np.rint(slowness[number] * part).astype(np.int64))
                graph.wait(work[:, None], computed)
                computed = work[:, None]
            done = collective(graph, size, np.concatenate([computed, done], axis=1))
        ready = np.concatenate([computed, done], axis=1)
    return graph
