"""Computations and further predecessors for workloads of tests."""

from __future__ import annotations

import numpy as np

from rocescope.replay.packets.model.model import Waits, Workload


def with_waits(load: Workload, hosts: int, rng: np.random.Generator) -> Workload:
    """The workload with random computations, and up to three predecessors more of each node, in
    the first phase. What waits comes later in one order of all nodes, so that nothing waits in a
    circle, and the flows' own order does not either."""
    m, work = len(load.flow), int(rng.integers(1, 9))
    host = np.concatenate([load.src[load.flow], rng.integers(0, hosts, work)])
    place = np.concatenate([np.arange(m), rng.uniform(0, m, work)])
    known = {(i, int(load.after[i])) for i in range(m)}
    edges = []
    for node in range(m + work):
        for before in rng.permutation(m + work)[:3].tolist():
            if max(node, before) < m and load.phase[node] + load.phase[before]:
                continue
            if min(node, before) < m <= max(node, before) and load.phase[min(node, before)]:
                continue
            if place[before] >= place[node] or (node, before) in known:
                continue
            here = int(host[node])
            if host[before] == here:
                edges.append((node, before, 0))
            elif before < m and load.dst[load.flow[before]] == here:
                edges.append((node, before, 1))
    columns = np.array(edges, np.int64).reshape(-1, 3)
    waiting, after, on = columns[:, 0], columns[:, 1], columns[:, 2]
    return load._replace(
        waits=Waits(
            waiting.astype(np.int32),
            after.astype(np.int32),
            on.astype(np.uint8),
            host[m:].astype(np.int32),
            rng.choice([0, 1, 5_120, 300_000, 2_000_000], work).astype(np.int64),
        )
    )
