"""Names of taps and hops, and their values in words."""

from __future__ import annotations

import factories_results as factories

from rocescope.analyzer.results.analysis import CaptureLoss, Hop, TapClock
from rocescope.report import hops as words

SHORT = words.short_taps(["a/leaf1-spine1.pcap.gz", "a/leaf1-spine2.pcap.gz"])


def test_names_lose_what_all_have_in_common_and_cannot_steer_the_terminal() -> None:
    assert list(SHORT.values()) == ["leaf1-spine1", "leaf1-spine2"]
    hostile = words.short_taps(["x\x1b[2J1.pcap", "y.pcap"])
    assert hostile["x\x1b[2J1.pcap"] == "x?[2J1"


def test_counts_name_only_what_happened() -> None:
    assert words.counts(factories.hop()) == "7,904 packets of 4 flows, 71 lost (0.90 %)"
    quiet = factories.hop(lost_packets=0, lost_percent=0.0, ce_marked_packets=3)
    assert words.counts(quiet) == "7,904 packets of 4 flows, 0 lost, 3 marked CE here"


def test_delays_between_two_clocks_may_be_negative() -> None:
    assert words.duration_of(-1_500) == "-1.50 us"
    assert "p99 9.00 us" in words.delay(factories.hop())
    assert words.delay(factories.hop(delay_ns=None)) == ""


def test_hops_with_any_trouble_come_first_and_others_stay_in_order() -> None:
    def hop(number: int, wait_ns: int = 2_000, **more: int) -> Hop:
        waits = factories.quantiles(10, 0, wait_ns // 2, wait_ns)
        return factories.hop(id=number, queueing_ns=waits, **{"lost_packets": 0} | more)

    hops = [
        hop(0), hop(1, 90_000), hop(2, 5_000_000), hop(3, reordered_packets=91), hop(4),
        hop(5, lost_packets=1), hop(6, ce_marked_packets=3),
    ]  # fmt: skip
    assert [hop.id for hop in words.worst_first(hops)] == [5, 6, 3, 2, 0, 1, 4]
    assert words.worst_first([]) == []


def test_next_tap_is_unknown_when_nothing_tells() -> None:
    assert words.expected_tap(factories.hop(to_tap=None), {}) == "?"
    assert words.expected_tap(factories.hop(), {"leaf2-spine2": "two"}) == "two"
    assert words.expected_by(factories.hop()) == "other packets of the same flow went there"
    assert words.expected_by(factories.hop(to_tap=None)).startswith("not known")
    assert "fabric" in words.expected_by(factories.hop(to_tap=None, expected_by="fabric"))


def test_capture_loss_and_clocks() -> None:
    loss = CaptureLoss("t", 5, 100, 0, 1, [0])
    assert words.capture_loss(loss, {}) == "the capture of t missed 5 of 100 (5.0 %)"
    clock = TapClock("t", "u", -1_500.0, 200.0, 1.5, 2)
    assert words.clock(clock, {}) == (
        "clock of t: -1.50 us from u, known to 200 ns, drift 1.50 ppm, 2 jumps"
    )


def test_devices_of_one_tier_differ_in_their_numbers() -> None:
    assert words.tier("spine12") == words.tier("spine3") == "spine"
