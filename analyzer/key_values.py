"""Parses options of the form `key=value,key=value`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .errors import UsageError


def parse_options(text: str, where: str) -> dict[str, str]:
    """`key=value,key=value` as a mapping; UsageError for anything else."""
    options: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not value:
            raise UsageError(f"{where}: {part!r} is not key=value")
        if key in options:
            raise UsageError(f"{where}: {key} is given twice")
        options[key] = value
    return options


def only_known(given: Iterable[str], known: Collection[str], wrong: str) -> None:
    """UsageError for a key that is not known; wrong: such as `--model has no`."""
    for key in given:
        if key not in known:
            raise UsageError(f"{wrong} {key!r}; it has {', '.join(known) or 'no options'}")
