"""Durations, rates and sizes as people type them."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.units import (
    parse_duration,
    parse_number,
    parse_rate,
    parse_ratio,
    parse_share,
    parse_size,
    parse_whole,
)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("100ms", 100_000_000),
        ("1.5s", 1_500_000_000),
        (" 250 us ", 250_000),
        ("250µs", 250_000),
        ("7ns", 7),
        (".5us", 500),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("0.1s", 100_000_000),  # not 100_000_000.00000001
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration(text, "--window") == nanoseconds


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400G", 400_000_000_000),
        ("25Gb/s", 25_000_000_000),
        ("800Gbps", 800_000_000_000),
        ("1.6T", 1_600_000_000_000),
        ("100 Mbit/s", 100_000_000),
        ("100000000000", 100_000_000_000),
    ],
)
def test_rates(text: str, rate: int) -> None:
    assert parse_rate(text, "--link-rate") == rate


@pytest.mark.parametrize(
    "text", ["", "ms", "100", "100 lightyears", "-1s", "0ms", "0.1ns", "1e3s", "9999999h"]
)
def test_bad_durations_name_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="^--window .*100ms"):
        parse_duration(text, "--window")


@pytest.mark.parametrize("text", ["", "G", "0", "400", "fast", "400GB/s", "-1G", "9999999T"])
def test_bad_rates_name_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="^--link-rate .*400G"):
        parse_rate(text, "--link-rate")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("64KiB", 65_536),
        ("1MB", 1_000_000),
        ("64M", 64 << 20),
        ("1.5 MiB", 1_572_864),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "--message-size") == size


@pytest.mark.parametrize("text", ["", "KiB", "0", "2t", "-1", "1e6", "1 Mb/s", "9999999999GiB"])
def test_bad_sizes_name_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="^--message-size .*for example"):
        parse_size(text, "--message-size")


def test_zero_where_it_is_allowed() -> None:
    assert parse_duration("0", "x", zero=True) == parse_size("0", "x", zero=True) == 0
    for parse in (parse_duration, parse_size):
        with pytest.raises(UsageError, match="^x "):
            parse("0", "x")


def test_shares_numbers_and_ratios() -> None:
    assert [parse_share(text, "x") for text in ("0%", "1%", "100%")] == [0.0, 0.01, 1.0]
    assert parse_share("150%", "x", 1000) == 1.5
    assert [parse_whole(text, "x") for text in ("0", "064", "999999999")] == [0, 64, 999_999_999]
    assert [parse_number(text, "x", 0, 8) for text in ("0", "1e-3", "8")] == [0, 0.001, 8]
    assert [parse_ratio(text, "x") for text in ("1/8", "0.125")] == [0.125, 0.125]


@pytest.mark.parametrize("text", ["1", "101%", "-1%", "%", "nan%", ""])
def test_bad_shares_name_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="^--fail .* is not a share of 0% to 100%"):
        parse_share(text, "--fail")


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1e3", "٣", "9999999999", " 1", "1" * 5000, "x"])
def test_bad_whole_numbers_name_the_range(text: str) -> None:
    with pytest.raises(UsageError, match="^qps .* is not a whole number from 1 to 64$"):
        parse_whole(text, "qps", 1, 64)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "9", "", "x", "1,5"])
def test_bad_numbers_name_the_range(text: str) -> None:
    with pytest.raises(UsageError, match="^skew .* is not a number from 0 to 8$"):
        parse_number(text, "skew", 0, 8)


@pytest.mark.parametrize("text", ["", "1/0", "a/b", "1/2/3"])
def test_bad_ratios_name_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="^alpha .* is not a number; write it like 1/8$"):
        parse_ratio(text, "alpha")
