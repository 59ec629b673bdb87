"""Values in options, and the parameters that they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from ....analyzer.errors import UsageError
from ....analyzer.units import parse_duration, parse_size
from ...packets.model.model import PS

Fields: TypeAlias = Mapping[str, tuple[str, Callable[[str, str], Any]]]
"""By key: name of the parameter, and the function that reads the value."""
_T = TypeVar("_T")


def made(
    kind: Callable[..., _T], fields: Fields, given: Mapping[str, str], option: str, where: str = ""
) -> _T:
    """`kind` of the values given; UsageError names the option and the key."""
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in fields:
            raise UsageError(f"{option} has no {key!r}; it has {', '.join(fields)}")
        name, read = fields[key]
        values[name] = read(value, f"{where or option}: {key}")
    try:
        return kind(**values)
    except UsageError as error:
        words = str(error)
        for key, (name, _) in fields.items():
            words = words.replace(name, key)
        raise UsageError(f"{option}: {words}") from None


def word(text: str, _where: str) -> str:
    """The value itself."""
    return text


def size(text: str, where: str) -> int:
    """`800kB` or `0` in bytes."""
    return 0 if text == "0" else parse_size(text, where)


def time_ps(text: str, option: str) -> int:
    """`50us` or `0` in ps; UsageError names the option."""
    try:
        return 0 if text == "0" else parse_duration(text, option) * PS
    except UsageError:
        raise UsageError(f"{option}: {text!r} is not a time; write it like 50us") from None


def share(text: str, option: str) -> float:
    """`1%` as 0.01; UsageError names the option."""
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else -1.0
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"{option}: {text!r} is not a share; write it like 1%")
    return share


def whole(text: str, where: str) -> int:
    """An integer, at most nine digits."""
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{where}={text} is not a whole number")
    return int(text)


def ratio(text: str, where: str) -> float:
    """`1/8` or `0.125`."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{where}: {text!r} is not a number; write it like 1/8") from None
