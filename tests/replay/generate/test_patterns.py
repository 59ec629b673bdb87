"""What a pattern asks of hosts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pattern_settings import SETTINGS as DEMANDS_SETTINGS
from pattern_settings import made as made_all_to_all
from pattern_settings import made as made_incast
from pattern_settings import made as made_permutation
from pattern_settings import made as made_random_pairs
from pattern_settings import made as made_ring_allreduce
from pattern_settings import made as made_trace_like

from rocescope.analyzer.errors import UsageError
from rocescope.replay.generate.patterns import (
    PATTERNS,
    Settings,
    all_to_all,
    demands,
    incast,
    need_hosts,
    pattern,
    permutation,
    random_pairs,
    ring_allreduce,
    trace_like,
)

# What a pattern asks of hosts.


def test_pairs_of_one_source_share_its_rate():
    pairs = demands(DEMANDS_SETTINGS, np.array([0, 0, 3, 0]), np.array([1, 2, 0, 1]))
    assert pairs.sharing.tolist() == [3, 3, 1, 3]
    assert pairs.messages.tolist() == [3] * 4 and pairs.message_bytes.tolist() == [1 << 20] * 4
    assert pairs.start_ns.tolist() == [0] * 4 and not pairs.in_turn
    assert {column.dtype for column in pairs[:6]} == {np.dtype(np.int64)}


def test_too_few_hosts():
    need_hosts(DEMANDS_SETTINGS._replace(hosts=2), "incast")
    with pytest.raises(UsageError, match="incast needs at least 2 hosts, not 1"):
        need_hosts(DEMANDS_SETTINGS._replace(hosts=1), "incast")


# Every ordered pair of hosts once.


def test_all_to_all_has_every_ordered_pair_once():
    demand = made_all_to_all(all_to_all, hosts=5)
    pairs = Counter(zip(demand.src.tolist(), demand.dst.tolist(), strict=True))
    assert pairs == {(a, b): 1 for a in range(5) for b in range(5) if a != b}
    assert set(demand.sharing.tolist()) == {4}


def test_too_many_pairs():
    with pytest.raises(UsageError, match="all-to-all of 4,097 hosts has 16,785,409 pairs"):
        made_all_to_all(all_to_all, hosts=4097)


# Many hosts send to one.


def test_incast_goes_to_host_0():
    assert made_incast(incast).src.tolist() == list(range(1, 16))
    demand = made_incast(incast, fan_in=5)
    assert len(set(demand.src.tolist()) - {0}) == 5 and set(demand.dst.tolist()) == {0}
    for fan_in in (0, 16):
        with pytest.raises(UsageError, match="--fan-in must be 1 to 15"):
            made_incast(incast, fan_in=fan_in)


# Every host sends to one other, and none to itself.


@given(st.integers(2, 40), st.integers(0, 1000))
def test_a_permutation_has_every_host_once_and_none_to_itself(hosts, seed):
    demand = made_permutation(permutation, seed, hosts=hosts)
    assert sorted(demand.src) == sorted(demand.dst) == list(range(hosts))
    assert (demand.src != demand.dst).all()


def test_permutations_differ():
    assert (
        len({tuple(made_permutation(permutation, seed, hosts=4).dst) for seed in range(200)}) == 9
    )  # of 4


# Pairs of hosts at random.


def test_random_pairs_are_uniform():
    demand = made_random_pairs(random_pairs, flows=100_000, hosts=4)
    counts = Counter(zip(demand.src.tolist(), demand.dst.tolist(), strict=True))
    assert len(counts) == 12
    assert all(abs(n - 100_000 / 12) < 5 * (100_000 / 12) ** 0.5 for n in counts.values())


# Chunks that go round a ring of all hosts.


def test_ring_allreduce_moves_two_n_minus_one_chunks_to_the_next():
    demand = made_ring_allreduce(ring_allreduce, hosts=8, message_bytes=8000, messages=2)
    assert demand.dst.tolist() == [1, 2, 3, 4, 5, 6, 7, 0]
    assert set(demand.messages.tolist()) == {2 * 2 * 7}
    assert set(demand.message_bytes.tolist()) == {1000}
    assert demand.in_turn


# Flows of many sizes, one after the other.


def test_trace_like_flows_offer_the_load_and_have_a_heavy_tail():
    demand = made_trace_like(trace_like, flows=50_000)
    gaps = np.diff(demand.start_ns, prepend=0)
    offered = 8 * float((demand.message_bytes * demand.messages).sum()) * 1e9 / demand.start_ns[-1]
    assert offered == pytest.approx(0.5 * 16 * 10**11, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)  # exponential
    assert np.median(demand.message_bytes) == pytest.approx(1 << 20, rel=0.03)
    largest = np.sort(demand.message_bytes)[-5000:].sum() / demand.message_bytes.sum()
    assert 0.5 < largest < 0.65
    for load in (0, 1.5):
        with pytest.raises(UsageError, match="--load must be above 0"):
            made_trace_like(trace_like, load=load)


# Who sends to whom.

SETTINGS = Settings(
    hosts=16, message_bytes=1 << 20, messages=3, flows=1000, fan_in=None, load=0.5,
    rate_bits_per_second=10**11,
)  # fmt: skip


def made(name, seed=1, **changes):
    return pattern(name)(SETTINGS._replace(**changes), np.random.default_rng(seed))


@pytest.mark.parametrize("name", PATTERNS)
def test_one_host_is_not_enough(name):
    with pytest.raises(UsageError, match="at least 2 hosts"):
        made(name, hosts=1)


def test_an_unknown_pattern_and_too_many_pairs():
    with pytest.raises(UsageError, match="no pattern 'star'; there are permutation"):
        pattern("star")
    with pytest.raises(UsageError, match="all-to-all of 5,000 hosts"):
        made("all-to-all", hosts=5000)
