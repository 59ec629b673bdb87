"""JSON of devices with the place of every value, for error messages.

The YAML reader knows lines, but takes ten times as long and more memory, which is too much for
answers of devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ...analyzer.errors import UsageError
from ...analyzer.saved_file import read_saved
from .yaml_file import Source

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
        if not isinstance(self.value, dict):
            raise self.wrong(f"expected {what} (key: value), found {self._found}")
        return {key: self._inner(value, f".{key}") for key, value in self.value.items()}

    def items(self, what: str) -> list[Source]:
        """Its items; the UsageError says that a list of `what` is expected."""
        if self.is_empty:
            return []
        if not isinstance(self.value, list):
            raise self.wrong(f"expected a list of {what}, found {self._found}")
        return [self._inner(value, f"[{i}]") for i, value in enumerate(self.value)]

    def text(self, what: str) -> str:
        """Its text; numbers are also text."""
        if self.value is None or isinstance(self.value, (dict, list)):
            raise self.wrong(f"expected {what}, found {self._found}")
        return str(self.value)

    def _inner(self, value: Any, place: str) -> JsonSource:
        return JsonSource(_NO_NODE, self.path, value, self.place + place)

    @property
    def _found(self) -> str:
        if self.is_empty:
            return "nothing"
        return "a list" if self.is_list else "keys" if self.is_mapping else repr(self.value)


def load_json(path: Path) -> Source:
    """The document in a file. UsageError names the file."""
    data = read_saved(path)
    try:
        return JsonSource(_NO_NODE, str(path), msgspec.json.decode(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from None
