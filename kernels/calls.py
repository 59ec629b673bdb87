"""The calls that libraries hold code for: `kernels.json` of each room, written by the tests.

    {"calls": {"track.tracker.assign": [["analyzer.track.state:State", "int64 1C", "int64"]]},
     "tuples": {"analyzer.track.state:State": ["analyzer.track.state:FLOW 1C", ...]},
     "addresses": {"strategies.ofan.choose": ["replay.packets.model.rules:_choose"]}}

An array is its dtype (by name, or where it is declared), its number of dimensions and its layout;
`ro` if it may be read-only, so that its kernel only reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from importlib import import_module
from typing import Any

import numpy as np

from .libraries import PACKAGE, ROOMS, Declared, digest_of, layout_of, scalar_of

PREFIX = __name__.partition(".")[0] + "."
"""Of all modules; names in the files lack it."""


def path_of(room: str) -> str:
    """The file with the calls of a room: in its folder, or beside the module that it is."""
    path = os.path.join(PACKAGE, *room.split("."))
    return f"{path}.json" if os.path.isfile(f"{path}.py") else os.path.join(path, "kernels.json")


def read(room: str) -> dict[str, Any]:
    """The calls of a room."""
    try:
        with open(path_of(room)) as file:
            return dict(json.load(file))
    except FileNotFoundError:
        return {"calls": {}, "tuples": {}, "addresses": {}}


def digest(room: str) -> str:
    """A digest of the calls of a room."""
    with contextlib.suppress(FileNotFoundError), open(path_of(room), "rb") as file:
        return digest_of(file.read())
    return ""


# From arguments to words, while tests run.


def write_note(folder: str, room: str, kernel: Declared, types: Any) -> None:
    """Note one call in a folder, for `merge`."""
    function = kernel.__wrapped__
    name = f"{function.__module__}.{function.__qualname__}".removeprefix(f"{PREFIX}{room}.")
    words: Any
    if isinstance(types, tuple):
        words = [_words(value) for value in types]
    else:
        words = f"{types.__module__}:{types.__qualname__}".removeprefix(PREFIX)
    with open(os.path.join(folder, str(os.getpid())), "a") as file:
        file.write(json.dumps([room, name, words, PACKAGE]) + "\n")


def _words(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        layout = layout_of(value.flags.num)
        read_only = "" if value.flags.writeable else " ro"
        return f"{_dtype_name(value.dtype)} {value.ndim}{layout}{read_only}"
    if isinstance(value, tuple):
        kind = type(value)
        return [f"{kind.__module__}:{kind.__qualname__}".removeprefix(PREFIX), *map(_words, value)]
    return "uint64" if type(value) is int and value >> 63 > 0 else scalar_of(type(value))


def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.names is None:
        return dtype.name
    for name, module in sorted(sys.modules.items()):
        if name.startswith(PREFIX):
            for word, value in vars(module).items():
                if isinstance(value, np.dtype) and value == dtype:
                    with open(str(module.__file__)) as file:  # where it is declared, not imported
                        if re.search(rf"^(\w+, )*{word}\b.*=", file.read(), re.MULTILINE):
                            return f"{name.removeprefix(PREFIX)}:{word}"
    raise TypeError(f"the dtype of an argument has no name in its module: {dtype}")


def noted(folder: str) -> set[str]:
    """The lines that processes noted; those of other checkouts, which tests make, do not count."""
    lines: set[str] = set()
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as file:
            lines.update(line for line in file if json.loads(line)[3] == PACKAGE)
    return lines


def merge(lines: set[str]) -> None:
    """Add noted calls to the files of their rooms, and drop those of kernels that are gone."""
    for room in ROOMS:
        known = read(room)
        addresses: dict[str, set[str]] = {
            name: set(words) for name, words in known["addresses"].items() if _exists(room, name)
        }
        calls = {
            name: [call for call in _unfolded(known, name) if _samples_of(call) is not None]
            for name in known["calls"]
            if _exists(room, name)
        }
        for own, name, words, _ in map(json.loads, sorted(lines)):
            if own != room:
                continue
            if isinstance(words, str):
                addresses.setdefault(name, set()).add(words)
                continue
            for k, other in enumerate(calls.setdefault(name, [])):
                if _plain(other) == _plain(words):  # code that only reads an array takes any
                    calls[name][k] = _longer(other, words)
                    break
            else:
                calls[name].append(words)
        tuples: dict[str, Any] = {}
        folded = {
            name: [_folded(call, tuples) for call in sorted(calls[name], key=json.dumps)]
            for name in sorted(calls)
            if calls[name]
        }
        content = {
            "calls": folded,
            "tuples": tuples,
            "addresses": {name: sorted(addresses[name]) for name in sorted(addresses)},
        }
        if content != known:
            with open(path_of(room), "w") as file:
                file.write(_pretty(content))


def _exists(room: str, name: str) -> bool:
    try:
        function(room, name)
    except (ImportError, AttributeError):
        return False
    return True


def _plain(words: Any) -> Any:
    return words.removesuffix(" ro") if isinstance(words, str) else [_plain(w) for w in words]


def _longer(one: Any, other: Any) -> Any:
    if isinstance(one, str):
        return max(one, other, key=len)
    return [_longer(*both) for both in zip(one, other, strict=True)]


def _folded(words: Any, tuples: dict[str, Any]) -> list[str]:
    """Tuples in a call replaced by their names in `tuples`."""
    folded: list[str] = []
    for word in words:
        if isinstance(word, list):
            name, items = word[0], _folded(word[1:], tuples)
            number = 2
            while tuples.setdefault(name, items) != items:
                name = f"{word[0]}#{number}"
                number += 1
            word = name
        folded.append(word)
    return folded


def _unfolded(known: dict[str, Any], name: str) -> list[Any]:
    def whole(word: str) -> Any:
        items = known["tuples"].get(word)
        return word if items is None else [word.partition("#")[0], *map(whole, items)]

    return [[whole(word) for word in call] for call in known["calls"][name]]


def _pretty(content: dict[str, Any]) -> str:
    """JSON with a line for each call and each tuple."""
    parts = []
    for part, entries in content.items():
        lines = [f"  {json.dumps(name)}: {json.dumps(words)}" for name, words in entries.items()]
        parts.append(f" {json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


# From words to arguments, when libraries are built.


def samples(room: str, name: str) -> list[tuple[Any, ...] | None]:
    """Arguments for each call of a kernel, with the types that were recorded.

    None where a tuple or a dtype has changed since: the call is to be recorded again.
    """
    return [_samples_of(call) for call in _unfolded(read(room), name)]


def _samples_of(call: list[Any]) -> tuple[Any, ...] | None:
    try:
        return tuple(map(_sample, call))
    except (TypeError, ImportError, AttributeError):
        return None


def _sample(words: Any) -> Any:
    if isinstance(words, list):
        items = [_sample(word) for word in words[1:]]
        kind = found(words[0])
        if len(items) != len(getattr(kind, "_fields", items)):
            raise TypeError(f"{words[0]} has other fields")
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if words == "none":
        return None
    dtype, _, layout = words.partition(" ")
    if not layout:
        return np.dtype(dtype).type(1)
    array = np.zeros(int(layout[0]) * (4,), found(dtype) if ":" in dtype else dtype)
    if layout[1] == "F":
        array = np.asfortranarray(array)
    if layout[1] == "A":
        array = array[..., ::2]
    array.flags.writeable = not layout.endswith("ro")
    return array


def found(words: str) -> Any:
    """What is declared as `module:name`, without the package's own name."""
    module, _, name = words.partition(":")
    known = module in sys.builtin_module_names
    return getattr(import_module(module if known else PREFIX + module), name)


def function(room: str, name: str) -> Declared:
    """A kernel by its name in the file of its room."""
    module, _, own = name.rpartition(".")
    value = found(f"{room}.{module}".rstrip(".") + f":{own}")
    return getattr(value, "kernel", value)
