"""Linear algebra over GF(2) against trying everything."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.seeds.gf2 import AffineMap, solve


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
