"""Pairs of hosts at random."""

from __future__ import annotations

from collections import Counter

from pattern_settings import made

from rocescope.replay.generate.patterns.random_pairs import random_pairs


def test_random_pairs_are_uniform():
    demand = made(random_pairs, flows=100_000, hosts=4)
    counts = Counter(zip(demand.src.tolist(), demand.dst.tolist(), strict=True))
    assert len(counts) == 12
    assert all(abs(n - 100_000 / 12) < 5 * (100_000 / 12) ** 0.5 for n in counts.values())
