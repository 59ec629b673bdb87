"""Two iterators whose work threads share: order, errors and ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rocescope.analyzer.analysis.prefetch import AHEAD
from rocescope.analyzer.analysis.shared import Shared


def nothing() -> None:
    """Nobody looks."""


def doubled(items: Iterator[int]) -> Iterator[int]:
    for item in items:
        yield 2 * item


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_items_come_in_order(cores):
    assert list(Shared(lambda: iter(range(300)), doubled, nothing, cores)) == [*range(0, 600, 2)]


@pytest.mark.parametrize("cores", [2, 3])
def test_an_error_of_the_first_comes_after_the_items_before_it(cores):
    def make():
        yield from range(10)
        raise ValueError("here")

    found = []
    with pytest.raises(ValueError, match="here"):
        for item in Shared(make, doubled, nothing, cores):
            found.append(item)
    assert found == [*range(0, 20, 2)]


@pytest.mark.parametrize("cores", [2, 3])
def test_an_error_of_the_second_comes_after_the_items_before_it(cores):
    def then(items):
        for item in items:
            if item == 10:
                raise ValueError("here")
            yield item

    found = []
    with pytest.raises(ValueError, match="here"):
        for item in Shared(lambda: iter(range(1000)), then, nothing, cores):
            found.append(item)
    assert found == list(range(10))


def test_the_second_may_end_first():
    def then(items):
        for item in items:
            yield item
            if item == 5:
                return

    shared = Shared(lambda: iter(range(1000)), then, nothing)
    assert list(shared) == list(range(6))
    assert not any(thread.is_alive() for thread in shared._threads)


def test_each_runs_in_one_thread_at_a_time():
    busy = threading.Lock(), threading.Lock()

    def slowly(items, lock):
        for item in items:
            assert lock.acquire(blocking=False)
            time.sleep(0.0001 * (item % 3))
            lock.release()
            yield item

    made = Shared(lambda: slowly(range(500), busy[0]), lambda i: slowly(i, busy[1]), nothing, 3)
    assert list(made) == list(range(500))


def test_the_iterating_thread_takes_while_the_others_make():
    """The second item of `then` runs while `make` is at work, which waits for it."""
    taken = threading.Event()
    by: list[int] = []

    def make():
        yield 0
        yield 1
        assert taken.wait(60)
        yield 2

    def then(items):
        for item in items:
            by.append(threading.get_ident())
            if item == 1:
                taken.set()
            yield item

    assert list(Shared(make, then, nothing, 2)) == [0, 1, 2]
    assert by[1] == threading.get_ident()


def test_no_more_than_so_many_items_are_ahead():
    made: list[int] = []

    def make():
        for item in range(100):
            made.append(item)
            yield item

    for taken, _ in enumerate(Shared(make, doubled, nothing, 3)):
        # AHEAD made and AHEAD ready, one in the hands of each of the three threads.
        assert len(made) <= taken + 2 * AHEAD + 3


def test_a_blocked_iterator_is_left_behind():
    free, ended = threading.Event(), []

    def make():
        yield 1
        ended.append(free.wait(300))
        yield 2

    shared = Shared(make, doubled, nothing)
    found = []
    for item in shared:
        found.append(item)
        shared.finish()
    assert (found, ended) == ([2], [])  # it is still blocked
    free.set()


def test_a_consumer_that_leaves_ends_the_threads():
    shared = Shared(lambda: iter(range(1000)), doubled, nothing, 3)
    for _ in shared:
        break
    assert not any(thread.is_alive() for thread in shared._threads)


def test_it_polls_while_nothing_is_ready():
    polled = threading.Event()

    def make():
        assert polled.wait(60)
        yield 1

    assert list(Shared(make, doubled, polled.set)) == [2]
