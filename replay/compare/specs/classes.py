"""`--priority`: classes of data, their share of the links and their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....analyzer.errors import UsageError
from ....analyzer.key_values import parse_options
from ....analyzer.units import parse_size
from ...packets.model.classes import MOST_CLASSES, TrafficClass
from .values import ratio, whole
from .words import NO, YES

KEYS = ("weight", "lossless", "alpha", "xoff")


def parse_classes(texts: Sequence[str]) -> tuple[TrafficClass, ...]:
    """`data:weight=70` and `background:weight=30,lossless=no,alpha=1/16`; one class without any.
    UsageError names the class and the key."""
    if len(texts) > MOST_CLASSES:
        raise UsageError(f"--priority: give at most {MOST_CLASSES} classes, not {len(texts)}")
    classes = tuple(map(_class, texts)) or (TrafficClass(),)
    names = [one.name for one in classes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--priority: there are two classes {name}")
    return classes


def _class(text: str) -> TrafficClass:
    name, _, rest = text.partition(":")
    values: dict[str, Any] = {"name": name}
    for key, value in parse_options(rest, f"--priority {name}").items():
        where = f"--priority {name}: {key}"
        if key == "weight":
            values[key] = whole(value, where)
        elif key == "lossless":
            if value not in (YES, NO):
                raise UsageError(f"{where}={value}: use {YES} or {NO}")
            values[key] = value == YES
        elif key == "alpha":
            values[key] = ratio(value, where)
        elif key == "xoff":
            values["xoff_bytes"] = 0 if value == "0" else parse_size(value, where)
        else:
            raise UsageError(f"--priority has no {key!r}; it has {', '.join(KEYS)}")
    try:
        return TrafficClass(**values)
    except UsageError as error:
        raise UsageError(f"--priority: {str(error).replace('xoff_bytes', 'xoff')}") from None
