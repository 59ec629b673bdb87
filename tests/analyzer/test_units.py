"""Durations, rates and sizes as people type them."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.units import parse_duration, parse_rate, parse_size


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
