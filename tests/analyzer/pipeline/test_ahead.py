"""Kernels compiled by other processes."""

from __future__ import annotations

import subprocess

import pytest

from rocescope.analyzer.pipeline import ahead


@pytest.mark.parametrize("part", ahead.PARTS)
def test_a_part_runs_in_another_python(part):
    done = subprocess.run(
        ahead.in_python(ahead.call_of(part)), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_started_where_all_is_compiled(monkeypatch):
    started = []
    monkeypatch.setattr(ahead, "_process", started.append)
    monkeypatch.setattr(ahead, "worth_compiling_elsewhere", lambda kernel: False)
    with ahead.compiled_ahead():
        assert not started


def test_processes_end_with_the_analysis(monkeypatch):
    sleeping = ahead.in_python("import time; time.sleep(600)")
    processes = []

    def process(_):
        processes.append(subprocess.Popen(sleeping))
        return processes[-1]

    monkeypatch.setattr(ahead, "_process", process)
    monkeypatch.setattr(ahead, "worth_compiling_elsewhere", lambda kernel: True)
    monkeypatch.setattr(ahead.os, "sched_getaffinity", lambda pid: {0, 1})
    with ahead.compiled_ahead():
        assert [one.poll() for one in processes] == [None, None]
    assert all(one.poll() is not None for one in processes)
