"""Sums of flows that were removed from memory."""

from __future__ import annotations

from rocescope.analyzer.results.captures import Ended


def test_sums_add_up_and_times_span_both():
    one = Ended(flows=2, packets=10, first_time_ns=5, last_time_ns=9)
    other = Ended(flows=1, packets=3, first_time_ns=7, last_time_ns=12, untracked_packets=4)
    whole = Ended(flows=3, packets=13, first_time_ns=5, last_time_ns=12, untracked_packets=4)
    assert one.joined(other) == whole == other.joined(one)
    assert one.joined(Ended()) == one == Ended().joined(one)


def test_it_is_true_with_something_to_tell():
    assert not Ended()
    assert Ended(flows=1)
    assert Ended(untracked_packets=1)
