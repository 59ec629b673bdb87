"""The calendar against a heap."""

import heapq

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.kernels.kernel import kernel
from rocescope.replay.packets.model.model import NEVER
from rocescope.replay.packets.model.wheel import new_wheel, next_event, schedule

ITEMS = 6


@kernel
def _schedule(wheel, item, time):
    schedule(wheel, item, time)


@kernel
def _next(wheel):
    return next_event(wheel)


steps = st.lists(
    st.one_of(
        st.none(),
        st.tuples(
            st.integers(0, ITEMS - 1),
            st.one_of(st.integers(0, 5), st.integers(0, 3_000), st.integers(0, 10**9)),
        ),
    ),
    max_size=60,
)


@pytest.mark.thorough
@examples(80)
@given(steps, st.sampled_from([1, 50]))
def test_as_a_heap(history, between) -> None:
    wheel, due, now = new_wheel(ITEMS, between, 1_000), {}, 0
    for step in (*history, *[None] * (ITEMS + 1)):
        if step is None:
            heap = sorted((time, item) for item, time in due.items())
            item, time = _next(wheel)
            if not heap:
                assert (item, time) == (-1, NEVER)
                continue
            assert (time, item) == heapq.heappop(heap)
            del due[item]
            now = time
        else:
            item, later = step
            _schedule(wheel, item, now + later)
            due[item] = min(due.get(item, int(NEVER)), now + later)


@examples(20)
@given(st.integers(0, 1 << 30), st.sampled_from([49, 300, 3_000]), st.sampled_from([1, 40, 10**6]))
def test_many_items_in_step_come_in_order(seed: int, items: int, span: int) -> None:
    rng = np.random.default_rng(seed)
    wheel, times = new_wheel(items, span, 10 * span), rng.integers(0, 1 + span, items)
    for item in rng.permutation(items).tolist():
        _schedule(wheel, item, int(times[item]) + 1_000_000)
    found = [_next(wheel) for _ in range(items)]
    assert found == [(i, t) for t, i in sorted((t + 1_000_000, i) for i, t in enumerate(times))]
