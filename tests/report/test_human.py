"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.results.flow import Owner
from rocescope.report import human
from rocescope.report.human import ASCII, UNICODE


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (human.count(0), "0"),
        (human.count(999_999), "999,999"),
        (human.count(1_000_000), "1.00 M"),
        (human.count(20_000_000_000), "20.0 G"),
        (human.count(None), "?"),
        (human.size(0), "0 B"),
        (human.size(999), "999 B"),
        (human.size(1_000), "1.00 kB"),
        (human.size(12_288), "12.3 kB"),
        (human.size(999_600), "1.00 MB"),
        (human.size(None), "?"),
        (human.message_size(65_536), "64 KiB"),
        (human.message_size(3 << 20), "3 MiB"),
        (human.message_size(65_000), "65.0 kB"),
        (human.message_size(64), "64 B"),
        (human.rate(47.94e9), "47.9 Gb/s"),
        (human.rate(None), "?"),
        (human.duration(0), "0 ns"),
        (human.duration(850), "850 ns"),
        (human.duration(999.7), "1.00 us"),
        (human.duration(12_000), "12.0 us"),
        (human.duration(537_000_000), "537 ms"),
        (human.duration(1.2e9), "1.20 s"),
        (human.duration(200e9), "3 min 20 s"),
        (human.duration(8 * 3600e9), "8.0 h"),
        (human.duration(None), "?"),
        (human.percent(0), "0 %"),
        (human.percent(1), "100 %"),
        (human.percent(0.00001), "<0.01 %"),
        (human.percent(0.9999), ">99.9 %"),
        (human.percent(0.0028), "0.28 %"),
        (human.percent(0.125), "12.5 %"),
        (human.percent(None), "?"),
        (human.queue_pair(0x11AC), "0x0011ac"),
        (human.counted(1, "flow"), "1 flow"),
        (human.counted(2_000, "flow"), "2,000 flows"),
        (human.span([8, 8]), "8"),
        (human.span([8, 2, 4]), "2 to 8"),
        (UNICODE.shorten("2001:db8:0:7::1:16", 15), "2001:db…7::1:16"),
        (ASCII.shorten("10.0.1.3", 15), "10.0.1.3"),
    ],
)
def test_texts(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.sets(st.text("ab1-", min_size=1, max_size=20), max_size=30), st.integers(8, 20))
def test_shortened_names_stay_different(names: set[str], width: int) -> None:
    for glyphs in (UNICODE, ASCII):
        cut = glyphs.shortened(names, width)
        assert set(cut) == names and len(set(cut.values())) == len(names)
        assert max(map(len, cut.values()), default=0) <= width


@pytest.mark.parametrize(
    ("names", "width", "cut"),
    [
        (["leaf1-spine1", "leaf1-spine2"], 8, ["leaf…ne1", "leaf…ne2"]),
        (["leaf1-eth1-a", "leaf2-eth1-a", "leaf1-eth2-a"], 8, ["l1-e1-a", "l2-e1-a", "l1-e2-a"]),
        (["1aaaaaaaaa1b", "1aaaaaaaaa2b", "1aaaaaaaa32b"], 8, ["1aaa…a1b", "1aaa…a2b", "1aaa…32b"]),
        (["aaaaaaaabcde", "aaaaaaaaccde"], 8, ["aaa…bcde", "aaa…ccde"]),
        (["aaaaaaaaa1aaaaaaaa", "aaaaaaaaa2aaaaaaaa"], 8, ["aaaaaa…1", "aaaaaa…2"]),
    ],
)
def test_shortened_names(names: list[str], width: int, cut: list[str]) -> None:
    assert list(UNICODE.shortened(names, width).values()) == cut


@given(st.floats(0, 1))
def test_percent_never_hides_a_little_or_pretends_all(share: float) -> None:
    text = human.percent(share)
    assert (text == "0 %") == (share == 0)
    assert (text == "100 %") == (share == 1)


def test_columns_show_everything_above_zero() -> None:
    assert UNICODE.columns([0, 1, 50, 100]) == " ▁▄█"
    assert ASCII.columns([0, 0.01, 1]) == " .#"
    assert UNICODE.columns([0, 0]) == "  "
    assert UNICODE.columns([]) == ""


@given(st.lists(st.integers(0, 10**12), max_size=300), st.integers(1, 80))
def test_sparkline_fits_and_keeps_the_peak(values: list[int], width: int) -> None:
    line = UNICODE.sparkline(values, width)
    assert len(line) == min(len(values), width)
    assert ("█" in line) == (max(values, default=0) > 0)


def test_bars() -> None:
    assert UNICODE.bar(1, 4) == "████"
    assert UNICODE.bar(0.5, 4) == "██"
    assert UNICODE.bar(0.3, 4) == "█▎"
    assert UNICODE.bar(0.0001, 4) == "▏"
    assert UNICODE.bar(0, 4) == ""
    assert ASCII.bar(0.5, 4) == "##"


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        (Owner(71, "python", 3, "source"), "python, pid 71, rank 3 (source)"),
        (Owner(71, "python", None), "python, pid 71 (destination)"),
        (Owner(71, None, 3, host="nodea"), "nodea, pid 71, rank 3 (destination)"),
        (
            Owner(71, "x", 3, host="nodea", peer_rank=11),
            "x, pid 71, rank 11 to rank 3 (destination)",
        ),
        (Owner(None, "perftest", None, device="rxe0"), "perftest (destination)"),
    ],
)
def test_owner(owner: Owner, text: str) -> None:
    assert human.owner(owner) == text
