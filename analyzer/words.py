"""Numbers with units, nouns, and names from outside, as sentences and tables write them."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


def short(figure: str) -> str:
    """A figure with its unit without zeros at its end: `12 us` for `12.0 us`."""
    number, space, unit = figure.partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number}{space}{unit}"
