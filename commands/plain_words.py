"""Simple command lines, parsed without cyclopts, which takes longer to load (0.1 s) than a capture.

This parser accepts only unambiguous command lines such as `rocescope analyze a.pcap -f json`.
cyclopts parses all others and explains mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import CO_VARARGS
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from .table import COMMANDS

QUICK = ("analyze", "check", "export", "live", "recover-seed", "replay", "sweep", "tui")
"""Commands that take only files or interfaces, and options."""


class NotPlain(Exception):
    """These words need cyclopts."""


class Option(NamedTuple):
    """An option of a command: the argument it sets and its permitted values."""

    argument: str
    kind: Any
    group: str = ""
    """The argument of which the option is a field."""


def plain_call(words: Sequence[str]) -> Callable[[], Any] | None:
    """The call of a command line; None if cyclopts has to parse it."""
    if not words or words[0] not in QUICK:
        return None
    command = COMMANDS[words[0]].load()
    try:
        positional, options = arguments_of(command, words[1:])
    except NotPlain:
        return None
    return lambda: command(*positional, **options)


def arguments_of(
    command: Callable[..., Any], words: Sequence[str]
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of a command. Raises NotPlain."""
    code = command.__code__
    if code.co_argcount or not code.co_flags & CO_VARARGS:
        raise NotPlain
    hints = _hints(command)
    names = code.co_varnames[: code.co_kwonlyargcount + 1]
    table = dict(options_of(command))
    kind, declared = hints[names[-1]]
    positional: list[Any] = []
    given: dict[Option, Any] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            positional.append(_value(kind, word))
            continue
        name, equals, value = word.partition("=")
        option = table.get(name)
        several = option is not None and get_origin(option.kind) is list
        if option is None or (option in given and not several):
            raise NotPlain
        if several:
            (kind_of_each,) = get_args(option.kind)
            each = _value(kind_of_each, value if equals else next(rest, ""))
            given.setdefault(option, []).append(each)
        elif option.kind is bool:
            if equals:
                raise NotPlain
            given[option] = True
        else:
            given[option] = _value(option.kind, value if equals else next(rest, ""))
    options = _arguments(given, hints)
    required = set(names[:-1]) - set(command.__kwdefaults__ or ())
    if required - set(options) or (getattr(declared, "required", False) and not positional):
        raise NotPlain
    return positional, options


def _plain(hint: Any) -> tuple[Any, Any]:
    """The type of an argument without None, and the options of its Parameter."""
    declared: Any = SimpleNamespace()
    if get_origin(hint) is Annotated:
        hint, declared = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        given = [kind for kind in get_args(hint) if kind is not type(None)]
        hint = given[0] if len(given) == 1 else None
    return hint, declared


def _hints(owner: Any) -> dict[str, tuple[Any, Any]]:
    return {name: _plain(hint) for name, hint in get_type_hints(owner, None, None, True).items()}


def options_of(command: Callable[..., Any]) -> Iterator[tuple[str, Option]]:
    """Every name of every option of a command, including options of groups."""
    code = command.__code__
    first = code.co_argcount
    hints = _hints(command)
    for argument in code.co_varnames[first : first + code.co_kwonlyargcount]:
        kind, declared = hints[argument]
        if "*" in _words(declared, "name"):
            for field, hint in _hints(kind).items():
                yield from _named(field, hint, argument)
        else:
            yield from _named(argument, hints[argument])


def _named(argument: str, hint: tuple[Any, Any], group: str = "") -> Iterator[tuple[str, Option]]:
    kind, declared = hint
    names = _words(declared, "name") or ("--" + argument.replace("_", "-"),)
    for name in (*names, *_words(declared, "alias")):
        yield name, Option(argument, kind, group)


def _arguments(given: dict[Option, Any], hints: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """The arguments of a command; the options of a group become one argument."""
    arguments: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for option, value in given.items():
        of = groups.setdefault(option.group, {}) if option.group else arguments
        of[option.argument] = value
    return arguments | {group: hints[group][0](**values) for group, values in groups.items()}


def _words(declared: Any, field: str) -> tuple[str, ...]:
    """A field of a Parameter, which cyclopts converts to a tuple."""
    value = getattr(declared, field, None) or ()
    return (value,) if isinstance(value, str) else tuple(value)


def _value(kind: Any, word: str) -> Any:
    if not word or word.startswith("-"):
        raise NotPlain
    if kind is str or kind is Path:
        return kind(word)
    if kind is int and word.isascii() and word.isdigit() and str(int(word)) == word:
        return int(word)
    if get_origin(kind) is Literal and word in get_args(kind):
        return word
    raise NotPlain
