"""Threads that empty rings run before others; whoever started them does not."""

from __future__ import annotations

import os
import threading

import pytest

from rocescope.probes.priority import NICE, raise_own, raised


def nice():
    return os.getpriority(os.PRIO_PROCESS, 0)


def of_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(nice()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="raising a priority takes CAP_SYS_NICE")
def test_threads_that_are_started_inside_are_raised_and_stay_so():
    before, go, found = nice(), threading.Event(), []

    def work():
        go.wait(10)
        found.append(nice())

    with raised():
        assert nice() == min(NICE, before) == of_a_thread()
        thread = threading.Thread(target=work)
        thread.start()
    assert nice() == before == of_a_thread()
    go.set()
    thread.join()
    assert found == [min(NICE, before)]


def test_without_the_right_nothing_happens(monkeypatch):
    def refused(*_):
        raise PermissionError

    before = nice()
    with monkeypatch.context() as patched:
        patched.setattr(os, "setpriority", refused)
        raise_own()
    assert nice() == before
