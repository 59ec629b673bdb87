"""Threads that empty rings or draw run before others, as long as they want to."""

from __future__ import annotations

import os
import threading

import pytest

from rocescope.probes.rights.priority import NICE, lower_own, raise_own


def nice():
    return os.getpriority(os.PRIO_PROCESS, 0)


def in_a_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.usefixtures("root")
def test_a_raised_thread_starts_raised_ones_which_may_lower_themselves():
    def raised():
        raise_own()
        own, started = nice(), in_a_thread(nice)

        def lowered():
            lower_own()
            return nice()

        return own, started, in_a_thread(lowered), nice()

    before = nice()
    wanted = min(NICE, before)
    assert in_a_thread(raised) == (wanted, wanted, 0, wanted)
    assert nice() == before


def test_lowering_what_was_not_raised_changes_nothing():
    before = nice()
    lower_own()
    assert nice() == max(0, before)


def test_without_the_right_nothing_happens(monkeypatch):
    def refused(*_):
        raise PermissionError

    before = nice()
    with monkeypatch.context() as patched:
        patched.setattr(os, "setpriority", refused)
        raise_own()
    assert nice() == before
