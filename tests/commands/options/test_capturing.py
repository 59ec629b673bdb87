"""Options of captures."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.commands.options.capturing import (
    Capturing,
    Ending,
    Until,
    ended_by_signals,
    said_if_slow,
)
from rocescope.commands.options.reading import Selection
from rocescope.probes.hooks.attach import GONE
from rocescope.probes.hooks.others import OthersBefore

# Options of captures.


def test_options_of_the_probes():
    made = Capturing("pid:7", "xdp", 128, "64M").options(Selection([5000], "cnp"), sample=4)
    assert (made.namespace, made.hook, made.snap_bytes, made.sample) == ("pid:7", "xdp", 128, 4)
    assert made.ring_bytes == 64 << 20
    assert (made.udp_ports, made.filter) == ((4791, 5000), "cnp")
    assert Capturing().options(Selection()).ring_bytes is None
    with pytest.raises(UsageError, match="--ring"):
        Capturing(ring="large").options(Selection())


def test_the_end_of_a_capture():
    assert (Until().seconds, Until("1500ms", 1).seconds) == (None, 1.5)
    with pytest.raises(UsageError, match="--count must be 1 or more"):
        Until(count=0).seconds  # noqa: B018 - a property that checks
    with pytest.raises(UsageError, match="--duration"):
        Until("soon").seconds  # noqa: B018


# What the commands that capture share.


class Source:
    def __init__(self, *labels):
        self.interfaces = [Interface(label) for label in labels]
        self.missing = []
        self.others = OthersBefore(())
        self.stops = 0

    def stop(self):
        self.stops += 1

    def gone(self):
        return self.missing


class Interface:
    def __init__(self, label):
        self.label = label


def test_slow_work_says_so_once(capsys):
    with said_if_slow("patience", 0.01):
        time.sleep(0.05)
    assert capsys.readouterr().err == "rocescope: patience\n"


def test_quick_work_says_nothing_and_puts_the_handler_back(capsys):
    before = signal.getsignal(signal.SIGALRM)
    with said_if_slow("patience", 3600):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert capsys.readouterr().err == ""
    assert signal.getsignal(signal.SIGALRM) is before


def test_other_threads_work_too():
    done = []

    def work():
        with said_if_slow("patience"), ended_by_signals(Source()):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_the_first_signal_stops_and_the_second_ends():
    source = Source()
    with ended_by_signals(source):
        os.kill(os.getpid(), signal.SIGINT)
        assert source.stops == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_source_is_told_when_the_time_is_over(monkeypatch):
    monkeypatch.setattr("rocescope.commands.options.capturing.time.monotonic", lambda: 100.0)
    source = Source("a")
    Ending(source, 20)
    assert source.ends == 120  # type: ignore[attr-defined]


def test_it_ends_when_every_interface_has_gone(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("rocescope.commands.options.capturing.time.monotonic", lambda: now[0])
    source = Source("a", "b")
    ending = Ending(source, None)
    for seconds, missing, stops in ((1.1, 1, 0), (2.2, 1, 0), (3.3, 2, 1)):
        now[0] = seconds
        source.missing = source.interfaces[:missing]
        ending.check()
        assert source.stops == stops
    said = capsys.readouterr().err.splitlines()
    assert said == [f"rocescope: interface {name} {GONE}" for name in "ab"]
