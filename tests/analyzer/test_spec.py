"""Specs: `name:key=value,...`, the position of a mistake, and the readers of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.spec import Fields, Options, parse_options, parse_spec
from rocescope.analyzer.words import (
    parse_duration,
    parse_number,
    parse_rate,
    parse_ratio,
    parse_share,
    parse_size,
    parse_whole,
)

# Specs: `name:key=value,...`, the position of a mistake, and the readers of values.

WORDS = st.text("abcxyz0129-", min_size=1)


@given(st.dictionaries(WORDS, WORDS))
def test_what_is_written_is_read(values: dict[str, str]) -> None:
    text = " , ".join(f"{key} = {value}" for key, value in values.items())
    options = parse_options(text, "--option")
    assert options == values
    for key, column in options.columns.items():
        assert text[column - 1 :].startswith(f"{key} =")
    name, options = parse_spec(f"kind:{text}", "--option")
    assert (name, options, options.where) == ("kind", values, "--option kind")
    for key, column in options.columns.items():
        assert f"kind:{text}"[column - 1 :].startswith(f"{key} =")


def test_a_value_may_contain_an_equals_sign() -> None:
    assert parse_options("a=b=c,", "x") == {"a": "b=c"}


def test_values_of_repeated_keys_are_joined() -> None:
    assert parse_options("a=1,b=2,a=3+4", "x", repeated=("a",)) == {"a": "1+3+4", "b": "2"}


def test_defaults_keep_the_columns() -> None:
    options = parse_options("b=2", "x").with_defaults({"a": "1", "b": "0"})
    assert options == {"a": "1", "b": "2"} and options.columns == {"b": 1}
    assert Options(options, "y").columns == {"b": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind:a", r"^-o kind: 'a' is not key=value \(column 6\)$"),
        ("kind:b=1, a=", r"^-o kind: 'a=' is not key=value \(column 11\)$"),
        ("kind:=1", r"^-o kind: '=1' is not key=value \(column 6\)$"),
        ("kind:a=1,b=2,a=1", r"^-o kind: a is given twice \(column 14\)$"),
    ],
)
def test_mistakes_have_their_position(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_spec(text, "-o")


def test_a_key_that_is_not_known() -> None:
    options = parse_options("size=1,seeed=2", "-o")
    options.check_known(("size", "seeed"))
    with pytest.raises(UsageError) as error:
        options.check_known(("size", "seed"))
    expected = "-o has no 'seeed' at column 8; did you mean seed? It has size, seed"
    assert str(error.value) == expected
    with pytest.raises(UsageError, match="^no key 'size' at column 1; it has no options$"):
        options.check_known((), "no key")
    with pytest.raises(UsageError, match="^x has no 'k'; it has a, b$"):
        Options({"k": "1"}, "x").check_known(("a", "b"))


class _Thing(NamedTuple):
    bytes: int
    time: int = 0


_FIELDS: Fields = {"size": ("bytes", Options.size), "rto": ("time", Options.time_ps)}


def _make_thing(**values: int) -> _Thing:
    thing = _Thing(**values)
    if thing.bytes > 1000:
        raise UsageError("bytes must be at most 1000")
    return thing


def test_an_object_of_its_values() -> None:
    assert parse_options("size=1kB,rto=2us", "-o").make(_make_thing, _FIELDS) == (1000, 2_000_000)
    with pytest.raises(UsageError, match="^-o: size must be at most 1000$"):
        parse_options("size=2kB", "-o").make(_make_thing, _FIELDS)
    with pytest.raises(UsageError, match="^-o has no 'siz' at column 1; did you mean size"):
        parse_options("siz=2kB", "-o").make(_make_thing, _FIELDS)


VALUES = Options(
    {
        "whole": "7", "number": "0.5", "share": "10%", "ratio": "1/8", "size": "64KiB",
        "time": "5us", "word": "b", "on": "yes", "zero": "0",
    },
    "-o",
)  # fmt: skip


def test_values() -> None:
    assert (VALUES.whole("whole"), VALUES.whole("none", "3")) == (7, 3)
    assert (VALUES.number("number"), VALUES.number("none", "2")) == (0.5, 2)
    assert (VALUES.share("share"), VALUES.share("none", "1%")) == (0.1, 0.01)
    assert VALUES.ratio("ratio") == 0.125
    assert (VALUES.size("size"), VALUES.size("zero")) == (65536, 0)
    assert (VALUES.time_ps("time"), VALUES.time_ps("zero")) == (5_000_000, 0)
    assert (VALUES.word("word", "a", "b"), VALUES.word("none", "a", "b")) == ("b", "a")
    assert VALUES.switched_on("on") and not VALUES.switched_on("none", "no")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: VALUES.whole("whole", "", 8, 9), "whole '7' is not a whole number from 8 to 9"),
        (lambda: VALUES.number("number", "", 1, 8), "number '0.5' is not a number from 1 to 8"),
        (lambda: VALUES.share("word"), "word 'b' is not a share"),
        (lambda: VALUES.ratio("word"), "word 'b' is not a number"),
        (lambda: VALUES.size("word"), "word 'b' is not a size"),
        (lambda: VALUES.time_ps("whole"), "whole '7' has no unit"),
        (lambda: VALUES.word("word", "x", "y"), "word=b: use x or y"),
        (lambda: VALUES.switched_on("word"), "word=b: use yes or no"),
    ],
)
def test_mistakes_in_values_name_spec_and_key(read: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^-o: {message}"):
        read()


# Durations, rates and sizes as people type them.


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
