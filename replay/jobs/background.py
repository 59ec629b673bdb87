"""Traffic of a pattern beside jobs: messages that wait for nothing, at the times of the pattern."""

from __future__ import annotations

import numpy as np

from ..generate.queue_pairs import QueuePairs
from .graph import LAST, Graph, Job

NS_PS = 1000


def background(name: str, pairs: QueuePairs, hosts: int) -> Job:
    """All messages of a pair begin at the start of the pair, in order; pair i has queue pair i.
    They are in the last class of data."""
    graph = Graph(hosts)
    times = pairs.messages
    graph.messages(
        np.repeat(pairs.src, times),
        np.repeat(pairs.dst, times),
        np.repeat(pairs.message_bytes, times),
    )
    return Job(
        f"background {name}",
        graph,
        np.arange(hosts, dtype=np.int32),
        release_ps=np.repeat(pairs.start_ns, times) * NS_PS,
        queue_pair=np.repeat(np.arange(len(pairs)), times),
        priority=LAST,
    )
