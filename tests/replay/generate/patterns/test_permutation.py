"""Every host sends to one other, and none to itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pattern_settings import made

from rocescope.replay.generate.patterns.permutation import permutation


@given(st.integers(2, 40), st.integers(0, 1000))
def test_a_permutation_has_every_host_once_and_none_to_itself(hosts, seed):
    demand = made(permutation, seed, hosts=hosts)
    assert sorted(demand.src) == sorted(demand.dst) == list(range(hosts))
    assert (demand.src != demand.dst).all()


def test_permutations_differ():
    assert len({tuple(made(permutation, seed, hosts=4).dst) for seed in range(200)}) == 9  # of 4
