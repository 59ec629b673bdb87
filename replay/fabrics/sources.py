"""Values of YAML and JSON files with their places, for error messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec
import yaml

from ...analyzer.errors import UsageError
from ...analyzer.saved_file import MAX_BYTES, read_saved

# YAML, and JSON as YAML, with the line of every value.

MAX_DEPTH = 100
_MOST_DIGITS = 64
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Source:
    """A value and its place in the file."""

    node: yaml.Node
    path: str

    @property
    def where(self) -> str:
        """`file.yaml:12`"""
        return f"{self.path}:{self.node.start_mark.line + 1}"

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Whether it has items."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_empty(self) -> bool:
        """Whether the value is empty: `key:`."""
        return self.node.tag == "tag:yaml.org,2002:null"

    def wrong(self, message: str) -> UsageError:
        """An error about this value."""
        return UsageError(f"{self.where}: {message}")

    def mapping(self, what: str) -> dict[str, Source]:
        """Its items by key, in order; the UsageError says that `what` is expected."""
        if self.is_empty:
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            raise self.wrong(f"expected {what} (key: value), found {self._found}")
        items: dict[str, Source] = {}
        for key, value in self.node.value:
            place = Source(key, self.path)
            name = place.text("a name")
            if name in items:
                raise place.wrong(f"{name!r} is given twice")
            items[name] = Source(value, self.path)
        return items

    def keyed(self, what: str, known: Collection[str], whose: str) -> dict[str, Source]:
        """The same with known keys only; whose: what has them, for the UsageError."""
        items = self.mapping(what)
        for key, value in items.items():
            if key not in known:
                raise value.wrong(f"unknown key {key!r}; {whose} has {', '.join(known)}")
        return items

    def items(self, what: str) -> list[Source]:
        """Its items; the UsageError says that a list of `what` is expected."""
        if self.is_empty:
            return []
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.wrong(f"expected a list of {what}, found {self._found}")
        return [Source(item, self.path) for item in self.node.value]

    def text(self, what: str) -> str:
        """Its text; numbers are also text."""
        if not isinstance(self.node, yaml.ScalarNode) or self.is_empty:
            raise self.wrong(f"expected {what}, found {self._found}")
        value: Any = self.node.value
        return str(value)

    def parsed(self, what: str, parse: Callable[[str], _T]) -> _T:
        """What `parse` makes of its text; for a ValueError the UsageError names `what`."""
        text = self.text(what)
        try:
            return parse(text)
        except ValueError:
            raise self.wrong(f"{text!r} is not {what}") from None

    def integer(self, what: str, least: int, most: int) -> int:
        """Its value as a number; UsageError outside least .. most."""
        text = self.text(what)
        if len(text) > _MOST_DIGITS:
            raise self.wrong(f"{what} has more than {_MOST_DIGITS} digits")
        try:
            value = int(text, 0)
        except ValueError:
            raise self.wrong(f"{what} {text!r} is not a whole number") from None
        if not least <= value <= most:
            raise self.wrong(f"{what} must be {least:,} to {most:,}, not {value:,}")
        return value

    def boolean(self, what: str) -> bool:
        """True or false."""
        text = self.text(what).lower()
        if text not in ("true", "false", "yes", "no"):
            raise self.wrong(f"{what} must be true or false, not {text!r}")
        return text in ("true", "yes")

    @property
    def _found(self) -> str:
        if self.is_empty:
            return "nothing"
        return "a list" if self.is_list else "keys" if self.is_mapping else repr(self.node.value)


def load_yaml(path: Path, wanted: str = "a YAML file") -> Source:
    """The document in a file; the UsageError for an unreadable file names what is `wanted`."""
    try:
        with path.open("rb") as file:  # a device has no size and may have no end
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"{path} is larger than {MAX_BYTES >> 20} MiB; is it {wanted}?")
        text = data.decode("utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot read {path}: {reason}; give {wanted}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text; give {wanted}") from None
    return parse_yaml(text, str(path))


def _check_depth(text: str, loader: Any, path: str) -> None:
    """UsageError for a nesting depth that would exhaust the stack."""
    depth = 0
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                mark = event.start_mark
                line = f":{mark.line + 1}" if mark else ""
                raise UsageError(f"{path}{line}: nested more than {MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def parse_yaml(text: str, path: str) -> Source:
    """The document in a text."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(text, loader, path)
        node = yaml.compose(text, loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{line}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if node is None:
        raise UsageError(f"{path} is empty")
    return Source(node, path)


# JSON of devices with the path to every value. The YAML reader knows lines, but takes ten times as
# long and more memory, which is too much for answers of devices.

_NO_NODE = yaml.ScalarNode("", "")


@dataclass(frozen=True, slots=True)
class JsonSource(Source):
    """A value of a JSON file and its place, such as `leaf1.route.json: [3].dst`."""

    value: Any = None
    place: str = ""

    @property
    def where(self) -> str:
        """`file.json: [3].dst`"""
        return f"{self.path}: {self.place}" if self.place else self.path

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Whether it has items."""
        return isinstance(self.value, list)

    @property
    def is_empty(self) -> bool:
        """Whether it is null."""
        return self.value is None

    def mapping(self, what: str) -> dict[str, Source]:
        """Its items by key, in order; the UsageError says that `what` is expected."""
        if self.is_empty:
            return {}
        if isinstance(self.value, msgspec.Struct):
            known = ((key, getattr(self.value, key)) for key in self.value.__struct_fields__)
            values = {key: value for key, value in known if value is not msgspec.UNSET}
        elif isinstance(self.value, dict):
            values = self.value
        else:
            raise self.wrong(f"expected {what} (key: value), found {self._found}")
        return {key: self.inner(value, f".{key}") for key, value in values.items()}

    def items(self, what: str) -> list[Source]:
        """Its items; the UsageError says that a list of `what` is expected."""
        if self.is_empty:
            return []
        if not isinstance(self.value, list):
            raise self.wrong(f"expected a list of {what}, found {self._found}")
        return [self.inner(value, f"[{i}]") for i, value in enumerate(self.value)]

    def text(self, what: str) -> str:
        """Its text; numbers are also text."""
        if self.value is None or isinstance(self.value, (dict, list)):
            raise self.wrong(f"expected {what}, found {self._found}")
        return str(self.value)

    def inner(self, value: Any, place: str) -> JsonSource:
        """A value in this one; place: from here to there."""
        return JsonSource(_NO_NODE, self.path, value, self.place + place)

    @property
    def _found(self) -> str:
        if self.is_empty:
            return "nothing"
        return "a list" if self.is_list else "keys" if self.is_mapping else repr(self.value)


class JsonItems(Sequence[Source]):
    """The items of a list of a JSON file; each is made when it is asked for."""

    def __init__(self, of: JsonSource) -> None:
        self._of = of

    def __len__(self) -> int:
        return len(self._of.value)

    @overload
    def __getitem__(self, index: int) -> Source: ...
    @overload
    def __getitem__(self, index: slice) -> list[Source]: ...
    def __getitem__(self, index: int | slice) -> Source | list[Source]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._of.inner(self._of.value[index], f"[{index}]")


def load_json(path: Path, kind: Any = Any) -> Source:
    """The document in a file. UsageError names the file.

    kind: the msgspec type that it is expected to have, which takes less time than any JSON; a
    document of another type is read nevertheless.
    """
    data = read_saved(path)
    try:
        try:
            value = msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError:
            value = msgspec.json.decode(data)
        return JsonSource(_NO_NODE, str(path), value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from None
