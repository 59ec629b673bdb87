"""Specs, `name:key=value,key=value`: their one parser, and readers of their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from .errors import UsageError
from .words import (
    choices,
    parse_duration,
    parse_number,
    parse_ratio,
    parse_share,
    parse_size,
    parse_whole,
)

_T = TypeVar("_T")
PS = 1_000
"""Picoseconds of a nanosecond."""


class Options(dict[str, str]):
    """The values of a spec by key; all methods raise UsageError that names the spec and the key."""

    def __init__(
        self, values: Mapping[str, str], where: str, columns: Mapping[str, int] | None = None
    ) -> None:
        """where: begins every message. columns: position of each key in the text, from 1; those
        of values that are options already stay."""
        super().__init__(values)
        self.where = where
        self.columns = columns or getattr(values, "columns", {})

    def with_defaults(self, defaults: Mapping[str, str]) -> Options:
        """The same with values for keys that are not given."""
        return Options({**defaults, **self}, self.where, self.columns)

    def check_known(self, known: Iterable[str], wrong: str = "") -> None:
        """No key is given but these; wrong: begins the message, such as `--jobs has no key`."""
        names = list(known)
        for key in self:
            if key not in names:
                column = f" at column {self.columns[key]}" if key in self.columns else ""
                listed = choices(key, names, "it has") if names else "it has no options"
                raise UsageError(f"{wrong or f'{self.where} has no'} {key!r}{column}; {listed}")

    def whole(self, key: str, default: str = "", least: int = 0, most: int = 999_999_999) -> int:
        """An integer from least to most."""
        return parse_whole(self.get(key, default), f"{self.where}: {key}", least, most)

    def number(self, key: str, default: str = "", least: float = 1e-6, most: float = 1e6) -> float:
        """A number from least to most."""
        return parse_number(self.get(key, default), f"{self.where}: {key}", least, most)

    def share(self, key: str, default: str = "", most_percent: float = 100) -> float:
        """`1%` as 0.01."""
        return parse_share(self.get(key, default), f"{self.where}: {key}", most_percent)

    def ratio(self, key: str) -> float:
        """`1/8` or `0.125`."""
        return parse_ratio(self[key], f"{self.where}: {key}")

    def size(self, key: str, default: str = "") -> int:
        """`800kB` in bytes; `0` is a size."""
        return parse_size(self.get(key, default), f"{self.where}: {key}", zero=True)

    def time_ps(self, key: str, default: str = "") -> int:
        """`50us` in ps; `0` is a time."""
        return parse_duration(self.get(key, default), f"{self.where}: {key}", zero=True) * PS

    def word(self, key: str, *words: str) -> str:
        """One of these words, by default the first."""
        text = self.get(key, words[0])
        if text not in words:
            raise UsageError(f"{self.where}: {key}={text}: use {' or '.join(words)}")
        return text

    def switched_on(self, key: str, default: str = "yes") -> bool:
        """`yes` or `no`."""
        words = ("yes", "no") if default == "yes" else ("no", "yes")
        return self.word(key, *words) == "yes"

    def make(self, kind: Callable[..., _T], fields: Fields) -> _T:
        """`kind` of the values given; its own UsageErrors speak of keys, not of parameters."""
        self.check_known(fields)
        values = {fields[key][0]: fields[key][1](self, key) for key in self}
        try:
            return kind(**values)
        except UsageError as error:
            words = str(error)
            for key, (name, _) in fields.items():
                words = words.replace(name, key)
            raise UsageError(f"{self.where}: {words}") from None


Fields: TypeAlias = Mapping[str, tuple[str, Callable[[Options, str], Any]]]
"""By key: name of the parameter, and the function that reads the value."""


def parse_options(
    text: str, where: str, column: int = 1, repeated: Collection[str] = ()
) -> Options:
    """`key=value,key=value`; column: where the text begins in the spec.

    repeated: keys that may be given several times; their values are joined by +.
    UsageError, with the column of the mistake, for anything else.
    """
    values: dict[str, str] = {}
    columns: dict[str, int] = {}
    for part in text.split(","):
        begin = column + len(part) - len(part.lstrip())
        column += len(part) + 1
        if not (part := part.strip()):
            continue
        key, equals, value = (p.strip() for p in part.partition("="))
        if not key or not equals or not value:
            raise UsageError(f"{where}: {part!r} is not key=value (column {begin})")
        if key in values and key not in repeated:
            raise UsageError(f"{where}: {key} is given twice (column {begin})")
        values[key] = f"{values[key]}+{value}" if key in values else value
        columns.setdefault(key, begin)
    return Options(values, where, columns)


def parse_spec(text: str, option: str = "", repeated: Collection[str] = ()) -> tuple[str, Options]:
    """(name, options) of `name:key=value,...`; messages begin with option and name."""
    name, _, rest = text.partition(":")
    where = f"{option} {name}".strip()
    return name, parse_options(rest, where, len(name) + 2, repeated)
