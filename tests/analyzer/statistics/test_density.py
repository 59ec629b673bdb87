"""RD and RBD against the published algorithms, written down literally."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.statistics.density import (
    MAX_THRESHOLD,
    REQUESTS,
    RESPONSES,
    Densities,
    density_finish,
    density_push,
)
from rocescope.kernels.kernel import kernel


@kernel
def push_all(arrays, stream, numbers):
    for number in numbers:
        density_push(arrays, stream, number)


def push(densities, flow, numbers, space=REQUESTS):
    densities.grow(flow + 1)
    push_all(densities.arrays, 2 * flow + space, np.array(numbers, np.int64))


def measure(numbers, threshold=MAX_THRESHOLD):
    densities = Densities(threshold)
    push(densities, 0, numbers)
    return densities.density(0, REQUESTS), densities.buffer_density(0, REQUESTS)


def count(histogram, key):
    histogram[key] = histogram.get(key, 0) + 1


def reorder_density(arrivals, threshold):
    """The authors' RD algorithm, step by step."""
    arrivals = list(arrivals)
    window, buffer, frequency = [], [], {}
    index = min(arrivals, default=0)  # below anything the window will hold

    def next_arrival(anything):
        while arrivals:
            number = arrivals.pop(0)
            late = not anything and number < index
            if not late and number not in window and number not in buffer:
                window.append(number)
                return

    while arrivals and len(window) <= threshold:
        next_arrival(True)
    while window:
        if index in window or index in buffer:
            number = window.pop(0)
            displacement = index - number
            if abs(displacement) <= threshold:
                count(frequency, displacement)
                if index in buffer:
                    buffer.remove(index)
                if displacement < 0:
                    buffer.append(number)
                index += 1
            next_arrival(False)
        else:
            smallest = min(window + buffer)
            index = smallest if index < smallest else index + 1
    return frequency


def buffer_density(arrivals, threshold):
    """The authors' RBD algorithm; a buffer with `threshold` packets takes no more."""
    arrivals = list(arrivals)
    window, buffer, frequency = [], [], {}

    def next_arrival(floor):
        while arrivals:
            number = arrivals.pop(0)
            if number >= floor and number not in window and number not in buffer:
                window.append(number)
                return

    while arrivals and len(window) <= threshold:
        next_arrival(min(arrivals))
    while window:
        expected = min(window)
        number = window.pop(0)
        floor = expected
        if number == expected:
            floor = expected + 1
            while buffer and min(window + buffer) in buffer:
                buffer.remove(min(window + buffer))
            count(frequency, len(buffer))
        elif len(buffer) < threshold:
            buffer.append(number)
            count(frequency, len(buffer))
        next_arrival(floor)
    return frequency


VECTORS = [  # arrivals, threshold, RD, RBD
    ([1, 4, 3, 5, 3, 8, 7, 6], 4, {-2: 1, -1: 1, 0: 3, 1: 1, 2: 1}, None),
    ([1, 2, 4, 5, 3], 4, {-1: 2, 0: 2, 2: 1}, {0: 3, 1: 1, 2: 1}),
]


@pytest.mark.parametrize(("arrivals", "threshold", "density", "buffers"), VECTORS)
def test_published_vectors(arrivals, threshold, density, buffers):
    assert measure(arrivals, threshold)[0] == density
    assert reorder_density(arrivals, threshold) == density
    if buffers is not None:
        assert measure(arrivals, threshold)[1] == buffers
        assert buffer_density(arrivals, threshold) == buffers


def test_in_order_packets_have_no_displacement_and_take_no_slot():
    densities = Densities()
    push(densities, 3, range(7, 1007))
    assert densities.density(3, REQUESTS) == {0: 1000}
    assert densities.buffer_density(3, REQUESTS) == {0: 1000}
    assert densities.arrays.used[0] == 0
    assert densities.density(2, REQUESTS) == densities.density(999, RESPONSES) == {}


def test_windows_dissolve_once_the_order_is_restored():
    densities = Densities(4)
    push(densities, 0, [*range(10), 11, 10, *range(12, 40)])
    assert densities.arrays.state[0]["disordered"] == 0
    assert densities.density(0, REQUESTS) == {-1: 1, 0: 38, 1: 1}
    assert densities.buffer_density(0, REQUESTS) == {0: 39, 1: 1}


def test_losses_do_not_displace_what_follows():
    arrivals = [n for n in range(500) if n % 50 != 49 and not 100 <= n < 220]
    assert measure(arrivals) == ({0: len(arrivals)}, {0: len(arrivals)})


def test_a_packet_beyond_the_threshold_counts_as_lost():
    arrivals = [*range(10), *range(11, 60), 10, *range(60, 100)]
    assert measure(arrivals, 8) == ({0: 99}, {0: 99})


def arrivals_of(draw_source, length, lost, swaps, doubled):
    numbers = [n for n in range(draw_source, draw_source + length) if n - draw_source not in lost]
    for at, distance in swaps:
        if numbers:
            at %= len(numbers)
            numbers.insert(min(at + distance, len(numbers)), numbers.pop(at))
    for at in doubled:
        if numbers:
            numbers.insert(min(at + 3, len(numbers)), numbers[at % len(numbers)])
    return numbers


streams = st.builds(
    arrivals_of,
    st.integers(-40, 40),
    st.integers(0, 120),
    st.sets(st.integers(0, 119), max_size=40),
    st.lists(st.tuples(st.integers(0, 119), st.integers(-12, 40)), max_size=25),
    st.lists(st.integers(0, 119), max_size=3),
)
wild = st.lists(st.integers(-30, 60) | st.integers(10**9, 10**9 + 20), max_size=120)
thresholds = st.integers(1, 9) | st.just(MAX_THRESHOLD)


@examples(300)
@given(streams | wild, thresholds)
def test_equals_the_literal_algorithms(arrivals, threshold):
    assert measure(arrivals, threshold) == (
        reorder_density(arrivals, threshold),
        buffer_density(arrivals, threshold),
    )


@examples(50)
@given(streams, thresholds)
def test_reading_the_densities_does_not_disturb_the_stream(arrivals, threshold):
    densities = Densities(threshold)
    for end, number in enumerate(arrivals, 1):
        push(densities, 0, [number])
        assert densities.density(0, REQUESTS) == reorder_density(arrivals[:end], threshold)


def summed(*histograms):
    return {key: sum(h.get(key, 0) for h in histograms) for key in sorted(set().union(*histograms))}


@examples(50)
@given(streams, streams, thresholds)
def test_finishing_starts_a_new_stream(first, second, threshold):
    densities = Densities(threshold)
    push(densities, 0, first)
    density_finish(densities.arrays, 0)
    push(densities, 0, second)
    assert densities.density(0, REQUESTS) == summed(
        reorder_density(first, threshold), reorder_density(second, threshold)
    )
    assert densities.buffer_density(0, REQUESTS) == summed(
        buffer_density(first, threshold), buffer_density(second, threshold)
    )


@examples(50)
@given(streams, streams, streams, st.integers(0, 120))
def test_merge(both, ours, theirs, cut):
    """Streams of both sides continue where they were."""
    left, right = Densities(5), Densities(5)
    push(left, 0, ours)
    push(right, 0, both, RESPONSES)
    push(right, 1, theirs[:cut])
    left.merge(right, np.array([2, 70], np.int32))
    push(left, 70, theirs[cut:])
    assert left.density(0, REQUESTS) == reorder_density(ours, 5)
    assert left.density(2, RESPONSES) == reorder_density(both, 5)
    assert left.density(70, REQUESTS) == reorder_density(theirs, 5)
    assert left.buffer_density(70, REQUESTS) == buffer_density(theirs, 5)


def test_threshold_must_fit():
    with pytest.raises(ValueError, match="1 to 32"):
        Densities(33)
