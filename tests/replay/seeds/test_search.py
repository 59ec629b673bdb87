"""Linear algebra over GF(2) against trying everything."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
import replay_traffic
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.keys import PacketKeys, packet_keys
from rocescope.replay.hashing.linux import LinuxHash
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.hashing.settings import Group, HashSettings
from rocescope.replay.seeds.search import AffineMap, search_linux, solve

# Linear algebra over GF(2) against trying everything.


@given(st.lists(st.integers(0, 63), max_size=8), st.integers(0, 63))
def test_smallest_solution_and_their_number(columns: list[int], target: int) -> None:
    def image(x: int) -> int:
        chosen = (c for i, c in enumerate(columns) if x >> i & 1)
        return reduce(int.__xor__, chosen, 0)

    fitting = [x for x in range(1 << len(columns)) if image(x) == target]
    found = solve(columns, target)
    if not fitting:
        assert found is None
    else:
        assert found is not None
        assert found.smallest == fitting[0] and 1 << found.free == len(fitting)


@given(st.lists(st.integers(0, 3), min_size=6, max_size=6), st.integers(0, 3), st.data())
def test_affine_map_is_learned(rows: list[int], constant: int, data: st.DataObject) -> None:
    def truth(x: int) -> int:
        return reduce(int.__xor__, (r for i, r in enumerate(rows) if x >> i & 1), constant)

    learned = AffineMap()
    for x in data.draw(st.lists(st.integers(0, 63), max_size=30)):
        assert learned.output(x) in (None, truth(x))
        assert learned.learn(x, truth(x))
        assert learned.output(x) == truth(x)
    assert learned.rank <= 7
    if learned.rank == 7:  # nothing is left to learn, so a contradiction is seen
        assert not learned.learn(5, truth(5) ^ 1)


# The search among 2^32 seeds against the hash itself, which is compared with a real kernel.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=8")


def ipv6_keys(n: int, seed: int) -> PacketKeys:
    rng = np.random.default_rng(seed)
    ends = [[f"fd00::{x:x}" for x in rng.integers(1, 999, n)] for _ in range(2)]
    return packet_keys(ends[0], ends[1], rng.integers(49152, 65536, n))


@pytest.mark.thorough
@pytest.mark.parametrize("weights", [[1, 1], [1, 1, 1], [3, 1, 4, 1], [1, 0, 1]])
@pytest.mark.parametrize("ipv6", [False, True])
@given(seed=st.integers(0, (1 << 32) - 1), n=st.integers(1, 12), policy=st.sampled_from([0, 1]))
def test_finds_all_that_fit_and_nothing_else(
    weights: list[int], ipv6: bool, seed: int, n: int, policy: int
) -> None:
    keys = ipv6_keys(n, seed) if ipv6 else replay_traffic.random_traffic(FABRIC, n, seed).keys
    settings, group = HashSettings("linux", extra={"policy": policy}), Group(np.array(weights))
    bound = bind(keys, settings)
    assert isinstance(bound, LinuxHash)
    link = bound.choose([seed], group)[0].astype(np.int32)
    first = max(0, min(seed - 1500, (1 << 32) - 3000))
    span = SeedRange(first, first + 3000)
    seeds = np.arange(span.first, span.end, dtype=np.uint64)
    expected = seeds[(bound.choose(seeds, group) == link).all(1)]
    found = search_linux(bound, group, link, span, None)
    assert found.seeds.tolist() == expected.tolist()
    assert (found.number, found.searched) == (len(expected), 3000)
    assert seed in found.seeds


def test_a_link_that_is_never_chosen_fits_nothing() -> None:
    bound = bind(replay_traffic.random_traffic(FABRIC, 3).keys, HashSettings("linux"))
    assert isinstance(bound, LinuxHash)
    group, link = Group(np.array([1, 0, 1])), np.array([0, 1, 2], np.int32)
    assert search_linux(bound, group, link, SeedRange(0, 5000), None).number == 0


def test_progress_comes_to_the_end() -> None:
    bound = bind(replay_traffic.random_traffic(FABRIC, 9).keys, HashSettings("linux"))
    assert isinstance(bound, LinuxHash)
    told: list[tuple[int, int]] = []
    link = np.zeros(9, np.int32)
    search_linux(
        bound, Group(np.ones(4, np.int64)), link, SeedRange(5, 100_000),
        lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told[-1] == (99_995, 99_995)
