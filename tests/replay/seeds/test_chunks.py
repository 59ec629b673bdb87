"""Work in chunks: every number once, errors of workers, and the end after an interrupt."""

from __future__ import annotations

import threading

import pytest

from rocescope.replay.seeds import chunks as module
from rocescope.replay.seeds.chunks import in_chunks


@pytest.mark.parametrize("cores", [1, 3, 50])
def test_every_chunk_once(cores, monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: cores)
    lock, done, told = threading.Lock(), [], []

    def work(worker, number):
        with lock:
            done.append((worker, number))

    in_chunks(20, work, lambda: told.append(len(done)))
    assert sorted(number for _, number in done) == list(range(20))
    assert {worker for worker, _ in done} <= set(range(cores))
    assert told[-1] == 20


def test_no_chunk():
    told = []
    in_chunks(0, lambda worker, number: pytest.fail("there is no work"), lambda: told.append(1))
    assert told


def test_an_error_ends_the_work(monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 1)
    done = []

    def work(_worker, number):
        done.append(number)
        if number == 2:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        in_chunks(100, work)
    assert done == [0, 1, 2]


def test_an_interrupt_ends_the_work(monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 2)
    monkeypatch.setattr(module, "_TELL_EVERY_S", 0.001)
    begun, interrupted = [], threading.Event()

    def work(_worker, number):
        begun.append(number)
        interrupted.wait(30)

    def tell():
        interrupted.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_chunks(1000, work, tell)
    assert len(begun) < 1000
