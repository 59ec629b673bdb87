"""Numbers with units, nouns, and names from outside, read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from .errors import UsageError

_DURATION_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9}
_DURATION_NS |= {"min": 60 * 10**9, "h": 3600 * 10**9}
_RATE = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZE = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE |= {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_LARGEST = 1 << 50
_NUMBER_UNIT = re.compile(r"\s*(\d{1,99}(?:\.\d{0,99})?|\.\d{1,99})\s*([a-zA-Zµ/]*)\s*")


_LONGEST_NS = 1 << 60  # 36 years; all times here have 64 bits
_FASTEST = 1 << 60


def _split(text: str) -> tuple[str, str] | None:
    match = _NUMBER_UNIT.fullmatch(text)
    return (match[1], match[2]) if match else None


def _scaled(number: str, scale: int) -> int:
    """number * scale, rounded to the nearest integer, without floats."""
    integer, _, fraction = number.partition(".")
    denominator: int = 10 ** len(fraction)
    return (int(integer + fraction) * scale + denominator // 2) // denominator


def parse_duration(text: str, option: str, *, zero: bool = False) -> int:
    """Nanoseconds in `text`, such as `100ms`, `1.5s` or `250us`; UsageError names `option`.

    zero: `0` is a duration, too.
    """
    if zero and text == "0":
        return 0
    parts = _split(text)
    if parts and parts[1] in _DURATION_NS:
        nanoseconds = _scaled(parts[0], _DURATION_NS[parts[1]])
        if 0 < nanoseconds <= _LONGEST_NS:
            return nanoseconds
        if nanoseconds > 0:
            raise UsageError(f"{option} must be shorter than 36 years, for example 100ms")
        raise UsageError(f"{option} must be longer than 0, for example 100ms")
    why = "has no unit" if parts and not parts[1] else "is not a duration"
    raise UsageError(
        f"{option} {text!r} {why}; write a number and ns, us, ms, s, min or h, for example 100ms"
    )


def parse_rate(text: str, option: str) -> int:
    """Bits per second in `text`, such as `400G` or `25Gb/s`; UsageError names `option`."""
    parts = _split(text)
    if parts:
        unit = parts[1]
        for suffix in ("bit/s", "b/s", "bps"):  # not B/s, which means bytes
            unit = unit.removesuffix(suffix)
        unit = unit.lower()
        if unit in _RATE:
            rate = _scaled(parts[0], _RATE[unit])
            if not parts[1] and 0 < rate < 1_000_000:  # no link is faster
                raise UsageError(f"{option} {text!r} has no unit, for example 400G")
            if 0 < rate <= _FASTEST:
                return rate
            if rate > 0:
                raise UsageError(f"{option} is more than any link has, for example 400G")
            raise UsageError(f"{option} must be more than 0, for example 400G")
    raise UsageError(
        f"{option} {text!r} is not a rate; write bits per second with k, M, G or T, "
        "for example 400G or 25Gb/s"
    )


def parse_size(text: str, option: str, *, zero: bool = False) -> int:
    """Bytes in `text`, such as `4096`, `64KiB`, `64K`, `1MB`; UsageError names `option`.

    K, M and G alone are powers of 1024, as in Linux tools. zero: `0` is a size, too.
    """
    if zero and text == "0":
        return 0
    parts = _split(text)
    if parts and parts[1].lower() in _SIZE:
        size = _scaled(parts[0], _SIZE[parts[1].lower()])
        if 0 < size <= _LARGEST:
            return size
        if size > 0:
            raise UsageError(f"{option} is too large, for example 1MiB")
        raise UsageError(f"{option} must be more than 0, for example 1MiB")
    raise UsageError(
        f"{option} {text!r} is not a size; write bytes, or a number and kB, MB, GB, KiB, MiB "
        "or GiB, for example 64KiB"
    )


def parse_whole(text: str, option: str, least: int = 0, most: int = 999_999_999) -> int:
    """An integer from least to most, in decimal digits; UsageError names `option`."""
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else least - 1
    if not least <= value <= most:
        raise UsageError(f"{option} {text!r} is not a whole number from {least:,} to {most:,}")
    return value


def parse_number(text: str, option: str, least: float, most: float) -> float:
    """A number from least to most, not NaN; UsageError names `option`."""
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise UsageError(f"{option} {text!r} is not a number from {least:g} to {most:g}")
    return value


def parse_share(text: str, option: str, most_percent: float = 100) -> float:
    """`1%` as 0.01; UsageError names `option`."""
    try:
        percent = float(text.removesuffix("%")) if text.endswith("%") else -1.0
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= most_percent:
        raise UsageError(
            f"{option} {text!r} is not a share of 0% to {most_percent:g}%; write it like 1%"
        )
    return percent / 100


def parse_ratio(text: str, option: str) -> float:
    """`1/8` or `0.125`; UsageError names `option`."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{option} {text!r} is not a number; write it like 1/8") from None


_STEERING = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]"
)
"""In UTF-8: delete, C1 controls, U+061C, U+200B to U+200F, U+2028 to U+202E, U+2060 to U+206F."""
_ETHERNET = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_PREFIXES = ("", "k", "M", "G", "T", "P")


def printable(text: str) -> str:
    """Text from a packet, a file name or a process without characters that steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


def device_words(name: str) -> str:
    """A device in a sentence: `spine3`, or `router 02:66:2d:25:06:99` without a name."""
    return f"router {name}" if _ETHERNET.fullmatch(name) else printable(name)


def printable_json(text: bytes) -> bytes:
    """JSON whose strings have escapes for all characters that could steer a terminal.

    Encoders escape the first 32 only, not C1 controls, and not those that change the direction.
    """
    return _STEERING.sub(lambda match: f"\\u{ord(match[0].decode()):04x}".encode(), text)


def choices(wrong: str, known: Iterable[str], verb: str = "there are") -> str:
    """`there are a, b, c`, after the name that is most like a mistyped one."""
    names = list(known)
    listed = ", ".join(names)
    longer = [name for name in names if wrong and name.startswith(wrong)]
    from difflib import get_close_matches

    close = longer or get_close_matches(wrong, names, n=1)
    return f"did you mean {close[0]}? {verb.capitalize()} {listed}" if close else f"{verb} {listed}"


def noun(number: int | None, singular: str, plural: str | None = None) -> str:
    """`flow` for one, else `flows`."""
    return singular if number == 1 else plural or f"{singular}s"


def three_digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return (
        f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    )


def scaled(value: float, unit: str) -> str:
    """`12.3 kB`: three digits and a decimal prefix."""
    prefix = 0
    while value >= 999.5 and prefix < len(_PREFIXES) - 1:
        value /= 1_000
        prefix += 1
    number = f"{value:.0f}" if prefix == 0 else three_digits(value)
    return f"{number} {_PREFIXES[prefix]}{unit}".rstrip()


def duration(nanoseconds: float) -> str:
    """`850 ns`, `12.0 us`, `537 ms`, `1.20 s`, `3 min 20 s`."""
    if nanoseconds < 999.5:
        return f"{nanoseconds:.0f} ns"
    for unit, scale in (("us", 1e3), ("ms", 1e6), ("s", 1e9)):
        if nanoseconds / scale < (99.95 if unit == "s" else 999.5):
            return f"{three_digits(nanoseconds / scale)} {unit}"
    minutes, seconds = divmod(round(nanoseconds / 1e9), 60)
    return f"{minutes} min {seconds} s" if minutes < 120 else f"{minutes / 60:.1f} h"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc(time_ns: int, digits: int = 9) -> tuple[str, str] | None:
    """`("2026-11-21", "14:03:07.412")` for ns since the Unix epoch and three digits of a second.

    digits: 1 to 9; the others are cut off. None outside the years 1 to 9999.
    """
    seconds, fraction = divmod(time_ns, 10**9)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    return moment.date().isoformat(), f"{moment:%H:%M:%S}.{fraction:09}"[: 9 + digits]


def timestamp(time_ns: int) -> str | None:
    """`2026-11-21T14:03:07.412345678Z` (RFC 3339); None outside the years 1 to 9999."""
    moment = utc(time_ns)
    return moment and f"{moment[0]}T{moment[1]}Z"


def short(figure: str) -> str:
    """A figure with its unit without zeros at its end: `12 us` for `12.0 us`."""
    number, space, unit = figure.partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number}{space}{unit}"
