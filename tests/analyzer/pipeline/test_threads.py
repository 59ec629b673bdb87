"""Threads of an analysis: order, errors and ends; nobody waits for what is blocked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rocescope.analyzer.pipeline.threads import AHEAD, FairLock, Followed, Prefetched, Shared


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


def test_a_blocked_source_is_left_behind():
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


def test_waiting_ends_when_all_batches_are_done():
    followed = Followed()
    assert followed.wait()
    for _ in range(3):
        followed.due()

    def do_all():
        for _ in range(3):
            followed.done()

    other = threading.Thread(target=do_all)
    other.start()
    assert followed.wait()
    other.join()


def test_waiting_ends_when_the_other_thread_ends():
    followed = Followed()
    followed.due()
    other = threading.Thread(target=followed.end)
    other.start()
    assert not followed.wait()
    other.join()


def test_who_waits_comes_before_who_frees_it_and_asks_again():
    lock, order, asked = FairLock(), [], threading.Event()

    def visit():
        asked.set()
        with lock:
            order.append("visitor")

    with lock:
        visitor = threading.Thread(target=visit)
        visitor.start()
        asked.wait()
        while lock._next < 2:
            time.sleep(0.001)
    with lock:
        order.append("worker")
    visitor.join()
    assert order == ["visitor", "worker"]


def test_it_holds_one_thread_at_a_time_and_is_freed_by_errors():
    lock, inside, most = FairLock(), [], []

    def work():
        for _ in range(200):
            try:
                with lock:
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    raise ValueError
            except ValueError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert max(most) == 1 and len(most) == 800
