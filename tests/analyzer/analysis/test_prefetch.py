"""Two threads: nothing is lost at an end, and nobody waits for what is blocked."""

from __future__ import annotations

import threading
import time

import pytest

from rocescope.analyzer.analysis.prefetch import AHEAD, Prefetched


def nothing() -> None:
    """Nobody looks."""


def test_items_come_in_order_and_errors_at_their_place():
    def make():
        yield from range(10)
        raise ValueError("here")

    found = []
    with pytest.raises(ValueError, match="here"):
        for item in Prefetched(make, nothing):
            found.append(item)
    assert found == list(range(10))


def test_what_is_ready_when_it_finishes_is_handed_out():
    told = threading.Event()

    def make():
        n = 0
        while not told.is_set():
            yield n
            n += 1

    items = Prefetched(make, nothing)
    found = []
    for item in items:
        found.append(item)
        if item == 5:
            while not items._items.full():
                time.sleep(0.01)
            told.set()
            items.finish()
    assert found == list(range(len(found)))
    assert len(found) >= 6 + AHEAD


def test_a_blocked_iterator_is_left_behind():
    free, ended = threading.Event(), []

    def make():
        yield 1
        ended.append(free.wait(300))
        yield 2

    items = Prefetched(make, nothing)
    found = []
    for item in items:
        found.append(item)
        items.finish()
    assert (found, ended) == ([1], [])  # it is still blocked
    free.set()


def test_a_consumer_that_leaves_ends_the_thread():
    items = Prefetched(lambda: iter(range(1000)), nothing)
    for _ in items:
        break
    assert not items._thread.is_alive()


def test_items_with_a_size_wait_by_their_size():
    sizes = [3, 0, 4, 2, 5, 1, 9, 1]
    made: list[int] = []

    def make():
        for size in sizes:
            made.append(size)
            yield size

    items = Prefetched(make, nothing, 8, lambda size: size)
    found = []
    for item in items:
        if not found:
            for _ in range(200):  # 0 counts as one: 1 + 4 + 2 + 5 reach the room of 8
                if items.backlog >= 1:
                    break
                time.sleep(0.01)
            assert len(made) <= 6
        found.append(item)
    assert found == sizes
    assert items.backlog == 0
